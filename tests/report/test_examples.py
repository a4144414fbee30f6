"""Examples: of each kind, explained, with their words marked."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import labelry
from labelry.data.dataset import Dataset
from labelry.data.labels import indicator
from labelry.report.examples import PER_KIND, Example, examples, marked, strong_features
from labelry.report.measures import Ranked, rank
from labelry.tagging.explanation import Explanation

WORDS = {f"l{i}": f"word{i} term{i}" for i in range(12)}


def dataset(n: int, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = [rng.choice(list(WORDS), rng.integers(0, 3), replace=False).tolist() for _ in range(n)]
    texts = [" ".join(WORDS[name] for name in row) or "nothing" for row in labels]
    Y, names = indicator(labels, list(WORDS))
    return Dataset(Y, texts=texts, label_names=names)


@pytest.fixture(scope="module")
def tagger() -> labelry.Tagger:
    return labelry.Tagger(quality="fast", n_jobs=1).fit(dataset(200))


def why(supporting: list, opposing: list) -> Explanation:
    return Explanation("x", 0.5, supporting, opposing, 0.0, 0.0, 0.0, {})


def kind_of(ranked: Ranked, row: int) -> str | None:
    true = set(ranked.truth.Y[[row]].indices.tolist())
    best = ranked.truth.labels[row, :5].tolist()
    if not true:
        return None
    return "right" if best[0] in true else "near miss" if true & set(best) else "wrong"


def test_there_are_rows_of_each_kind(tagger: labelry.Tagger) -> None:
    data = dataset(80, seed=1)
    texts = [*(data.texts or [])[40:], *(data.texts or [])[:40]]  # so that many are wrong
    shuffled = Dataset(data.Y, texts=texts, label_names=data.label_names)
    ranked = rank(tagger, shuffled)
    found = examples(tagger, shuffled, ranked, np.random.default_rng(0))
    for kind in ("right", "near miss", "wrong"):
        rows = [e.row for e in found if e.kind == kind]
        assert len(set(rows)) == PER_KIND
        assert all(kind_of(ranked, row) == kind for row in rows)
    again = examples(tagger, shuffled, ranked, np.random.default_rng(0))
    other = examples(tagger, shuffled, ranked, np.random.default_rng(1))
    assert [e.row for e in again] == [e.row for e in found] != [e.row for e in other]


def test_an_example_holds_what_is_true_what_is_said_and_why(tagger: labelry.Tagger) -> None:
    data = dataset(30, seed=2)
    ranked = rank(tagger, data)
    found: Example = examples(tagger, data, ranked, np.random.default_rng(0))[0]
    assert found.kind == "right"
    assert found.text == (data.texts or [])[found.row]
    assert found.true == data.Y[[found.row]].indices.tolist()
    labels, scores = tagger.topk_ids([found.text], 5)
    assert [label for label, _ in found.predicted] == labels[0].tolist()
    assert [score for _, score in found.predicted] == pytest.approx(scores[0].tolist())
    assert found.explanation is not None
    first = tagger.classes_[found.predicted[0][0]]
    assert found.explanation.label == first
    assert found.explanation.supporting[0][0] in WORDS[first].split()


def test_features_and_models_that_do_not_explain_themselves() -> None:
    X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    model = labelry.OneVsRest(n_jobs=1).fit(X, X)
    data = Dataset(csr_array(X), X=X)
    found = examples(model, data, rank(model, data), np.random.default_rng(0))
    assert [e.kind for e in found] == ["right"] * PER_KIND
    assert all(e.text is None and e.n_features == 1 and e.explanation is None for e in found)


def test_marks_are_stronger_for_stronger_words() -> None:
    found = marked("Big red cat, a cat", why([("cat", 3.0), ("red", 1.5), ("big", 0.1)], []))
    assert found == [
        ("Big ", ""),
        ("red", "for-2"),
        (" ", ""),
        ("cat", "for-3"),
        (", a ", ""),
        ("cat", "for-3"),
    ]


def test_a_pair_of_words_marks_both_where_they_stand_together() -> None:
    found = marked("red cat; cat red", why([("red cat", 1.0)], [("red", -0.1)]))
    assert found[0] == ("red", "for-3")
    assert found[2] == ("cat", "for-3")
    assert found[-1] == ("red", "against")
    assert "".join(part for part, _ in found) == "red cat; cat red"


@pytest.mark.parametrize("text", ["", "no word of it", "<b>&amp;</b>"])
def test_a_text_without_such_words_is_left_as_it_is(text: str) -> None:
    assert marked(text, why([("cat", 1.0)], [])) == ([(text, "")] if text else [])


def test_features_that_hardly_count_are_not_told() -> None:
    found = strong_features(why([("a", 2.0), ("b", 0.1)], [("c", -0.01), ("d", -1.0)]))
    assert found == ([("a", 2.0)], [("d", -1.0)])
    assert strong_features(why([], [])) == ([], [])
