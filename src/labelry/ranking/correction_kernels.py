"""Compiled loops of the sparse correction: elastic nets label by label, and re-scoring.

The elastic net is solved in the dual, one row's variable at a time, as in
`labelry.linalg.dual_descent`: v = sum_i alpha_i y_i [x_i, 1] is kept, and the weights are its soft
threshold (proximal dual ascent). Each label has rows of its own, so labels are trained one by one
and not in lockstep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelry.arrays import CSR, F32, Ints
from labelry.linalg.dual_descent import logistic_dual, shuffle

SURE = 30.0  # log odds beyond which 1 - p would round to 0
_START = 1e-8  # least dual variable: they start inside (0, 1)

# Sums may be reordered (so that they vectorise), but NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


class Pairs(NamedTuple):
    """Rows and labels to learn from, by label: those of label l are ``starts[l]:starts[l + 1]``."""

    starts: Ints
    rows: Ints
    signs: NDArray[np.int8]  # +1 where the row has the label, -1 otherwise
    offsets: F32  # log odds before the correction


@njit(nogil=True, cache=True, inline="always")
def _soft(v: Any, threshold: Any) -> Any:
    """Return the soft threshold: v moved towards 0 by `threshold`."""
    return max(v - threshold, np.float32(0.0)) + min(v + threshold, np.float32(0.0))


@njit(nogil=True, cache=True, fastmath=_FAST)
def train_labels(
    X: CSR,
    n_features: int,
    energy: F32,
    pairs: Pairs,
    regularization: float,
    sparsity: float,
    tolerance: float,
    max_sweeps: int,
    seed: int,
    label0: int,
    label1: int,
) -> tuple[F32, Ints, Ints, F32]:
    """Return intercepts and numbers of weights of some labels; features and values of the weights.

    v = sum_i alpha_i y_i [x_i, 1] is kept, and w = soft(v, sparsity) / regularization follows
    from it; the intercept has no soft threshold.
    """
    indptr, indices, _ = X
    starts, rows, signs, _ = pairs
    most = 0
    for label in range(label0, label1):
        total = 0
        for q in range(starts[label], starts[label + 1]):
            total += indptr[rows[q] + 1] - indptr[rows[q]]
        most += min(total, n_features)
    features = np.empty(most, dtype=np.int32)
    values = np.empty(most, dtype=np.float32)
    n_kept = 0
    intercept = np.zeros(label1 - label0, dtype=np.float32)
    counts = np.zeros(label1 - label0, dtype=np.int64)
    v = np.zeros(n_features + 1, dtype=np.float32)
    threshold = np.float32(sparsity)
    shrink = np.float32(1.0 / regularization)
    for label in range(label0, label1):
        first, last = starts[label], starts[label + 1]
        if not (signs[first:last] > 0).any():
            continue
        state = np.uint64(2 * (seed + label) + 1)
        span = (first, last)
        _descend(X, energy, pairs, span, threshold, shrink, tolerance, max_sweeps, state, v)
        intercept[label - label0] = v[n_features] * shrink
        v[n_features] = 0.0
        before = n_kept
        for q in range(first, last):
            for p in range(indptr[rows[q]], indptr[rows[q] + 1]):
                w = _soft(v[indices[p]], threshold) * shrink
                v[indices[p]] = 0.0  # also clears v for the next label
                if w != 0.0:
                    features[n_kept] = indices[p]
                    values[n_kept] = w
                    n_kept += 1
        counts[label - label0] = n_kept - before
    return intercept, counts, features[:n_kept].copy(), values[:n_kept].copy()


@njit(nogil=True, cache=True, fastmath=_FAST)
def _descend(
    X: CSR,
    energy: F32,
    pairs: Pairs,
    span: tuple[int, int],
    threshold: np.float32,
    shrink: np.float32,
    tolerance: float,
    max_sweeps: int,
    state: np.uint64,
    v: F32,
) -> None:
    """Fit one label by dual coordinate descent; v must be zero, and the result is left in it."""
    indptr, indices, data = X
    _, rows, signs, offsets = pairs
    first, last = span
    bias = v.size - 1
    alpha = np.zeros(last - first, dtype=np.float64)
    order = np.arange(last - first)
    for _ in range(max_sweeps):
        state = shuffle(order, state)
        worst = 0.0
        for t in order:
            i, y = rows[first + t], signs[first + t]
            s = np.float32(0.0)
            for p in range(indptr[i], indptr[i + 1]):
                s += data[p] * _soft(v[indices[p]], threshold)
            margin = y * ((s + v[bias]) * shrink + offsets[first + t])
            margin = min(max(margin, -SURE), SURE)
            a = max(alpha[t], _START)
            worst = max(worst, abs(margin + np.log(a / (1.0 - a))))
            # ||soft(v + dv) - soft(v)|| <= ||dv||: the step of the plain ridge never overshoots.
            b = logistic_dual(a, margin, energy[i] * shrink, 1.0)
            step = np.float32((b - alpha[t]) * y)
            alpha[t] = b
            v[bias] += step
            for p in range(indptr[i], indptr[i + 1]):
                v[indices[p]] += step * data[p]
        if worst <= tolerance:
            break


@njit(nogil=True, cache=True, fastmath=_FAST)
def rescore_rows(
    X: CSR,
    W: CSR,
    intercept: F32,
    candidates: Ints,
    offsets: F32,
    scores: F32,
    row0: int,
    row1: int,
) -> None:
    """Set ``scores[i, t] = offsets[i, t] + (x[i] @ W + intercept)[l]``, l = candidates[i, t].

    Places without a candidate (-1) stay as they are.
    """
    indptr, indices, data = X
    w_indptr, w_indices, w_data = W
    s = intercept.copy()  # all labels of one row; only what was changed is set back
    for i in range(row0, row1):
        for p in range(indptr[i], indptr[i + 1]):
            v = data[p]
            for q in range(w_indptr[indices[p]], w_indptr[indices[p] + 1]):
                s[w_indices[q]] += v * w_data[q]
        for t in range(candidates.shape[1]):
            if candidates[i, t] >= 0:
                scores[i, t] = offsets[i, t] + s[candidates[i, t]]
        for p in range(indptr[i], indptr[i + 1]):
            for q in range(w_indptr[indices[p]], w_indptr[indices[p] + 1]):
                s[w_indices[q]] = intercept[w_indices[q]]
