"""Find the best labels of rows by the sparse weights of one or more trees, with a beam search."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from labelry.arrays import F32, I32, I64, Ints
from labelry.linalg.matrices import Matrix
from labelry.linalg.prefetch import prefetch
from labelry.trees.search import NONE, push, push_once, search_spans, sort, worse
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
_NORMAL = np.finfo(np.float32).tiny  # smaller scores have fewer digits


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
    shape = frozen(tree.first_child, tree.label, roots)
    model = (*shape, weights.read_only(), int(min(beam_width, tree.n_nodes)))
    return search_spans(search_rows, X, k, model, n_jobs)


@njit(nogil=True, cache=True)
def score_chunk(
    indices: Ints,
    data: F32,
    p0: int,
    p1: int,
    weights: PackedWeights,
    node: int,
    first_child: int,
    n_children: int,
    spans: I64,
    scores: F32,
) -> None:
    """Compute ``scores[c] = w_c'x + b_c`` for the children c of a node; x is ``data[p0:p1]``.

    All features are looked up and their weights prefetched before the first weight is used. `spans`
    has room for two numbers for each feature.
    """
    for c in range(n_children):
        scores[c] = weights.bias[first_child + c]
    if weights.first_bucket[node] == weights.first_bucket[node + 1]:
        return
    for p in range(p0, p1):
        b = bucket_of(weights, node, mixed_number(indices[p], weights.bits))
        spans[p - p0, 0] = b
        slot = weights.bucket[b, 0]
        prefetch(weights.key, slot * weights.key.itemsize)
        prefetch(weights.more, slot * weights.more.itemsize)
    last_bits = (1 << int(weights.shift[node])) - 1
    for p in range(p0, p1):
        key = mixed_number(indices[p], weights.bits) & last_bits
        start, end = find_entries(weights, spans[p - p0, 0], key)
        spans[p - p0, 0], spans[p - p0, 1] = start, end
        if start < end:
            prefetch(weights.child, start * weights.child.itemsize)
            prefetch(weights.weight, start * weights.weight.itemsize)
    scale = weights.scale[node]
    for p in range(p0, p1):
        v = data[p] * scale
        for e in range(spans[p - p0, 0], spans[p - p0, 1]):
            scores[weights.child[e]] += v * np.float32(weights.weight[e])


@njit(nogil=True, cache=True)
def _fetch_buckets(indices: Ints, p0: int, p1: int, weights: PackedWeights, node: int) -> None:
    """Prefetch the buckets of a node in which the features of a row are looked up."""
    if weights.first_bucket[node] < weights.first_bucket[node + 1]:
        for p in range(p0, p1):
            b = bucket_of(weights, node, mixed_number(indices[p], weights.bits))
            prefetch(weights.bucket, 2 * b * weights.bucket.itemsize)


@njit(nogil=True, cache=True)
def search_rows(
    indptr: Ints,
    indices: Ints,
    data: F32,
    first_child: I32,
    label: I32,
    roots: I32,
    weights: PackedWeights,
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
    spans = np.empty((64, 2), dtype=np.int64)
    met = np.empty(256, dtype=np.int32)  # labels of the leaves of several trees
    met_scores = np.empty(256, dtype=np.float32)
    table = np.full(1, _FREE, dtype=np.int32)
    first_five = np.empty(max(k, _FIVE), dtype=np.int32)  # best leaves of one of several trees
    five_scores = np.empty(max(k, _FIVE), dtype=np.float32)
    for i in range(row0, row1):
        best, best_scores = labels[i], scores[i]
        n_best, n_met = NONE, NONE
        p0, p1 = indptr[i], indptr[i + 1]
        if len(spans) < p1 - p0:
            spans = np.empty((2 * (p1 - p0), 2), dtype=np.int64)
        for root in roots:
            nodes[0], paths[0], n_beam, n_five = root, 1.0, 1, NONE
            while n_beam > 0:
                n_next = NONE
                for b in range(n_beam):
                    node, path = nodes[b], paths[b]
                    if n_best == k and path < best_scores[0]:
                        break  # a path only gets worse, and the next ones are worse already
                    if n_five == five_scores.size and path < _SHARE * five_scores[0]:
                        break
                    if b + 1 < n_beam:
                        _fetch_buckets(indices, p0, p1, weights, nodes[b + 1])
                    first, n = first_child[node], first_child[node + 1] - first_child[node]
                    if f.size < n:
                        f = np.empty(2 * n, dtype=np.float32)
                    if met.size < n_met + n:
                        met, met_scores = _grown(met, met_scores, 2 * (n_met + n))
                    score_chunk(indices, data, p0, p1, weights, node, first, n, spans, f)
                    n_next = _push_nodes(f, n, path, first, label, next_nodes, next_paths, n_next)
                    if roots.size == 1:
                        n_best = _push_leaves(f, n, path, first, label, best, best_scores, n_best)
                    else:
                        n_met, n_five = _note_leaves(
                            f, n, path, first, label, met, met_scores, n_met,
                            first_five, five_scores, n_five,
                        )  # fmt: skip
                nodes, next_nodes = next_nodes, nodes
                paths, next_paths = next_paths, paths
                n_beam = n_next
                sort(paths, nodes, n_beam)
        if roots.size > 1:
            if table.size < 2 * n_met:
                table = np.full(4 * n_met, _FREE, dtype=np.int32)
            n_met = _sum_scores(met, met_scores, n_met, table)
            for j in range(n_met):
                mean = met_scores[j] / np.float32(roots.size)
                if n_best < k or worse(best_scores[0], best[0], mean, met[j]):
                    n_best = push(best_scores, best, n_best, mean, met[j])
        sort(best_scores, best, n_best)


@njit(nogil=True, cache=True, inline="always")
def _score(margin: np.float32, path: np.float32) -> np.float32:
    """Return the score of a child, from its margin and the score of the path to its parent."""
    return path / (_ONE + np.exp(-SHARPNESS * margin))


@njit(nogil=True, cache=True)
def _least_margin(path: np.float32, score: np.float32) -> np.float32:
    """Return a margin that is too small to reach a score, to save exponentials."""
    # A little less than the inverse of `_score`, so that rounding decides nothing.
    if score < _NORMAL:
        return np.float32(-np.inf)
    return -np.log(max(path / score - _ONE, _ROUNDING)) / SHARPNESS - _ROUNDING


@njit(nogil=True, cache=True)
def _push_nodes(
    f: F32, n: int, path: np.float32, first: int, label: I32, nodes: I32, paths: F32, n_beam: int
) -> int:
    """Offer the children that are inner nodes to the next beam; return its size."""
    least = _least_margin(path, paths[0]) if n_beam == nodes.size else np.float32(-np.inf)
    for c in range(n):
        if label[first + c] < 0 and f[c] >= least:
            score = _score(f[c], path)
            child: Any = np.int32(first + c)
            if n_beam < nodes.size or worse(paths[0], nodes[0], score, child):
                n_beam = push(paths, nodes, n_beam, score, child)
                if n_beam == nodes.size:
                    least = _least_margin(path, paths[0])
    return n_beam


@njit(nogil=True, cache=True)
def _push_leaves(
    f: F32, n: int, path: np.float32, first: int, label: I32, best: I32, scores: F32, n_best: int
) -> int:
    """Offer the labels of children that are leaves to the best; return how many those are."""
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
    f: F32,
    n: int,
    path: np.float32,
    first: int,
    label: I32,
    met: I32,
    scores: F32,
    n_met: int,
    best: I32,
    best_scores: F32,
    n_best: int,
) -> tuple[int, int]:
    """Append the labels of leaves that score enough; return the sizes of both lists."""
    full = n_best == best.size
    least = _least_margin(path, _SHARE * best_scores[0]) if full else np.float32(-np.inf)
    for c in range(n):
        y = label[first + c]
        if y >= 0 and f[c] >= least:
            score = _score(f[c], path)
            met[n_met], scores[n_met] = y, score
            n_met += 1
            if n_best < best.size or worse(best_scores[0], best[0], score, y):
                n_best = push(best_scores, best, n_best, score, y)
                if n_best == best.size:
                    least = _least_margin(path, _SHARE * best_scores[0])
    return n_met, n_best


@njit(nogil=True, cache=True)
def _grown(found: I32, scores: F32, size: int) -> tuple[I32, F32]:
    more, more_scores = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
    for i in range(found.size):
        more[i], more_scores[i] = found[i], scores[i]
    return more, more_scores


@njit(nogil=True, cache=True)
def _sum_scores(met: I32, scores: F32, n: int, table: I32) -> int:
    """Merge equal labels and sum their scores; return how many labels are left."""
    # The table finds the place of a label among those left; it is free at first and at the end.
    left = 0
    for j in range(n):
        slot = _label_slot(met[j], table.size)
        while table[slot] != _FREE and met[table[slot]] != met[j]:
            slot = (slot + 1) % table.size
        if table[slot] == _FREE:
            table[slot] = left
            met[left], scores[left] = met[j], scores[j]
            left += 1
        else:
            scores[table[slot]] += scores[j]
    for j in range(left):
        slot = _label_slot(met[j], table.size)
        while table[slot] != _FREE:
            table[slot] = _FREE
            slot = (slot + 1) % table.size
    return left


@njit(nogil=True, cache=True, inline="always")
def _label_slot(number: int, size: int) -> int:
    """Return where the search for a number begins: its hash, scaled to the table."""
    return (mixed_number(number, _HASH_BITS) * size) >> _HASH_BITS
