"""Compiled loops of FastXML: the split of one node, in three steps.

With delta_i the side of row i (0 left, 1 right; -1 and +1 in the paper) and r the rankings of the
labels on the two sides, a split minimises

    ||w||_1 + sum_i C_delta log(1 + exp(-delta_i w'x_i)) - sum_i nDCG(r of the side of i, y_i)

over delta and r in turn, from random sides, and then over w. nDCG(r, y) is I(y) times the sum of
1 / log(1 + rank) over the labels of y, and I(y) makes it 1 for a perfect ranking.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from labelry.arrays import F32, F64, I8, I32, Ints
from labelry.linalg.kernels import Csr, local_columns
from labelry.linalg.l1_logistic import l1_logistic

_MOST_ROUNDS = 100  # most rounds of ranking and choosing sides; a few dozen are usual
_TOLERANCE = 0.01  # tolerance of a separator, relative to the subgradients at zero; not tuned
_NEWTON_STEPS = 10  # most Newton steps of a separator; not tuned
_SWEEPS = 10  # most sweeps over the features in a Newton step; not tuned


@njit(nogil=True, cache=True)
def split_node(
    x_indptr: Ints,
    x_indices: Ints,
    x_data: F32,
    y_indptr: Ints,
    y_indices: Ints,
    ideal: F64,
    C: float,
    rows: I32,
    side: I8,
    x_slot: I32,
    y_slot: I32,
) -> tuple[int, I32, F32, np.float32]:
    """Split the rows of a node; return the number of rows on the left, features, weights, bias.

    Reorders `rows` so that the left ones come first. `side` holds the random sides to begin with.
    The number is 0 where there is no split: all rows have the same labels, or all are on one side.
    The slots (n_features,) and (n_labels,) are scratch, and hold -1 before and after.
    """
    none = (0, np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32), np.float32(0.0))
    y_ptr, y_local, labels = local_columns(y_indptr, y_indices, rows, y_slot)
    if y_local.size == labels.size * rows.size:  # every row has every label
        return none
    choose_sides(y_ptr, y_local, labels.size, ideal[rows], side)
    n_right = 0
    for s in side:
        n_right += s
    if n_right == 0 or n_right == rows.size:
        return none
    x_ptr, x_local, features = local_columns(x_indptr, x_indices, rows, x_slot)
    columns = _by_column(x_ptr, x_local, x_indptr, x_data, rows, features.size)
    w, margins = _separator(columns, side, n_right, C)
    right = margins > 0.0
    n_left = int(rows.size - np.count_nonzero(right))
    if n_left == 0 or n_left == rows.size:
        return none
    rows[:] = np.concatenate((rows[~right], rows[right]))
    kept = np.flatnonzero(w[: features.size])
    return n_left, features[kept], w[kept].astype(np.float32), np.float32(w[-1])


@njit(nogil=True, cache=True)
def choose_sides(ptr: Ints, labels: Ints, n_labels: int, ideal: F64, side: I8) -> int:
    """Improve the sides of the rows until no row changes; return the number of rounds.

    Alternates two closed forms: the ranking of each side that is best for its rows, and the side
    of each row whose ranking is better for it (on a draw it stays). nDCG never falls.
    """
    gain = np.empty((2, n_labels))
    for round_ in range(_MOST_ROUNDS):
        rank_sides(ptr, labels, ideal, side, gain)
        changed = False
        for i in range(side.size):
            # This is v- - v+ of the paper, up to I(y) > 0: the log losses cancel because w = 0.
            better = 0.0
            for p in range(ptr[i], ptr[i + 1]):
                better += gain[1, labels[p]] - gain[0, labels[p]]
            if (better > 0.0 and side[i] == 0) or (better < 0.0 and side[i] == 1):
                side[i] = 1 - side[i]
                changed = True
        if not changed:
            return round_ + 1
    return _MOST_ROUNDS


@njit(nogil=True, cache=True)
def rank_sides(ptr: Ints, labels: Ints, ideal: F64, side: I8, gain: F64) -> None:
    """Fill in ``gain[s, l] = 1 / log(1 + r)``, where r = 1, 2, ... ranks label l on side s.

    Labels are ranked by the sum of I(y_i) y_i over the rows of the side. Labels without rows there
    come last. They still have a gain, because otherwise a label could hardly change its side.
    """
    gain[:] = 0.0
    for i in range(side.size):
        for p in range(ptr[i], ptr[i + 1]):
            gain[side[i], labels[p]] += ideal[i]
    for s in range(2):
        order = np.argsort(-gain[s], kind="mergesort")
        for r in range(order.size):
            gain[s, order[r]] = 1.0 / np.log(2.0 + r)


@njit(nogil=True, cache=True)
def _by_column(ptr: Ints, local: I32, indptr: Ints, data: F32, rows: I32, n_columns: int) -> Csr:
    """Return the columns of the local rows, and a last column of ones: the constant feature."""
    starts = np.zeros(n_columns + 2, dtype=np.int64)
    for j in local:
        starts[j + 1] += 1
    starts[n_columns + 1] = rows.size
    for j in range(n_columns + 1):
        starts[j + 1] += starts[j]
    place = starts.copy()
    members = np.empty(starts[-1], dtype=np.int32)
    values = np.ones(starts[-1], dtype=np.float32)
    for t in range(rows.size):
        for p in range(ptr[t], ptr[t + 1]):
            q = place[local[p]]
            place[local[p]] += 1
            members[q] = t
            values[q] = data[indptr[rows[t]] + p - ptr[t]]
        members[starts[n_columns] + t] = t
    return Csr(starts, members, values)


@njit(nogil=True, cache=True)
def _separator(columns: Csr, side: I8, n_right: int, C: float) -> tuple[F64, F64]:
    """Return the sparse separator of the two sides, and the margin of each row."""
    signs, costs = np.empty(side.size, dtype=np.int8), np.empty(side.size)
    for i in range(side.size):
        signs[i] = 1 if side[i] == 1 else -1
        # C_delta gives both sides equal weight, so that the smaller one is not ignored.
        costs[i] = C * side.size / (n_right if side[i] == 1 else side.size - n_right)
    w, margins = np.zeros(columns.indptr.size - 1), np.zeros(side.size)
    l1_logistic(columns, signs, costs, _TOLERANCE, _NEWTON_STEPS, _SWEEPS, w, margins)
    return w, margins
