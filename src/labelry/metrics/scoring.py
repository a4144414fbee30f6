"""Measures of the scores themselves: area under the ROC curve and calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from labelry.arrays import F64
from labelry.metrics.matching import Matched, canonical, checked_scores, match

CALIBRATION_BINS = 15  # bins of equal width; the usual number, not tuned


def auc(Y: Any, scores: ArrayLike) -> float:
    """Return the area under the ROC curve of each row over all labels, averaged over rows.

    It is the chance that a true label of the row has a higher score than one that is not
    true, where equal scores count half. Rows that have no true label, or only true ones, are left
    out. `scores` (n, c_model) are dense; labels of Y after these come last, with equal scores.

    >>> auc([[1, 0, 0, 1], [0, 0, 0, 0]], [[0.9, 0.1, 0.5, 0.5], [0.3, 0.2, 0.1, 0.0]])
    0.875
    """
    total, n_rows = auc_totals(canonical(Y), scores)
    return total / n_rows if n_rows else float("nan")


def auc_totals(Y: csr_array, scores: ArrayLike) -> tuple[float, int]:
    """Return the sum of the rows' areas and the number of rows that have one."""
    scores = np.asarray(scores)
    n_rows, n_labels = Y.shape
    if scores.ndim != 2 or len(scores) != n_rows or scores.shape[1] > n_labels:
        rule = f"shape ({n_rows}, c) with c at most {n_labels}"
        raise ValueError(f"dense scores must have {rule}; got shape {scores.shape}")
    if scores.dtype != np.float32:
        scores = scores.astype(np.float64, copy=False)
    # The minimum is nan if any is; it needs no array of the size of the scores.
    if scores.size and np.isnan(scores.min()):
        raise ValueError("dense scores must be numbers; got nan")
    areas = _row_auc(Y.indptr, Y.indices, np.ascontiguousarray(scores), n_labels)
    return float(np.nansum(areas)), int(np.count_nonzero(~np.isnan(areas)))


@njit(nogil=True, cache=True)
def _row_auc(indptr, indices, scores, n_labels):  # type: ignore[no-untyped-def]
    """Return the area of each row, nan where it has none; O(log n_true) for each score."""
    n_rows, n_scored = scores.shape
    areas = np.full(n_rows, np.nan)
    for i in range(n_rows):
        true = indices[indptr[i] : indptr[i + 1]]
        n_true, n_false = len(true), n_labels - len(true)
        if n_true == 0 or n_false == 0:
            continue
        positives = np.full(n_true, -np.inf)
        for j in range(n_true):
            if true[j] < n_scored:
                positives[j] = scores[i, true[j]]
        positives.sort()
        # Twice the positives above each score, ties as one; unscored labels are at -inf.
        twice = 2 * n_true - np.searchsorted(positives, -np.inf, side="right")
        twice *= n_labels - n_scored
        for j in range(n_scored):
            score = scores[i, j]
            if score < positives[0]:
                twice += 2 * n_true
            elif score <= positives[-1]:
                below = np.searchsorted(positives, score, side="left")
                not_above = np.searchsorted(positives, score, side="right")
                twice += 2 * n_true - below - not_above
        # The positives among themselves: n_true^2 / 2 of these, whatever their scores.
        areas[i] = (twice - n_true * n_true) / (2.0 * n_true * n_false)
    return areas


def expected_calibration_error(
    Y: Any, labels: ArrayLike, scores: ArrayLike, n_bins: int = CALIBRATION_BINS
) -> float:
    """Return how far predicted probabilities are from the share of them that come true.

    The difference between mean probability and share of hits in each of `n_bins` bins of equal
    width is averaged over the predictions. `scores` (n, k) are the probabilities of `labels`.

    >>> round(expected_calibration_error([[1, 0], [0, 1]], [[0], [0]], [[0.8], [0.8]]), 3)
    0.3
    """
    return calibration_error(calibration_totals(match(Y, labels), scores, n_bins))


def calibration_totals(block: Matched, scores: ArrayLike, n_bins: int) -> F64:
    """Return predictions, sum of their probabilities and hits of each bin: (3, n_bins)."""
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1; got {n_bins}")
    predicted = block.labels >= 0
    p = checked_scores(block.labels, scores)[predicted].astype(np.float64)
    for wrong in p[~((p >= 0) & (p <= 1))][:1]:
        raise ValueError(f"scores must be probabilities, between 0 and 1; got {wrong:g}")
    bins = np.minimum((p * n_bins).astype(np.int64), n_bins - 1)
    hits = block.hits[predicted]
    return np.stack([np.bincount(bins, weights=w, minlength=n_bins) for w in (None, p, hits)])


def calibration_error(totals: F64) -> float:
    """Return the expected calibration error from `calibration_totals`; nan without predictions."""
    count, probability, hits = totals
    return float(np.abs(probability - hits).sum() / count.sum()) if count.any() else float("nan")
