"""Compiled loops of joint embeddings: finding violations, and moving the rows of a matrix.

A violation is a pair of a true label of a row (positive) and a wrong one (negative) whose score
comes within the margin 1 of it. Finders work on the span of rows that they are given; random
numbers depend on seed and row alone, so nothing depends on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def hardest_negatives(
    S: F32, ptr: Ints, positives: Ints, negatives: Ints, weights: F32, row0: int, row1: int
) -> None:
    """``negatives[p] = argmax_j S[i, j]`` over wrong j; ``weights[p] = 1 + max - S[i, y] > 0``.

    The true labels of row i are ``positives[ptr[i] : ptr[i + 1]]``, columns of S; their scores
    are overwritten.
    """
    for i in range(row0, row1):
        s = S[i]
        _take_true_scores(s, ptr[i], ptr[i + 1], positives, weights)
        top = s[0]
        for j in range(1, s.size):
            top = s[j] if s[j] > top else top
        worst = 0
        while s[worst] != top:
            worst += 1
        for p in range(ptr[i], ptr[i + 1]):
            negatives[p] = worst
            weights[p] = 1.0 if 1.0 + top - weights[p] > 0.0 else 0.0


@njit(nogil=True, cache=True)
def sampled_negatives(
    S: F32,
    ptr: Ints,
    positives: Ints,
    draw_weights: F32,
    seed: int,
    negatives: Ints,
    weights: F32,
    row0: int,
    row1: int,
) -> None:
    """Labels are drawn until one violates; ``weights[p] = draw_weights[N]`` if draw N does.

    At most ``len(draw_weights) - 1`` draws; then the weight is zero. Other arguments are as in
    `hardest_negatives`. A true label that is drawn never violates.
    """
    for i in range(row0, row1):
        s = S[i]
        _take_true_scores(s, ptr[i], ptr[i + 1], positives, weights)
        state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + (np.uint64(i) << np.uint64(32))
        for p in range(ptr[i], ptr[i + 1]):
            least = weights[p] - np.float32(1.0)
            weights[p] = 0.0
            negatives[p] = 0
            for draw in range(1, draw_weights.size):
                state += np.uint64(0x9E3779B97F4A7C15)
                j = np.int64(((_mix(state) >> np.uint64(32)) * np.uint64(s.size)) >> np.uint64(32))
                if s[j] > least:
                    negatives[p] = j
                    weights[p] = draw_weights[draw]
                    break


@njit(nogil=True, cache=True)
def _take_true_scores(s: F32, first: int, last: int, positives: Ints, scores: F32) -> None:
    """Move the scores of the true labels to `scores`, and leave minus infinity in their place."""
    for p in range(first, last):
        scores[p] = s[positives[p]]
    for p in range(first, last):
        s[positives[p]] = -np.inf


@njit(nogil=True, cache=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """The output function of splitmix64: good random bits from states in any sequence."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def tree_violations(
    Z: F32,
    V: F32,
    first_child: Ints,
    parent: Ints,
    leaf_ptr: Ints,
    path_ptr: Ints,
    path_nodes: Ints,
    ptr: Ints,
    labels: Ints,
    positives: Ints,
    negatives: Ints,
    weights: F32,
    row0: int,
    row1: int,
) -> None:
    """The largest violation on the path of each true label: one slack for the whole path.

    For label p of row i the nodes r = ``positives[p]`` on its path and s = ``negatives[p]``, a
    sibling of r, have the largest 1 + f_s - f_r with f = z'v; ``weights[p]`` is 1 if that is
    positive. Nodes on the path of another true label are no negatives. A label in several
    leaves takes the path that is violated least. Path j belongs to leaf j; the leaves of label y
    are ``leaf_ptr[y]`` to ``leaf_ptr[y + 1] - 1``.
    """
    marks = np.full(V.shape[0], -1, dtype=np.int64)  # the last row for which a node was true
    for i in range(row0, row1):
        z = Z[i]
        for p in range(ptr[i], ptr[i + 1]):
            for t in range(path_ptr[leaf_ptr[labels[p]]], path_ptr[leaf_ptr[labels[p] + 1]]):
                marks[path_nodes[t]] = i
        for p in range(ptr[i], ptr[i + 1]):
            least = np.float32(np.inf)
            for leaf in range(leaf_ptr[labels[p]], leaf_ptr[labels[p] + 1]):
                most = np.float32(-np.inf)
                good, bad = 0, 0
                for t in range(path_ptr[leaf], path_ptr[leaf + 1]):
                    r = path_nodes[t]
                    f_r = dot(z, V[r])
                    for s in range(first_child[parent[r]], first_child[parent[r] + 1]):
                        if marks[s] == i:
                            continue
                        violation = 1.0 + dot(z, V[s]) - f_r
                        if violation > most:
                            most, good, bad = violation, r, s
                if most < least:
                    least, positives[p], negatives[p] = most, good, bad
            weights[p] = 1.0 if least > 0.0 else 0.0


@njit(nogil=True, cache=True, fastmath=_FAST)
def dot(u: F32, v: F32) -> np.float32:
    """``u @ v``."""
    total = np.float32(0.0)
    for c in range(u.size):
        total += u[c] * v[c]
    return total


@njit(nogil=True, cache=True, fastmath=_FAST)
def adagrad_rows(
    indptr: Ints, indices: Ints, data: F32, G: F32, M: F32, energy: F32, rate: float
) -> None:
    """AdaGrad along ``-A.T @ G``, A in CSR, with one step size for each row of M.

    For each nonzero a = A[i, j] in turn ``energy[j] += |a G[i]|^2`` and then
    ``M[j] -= rate * a * G[i] / sqrt(energy[j])``: a step is never longer than `rate`.
    """
    for i in range(indptr.size - 1):
        g = G[i]
        square = dot(g, g)
        for p in range(indptr[i], indptr[i + 1]):
            a = data[p]
            if a * a * square == 0.0:
                continue
            j = indices[p]
            energy[j] += a * a * square
            step = np.float32(rate) * a / np.sqrt(energy[j])
            m = M[j]
            for c in range(g.size):
                m[c] -= step * g[c]
