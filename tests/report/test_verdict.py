"""What a report says in short, and what it tells to do next."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import labelry
from labelry.data.dataset import Dataset
from labelry.data.labels import indicator
from labelry.report.page import report_page
from labelry.report.subject import counted, of_100

WORDS = {"cat": "purrs", "dog": "barks", "bee": "buzzes", "cow": "moos", "hen": "clucks"}


def animals(n: int, names: dict[str, str] | None = None, seed: int = 0) -> Dataset:
    """Documents of a word or two, whose labels are animals, or other names of these."""
    rng = np.random.default_rng(seed)
    kinds = [rng.choice(list(WORDS), rng.integers(1, 3), False).tolist() for _ in range(n)]
    names = {kind: kind for kind in WORDS} | (names or {})
    labels = [[names[kind] for kind in row] for row in kinds]
    Y, label_names = indicator(labels, sorted(set(names.values())))
    texts = [" ".join(f"{kind} {WORDS[kind]}" for kind in row) for row in kinds]
    return Dataset(Y, texts=texts, label_names=label_names)


def parts(model: Any, dataset: Dataset) -> dict[str, str]:
    """The text of each section, by its id."""
    page = report_page(model, dataset, model_name="my model", data_name="test")
    found = {}
    for section in page.split("<section ")[1:]:
        name = re.search('id="([^"]+)"', section)
        text = html.unescape(re.sub("<[^>]+>", "", section.split("</section>")[0].split(">", 1)[1]))
        found[name[1] if name else ""] = text
    return found


@pytest.fixture(scope="module")
def tagger() -> labelry.Tagger:
    return labelry.Tagger(quality="fast", n_jobs=1).fit(animals(200))


def test_shares_are_told_as_numbers_of_100() -> None:
    said = [of_100(share) for share in (0.0, 0.01, 0.5, 1.4, 99.0, 99.6, 100.0)]
    few, many = "fewer than 1 of 100", "more than 99 of 100"
    assert said == ["0 of 100", few, few, "1 of 100", "99 of 100", many, "100 of 100"]
    assert counted(1, "row") == "1 row"


def test_the_verdict_is_beside_the_most_frequent_label(tagger: labelry.Tagger) -> None:
    test = animals(100, seed=1)
    first = test.Y.toarray()[:, int(np.argmax(tagger.label_counts_))].mean()
    said = parts(tagger, test)["headline"]
    assert "The first label is right for 100 of 100 documents." in said
    assert f"Always giving the most frequent label would be right for {100 * first:.0f} of" in said
    assert "Of the right labels, 100 of 100 are among the best five." in said
    assert "100 of 100 are found at least once" in said
    assert re.search(
        r"From the model's threshold of 50 % on, \d+ of 100 documents get a label", said
    )


def test_a_model_that_is_no_better_is_called_so(tagger: labelry.Tagger) -> None:
    mixed = animals(100, seed=1)
    rng = np.random.default_rng(0)
    shuffled = Dataset(
        mixed.Y[rng.permutation(100)], texts=mixed.texts, label_names=mixed.label_names
    )
    assert "this model is not clearly better than that" in parts(tagger, shuffled)["headline"]


def test_documents_without_a_known_word_are_counted_and_confused_with_nothing(
    tagger: labelry.Tagger,
) -> None:
    test = animals(50, seed=1)
    unknown = Dataset(test.Y, texts=["zzzz"] * 10 + test.texts[10:], label_names=test.label_names)
    said = parts(tagger, unknown)
    assert (
        "10 documents (20 of 100) without a word that the model knows get no label."
        in said["headline"]
    )
    assert "20 of 100 documents have no word that the model knows" in said["next"]
    assert "confusion" not in said


def test_labels_that_the_model_never_saw(tagger: labelry.Tagger) -> None:
    some = animals(100, {"cat": "tiger"}, seed=1)
    said = parts(tagger, some)
    assert re.search(r"1 label \(\d+ of 100 occurrences\) never seen in training", said["headline"])
    assert "The most frequent such label is tiger" in said["next"]
    assert "documents that have these labels" in said["next"]
    other = animals(100, {kind: f"the {kind}" for kind in WORDS}, seed=1)
    said = parts(tagger, other)
    assert "labelry report 'my model' TEST --label-separator ';'" in said["next"]


def test_labels_that_look_unsplit_or_alike() -> None:
    data = animals(200, {"cat": "cat;tom", "dog": "dog;cur", "bee": "Hen"})
    said = parts(labelry.Tagger(quality="fast", n_jobs=1).fit(data), data)["next"]
    assert "2 labels of 5 hold “;”, such as cat;tom" in said
    assert "labelry train TRAIN --label-separator ';' --out 'my model'" in said
    assert re.search(
        r"1 group of labels have nearly the same name: Hen \(\d+\) and hen \(\d+\)", said
    )


def test_another_threshold_is_recommended_where_it_is_better() -> None:
    # Words say nothing of labels: probabilities are low, and nothing is above the threshold.
    rng = np.random.default_rng(0)
    Y = csr_array((rng.random((300, 4)) < [0.4, 0.1, 0.05, 0.05]).astype(np.float32))
    texts = [" ".join(rng.choice(list("abcdefgh"), 4)) for _ in range(300)]
    model = labelry.Tagger(quality="fast", n_jobs=1).fit(Dataset(Y, texts=texts))
    said = parts(model, Dataset(Y, texts=texts))["next"]
    found = re.search(r"Lower the threshold from 50 % to (\d+) %: then .*--threshold (\S+)", said)
    assert found
    assert float(found[1]) == pytest.approx(100 * float(found[2].split("T")[0]))


def test_a_model_of_another_system_is_compared() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5)).astype(np.float32)
    model = labelry.OneVsRest(n_jobs=1).fit(X, rng.integers(0, 4, 80))
    said = parts(model, Dataset(csr_array(np.eye(4)[rng.integers(0, 4, 80)]), X=X))["next"]
    assert "labelry compare TRAIN TEST --systems one-vs-rest,blend" in said
