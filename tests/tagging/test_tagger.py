"""The tagger: qualities, names, objectives, budgets, explanations, further labels, odd data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

import labelry
from labelry.data.dataset import Dataset
from labelry.data.labels import encode_labels, indicator
from labelry.estimators.tagging import Tagger
from labelry.linalg.matrices import scaled_rows
from labelry.metrics import expected_calibration_error
from labelry.ranking.ranker import Explains, Grows, HasLabelVectors, supports
from labelry.tagging import tagger as module
from labelry.tagging.blend import BlendModel
from labelry.tagging.calibrated_trees import CalibratedTrees
from labelry.tagging.new_labels import with_names
from labelry.tagging.tagger import QUALITIES
from labelry.tagging.time_budget import Choice

N_LABELS = 12
LABELS = [f"L{y:02d}" for y in range(N_LABELS)]
NAMES = {label: f"word{y}a word{y}b" for y, label in enumerate(LABELS)}


def documents(
    n: int = 400, seed: int = 0, forgotten: float = 0.0
) -> tuple[list[str], list[list[str]]]:
    """Texts with one or two labels, a share of them forgotten; a label has words of its own."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        own = sorted(rng.choice(N_LABELS, size=rng.integers(1, 3), replace=False).tolist())
        words = [f"word{y}{letter}" for y in own for letter in rng.choice(list("abc"), 2)]
        words += [f"filler{w}" for w in rng.integers(0, 20, 4)]
        texts.append(" ".join(rng.permutation(words)))
        labels.append([LABELS[y] for y in own if rng.random() >= forgotten])
    return texts, labels


@pytest.fixture(scope="module", params=QUALITIES)
def tagger(request: pytest.FixtureRequest) -> Tagger:
    return Tagger(quality=request.param, n_jobs=1).fit(*documents())


def test_tags_new_texts(tagger: Tagger) -> None:
    texts, labels = documents(seed=1)
    assert tagger.score(texts, labels) > 0.95
    fast = tagger.quality == "fast"
    assert type(tagger.fitted_) is (CalibratedTrees if fast else BlendModel)
    assert supports(tagger, Grows) == (not fast)
    assert supports(tagger, Explains)
    assert supports(tagger, HasLabelVectors)
    assert tagger.chosen_ == Choice(tagger.quality, 400, {})
    pairs = any(" " in word for word in tagger.text_features_.vocabulary_)
    assert pairs == (tagger.quality != "fast")


def of_groups(n_groups: int, seed: int) -> tuple[csr_array, np.ndarray, np.ndarray]:
    """Rows, the label that all of a group have, and the groups.

    The words of a group mean nothing in another; one of each row means its label, every other time.
    """
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), 8)
    y = rng.integers(0, 6, n_groups)[groups]
    hint = np.where(rng.random(len(y)) < 0.5, y, rng.integers(0, 6, len(y)))
    words = rng.integers(6, 56, (n_groups, 4))[groups]
    noise = rng.integers(56, 256, (len(y), 3))
    X = np.zeros((len(y), 256), dtype=np.float32)
    np.put_along_axis(X, np.column_stack([hint, words, noise]), 1, axis=1)
    return csr_array(X), y, groups


@pytest.mark.parametrize("quality", QUALITIES)
def test_what_is_given_as_groups_is_held_out_together(quality: str) -> None:
    X, y, groups = of_groups(150, seed=0)
    new, new_y, _ = of_groups(150, seed=1)

    def measured(groups: np.ndarray | None) -> tuple[float, float]:
        tagger = Tagger(quality=quality, n_jobs=1).fit(X, y, groups=groups)
        labels, scores = tagger.predict_topk(new, 1)
        right = float((labels[:, 0] == new_y).mean())
        return right, float(scores.mean()) - right

    alone, too_sure = measured(None)
    assert too_sure > 0.2
    right, too_sure = measured(np.array([f"group {g}" for g in groups]))
    assert too_sure < 0.1
    assert right > alone - 0.02
    if quality != "fast":  # the re-ranker relies less on what is only right within a group
        assert right > alone + 0.2


@pytest.mark.parametrize("quality", QUALITIES)
def test_groups_few_odd_and_wrong(quality: str) -> None:
    X, y, _ = of_groups(150, seed=0)
    tagger = Tagger(quality=quality, n_jobs=1)
    few = np.repeat(np.arange(6), 200)
    assert tagger.fit(X, y, groups=few).probabilities
    with pytest.raises(ValueError, match=r"groups must have the shape \(1200,\); got \(2,\)"):
        tagger.fit(X, y, groups=[0, 1])
    with pytest.raises(ValueError, match="the smallest group has 1,200"):
        tagger.fit(X, y, groups=np.zeros(1200))
    with pytest.warns(UserWarning, match="are given up"):
        fitted = Tagger(quality=quality, n_jobs=1, budget=1e-3).fit(X, y, groups=few)
    assert fitted.chosen_.n_rows < 1200


def test_predict_takes_k_a_threshold_both_or_neither(tagger: Tagger) -> None:
    texts, labels = documents(n=100, seed=1)
    best = tagger.predict(texts, k=3)
    names, scores = tagger.predict_topk(texts, k=3)
    assert [[label for label, _ in row] for row in best] == names.tolist()
    assert_allclose([[p for _, p in row] for row in best], scores)
    by_threshold = tagger.predict(texts, threshold=0.2)
    assert all(p >= 0.2 for row in by_threshold for _, p in row)
    both = tagger.predict(texts, k=1, threshold=0.2)
    assert both == [row[:1] for row in by_threshold]
    own = tagger.predict(texts)
    assert own == tagger.predict(texts, threshold=tagger.threshold)
    right = [
        {label for label, _ in row} == set(true) for row, true in zip(own, labels, strict=True)
    ]
    assert np.mean(right) > 0.8


def test_scores_of_the_fast_tagger_are_probabilities() -> None:
    tagger = Tagger(quality="fast", n_jobs=1).fit(*documents(n=1000, forgotten=0.3))
    texts, labels = documents(n=1000, seed=2, forgotten=0.3)
    assert tagger.probabilities
    ids, scores = tagger.topk_ids(texts, 5)
    Y, _ = indicator(labels, tagger.classes_.tolist())
    assert expected_calibration_error(Y, ids, scores) < 0.04
    dataset = Dataset(Y, texts=texts, label_names=LABELS)
    assert labelry.evaluate(tagger, dataset)["ECE"] < 4


def test_a_saved_tagger_is_the_same(tagger: Tagger, tmp_path: Path) -> None:
    texts, _ = documents(n=50, seed=1)
    tagger.save(tmp_path / "m.labelry")
    loaded = labelry.load(tmp_path / "m.labelry")
    assert type(loaded) is Tagger
    assert loaded.chosen_ == tagger.chosen_
    assert loaded.predict(texts) == tagger.predict(texts)
    assert loaded.explain(texts[0], LABELS[0]) == tagger.explain(texts[0], LABELS[0])


def test_contributions_add_up_to_the_margins(tagger: Tagger) -> None:
    texts, _ = documents(n=5, seed=1)
    fitted = tagger.fitted_
    trees = fitted.trees if tagger.quality == "fast" else fitted.retrievers.trees
    for text in texts:
        x = scaled_rows(tagger.text_features_.transform([text])).toarray()[0]
        for y in (0, 5):
            _, weights, bias = trees.path_weights(y)
            margin = (weights @ x + bias).sum() / len(trees.roots)
            for n in (0, 1, 100):
                found = tagger.explain(text, LABELS[y], n)
                listed = [value for _, value in found.supporting + found.opposing]
                assert len(found.supporting) <= n
                assert_allclose(found.margin, margin, rtol=1e-4, atol=1e-5)
                assert_allclose(found.bias + sum(listed) + found.rest, margin, rtol=1e-4, atol=1e-5)
            assert_allclose(found.rest, 0, atol=1e-6)


def test_an_explanation_names_the_words_of_the_label(tagger: Tagger) -> None:
    found = tagger.explain("word3a word3b filler1 word7c", "L03")
    assert {word for word, _ in found.supporting[:2]} == {"word3a", "word3b"}
    assert tagger.explain("word3a word3b filler1 word7c", "L07").supporting[0][0] == "word7c"
    values = [value for _, value in found.supporting]
    assert values == sorted(values, reverse=True)
    assert found.opposing == sorted(found.opposing, key=lambda pair: pair[1])
    predicted = dict(tagger.predict(["word3a word3b filler1 word7c"], k=12)[0])
    assert found.probability == pytest.approx(predicted["L03"])
    assert ("tree" in found.scores) == (tagger.quality != "fast")
    with pytest.raises(ValueError, match="one of the 12 labels of the model, got 'L99'"):
        tagger.explain("word", "L99")


def test_explains_rows_of_features() -> None:
    X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    tagger = Tagger(quality="fast").fit(X, ["a", "a", "b", "b", "c", "c", "d", "d"])
    for row in (X[0], X[:1], csr_array(X[:1])):
        assert tagger.explain(row, "a").supporting[0][0] == 0
        assert tagger.explain(row, "b").opposing[0][0] == 0
    with pytest.raises(ValueError, match="row must be one row, got 2"):
        tagger.explain(X[:2], "a")


@pytest.fixture(scope="module")
def named() -> Tagger:
    """Fitted without any row of L00, but with its name."""
    texts, labels = documents()
    kept = [i for i, own in enumerate(labels) if "L00" not in own]
    rows = [texts[i] for i in kept], [labels[i] for i in kept]
    return Tagger(n_jobs=1).fit(*rows, names=NAMES)


def test_a_label_without_rows_is_predicted_by_its_name(named: Tagger, tmp_path: Path) -> None:
    assert set(named.classes_) == set(LABELS)
    assert named.names_[named.classes_.tolist().index("L03")] == NAMES["L03"]
    assert named.label_counts_[named.classes_.tolist().index("L00")] == 0
    (best,) = named.predict(["word0a word0b filler3"], k=1)
    assert best[0][0] == "L00"
    assert named.explain("word0a word0b", "L00").scores["names"] > 0.5
    named.save(tmp_path / "m")
    assert labelry.load(tmp_path / "m").names_.tolist() == named.names_.tolist()


def test_further_labels_and_rows() -> None:
    texts, labels = documents(n=200)
    tagger = Tagger(n_jobs=1).fit(
        [*texts, "zebra", "zebra stripes"], [*labels, [], []], names=NAMES
    )
    tagger.add_labels({"Z": "zebra stripes"})
    assert tagger.predict(["zebra stripes"], k=1)[0][0][0] == "Z"
    assert tagger.explain("zebra stripes", "Z").bias == 0.0  # the tree has never seen it
    before = tagger.n_rows_
    tagger.partial_fit(["zebra horse"] * 5, [["Q"]] * 5)
    assert tagger.n_rows_ == before + 5
    assert tagger.classes_.tolist()[-2:] == ["Z", "Q"]
    assert tagger.label_counts_.tolist()[-2:] == [0, 5]
    assert len(tagger.names_) == len(tagger.classes_) == 14
    found = {label for label, _ in tagger.predict(["zebra horse"], k=5)[0]}
    assert "Q" in found
    with pytest.raises(ValueError, match="has 'Z' already"):
        tagger.add_labels({"Z": "again"})


def test_what_a_tagger_cannot_take_in() -> None:
    texts, labels = documents(n=100)
    fast = Tagger(quality="fast").fit(texts, labels)
    with pytest.raises(ValueError, match=r"partial_fit needs quality balanced or best.* is fast"):
        fast.partial_fit(texts, labels)
    with pytest.raises(ValueError, match="add_labels needs quality balanced or best"):
        fast.add_labels({"Z": "zebra"})
    with pytest.raises(ValueError, match="names need quality balanced or best, got fast"):
        Tagger(quality="fast").fit(texts, labels, names=NAMES)
    with pytest.raises(ValueError, match="fitted with names"):
        Tagger().fit(texts, labels).add_labels({"Z": "zebra"})
    with pytest.raises(ValueError, match="names need texts"):
        Tagger().fit(np.eye(3), ["a", "b", "c"], names={"a": "first"})


def test_names_are_checked() -> None:
    labels = encode_labels([["a"], ["b"]])
    with pytest.raises(ValueError, match="labels such as 'a', got 3"):
        with_names(labels, {3: "three"})
    with pytest.raises(ValueError, match="that of 'a' is None"):
        with_names(labels, {"a": None})
    columns = encode_labels(np.eye(2, dtype=int))
    same, texts = with_names(columns, {1: "one"})
    assert same is columns
    assert texts.tolist() == ["", "one"]
    with pytest.raises(ValueError, match="from 0 to 1; got 2"):
        with_names(columns, {2: "two"})


@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_objectives(quality: str) -> None:
    texts, labels = documents(forgotten=0.2)
    common = [[*own, "common"] if i % 3 else own for i, own in enumerate(labels)]
    plain, weighted, f1 = (
        Tagger(quality=quality, objective=objective, n_jobs=1).fit(texts, common)
        for objective in ("precision", "propensity", "f1")
    )
    new, _ = documents(n=50, seed=1)
    assert plain.probabilities == plain.fitted_.probabilities
    assert not weighted.probabilities
    assert plain.threshold == 0.5
    assert 0 < f1.threshold < 0.5  # to miss a label costs more than to predict one too many
    assert_array_equal(f1.topk_ids(new, 5)[0], plain.topk_ids(new, 5)[0])
    counts = [t.label_counts_[t.topk_ids(new, 3)[0]].mean() for t in (plain, weighted)]
    assert counts[1] <= counts[0]  # rarer labels are moved up
    _, scores = weighted.topk_ids(new, 5)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_a_budget_steps_down_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = documents(n=60)

    def choose(qualities: tuple[str, ...], n_rows: int, deadline: float, fit: object) -> Choice:
        assert qualities == ("best", "balanced", "fast")
        fit("fast", 20)  # what is timed works
        return Choice("fast", 50, {"best": 300.0, "balanced": 90.0, "fast": 12.0})

    monkeypatch.setattr(module, "choose", choose)
    message = r"budget of 10 s .*: quality best for fast and 10 of 60 rows; .*balanced 90\.0 s"
    with pytest.warns(UserWarning, match=message):
        tagger = Tagger(quality="best", budget="10s").fit(texts, labels)
    with pytest.warns(UserWarning, match="quality best for fast and the names of labels and 10"):
        Tagger(quality="best", budget=10).fit(texts, labels, names=NAMES)
    assert tagger.chosen_.n_rows == 50
    assert tagger.fitted_.label_counts.sum() < tagger.label_counts_.sum()
    assert isinstance(tagger.fitted_, CalibratedTrees)


def test_a_large_budget_changes_nothing() -> None:
    texts, labels = documents(n=100)
    free, bound = (Tagger(budget=b, n_jobs=1).fit(texts, labels) for b in (None, "1h"))
    assert bound.chosen_.quality == "balanced"
    assert set(bound.chosen_.estimates) == {"fast", "balanced"}
    assert free.predict(texts) == bound.predict(texts)


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (["knee", "arm", "leg"], ["a", "a", "a"]),
        (["knee", "arm", "leg"], [["a", "b"]] * 3),
        (["knee", "arm", "leg"], [["a"], [], ["b"]]),
        (["", "arm", ""], [["a"], ["b"], []]),
        (["knee"], [["a"]]),
        (np.ones((1, 3)), ["a"]),
        (np.zeros((4, 2)), [["a"], ["b"], ["a"], []]),
        (csr_array(np.eye(3)), np.array([[1, 0], [1, 0], [1, 1]])),
    ],
)
def test_odd_data(quality: str, X: object, y: object, tmp_path: Path) -> None:
    tagger = Tagger(quality=quality, n_jobs=1).fit(X, y)
    found = tagger.predict(X, k=1)
    assert [len(row) for row in found] == tagger.known_words(X).astype(int).tolist()
    assert all(0 <= probability <= 1 for row in found for _, probability in row)
    tagger.save(tmp_path / "m")
    assert labelry.load(tmp_path / "m").predict(X, k=1) == found


def test_parameters_are_checked() -> None:
    rows = (["a b", "c d"], ["x", "y"])
    with pytest.raises(ValueError, match="quality must be one of fast, balanced, best; got 'good'"):
        Tagger(quality="good").fit(*rows)
    with pytest.raises(ValueError, match="objective must be one of"):
        Tagger(objective="recall").fit(*rows)
    with pytest.raises(ValueError, match=r"budget must be .*; got 'soon'"):
        Tagger(budget="soon").fit(*rows)


@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_same_seed_same_bytes(quality: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        Tagger(quality=quality, n_jobs=2).fit(*documents(n=120)).save(tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
