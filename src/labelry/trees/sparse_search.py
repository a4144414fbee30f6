"""The best labels of rows by the sparse weights of one or more trees: a beam down each tree."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelry.linalg.matrices import Matrix
from labelry.linalg.prefetch import prefetch
from labelry.trees.search import best_labels, push, push_once, sort, worse
from labelry.trees.sparse_weights import FREE, SparseWeights, find_slot, first_slot, next_slot
from labelry.trees.structure import Tree
from labelry.trees.weights import frozen

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Ints = NDArray[np.integer]

# Margins are trained to be 1 and -1: with this factor those are yes and no with 98 %.
SHARPNESS = np.float32(4.0)
_ONE = np.float32(1.0)
_ROUNDING = np.float32(1e-3)  # more than that of margins
_NORMAL = np.finfo(np.float32).tiny  # smaller scores have few digits


def search_forest(
    tree: Tree,
    roots: I32,
    weights: SparseWeights,
    X: Matrix,
    k: int,
    *,
    beam_width: int,
    n_jobs: int = 1,
) -> tuple[I32, F32]:
    """The k best labels (-1: none) and their scores, best first, (n_rows, k).

    A leaf scores the product of ``1 / (1 + exp(-4 f))`` over its path. A label scores as the best
    of its leaves; with several roots the mean over their trees, with 0 where the search of a tree
    does not come across it.

    Parameters
    ----------
    roots : array (n_trees,)
        Where searches begin. Below several roots a label has one leaf each.
    beam_width : int
        Inner nodes kept at each level of a tree; larger is more accurate and slower.
    """
    shape = frozen(tree.first_child, tree.label, roots)
    model = (*shape, SparseWeights(*frozen(*weights)), int(min(beam_width, tree.n_nodes)))
    return best_labels(search_rows, X, k, model, n_jobs)


@njit(nogil=True, cache=True)
def score_chunk(
    indices: Ints,
    data: F32,
    p0: int,
    p1: int,
    weights: SparseWeights,
    node: int,
    first_child: int,
    n_children: int,
    slots: I64,
    scores: F32,
) -> None:
    """``scores[c] = w_c'x + b_c`` for the children c of a node; x is ``data[p0:p1]``.

    All features are found before the first weight is needed, so that the weights are on their way.
    """
    first, last = weights.slot_start[node], weights.slot_start[node + 1]
    for p in range(p0, p1):
        slot = find_slot(weights.feature, first, last, indices[p])
        slots[p - p0] = slot
        if slot >= 0:
            prefetch(weights.child, weights.entry_start[slot] * weights.child.itemsize)
            prefetch(weights.weight, weights.entry_start[slot] * weights.weight.itemsize)
    for c in range(n_children):
        scores[c] = weights.bias[first_child + c]
    for p in range(p0, p1):
        slot = slots[p - p0]
        if slot >= 0:
            v = data[p]
            for e in range(weights.entry_start[slot], weights.entry_start[slot + 1]):
                scores[weights.child[e]] += v * weights.weight[e]


@njit(nogil=True, cache=True)
def _fetch_slots(indices: Ints, p0: int, p1: int, weights: SparseWeights, node: int) -> None:
    """Ask for the slots where the features of a row are sought first."""
    first, last = weights.slot_start[node], weights.slot_start[node + 1]
    for p in range(p0, p1):
        slot = first_slot(indices[p], first, last)
        prefetch(weights.feature, slot * weights.feature.itemsize)
        prefetch(weights.entry_start, slot * weights.entry_start.itemsize)


@njit(nogil=True, cache=True)
def search_rows(
    indptr: Ints,
    indices: Ints,
    data: F32,
    first_child: I32,
    label: I32,
    roots: I32,
    weights: SparseWeights,
    beam_width: int,
    labels: I32,
    scores: F32,
    row0: int,
    row1: int,
) -> None:
    """Fill the rows of a span of `labels` and `scores`."""
    k = labels.shape[1]
    nodes, next_nodes = np.zeros(beam_width, np.int32), np.zeros(beam_width, np.int32)
    paths, next_paths = np.zeros(beam_width, np.float32), np.zeros(beam_width, np.float32)
    f = np.empty(64, dtype=np.float32)
    slots = np.empty(64, dtype=np.int64)
    met = np.empty(256, dtype=np.int32)  # labels of the leaves of several trees
    met_scores = np.empty(256, dtype=np.float32)
    table = np.full(1, FREE, dtype=np.int32)
    for i in range(row0, row1):
        best, best_scores = labels[i], scores[i]
        n_best, n_met = 0, 0
        p0, p1 = indptr[i], indptr[i + 1]
        if slots.size < p1 - p0:
            slots = np.empty(2 * (p1 - p0), dtype=np.int64)
        for root in roots:
            nodes[0], paths[0], n_beam = root, 1.0, 1
            while n_beam > 0:
                n_next = 0
                for b in range(n_beam):
                    node, path = nodes[b], paths[b]
                    if n_best == k and path < best_scores[0]:
                        break  # a path only gets worse, and so do the next ones
                    if b + 1 < n_beam:
                        _fetch_slots(indices, p0, p1, weights, nodes[b + 1])
                    first, n = first_child[node], first_child[node + 1] - first_child[node]
                    if f.size < n:
                        f = np.empty(2 * n, dtype=np.float32)
                    if met.size < n_met + n:
                        met, met_scores = _grown(met, met_scores, 2 * (n_met + n))
                    score_chunk(indices, data, p0, p1, weights, node, first, n, slots, f)
                    n_next = _push_nodes(f, n, path, first, label, next_nodes, next_paths, n_next)
                    if roots.size == 1:
                        n_best = _push_leaves(f, n, path, first, label, best, best_scores, n_best)
                    else:
                        n_met = _note_leaves(f, n, path, first, label, met, met_scores, n_met)
                nodes, next_nodes = next_nodes, nodes
                paths, next_paths = next_paths, paths
                n_beam = n_next
                sort(paths, nodes, n_beam)
        if roots.size > 1:
            if table.size < 2 * n_met:
                table = np.full(4 * n_met, FREE, dtype=np.int32)
            n_met = _sum_scores(met, met_scores, n_met, table)
            for j in range(n_met):
                mean = met_scores[j] / np.float32(roots.size)
                if n_best < k or worse(best_scores[0], best[0], mean, met[j]):
                    n_best = push(best_scores, best, n_best, mean, met[j])
        sort(best_scores, best, n_best)


@njit(nogil=True, cache=True, inline="always")
def _score(margin: np.float32, path: np.float32) -> np.float32:
    """Score of a child, from its margin and the score of the path to its parent."""
    return path / (_ONE + np.exp(-SHARPNESS * margin))


@njit(nogil=True, cache=True)
def _least_margin(path: np.float32, score: np.float32) -> np.float32:
    """A margin that is too small for this score: most children need no exponential.

    A little less than the inverse of `_score`, so that rounding decides nothing.
    """
    if score < _NORMAL:
        return np.float32(-np.inf)
    return -np.log(max(path / score - _ONE, _ROUNDING)) / SHARPNESS - _ROUNDING


@njit(nogil=True, cache=True)
def _push_nodes(
    f: F32, n: int, path: np.float32, first: int, label: I32, nodes: I32, paths: F32, n_beam: int
) -> int:
    """Offer the children that are inner nodes to the next beam; its size."""
    least = _least_margin(path, paths[0]) if n_beam == nodes.size else np.float32(-np.inf)
    for c in range(n):
        if label[first + c] < 0 and f[c] >= least:
            score = _score(f[c], path)
            if n_beam < nodes.size or worse(paths[0], nodes[0], score, first + c):
                n_beam = push(paths, nodes, n_beam, score, first + c)
                if n_beam == nodes.size:
                    least = _least_margin(path, paths[0])
    return n_beam


@njit(nogil=True, cache=True)
def _push_leaves(
    f: F32, n: int, path: np.float32, first: int, label: I32, best: I32, scores: F32, n_best: int
) -> int:
    """Offer the labels of children that are leaves to the best; how many those are."""
    least = _least_margin(path, scores[0]) if n_best == best.size else np.float32(-np.inf)
    for c in range(n):
        y = label[first + c]
        if y >= 0 and f[c] >= least:
            score = _score(f[c], path)
            if n_best < best.size or worse(scores[0], best[0], score, y):
                n_best = push_once(scores, best, n_best, score, y)
                if n_best == best.size:
                    least = _least_margin(path, scores[0])
    return n_best


@njit(nogil=True, cache=True)
def _note_leaves(
    f: F32, n: int, path: np.float32, first: int, label: I32, met: I32, scores: F32, n_met: int
) -> int:
    """Append the labels of children that are leaves; how many have been met."""
    for c in range(n):
        if label[first + c] >= 0:
            met[n_met], scores[n_met] = label[first + c], _score(f[c], path)
            n_met += 1
    return n_met


@njit(nogil=True, cache=True)
def _grown(found: I32, scores: F32, size: int) -> tuple[I32, F32]:
    more, more_scores = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
    more[: found.size] = found
    more_scores[: found.size] = scores
    return more, more_scores


@njit(nogil=True, cache=True)
def _sum_scores(met: I32, scores: F32, n: int, table: I32) -> int:
    """Make equal labels one, with the sum of their scores; returns how many are left.

    `table` finds the place of a label among those left; all free at first and at the end.
    """
    left = 0
    for j in range(n):
        slot = first_slot(met[j], 0, table.size)
        while table[slot] != FREE and met[table[slot]] != met[j]:
            slot = next_slot(slot, 0, table.size)
        if table[slot] == FREE:
            table[slot] = left
            met[left], scores[left] = met[j], scores[j]
            left += 1
        else:
            scores[table[slot]] += scores[j]
    for j in range(left):
        slot = first_slot(met[j], 0, table.size)
        while table[slot] != FREE:
            table[slot] = FREE
            slot = next_slot(slot, 0, table.size)
    return left
