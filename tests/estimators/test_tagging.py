"""The tagger inside scikit-learn: folds of lists, and scorers that ask for probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import is_classifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from labelry import Tagger
from labelry.errors import MemoryBudgetError

N, N_LABELS = 240, 8
WORDS = np.array([f"word{i}" for i in range(5 * N_LABELS)]).reshape(N_LABELS, 5)
RNG = np.random.default_rng(0)
CLASSES = RNG.integers(N_LABELS, size=N)
TEXTS = [" ".join(RNG.choice(WORDS[c], 3)) for c in CLASSES]
LISTS = [[f"label{c}", f"group{c % 3}"] for c in CLASSES]
INDICATOR = np.eye(N_LABELS, dtype=int)[CLASSES] | np.eye(N_LABELS, dtype=int)[CLASSES // 2]


@pytest.fixture(params=["fast", "balanced"])
def tagger(request: pytest.FixtureRequest) -> Tagger:
    return Tagger(quality=request.param, n_jobs=1)


def test_lists_of_labels_with_a_whole_number_of_folds(tagger: Tagger) -> None:
    assert_array_equal(cross_val_score(tagger, TEXTS, LISTS, cv=3), 1.0)
    assert cross_val_score(tagger.fit(TEXTS, LISTS), TEXTS, LISTS, cv=2).min() == 1.0
    search = GridSearchCV(tagger, {"objective": ["precision", "f1"]}, cv=2).fit(TEXTS, LISTS)
    assert search.best_score_ == 1.0


@pytest.mark.parametrize(
    ("y", "scoring", "least"),
    [
        (CLASSES, "roc_auc_ovr", 0.99),
        (CLASSES, "neg_log_loss", -0.3),
        (CLASSES, "top_k_accuracy", 1.0),
        (CLASSES % 2, "roc_auc", 0.99),
        (INDICATOR, "roc_auc", 0.99),
        (INDICATOR, "average_precision", 0.99),
        (INDICATOR[:, :2], "average_precision", 0.99),
    ],
)
def test_scorers_that_ask_for_probabilities(tagger: Tagger, y, scoring: str, least: float) -> None:
    assert cross_val_score(tagger, TEXTS, y, cv=2, scoring=scoring).min() >= least


@pytest.mark.parametrize("y", [CLASSES, INDICATOR, LISTS])
def test_probabilities_of_all_labels_are_those_of_the_best(tagger: Tagger, y) -> None:
    tagger.fit(TEXTS, y)
    P = tagger.predict_proba(TEXTS[:20])
    assert P.shape == (20, len(tagger.classes_))
    ids, scores = tagger.topk_ids(TEXTS[:20], 1)
    best = np.take_along_axis(P, ids, axis=1)
    assert_array_equal(ids[:, 0], P.argmax(axis=1))
    if y is CLASSES:
        assert_allclose(P.sum(axis=1), 1, atol=1e-6)
        assert is_classifier(tagger)
    else:
        assert_array_equal(best, scores)


def test_blocks_of_rows_do_not_matter(tagger: Tagger, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tagger.fit(TEXTS, LISTS).predict_proba(TEXTS)
    monkeypatch.setattr("labelry.estimators.tagging._BLOCK_SCORES", 100)
    assert_allclose(tagger.predict_proba(TEXTS), expected, atol=1e-6)


def test_probabilities_that_do_not_fit_into_memory_are_refused(
    tagger: Tagger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagger.fit(TEXTS, CLASSES)
    monkeypatch.setattr("labelry.memory.available", lambda: 1000)
    with pytest.raises(MemoryBudgetError, match=r"of 240 rows and 8 labels needs .*predict_topk"):
        tagger.predict_proba(TEXTS)


def test_folds_of_sorted_rows_are_warned_of(tagger: Tagger) -> None:
    order = np.argsort(CLASSES)
    texts, y = [TEXTS[i] for i in order], CLASSES[order]
    with pytest.warns(UserWarning, match=r"knows no label of \d+ of the 80 rows.*shuffle=True"):
        cross_val_score(tagger, texts, y, cv=3)
    shuffled = KFold(3, shuffle=True, random_state=0)
    assert cross_val_score(tagger, texts, y, cv=shuffled).min() == 1.0


def test_a_document_without_a_known_word_has_no_probable_label(tagger: Tagger) -> None:
    tagger.fit(TEXTS, LISTS)
    assert tagger.predict(["zzzz", TEXTS[0]])[0] == []
    assert not tagger.predict_proba(["zzzz"]).any()
    assert_allclose(tagger.fit(TEXTS, CLASSES).predict_proba(["zzzz"]), 1 / N_LABELS)
