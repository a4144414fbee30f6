"""Pairs of a true and a wrong label (or tree node) that violate the margin, for a batch of rows.

A finder turns the embedded rows Z (b, k) and the vectors V (m, k) into a sparse matrix P (b, m).
For each violation of a row, P has +w for the wrong vector s and -w for the right one r. The hinge
loss of the batch, sum of w (1 + f_s - f_r) with f = z'v, has the gradients

    P V  in Z   (and X'P V in W),      P'Z  in V

A kernel works on a span of rows. Random numbers depend on seed and row alone, so the result does
not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelry.arrays import F32, Ints, Rng
from labelry.linalg.parallel import run_spans

Negatives = Literal["hardest", "sampled", "warp"]
# Returns the matrix P of the rows with these numbers, embedded as Z, for vectors V.
Violations = Callable[[Ints, F32, F32], csr_array]

# Labels that a batch is scored against; of more labels it is a random choice. Not tuned.
_MOST_SCORED = 16_384
_FAST = {"reassoc", "contract", "nsz", "arcp"}


class LabelViolations:
    """Violations among all labels: (W x)'V_y >= (W x)'V_j + 1 for the true y and every wrong j.

    Each true label of a row is an example; the other true labels are no negatives. The wrong label
    of a pair is the one with the largest violation ("hardest"), as in the paper; the first in
    random order that violates ("sampled"); or that one, weighted by the rank that the number of
    draws suggests ("warp"). An `offset` (n_labels,) is added to the scores of the labels.
    """

    def __init__(
        self,
        Y: csr_array,
        negatives: Negatives,
        *,
        offset: F32 | None = None,
        rng: Rng,
        n_jobs: int = 1,
    ) -> None:
        self._Y, self._offset, self._rng, self._n_jobs = Y, offset, rng, n_jobs
        self._draw_weights = None
        if negatives != "hardest":
            n_labels = Y.shape[1]
            even = np.ones(n_labels, dtype=np.float32)
            self._draw_weights = warp_weights(n_labels) if negatives == "warp" else even

    def __call__(self, rows: Ints, Z: F32, V: F32) -> csr_array:
        Y = self._Y[rows]
        positives, chosen, offset = Y.indices, V, self._offset
        candidates = None  # all labels
        if len(V) > _MOST_SCORED:
            drawn = self._rng.integers(len(V), size=_MOST_SCORED)
            candidates = np.unique(np.concatenate([Y.indices, drawn])).astype(np.int32)
            positives = np.searchsorted(candidates, Y.indices).astype(np.int32)
            chosen = V[candidates]
            offset = None if offset is None else offset[candidates]
        S = Z @ chosen.T
        if offset is not None:
            S += offset
        if self._draw_weights is None:
            found, weights = hardest_negatives(S, Y.indptr, positives)
        else:
            found, weights = np.empty(Y.nnz, dtype=np.int32), np.empty(Y.nnz, dtype=np.float32)
            how = self._draw_weights[: S.shape[1]], int(self._rng.integers(2**31))
            given = (S, Y.indptr, positives, *how, found, weights)
            run_spans(sampled_negatives, given, len(rows), self._n_jobs)
        if candidates is not None:
            found = candidates[found]
        return _pulls(Y.indptr, Y.indices, found, weights, Y.shape)


def warp_weights(n_labels: int) -> F32:
    """Return the weight of a violation found at draw N: L(floor((n_labels - 1) / N)).

    L(r) = 1 + 1/2 + ... + 1/r, and the number of draws estimates the rank r of the true label.
    Entry 0 is not used.

    >>> warp_weights(5)[1:].tolist() == [np.float32(25 / 12), 1.5, 1.0, 1.0]
    True
    """
    draws = np.arange(1, n_labels)
    harmonic = np.cumsum(1.0 / draws)  # L(1), L(2), ...
    return np.concatenate([[0.0], harmonic[(n_labels - 1) // draws - 1]]).astype(np.float32)


class Paths(NamedTuple):
    """The parts of a tree that training uses; paths and leaves are lists in one array."""

    first_child: Ints  # children of node s are first_child[s] to first_child[s + 1] - 1
    parent: Ints  # (n_nodes,)
    leaf_ptr: Ints  # leaves of label y are leaf_ptr[y] to leaf_ptr[y + 1] - 1
    path_ptr: Ints
    path_nodes: Ints  # from below the root down to each leaf


class TreeViolations:
    """Violations among the siblings on a path to a true label, with one slack (section 3.2)."""

    def __init__(self, Y: csr_array, paths: Paths, *, n_jobs: int = 1) -> None:
        self._Y, self._paths, self._n_jobs = Y, paths, n_jobs

    def __call__(self, rows: Ints, Z: F32, V: F32) -> csr_array:
        Y = self._Y[rows]
        good, bad = np.empty(Y.nnz, dtype=np.int32), np.empty(Y.nnz, dtype=np.int32)
        weights = np.empty(Y.nnz, dtype=np.float32)
        given = (Z, V, self._paths, Y.indptr, Y.indices, good, bad, weights)
        run_spans(tree_violations, given, len(rows), self._n_jobs)
        return _pulls(Y.indptr, good, bad, weights, (len(rows), len(V)))


def _pulls(ptr: Ints, good: Ints, bad: Ints, weights: F32, shape: tuple[int, int]) -> csr_array:
    """Return the matrix P; pairs that do not violate are in it with weight zero."""
    indices = np.stack([bad, good], axis=1).ravel()
    data = np.stack([weights, -weights], axis=1).ravel()
    return csr_array((data, indices, 2 * ptr), shape=shape)


def hardest_negatives(S: F32, ptr: Ints, positives: Ints) -> tuple[Ints, F32]:
    """Return the best wrong label j for each true y, and 1 where ``1 + S[i, j] - S[i, y] > 0``.

    The true labels of row i are ``positives[ptr[i] : ptr[i + 1]]``, columns of S, whose scores are
    overwritten.
    """
    row = np.repeat(np.arange(len(S)), np.diff(ptr))
    true = S[row, positives]
    S[row, positives] = -np.inf
    worst = S.argmax(axis=1).astype(np.int32)
    top = S[np.arange(len(S)), worst].astype(np.float64)
    return worst[row], (1 + top[row] - true > 0).astype(np.float32)


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
    """Draw labels until one violates; set ``weights[p] = draw_weights[N]`` if draw N does.

    After ``len(draw_weights) - 1`` draws without a violation the weight is zero. Other arguments
    are as in `hardest_negatives`. A true label that is drawn never violates.
    """
    for i in range(row0, row1):
        s = S[i]
        for p in range(ptr[i], ptr[i + 1]):
            weights[p] = s[positives[p]]
        for p in range(ptr[i], ptr[i + 1]):
            s[positives[p]] = -np.inf
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


@njit(nogil=True, cache=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """Return the output of splitmix64: good random bits from states in any sequence."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def tree_violations(
    Z: F32,
    V: F32,
    paths: Paths,
    ptr: Ints,
    labels: Ints,
    positives: Ints,
    negatives: Ints,
    weights: F32,
    row0: int,
    row1: int,
) -> None:
    """Find the largest violation on the path of each true label: one slack for the whole path.

    For label p of row i, ``positives[p]`` is the node r on its path and ``negatives[p]`` the
    sibling s of r with the largest 1 + f_s - f_r, where f = z'v. ``weights[p]`` is 1 if that is
    positive. Nodes on the path of another true label are no negatives. For a label in several
    leaves, the path with the smallest such violation counts. Path j belongs to leaf j; the leaves
    of label y are ``leaf_ptr[y]`` to ``leaf_ptr[y + 1] - 1``.
    """
    first_child, parent, leaf_ptr, path_ptr, path_nodes = paths
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
    """Return ``u @ v``."""
    total = np.float32(0.0)
    for c in range(u.size):
        total += u[c] * v[c]
    return total
