"""Precision, recall, nDCG and their propensity-scored forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, csr_matrix
from sklearn.metrics import ndcg_score

from labelry.metrics import (
    error_rate,
    frequency_bins,
    inverse_propensity,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)

# True labels: {0, 2, 4}, {1}, {}. Hits in place: 1 and 3; 2; none.
Y = csr_array(np.array([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=np.float32))
LABELS = np.array([[0, 1, 2], [3, 1, -1], [4, 3, 2]])
D2, D3 = 1 / math.log2(3), 1 / math.log2(4)  # discounts of places 2 and 3; that of 1 is 1


@pytest.mark.parametrize(
    ("k", "expected"),
    [(1, (1 + 0 + 0) / 3), (2, (1 / 2 + 1 / 2 + 0) / 3), (3, (2 / 3 + 1 / 3 + 0) / 3)],
)
def test_precision_divides_by_k_and_counts_rows_without_labels(k, expected):
    assert precision_at_k(Y, LABELS, k) == pytest.approx(expected)


def test_recall_by_hand():
    # Of three labels, found one at 1 and two at 3; of one label, none at 1 and one at 3.
    assert recall_at_k(Y, LABELS, 1) == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert recall_at_k(Y, LABELS, 3) == pytest.approx((2 / 3 + 1 / 1 + 0) / 3)


def test_ndcg_by_hand():
    # The ideal of row 0 is 1 + D2 + D3 at 3; that of row 1, with one label, is always 1.
    assert ndcg_at_k(Y, LABELS, 1) == pytest.approx((1 + 0 + 0) / 3)
    assert ndcg_at_k(Y, LABELS, 2) == pytest.approx((1 / (1 + D2) + D2 + 0) / 3)
    assert ndcg_at_k(Y, LABELS, 3) == pytest.approx(((1 + D3) / (1 + D2 + D3) + D2 + 0) / 3)


def test_error_rate_is_the_share_of_wrong_first_predictions():
    assert error_rate(Y, LABELS) == pytest.approx(2 / 3)


def test_propensity_scored_precision_by_hand():
    weights = np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    # At 1: hits 2 + 0; best 11 + 3.  At 2: (2 + 3) / 2 over (11 + 5 + 3) / 2.
    assert psp_at_k(Y, LABELS, 1, weights) == pytest.approx(2 / 14)
    assert psp_at_k(Y, LABELS, 2, weights) == pytest.approx(5 / 19)
    assert psp_at_k(Y, LABELS, 3, weights) == pytest.approx((2 + 5 + 3) / (11 + 5 + 2 + 3))


def test_propensity_scored_ndcg_by_hand():
    weights = np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    # At 2, row 0 is over 1 + D2, both as predicted and at best; row 1 over 1.
    found = 2 / (1 + D2) + 3 * D2
    best = (11 + 5 * D2) / (1 + D2) + 3
    assert psndcg_at_k(Y, LABELS, 2, weights) == pytest.approx(found / best)


def test_inverse_propensity_by_hand():
    # C = (ln 100 - 1) (1.5 + 1)^0.55; weight = 1 + C (N + 1.5)^-0.55
    c = (math.log(100) - 1) * 2.5**0.55
    expected = [1 + c * 1.5**-0.55, 1 + c * 11.5**-0.55, 1 + c * 1.5**-0.55]
    np.testing.assert_allclose(inverse_propensity([0, 10], 100, n_labels=3), expected)


def test_inverse_propensity_takes_other_constants():
    c = (math.log(100) - 1) * 1.4**0.5
    np.testing.assert_allclose(inverse_propensity([3], 100, a=0.5, b=0.4), [1 + c * 3.4**-0.5])


def test_propensities_of_a_tiny_training_set_do_not_exceed_one():
    np.testing.assert_array_equal(inverse_propensity([0, 1], n_train=1), [1, 1])


def test_perfect_ranking_is_one_and_reversed_truth_is_zero(data):
    weights = inverse_propensity(data.train_counts, 1000)
    rows = np.flatnonzero(np.diff(data.Y.indptr) >= 5)
    truth = data.Y[rows]
    dense = truth.toarray()
    perfect = np.argsort(-dense * weights, axis=1)[:, :5]  # true labels by falling weight
    wrong = np.argsort(dense, axis=1)[:, :5]
    for k in (1, 3, 5):
        for labels, expected in ((perfect, 1.0), (wrong, 0.0)):
            assert precision_at_k(truth, labels, k) == pytest.approx(expected)
            assert ndcg_at_k(truth, labels, k) == pytest.approx(expected)
            assert psp_at_k(truth, labels, k, weights) == pytest.approx(expected)
            assert psndcg_at_k(truth, labels, k, weights) == pytest.approx(expected)


def test_all_labels_predicted_is_full_recall(data):
    rows = np.flatnonzero(np.diff(data.Y.indptr))
    labels = np.tile(np.arange(40), (len(rows), 1))
    assert recall_at_k(data.Y[rows], labels, 40) == pytest.approx(1.0)


def test_order_of_rows_does_not_matter(data):
    order = np.random.default_rng(3).permutation(60)
    weights = inverse_propensity(data.train_counts, 1000)
    shuffled, labels = data.Y[order], data.labels[order]
    assert ndcg_at_k(shuffled, labels, 5) == pytest.approx(ndcg_at_k(data.Y, data.labels, 5))
    assert psndcg_at_k(shuffled, labels, 5, weights) == pytest.approx(
        psndcg_at_k(data.Y, data.labels, 5, weights)
    )


def test_equal_propensities_give_precision_over_the_best_precision(data):
    best = np.minimum(np.diff(data.Y.indptr), 3).sum() / (3 * 60)
    assert psp_at_k(data.Y, data.labels, 3, np.full(40, 2.5)) == pytest.approx(
        precision_at_k(data.Y, data.labels, 3) / best
    )


@pytest.mark.parametrize("k", [1, 3, 6])
def test_ndcg_agrees_with_scikit_learn(data, k):
    rows = np.flatnonzero(np.diff(data.Y.indptr))
    truth, scores = data.Y[rows].toarray(), data.scores[rows]
    labels = np.argsort(-scores, axis=1)[:, :k]
    expected = ndcg_score(truth, scores, k=k, ignore_ties=True)
    assert ndcg_at_k(data.Y[rows], labels, k) == pytest.approx(expected)


def test_labels_that_only_the_test_has_lower_recall_and_propensity_scores():
    # One row, true labels 0 and 1; training knew label 0 alone.
    truth, labels = csr_array([[1.0, 1.0]]), np.array([[0, -1]])
    weights = inverse_propensity([4], 50, n_labels=2)
    assert recall_at_k(truth, labels, 2) == pytest.approx(1 / 2)
    assert psp_at_k(truth, labels, 2, weights) == pytest.approx(weights[0] / weights.sum())
    assert psp_at_k(truth, labels, 1, weights) == pytest.approx(weights[0] / weights[1])


@pytest.mark.parametrize("kind", [csr_matrix, coo_array, lambda m: m.toarray()])
def test_any_matrix_will_do(kind):
    assert precision_at_k(kind(Y), LABELS, 3) == pytest.approx(1 / 3)


def test_explicit_zeros_duplicates_and_unsorted_entries_are_understood_and_left_alone():
    data, indices = np.array([1.0, 0.0, 1.0, 1.0]), np.array([2, 1, 0, 0])
    truth = csr_array((data, indices, np.array([0, 4])), shape=(1, 3))
    assert precision_at_k(truth, [[0, 1, 2]], 3) == pytest.approx(2 / 3)
    assert recall_at_k(truth, [[0, 1, 2]], 1) == pytest.approx(1 / 2)
    np.testing.assert_array_equal(truth.indices, [2, 1, 0, 0])
    np.testing.assert_array_equal(truth.data, [1, 0, 1, 1])


def test_an_explicit_zero_in_a_sorted_matrix_is_not_true():
    truth = csr_array((np.array([0.0, 1.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 3))
    assert precision_at_k(truth, [[0]], 1) == 0
    assert recall_at_k(truth, [[2]], 1) == 1


def test_no_rows_is_nan_and_no_true_label_is_zero_precision():
    assert math.isnan(precision_at_k(csr_array((0, 4)), np.zeros((0, 2), dtype=int), 1))
    empty, labels = csr_array((2, 4)), np.array([[0, 1], [2, -1]])
    assert precision_at_k(empty, labels, 2) == 0
    assert recall_at_k(empty, labels, 2) == 0
    assert ndcg_at_k(empty, labels, 2) == 0
    assert math.isnan(psp_at_k(empty, labels, 2, np.ones(4)))


def test_frequency_bins_by_limits():
    np.testing.assert_array_equal(frequency_bins([0, 2, 3, 9, 10], (2, 9)), [0, 0, 1, 1, 2])
    np.testing.assert_array_equal(frequency_bins([99], n_labels=3), [2, 0, 0])


@pytest.mark.parametrize(
    ("labels", "k", "message"),
    [
        (LABELS, 4, r"k must be between 1 and 3, .*; got 4"),
        (LABELS, 0, r"k must be between 1 and 3, .*; got 0"),
        (LABELS[:2], 1, r"labels must have shape \(3, k\).*; got shape \(2, 3\)"),
        (LABELS[:, 0], 1, r"labels must have shape \(3, k\).*; got shape \(3,\)"),
        (LABELS.astype(float), 1, "labels must be integers; got dtype float64"),
        (LABELS + 1, 1, "labels must be between -1 and 4; got 5"),
        (LABELS - 1, 1, "labels must be between -1 and 4; got -2"),
        ([[0, 1, 0], [-1, -1, -1], [1, 2, 3]], 1, "got label 0 more than once in row 0"),
    ],
)
def test_bad_predictions_are_refused(labels, k, message):
    with pytest.raises(ValueError, match=message):
        precision_at_k(Y, labels, k)


def test_other_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"weights must have shape \(5,\).*; got shape \(4,\)"):
        psp_at_k(Y, LABELS, 1, np.ones(4))
    with pytest.raises(ValueError, match="at most 2 entries, the number of labels; got 3"):
        inverse_propensity([1, 2, 3], 10, n_labels=2)
    with pytest.raises(ValueError, match="n_train must be at least 1; got 0"):
        inverse_propensity([1], 0)
    with pytest.raises(ValueError, match=r"0 or more.* with minimum -1"):
        inverse_propensity([3, -1], 10)
    with pytest.raises(ValueError, match=r"two ascending numbers.*; got \(5, 5\)"):
        frequency_bins([1], (5, 5))
    with pytest.raises(ValueError, match=r"at least one label; got \(3, 0\)"):
        precision_at_k(np.zeros((3, 0)), LABELS, 1)
