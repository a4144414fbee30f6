"""Compiled loops of the tree loss: finding the largest violation, and the step it calls for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelry.trees.weights import NodeWeights, feature_row, score_children

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]

_NONE = np.int32(-1)


class Shape(NamedTuple):
    """What the kernels need of a tree."""

    first_child: I32
    parent: I32
    leaf_ptr: I32  # leaves of label y: leaf_node[leaf_ptr[y] : leaf_ptr[y + 1]]
    leaf_node: I32


class Moments(NamedTuple):
    """What stochastic gradient descent remembers besides the weights."""

    squares: F32  # (n_nodes,) squared gradients so far
    early: F32  # as the weights: each step times the sum of scales before it


@njit(nogil=True, cache=True)
def find_rivals(
    indptr: Ints,
    indices: Ints,
    data: F32,
    y_indptr: Ints,
    y_indices: Ints,
    row: I32,
    label: I32,
    shape: Shape,
    weights: NodeWeights,
    scale: np.float32,
    batch: Ints,
    found: I32,
    gaps: F32,
    taken: I32,
    first: int,
    last: int,
) -> None:
    """``found[t] = (r, s)`` with the largest ``gaps[t] = 1 + f_s - f_r`` of example ``batch[t]``.

    r is on the path to the example's label, s is a sibling of r that holds none of the row's
    labels (constraint 2 of the paper). Of several paths to the label the one with the smallest
    such violation counts. Without any s the pair is (-1, -1) and the gap minus infinity.

    ``taken[s]`` is the last row seen with a label below node s; -1 at first.
    """
    scores = np.empty(np.max(np.diff(shape.first_child)), dtype=np.float32)
    for t in range(first, last):
        i = row[batch[t]]
        for q in range(y_indptr[i], y_indptr[i + 1]):
            y = y_indices[q]
            for leaf in shape.leaf_node[shape.leaf_ptr[y] : shape.leaf_ptr[y + 1]]:
                _mark_path(leaf, shape.parent, taken, i)
        y = label[batch[t]]
        gaps[t] = np.inf
        for leaf in shape.leaf_node[shape.leaf_ptr[y] : shape.leaf_ptr[y + 1]]:
            gap = np.float32(-np.inf)
            best_r, best_s = _NONE, _NONE
            r = leaf
            while r > 0:
                p = shape.parent[r]
                start = shape.first_child[p]
                f = scores[: shape.first_child[p + 1] - start]
                score_children(indices, data, indptr[i], indptr[i + 1], weights, p, f)
                for c in range(f.size):
                    violation = np.float32(1.0) + scale * (f[c] - f[r - start])
                    if violation > gap and taken[start + c] != i:
                        gap = violation
                        best_r, best_s = r, start + c
                r = p
            if gap < gaps[t]:
                gaps[t] = gap
                found[t, 0], found[t, 1] = best_r, best_s


@njit(nogil=True, cache=True)
def _mark_path(leaf: int, parent: I32, taken: I32, mark: int) -> None:
    node = leaf
    while node > 0:
        taken[node] = mark
        node = parent[node]


@njit(nogil=True, cache=True)
def take_steps(
    indptr: Ints,
    indices: Ints,
    data: F32,
    row: I32,
    energy: F32,
    shape: Shape,
    weights: NodeWeights,
    moments: Moments,
    scale: np.float32,
    before: np.float32,
    rate: np.float32,
    batch: Ints,
    found: I32,
    gaps: F32,
) -> None:
    """``w_r += step_r x``, ``w_s -= step_s x`` for each violated pair of a batch.

    The step of a node is ``rate / sqrt(sum of its ||x||^2 so far)``. The weights are ``scale``
    times what is stored, and `before` is the sum of scales of the batches before.
    """
    for t in range(batch.size):
        if not gaps[t] > 0:
            continue
        i = row[batch[t]]
        p = shape.parent[found[t, 0]]
        n_children = shape.first_child[p + 1] - shape.first_child[p]
        for side in range(2):
            node = found[t, side]
            moments.squares[node] += energy[i]
            step = (np.float32(1.0) - np.float32(2.0) * side) * rate / scale
            step /= np.sqrt(moments.squares[node])
            column = node - shape.first_child[p]
            at = weights.block_ptr[p + 1] - n_children + column
            weights.data[at] += step
            moments.early[at] += before * step
            for q in range(indptr[i], indptr[i + 1]):
                place = feature_row(
                    weights.slot_feature,
                    weights.slot_row,
                    weights.slot_ptr[p],
                    weights.slot_ptr[p + 1],
                    indices[q],
                )
                at = weights.block_ptr[p] + place * n_children + column
                weights.data[at] += step * data[q]
                moments.early[at] += before * step * data[q]
