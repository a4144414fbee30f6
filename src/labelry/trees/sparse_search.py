"""Find the best labels of rows by the sparse weights of one or more trees, with a beam search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from labelry.arrays import F32, I32, I64
from labelry.linalg.kernels import Csr
from labelry.linalg.lanes import prefetch
from labelry.linalg.matrices import Matrix
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
_NO_MARGIN = np.float32(-np.inf)
_NORMAL = np.finfo(np.float32).tiny  # smaller scores have fewer digits


class ForestModel(NamedTuple):
    """Store one or more trees in one array; searches begin at their roots."""

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
    several, share = roots.size > 1, _SHARE if roots.size > 1 else _ONE
    nodes, next_nodes = np.zeros(beam_width, np.int32), np.zeros(beam_width, np.int32)
    paths, next_paths = np.zeros(beam_width, np.float32), np.zeros(beam_width, np.float32)
    f = np.empty(64, dtype=np.float32)
    spans = np.empty((64, 2), dtype=np.int64)
    n = 256 if several else 0
    met, met_scores = np.empty(n, np.int32), np.empty(n, np.float32)  # leaves of several trees
    table = np.full(1, _FREE, dtype=np.int32)
    n = max(labels.shape[1], _FIVE)
    five, five_scores = np.empty(n, np.int32), np.empty(n, np.float32)  # best leaves of one of them
    for i in range(row0, row1):
        best, best_scores = labels[i], scores[i]
        kept, kept_scores = (five, five_scores) if several else (best, best_scores)
        n_best, n_met = NONE, NONE
        n_features = X.indptr[i + 1] - X.indptr[i]
        if len(spans) < n_features:
            spans = np.empty((2 * n_features, 2), dtype=np.int64)
        for root in roots:
            nodes[0], paths[0], n_beam, n_kept = root, 1.0, 1, NONE
            while n_beam > 0:
                n_next = NONE
                for b in range(n_beam):
                    node, path = nodes[b], paths[b]
                    if n_kept == kept.size and path < share * kept_scores[0]:
                        break  # a path only gets worse, and the next ones are worse already
                    if b + 1 < n_beam:
                        _fetch_buckets(X, i, weights, nodes[b + 1])
                    first, n = first_child[node], first_child[node + 1] - first_child[node]
                    if f.size < n:
                        f = np.empty(2 * n, dtype=np.float32)
                    if several and met.size < n_met + n:
                        met, met_scores = _grown(met, met_scores, 2 * (n_met + n))
                    g = f[:n]
                    score_chunk(X, i, weights, node, first, spans, g)
                    n_next, _ = _offer(
                        g, path, first, label, False, next_nodes, next_paths, n_next, met,
                        met_scores, n_met,
                    )  # fmt: skip
                    n_kept, n_met = _offer(
                        g, path, first, label, True, kept, kept_scores, n_kept, met,
                        met_scores, n_met,
                    )  # fmt: skip
                nodes, next_nodes = next_nodes, nodes
                paths, next_paths = next_paths, paths
                n_beam = n_next
                sort(paths, nodes, n_beam)
            n_best = NONE if several else n_kept
        if several:
            if table.size < 2 * n_met:
                table = np.full(4 * n_met, _FREE, dtype=np.int32)
            n_met = _sum_scores(met, met_scores, n_met, table)
            for j in range(n_met):
                mean = met_scores[j] / np.float32(roots.size)
                if n_best < best.size or worse(best_scores[0], best[0], mean, met[j]):
                    n_best = push(best_scores, best, n_best, mean, met[j])
        sort(best_scores, best, n_best)


@njit(nogil=True, cache=True)
def _least_margin(path: np.float32, score: np.float32) -> np.float32:
    """Return a margin that is too small to reach a score, to save exponentials."""
    # A little less than the inverse of the sigmoid, so that rounding decides nothing.
    if score < _NORMAL:
        return np.float32(-np.inf)
    return -np.log(max(path / score - _ONE, _ROUNDING)) / SHARPNESS - _ROUNDING


@njit(nogil=True, cache=True)
def _offer(
    f: F32,
    path: np.float32,
    first: int,
    label: I32,
    leaves: bool,
    best: I32,
    scores: F32,
    n: int,
    met: I32,
    met_scores: F32,
    n_met: int,
) -> tuple[int, int]:
    """Offer the labels of children that are leaves, or inner children, to the n best.

    If `met` has room, it gets the leaves that score at least half as much as the worst of these.
    Returns the sizes of both lists.
    """
    noted = leaves and met.size > 0
    share = _SHARE if noted else _ONE
    least = _least_margin(path, share * scores[0]) if n == best.size else _NO_MARGIN
    for c in range(f.size):
        y = label[first + c]
        if (y >= 0) == leaves and f[c] >= least:
            number: Any = y if leaves else np.int32(first + c)
            score = path / (_ONE + np.exp(-SHARPNESS * f[c]))
            if noted:
                met[n_met], met_scores[n_met] = number, score
                n_met += 1
            if n < best.size or worse(scores[0], best[0], score, number):
                if leaves and not noted:
                    n = push_once(scores, best, n, score, number)
                else:
                    n = push(scores, best, n, score, number)
                if n == best.size:
                    least = _least_margin(path, share * scores[0])
    return n, n_met


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
