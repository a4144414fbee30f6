"""Beam search for the best leaves of a tree; Algorithm 1 is the beam of width one.

The score of a leaf is the logarithm of a product over its path: for each node on the path, its
probability among its siblings. A beam of width one differs from Algorithm 1 in one point: the
leaves beside the path stay candidates. A beam as wide as the tree finds the best of all leaves.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numba import njit

from labelry.arrays import F32, I32, Ints
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import balanced_spans, run
from labelry.trees.structure import Tree
from labelry.trees.weights import NodeWeights, as_csr, frozen, score_children

NodeLink = Literal["softmax", "sigmoid"]

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_DENSE_ENTRIES = 1 << 22  # entries of dense rows converted to CSR at a time: 32 MB; not tuned
_LEAST = np.float32(-1e4)  # smallest log-probability of a child: sums over paths stay finite
NONE: Any = np.int64(0)  # numba compiles functions once more for a plain 0
_NO_VECTORS = np.zeros((1, 1), dtype=np.float32)


def beam_search(
    tree: Tree,
    weights: NodeWeights,
    X: Matrix,
    k: int,
    *,
    beam_width: int,
    link: NodeLink = "softmax",
    sharpness: float = 1.0,
    n_jobs: int = 1,
) -> tuple[I32, F32]:
    """Return the k best labels (-1: none) and their log-probabilities, best first, (n_rows, k).

    A search keeps `beam_width` inner nodes at each level; larger is more accurate and slower. The
    link turns scores times `sharpness` into the probability of a child: among its siblings
    ("softmax") or by itself ("sigmoid").
    """
    if link not in ("softmax", "sigmoid"):
        raise ValueError(f"link must be softmax or sigmoid; got {link!r}")
    scorer = (NodeWeights(*frozen(*weights)), _NO_VECTORS)
    model = _model(tree, scorer, link == "softmax", sharpness, beam_width)
    return search_spans(beam_rows, X, k, model, n_jobs)


def search_spans(
    kernel: Callable[..., None], X: Matrix, k: int, model: tuple[Any, ...], n_jobs: int
) -> tuple[I32, F32]:
    """Return labels and scores (n_rows, k) that a kernel fills in, a span of rows in each thread.

    The kernel takes the CSR arrays of the rows, `model`, the arrays to fill, and a span of rows.
    """
    labels = np.full((X.shape[0], k), -1, dtype=np.int32)
    scores = np.full((X.shape[0], k), -np.inf, dtype=np.float32)
    step = max(1, X.shape[0] if not isinstance(X, np.ndarray) else _DENSE_ENTRIES // X.shape[1])
    for start in range(0, X.shape[0], step):
        part = slice(start, start + step)
        csr = as_csr(X[part] if step < X.shape[0] else X)
        out = (labels[part], scores[part])
        tasks = [(*csr, *model, *out, *span) for span in balanced_spans(csr[0], n_jobs)]
        run(kernel, tasks, n_jobs)
    return labels, scores


def beam_search_vectors(
    tree: Tree,
    node_vectors: F32,
    Z: F32,
    k: int,
    *,
    beam_width: int,
    sharpness: float = 1.0,
    n_jobs: int = 1,
) -> tuple[I32, F32]:
    """Return what `beam_search` does, with node scores f_s = z'v_s.

    There is a vector v_s for each node (n_nodes, dim) and a vector z for each row (n_rows, dim).
    With ``z = W x`` and ``beam_width=1`` this is Algorithm 3.
    """
    Z, V = (np.ascontiguousarray(A, dtype=np.float32) for A in (Z, node_vectors))
    model = _model(tree, (None, V), True, sharpness, beam_width)
    return search_spans(beam_rows, Z, k, model, n_jobs)


def _model(
    tree: Tree,
    scorer: tuple[NodeWeights | None, F32],
    softmax: bool,
    sharpness: float,
    beam_width: int,
) -> tuple[Any, ...]:
    """Return the arguments of `beam_rows` that do not depend on the rows."""
    if beam_width < 1:
        raise ValueError(f"beam_width must be at least 1, got {beam_width}")
    weights, vectors = scorer
    how = (softmax, np.float32(sharpness), int(min(beam_width, tree.n_nodes)))
    return (*frozen(tree.first_child, tree.label), weights, *frozen(vectors), *how)


@njit(nogil=True, cache=True)
def beam_rows(
    indptr: Ints,
    indices: Ints,
    data: F32,
    first_child: I32,
    label: I32,
    weights: NodeWeights | None,
    vectors: F32,
    softmax: bool,
    sharpness: np.float32,
    beam_width: int,
    labels: I32,
    scores: F32,
    row0: int,
    row1: int,
) -> None:
    """Fill the rows of a span of `labels` and `scores`; without weights, rows are dense."""
    nodes = np.zeros((2, beam_width), dtype=np.int32)
    paths = np.zeros((2, beam_width), dtype=np.float32)
    f = np.empty(1, dtype=np.float32)
    for i in range(row0, row1):
        n_found, n_beam, now = NONE, 1, 0
        nodes[0, 0], paths[0, 0] = 0, 0.0  # the root
        while n_beam > 0:
            n_next = NONE
            for b in range(n_beam):
                if n_found == scores.shape[1] and paths[now, b] < scores[i, 0]:
                    continue  # a path only gets worse
                node = nodes[now, b]
                n_children = first_child[node + 1] - first_child[node]
                if f.size < n_children:
                    f = np.empty(n_children, dtype=np.float32)
                g = f[:n_children]
                if weights is None:  # vectors give the scores; numba decides this when it compiles
                    _score_vectors(data[indptr[i] : indptr[i + 1]], vectors, first_child[node], g)
                else:
                    score_children(indices, data, indptr[i], indptr[i + 1], weights, node, g)
                _log_probabilities(g, softmax, sharpness)
                n_next, n_found = _expand(
                    first_child[node], g, paths[now, b], label,
                    nodes[1 - now], paths[1 - now], n_next, labels[i], scores[i], n_found,
                )  # fmt: skip
            now, n_beam = 1 - now, n_next
        sort(scores[i], labels[i], n_found)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _score_vectors(z: F32, V: F32, first: int, f: F32) -> None:
    for c in range(f.size):
        v = V[first + c]
        total = np.float32(0.0)
        for t in range(z.size):
            total += z[t] * v[t]
        f[c] = total


@njit(nogil=True, cache=True)
def _log_probabilities(f: F32, softmax: bool, sharpness: np.float32) -> None:
    """Replace f by ``log softmax(sharpness f)``, or ``log sigmoid(sharpness f)``."""
    for c in range(f.size):
        f[c] *= sharpness
    if softmax:
        top = np.max(f)
        total = np.float32(0.0)
        for c in range(f.size):
            total += np.exp(f[c] - top)
        shift = top + np.log(total)
        for c in range(f.size):
            f[c] = max(f[c] - shift, _LEAST)
    else:
        for c in range(f.size):
            # log sigmoid(t) = min(t, 0) - log(1 + exp(-|t|))
            f[c] = max(min(f[c], np.float32(0.0)) - np.log1p(np.exp(-abs(f[c]))), _LEAST)


@njit(nogil=True, cache=True)
def _expand(
    first: int,
    f: F32,
    path: np.float32,
    label: I32,
    nodes: I32,
    paths: F32,
    n_beam: int,
    found: I32,
    found_scores: F32,
    n_found: int,
) -> tuple[int, int]:
    """Offer the children of a node: leaves to those found, inner nodes to the next beam."""
    # Most children are worse than all that are kept. Comparing them here saves a call.
    for c in range(f.size):
        child: Any = np.int32(first + c)
        score = path + f[c]
        y = label[child]
        if y < 0:
            if n_beam < paths.size or worse(paths[0], nodes[0], score, child):
                n_beam = push(paths, nodes, n_beam, score, child)
        elif n_found < found_scores.size or worse(found_scores[0], found[0], score, y):
            n_found = push_once(found_scores, found, n_found, score, y)
    return n_beam, n_found


# The best entries are kept in a heap with the worst on top. Of equal scores the larger number is
# worse.


@njit(nogil=True, cache=True, inline="always")
def worse(a: np.float32, a_id: int, b: np.float32, b_id: int) -> bool:
    return bool(a < b or (a == b and a_id > b_id))


@njit(nogil=True, cache=True)
def push(scores: F32, ids: I32, n: int, score: np.float32, number: int) -> int:
    """Add an entry, in place of the worst (on top) if the heap is full; return the size."""
    if n == scores.size:
        scores[0] = score
        ids[0] = number
        _sink(scores, ids, n, NONE)
        return n
    at = n
    while at > 0:
        up = (at - 1) // 2
        if not worse(score, number, scores[up], ids[up]):
            break
        scores[at] = scores[up]
        ids[at] = ids[up]
        at = up
    scores[at] = score
    ids[at] = number
    return n + 1


@njit(nogil=True, cache=True)
def push_once(scores: F32, ids: I32, n: int, score: np.float32, number: int) -> int:
    """Do the same as `push`; a number that is in the heap already keeps its better score."""
    for at in range(n):
        if ids[at] == number:
            if score > scores[at]:
                scores[at] = score
                _sink(scores, ids, n, at)
            return n
    return push(scores, ids, n, score, number)


@njit(nogil=True, cache=True)
def _sink(scores: F32, ids: I32, n: int, at: int) -> None:
    while True:
        worst = at
        for below in (2 * at + 1, 2 * at + 2):
            if below < n and worse(scores[below], ids[below], scores[worst], ids[worst]):
                worst = below
        if worst == at:
            return
        scores[at], scores[worst] = scores[worst], scores[at]
        ids[at], ids[worst] = ids[worst], ids[at]
        at = worst


@njit(nogil=True, cache=True)
def sort(scores: F32, ids: I32, n: int) -> None:
    """Turn the heap into a list, best first."""
    for last in range(n - 1, 0, -1):
        scores[0], scores[last] = scores[last], scores[0]
        ids[0], ids[last] = ids[last], ids[0]
        _sink(scores, ids, last, NONE)
