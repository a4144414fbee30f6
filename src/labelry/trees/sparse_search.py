"""Find the best labels of rows by the sparse weights of one or more trees, with a beam search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from labelry.arrays import F32, I32, I64
from labelry.linalg.kernels import Csr
from labelry.linalg.matrices import Matrix
from labelry.linalg.prefetch import prefetch
from labelry.trees.search import Heap, is_full, keeps, new_heap, push, push_once, search_spans, sort
from labelry.trees.sparse_weights import PackedWeights, bucket_of, find_entries, mixed_number
from labelry.trees.structure import Tree
from labelry.trees.weights import frozen

# Margins are trained towards 1 and -1; with this factor they mean probabilities of 98 % and 2 %.
SHARPNESS = np.float32(4.0)
_ONE = np.float32(1.0)
_FREE = np.int32(-1)  # a slot without a label
_HASH_BITS = 32
_ROUNDING = np.float32(1e-3)  # a bound on rounding errors of margins
# In each of several trees, leaves below this share of the fifth best score are left out. Not tuned.
_SHARE = np.float32(0.5)
_FIVE = 5
_NO_MARGIN = np.float32(-np.inf)
_NORMAL = np.finfo(np.float32).tiny  # smaller scores have fewer digits


class ForestModel(NamedTuple):
    """One or more trees in one: searches begin at the roots."""

    first_child: I32
    label: I32
    roots: I32
    weights: PackedWeights
    beam_width: int


def search_forest(
    tree: Tree,
    roots: I32,
    weights: PackedWeights,
    X: Matrix,
    k: int,
    *,
    beam_width: int,
    n_jobs: int = 1,
) -> tuple[I32, F32]:
    """Return the k best labels (-1: none) and their scores, best first, (n_rows, k).

    The score of a leaf is the product of ``1 / (1 + exp(-4 f))`` over its path. The score of a
    label is that of its best leaf; with several trees it is the mean of these. A tree counts as 0
    if its search does not find the label, or finds k (at least five) labels of twice the score.

    Searches begin at the roots (n_trees,). Each keeps `beam_width` inner nodes at each level;
    larger is more accurate and slower.
    """
    first_child, label, roots = frozen(tree.first_child, tree.label, roots)
    width = int(min(beam_width, tree.n_nodes))
    model = ForestModel(first_child, label, roots, weights.read_only(), width)
    return search_spans(search_rows, X, k, model, n_jobs)


@njit(nogil=True, cache=True)
def score_chunk(
    X: Csr, i: int, weights: PackedWeights, node: int, first: int, spans: I64, scores: F32
) -> None:
    """Compute ``scores[c] = w_c'x + b_c`` for the children c of a node, which begin at `first`.

    All features of row i are looked up and their weights prefetched before the first weight is
    used. `spans` has room for two numbers for each feature.
    """
    p0, p1 = X.indptr[i], X.indptr[i + 1]
    for c in range(scores.size):
        scores[c] = weights.bias[first + c]
    if weights.first_bucket[node] == weights.first_bucket[node + 1]:
        return
    for p in range(p0, p1):
        b = bucket_of(weights, node, mixed_number(X.indices[p], weights.bits))
        spans[p - p0, 0] = b
        slot = weights.bucket[b, 0]
        prefetch(weights.key, slot * weights.key.itemsize)
        prefetch(weights.more, slot * weights.more.itemsize)
    last_bits = (1 << int(weights.shift[node])) - 1
    for p in range(p0, p1):
        key = mixed_number(X.indices[p], weights.bits) & last_bits
        start, end = find_entries(weights, spans[p - p0, 0], key)
        spans[p - p0, 0], spans[p - p0, 1] = start, end
        if start < end:
            prefetch(weights.child, start * weights.child.itemsize)
            prefetch(weights.weight, start * weights.weight.itemsize)
    scale = weights.scale[node]
    for p in range(p0, p1):
        v = X.data[p] * scale
        for e in range(spans[p - p0, 0], spans[p - p0, 1]):
            scores[weights.child[e]] += v * np.float32(weights.weight[e])


@njit(nogil=True, cache=True)
def _fetch_buckets(X: Csr, i: int, weights: PackedWeights, node: int) -> None:
    """Prefetch the buckets of a node in which the features of a row are looked up."""
    if weights.first_bucket[node] < weights.first_bucket[node + 1]:
        for p in range(X.indptr[i], X.indptr[i + 1]):
            b = bucket_of(weights, node, mixed_number(X.indices[p], weights.bits))
            prefetch(weights.bucket, 2 * b * weights.bucket.itemsize)


@njit(nogil=True, cache=True)
def search_rows(X: Csr, model: ForestModel, labels: I32, scores: F32, row0: int, row1: int) -> None:
    """Fill the rows of a span of `labels` and `scores`."""
    first_child, label, roots, weights, beam_width = model
    beam, after = new_heap(beam_width), new_heap(beam_width)
    several, share = roots.size > 1, _SHARE if roots.size > 1 else _ONE
    met = new_heap(256 if several else 0)  # the leaves of several trees, in no order
    best_of_tree = new_heap(max(labels.shape[1], _FIVE))  # if there are several
    table = np.full(1, _FREE, dtype=np.int32)
    f = np.empty(64, dtype=np.float32)
    spans = np.empty((64, 2), dtype=np.int64)
    for i in range(row0, row1):
        best = Heap(scores[i], labels[i], np.zeros(1, np.int64))
        met.size[0] = 0
        n_features = X.indptr[i + 1] - X.indptr[i]
        if len(spans) < n_features:
            spans = np.empty((2 * n_features, 2), dtype=np.int64)
        for root in roots:
            beam.scores[0], beam.ids[0], beam.size[0] = 1.0, root, 1
            best_of_tree.size[0] = 0
            leaves = best_of_tree if several else best
            while beam.size[0] > 0:
                after.size[0] = 0
                for b in range(beam.size[0]):
                    node, path = beam.ids[b], beam.scores[b]
                    if is_full(leaves) and path < share * leaves.scores[0]:
                        break  # a path only gets worse, and the next ones are worse already
                    if b + 1 < beam.size[0]:
                        _fetch_buckets(X, i, weights, beam.ids[b + 1])
                    first, n = first_child[node], first_child[node + 1] - first_child[node]
                    if f.size < n:
                        f = np.empty(2 * n, dtype=np.float32)
                    if several and met.ids.size < met.size[0] + n:
                        met = _grown(met, 2 * (met.size[0] + n))
                    g = f[:n]
                    score_chunk(X, i, weights, node, first, spans, g)
                    _offer(g, path, first, label, False, after, met)
                    _offer(g, path, first, label, True, leaves, met)
                beam, after = after, beam
                sort(beam)
        if several:
            if table.size < 2 * met.size[0]:
                table = np.full(4 * met.size[0], _FREE, dtype=np.int32)
            _sum_scores(met, table)
            for j in range(met.size[0]):
                mean = met.scores[j] / np.float32(roots.size)
                if keeps(best, mean, met.ids[j]):
                    push(best, mean, met.ids[j])
        sort(best)


@njit(nogil=True, cache=True)
def _least_margin(path: np.float32, score: np.float32) -> np.float32:
    """Return a margin that is too small to reach a score, to save exponentials."""
    # A little less than the inverse of the sigmoid, so that rounding decides nothing.
    if score < _NORMAL:
        return np.float32(-np.inf)
    return -np.log(max(path / score - _ONE, _ROUNDING)) / SHARPNESS - _ROUNDING


@njit(nogil=True, cache=True)
def _offer(
    f: F32, path: np.float32, first: int, label: I32, leaves: bool, best: Heap, met: Heap
) -> None:
    """Offer the labels of the children that are leaves to the `best`, or inner children.

    If `met` has room, it also gets the leaves that score at least half as much as the worst.
    """
    noted = leaves and met.ids.size > 0
    share = _SHARE if noted else _ONE
    least = _least_margin(path, share * best.scores[0]) if is_full(best) else _NO_MARGIN
    for c in range(f.size):
        y = label[first + c]
        if f[c] >= least and (y >= 0) == leaves:
            number: Any = y if leaves else np.int32(first + c)
            score = path / (_ONE + np.exp(-SHARPNESS * f[c]))
            if noted:
                met.ids[met.size[0]], met.scores[met.size[0]] = number, score
                met.size[0] += 1
            if keeps(best, score, number):
                if leaves and not noted:
                    push_once(best, score, number)
                else:
                    push(best, score, number)
                if is_full(best):
                    least = _least_margin(path, share * best.scores[0])


@njit(nogil=True, cache=True)
def _grown(met: Heap, room: int) -> Heap:
    more = new_heap(room)
    more.size[0] = met.size[0]
    for j in range(met.size[0]):
        more.ids[j], more.scores[j] = met.ids[j], met.scores[j]
    return more


@njit(nogil=True, cache=True)
def _sum_scores(met: Heap, table: I32) -> None:
    """Merge equal labels and sum their scores."""
    # The table finds the place of a label among those left; it is free at first and at the end.
    ids, scores, left = met.ids, met.scores, 0
    for j in range(met.size[0]):
        slot = _label_slot(ids[j], table.size)
        while table[slot] != _FREE and ids[table[slot]] != ids[j]:
            slot = (slot + 1) % table.size
        if table[slot] == _FREE:
            table[slot] = left
            ids[left], scores[left] = ids[j], scores[j]
            left += 1
        else:
            scores[table[slot]] += scores[j]
    for j in range(left):
        slot = _label_slot(ids[j], table.size)
        while table[slot] != _FREE:
            table[slot] = _FREE
            slot = (slot + 1) % table.size
    met.size[0] = left


@njit(nogil=True, cache=True, inline="always")
def _label_slot(number: int, size: int) -> int:
    """Return where the search for a number begins: its hash, scaled to the table."""
    return (mixed_number(number, _HASH_BITS) * size) >> _HASH_BITS
