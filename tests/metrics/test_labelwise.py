"""F1 and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import f1_score

from labelry.metrics import (
    coverage_at_k,
    keep_above,
    macro_f1,
    macro_f1_at_k,
    micro_f1,
    micro_f1_at_k,
)

# True: {0, 1}, {1}, {3}. Predicted in first place 0, 0, 3; in second 2, 1, none.
Y = csr_array(np.array([[1, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]))
LABELS = np.array([[0, 2], [0, 1], [3, -1]])


def indicator(labels, shape):
    dense = np.zeros(shape, dtype=int)
    rows, places = np.nonzero(labels >= 0)
    dense[rows, labels[rows, places]] = 1
    return dense


def test_micro_f1_by_hand():
    # At 1: 2 hits, 3 predicted, 4 true.  At 2: 3 hits, 5 predicted, 4 true.
    assert micro_f1_at_k(Y, LABELS, 1) == pytest.approx(2 * 2 / (3 + 4))
    assert micro_f1_at_k(Y, LABELS, 2) == pytest.approx(2 * 3 / (5 + 4))


def test_macro_f1_by_hand():
    # At 2, labels 0 to 4: 2*1/(2+1), 2*1/(1+2), 0/(1+0), 2*1/(1+1), and 0 for the absent one.
    assert macro_f1_at_k(Y, LABELS, 2) == pytest.approx((2 / 3 + 2 / 3 + 0 + 1 + 0) / 5)


def test_coverage_by_hand():
    # Labels 0, 1 and 3 are true somewhere; found at 1: 0 and 3; at 2: all.
    assert coverage_at_k(Y, LABELS, 1) == pytest.approx(2 / 3)
    assert coverage_at_k(Y, LABELS, 2) == 1


@pytest.mark.parametrize("k", [1, 3, 6])
def test_f1_at_k_agrees_with_scikit_learn(data, k):
    truth = data.Y.toarray().astype(int)
    predicted = indicator(data.labels[:, :k], truth.shape)
    assert micro_f1_at_k(data.Y, data.labels, k) == pytest.approx(
        f1_score(truth, predicted, average="micro")
    )
    assert macro_f1_at_k(data.Y, data.labels, k) == pytest.approx(
        f1_score(truth, predicted, average="macro", zero_division=0)
    )


@pytest.mark.parametrize("threshold", [0.2, 0.45, 2.0])
def test_f1_at_threshold_agrees_with_scikit_learn(data, threshold):
    truth, predicted = data.Y.toarray().astype(int), (data.scores >= threshold).astype(int)
    scores = csr_array(data.scores)
    for average, f1 in (("micro", micro_f1), ("macro", macro_f1)):
        expected = f1_score(truth, predicted, average=average, zero_division=0)
        assert f1(data.Y, scores, threshold) == pytest.approx(expected)
    assert scores.nnz == np.count_nonzero(data.scores)


def test_f1_of_an_indicator_needs_no_threshold():
    predicted = csr_array(indicator(LABELS, Y.shape))
    assert micro_f1(Y, predicted) == pytest.approx(micro_f1_at_k(Y, LABELS, 2))
    assert macro_f1(Y, predicted) == pytest.approx(macro_f1_at_k(Y, LABELS, 2))


def test_threshold_on_top_k_scores_equals_threshold_on_sparse_scores(data):
    every = np.argsort(-data.scores, axis=1)
    top_scores = np.take_along_axis(data.scores, every, axis=1)
    kept = keep_above(every, top_scores, 0.45)
    assert micro_f1_at_k(data.Y, kept, 40) == micro_f1(data.Y, csr_array(data.scores), 0.45)


def test_a_score_at_the_threshold_is_a_prediction():
    truth = csr_array([[1, 1, 0]])
    # Predicted {0, 1}: two hits, two predicted, two true.
    assert micro_f1(truth, csr_array([[0.5, 0.75, 0.25]]), 0.5) == 1
    np.testing.assert_array_equal(keep_above([[1, 0, 2]], [[0.75, 0.5, 0.25]], 0.5), [[1, 0, -1]])


def test_labels_that_only_the_test_has_count_as_missed():
    truth = csr_array([[1.0, 1.0]])
    assert coverage_at_k(truth, [[0]], 1) == 1 / 2
    assert macro_f1_at_k(truth, [[0]], 1) == 1 / 2
    assert micro_f1_at_k(truth, [[0]], 1) == pytest.approx(2 / 3)


def test_nothing_true_and_nothing_predicted_is_nan():
    truth, labels = csr_array((2, 3)), np.full((2, 1), -1)
    assert math.isnan(micro_f1_at_k(truth, labels, 1))
    assert math.isnan(coverage_at_k(truth, labels, 1))
    assert macro_f1_at_k(truth, labels, 1) == 0


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"shape of Y, \(3, 5\); got \(3, 4\)"):
        micro_f1(Y, csr_array((3, 4)))
    with pytest.raises(ValueError, match=r"shape of labels, \(3, 2\); got shape \(3, 1\)"):
        keep_above(LABELS, np.ones((3, 1)), 0.5)
    with pytest.raises(ValueError, match=r"k must be between 1 and 2, .*; got 3"):
        coverage_at_k(Y, LABELS, 3)
