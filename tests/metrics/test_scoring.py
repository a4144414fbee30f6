"""Area under the ROC curve and calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from labelry.metrics import auc, expected_calibration_error
from labelry.metrics.scoring import _row_auc


def test_auc_by_hand():
    # Positives .5 and .2, negatives .5, .3, .1. Pairs won: .5 + 1 + 1 and 0 + 0 + 1.
    truth, scores = csr_array([[1, 0, 1, 0, 0]]), np.array([[0.5, 0.5, 0.2, 0.3, 0.1]])
    assert auc(truth, scores) == pytest.approx(3.5 / 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decimals", [1, 8])  # one decimal: many equal scores
def test_auc_agrees_with_scikit_learn_row_by_row(data, dtype, decimals):
    scores = np.round(data.scores, decimals).astype(dtype)
    truth = data.Y.toarray()
    rows = [i for i in range(60) if 0 < truth[i].sum() < 40]
    expected = np.mean([roc_auc_score(truth[i], scores[i]) for i in rows])
    assert len(rows) < 60
    assert auc(data.Y, scores) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_kernel_agrees_with_its_numpy_twin(data, dtype, index):
    scores = np.round(data.scores, 1).astype(dtype)
    truth = data.Y.toarray().astype(bool)
    n_true, n_false = truth.sum(axis=1), (~truth).sum(axis=1)
    pairs = np.where(n_true * n_false > 0, n_true * n_false, np.nan)
    rank_sums = (rankdata(scores, axis=1) * truth).sum(axis=1)
    expected = (rank_sums - n_true * (n_true + 1) / 2) / pairs
    found = _row_auc(data.Y.indptr.astype(index), data.Y.indices.astype(index), scores, 40)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_labels_without_score_come_last_and_equal():
    # Labels 2 and 3 are unknown to the model; 0 and 2 are true.
    # 0 beats 1 and 3; 2 loses to 1 and ties with 3: (1 + 1 + 0 + .5) / 4.
    truth = csr_array([[1, 0, 1, 0]])
    assert auc(truth, [[0.9, 0.1]]) == pytest.approx(2.5 / 4)
    assert auc(truth, [[0.9, 0.1, -math.inf, -math.inf]]) == pytest.approx(2.5 / 4)


def test_rows_without_pairs_are_left_out():
    truth = csr_array([[0, 0, 0], [1, 1, 1], [0, 1, 0]])
    scores = [[3.0, 2.0, 1.0]] * 3
    assert auc(truth, scores) == pytest.approx(1 / 2)
    assert math.isnan(auc(truth[:2], scores[:2]))
    assert math.isnan(auc(csr_array((0, 3)), np.zeros((0, 3))))


def test_auc_refuses_bad_scores():
    truth = csr_array([[1, 0, 1]])
    with pytest.raises(ValueError, match=r"shape \(1, c\) with c at most 3; got shape \(1, 4\)"):
        auc(truth, np.zeros((1, 4)))
    with pytest.raises(ValueError, match=r"got shape \(2, 3\)"):
        auc(truth, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="must be numbers; got nan"):
        auc(truth, [[1.0, math.nan, 0.0]])


def test_calibration_error_by_hand():
    # Ten bins. [.9, 1]: .9 and 1.0, one hit: |1.9 - 1|. [.2, .3): .2 and .25, one: |.45 - 1|.
    # The place of -1 is no prediction, so there are four.
    truth = csr_array([[1, 0, 0], [1, 0, 0], [0, 0, 0]])
    labels = np.array([[0, 1], [1, 0], [-1, -1]])
    scores = np.array([[0.9, 0.2], [1.0, 0.25], [7.0, 7.0]])
    found = expected_calibration_error(truth, labels, scores, n_bins=10)
    assert found == pytest.approx((0.9 + 0.55) / 4)
    # One bin: |.9 + 1 + .2 + .25 - 2 hits|.
    found = expected_calibration_error(truth, labels, scores, n_bins=1)
    assert found == pytest.approx(0.35 / 4)


def test_well_calibrated_probabilities_have_little_error():
    rng = np.random.default_rng(0)
    p = rng.random((20_000, 1))
    truth = csr_array((rng.random((20_000, 1)) < p).astype(float))
    labels = np.zeros((20_000, 1), dtype=int)
    assert expected_calibration_error(truth, labels, p) < 0.02
    assert expected_calibration_error(truth, labels, p**3) > 0.2


def test_certain_and_right_has_no_error():
    truth = csr_array([[1, 0]])
    assert expected_calibration_error(truth, [[0, 1]], [[1.0, 0.0]]) == 0
    assert math.isnan(expected_calibration_error(truth, [[-1, -1]], [[0.5, 0.5]]))


@pytest.mark.parametrize("wrong", [-0.1, 1.5, math.nan])
def test_calibration_needs_probabilities(wrong):
    with pytest.raises(ValueError, match=f"between 0 and 1; got {wrong:g}"):
        expected_calibration_error(csr_array([[1, 0]]), [[0, 1]], [[0.5, wrong]])


def test_calibration_needs_bins_and_matching_shapes():
    with pytest.raises(ValueError, match="n_bins must be at least 1; got 0"):
        expected_calibration_error(csr_array([[1, 0]]), [[0]], [[0.5]], n_bins=0)
    with pytest.raises(ValueError, match=r"shape of labels, \(1, 1\); got shape \(1, 2\)"):
        expected_calibration_error(csr_array([[1, 0]]), [[0]], [[0.5, 0.1]])
