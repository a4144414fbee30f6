"""Beam search for the best leaves of a tree; Algorithm 1 is the beam of width one.

The score of a leaf is the logarithm of a product over its path: for each node on the path, its
probability among its siblings. A beam of width one differs from Algorithm 1 in one point: the
leaves beside the path stay candidates. A beam as wide as the tree finds the best of all leaves.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numba import njit

from labelry.arrays import F32, I32
from labelry.linalg.kernels import Csr
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


class BeamModel(NamedTuple):
    """A tree, what scores its nodes (weights, or vectors where these are None), and the search."""

    first_child: I32
    label: I32
    weights: NodeWeights | None
    vectors: F32
    softmax: bool
    sharpness: np.float32
    beam_width: int


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
    weights = NodeWeights(*frozen(*weights))
    model = _model(tree, weights, _NO_VECTORS, link == "softmax", sharpness, beam_width)
    return search_spans(beam_rows, X, k, model, n_jobs)


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
    model = _model(tree, None, V, True, sharpness, beam_width)
    return search_spans(beam_rows, Z, k, model, n_jobs)


def _model(
    tree: Tree, weights: NodeWeights | None, V: F32, softmax: bool, sharpness: float, width: int
) -> BeamModel:
    if width < 1:
        raise ValueError(f"beam_width must be at least 1, got {width}")
    first_child, label, V = frozen(tree.first_child, tree.label, V)
    how = (softmax, np.float32(sharpness), int(min(width, tree.n_nodes)))
    return BeamModel(first_child, label, weights, V, *how)


def search_spans(
    kernel: Callable[..., None], X: Matrix, k: int, model: tuple[Any, ...], n_jobs: int
) -> tuple[I32, F32]:
    """Return labels and scores (n_rows, k) that a kernel fills in, a span of rows in each thread.

    The kernel takes the rows, `model`, the arrays to fill, and a span of rows.
    """
    labels = np.full((X.shape[0], k), -1, dtype=np.int32)
    scores = np.full((X.shape[0], k), -np.inf, dtype=np.float32)
    step = max(1, X.shape[0] if not isinstance(X, np.ndarray) else _DENSE_ENTRIES // X.shape[1])
    for start in range(0, X.shape[0], step):
        part = slice(start, start + step)
        csr = as_csr(X[part] if step < X.shape[0] else X)
        given = (csr, model, labels[part], scores[part])
        run(kernel, [(*given, *span) for span in balanced_spans(csr.indptr, n_jobs)], n_jobs)
    return labels, scores


@njit(nogil=True, cache=True)
def beam_rows(X: Csr, model: BeamModel, labels: I32, scores: F32, row0: int, row1: int) -> None:
    """Fill the rows of a span of `labels` and `scores`; without weights, rows are dense."""
    first_child, label, weights, vectors, softmax, sharpness, beam_width = model
    nodes = np.zeros((2, beam_width), dtype=np.int32)
    paths = np.zeros((2, beam_width), dtype=np.float32)
    f = np.empty(1, dtype=np.float32)
    for i in range(row0, row1):
        found, found_scores = labels[i], scores[i]
        n_found, n_beam, now = NONE, 1, 0
        nodes[0, 0], paths[0, 0] = 0, 0.0  # the root
        while n_beam > 0:
            n_next, after, after_paths = NONE, nodes[1 - now], paths[1 - now]
            for b in range(n_beam):
                node, path = nodes[now, b], paths[now, b]
                if n_found == found.size and path < found_scores[0]:
                    continue  # a path only gets worse
                first, n_children = first_child[node], first_child[node + 1] - first_child[node]
                if f.size < n_children:
                    f = np.empty(n_children, dtype=np.float32)
                g = f[:n_children]
                _score_nodes(X, i, weights, vectors, node, first, g)
                _log_probabilities(g, softmax, sharpness)
                # Most children are worse than all that are kept. Comparing them here saves a call.
                for c in range(n_children):
                    child: Any = np.int32(first + c)
                    score, y = path + g[c], label[child]
                    if y < 0:
                        if n_next < after.size or worse(after_paths[0], after[0], score, child):
                            n_next = push(after_paths, after, n_next, score, child)
                    elif n_found < found.size or worse(found_scores[0], found[0], score, y):
                        n_found = push_once(found_scores, found, n_found, score, y)
            now, n_beam = 1 - now, n_next
        sort(found_scores, found, n_found)


@njit(nogil=True, cache=True)
def _score_nodes(
    X: Csr, i: int, weights: NodeWeights | None, V: F32, node: int, first: int, f: F32
) -> None:
    if weights is None:  # vectors give the scores; numba decides this when it compiles
        _score_vectors(X.data[X.indptr[i] : X.indptr[i + 1]], V, first, f)
    else:
        score_children(X, i, weights, node, f)


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


# The best entries are kept in a heap with the worst on top. Of equal scores the larger number is
# worse.


@njit(nogil=True, cache=True, inline="always")
def worse(a: np.float32, a_id: int, b: np.float32, b_id: int) -> bool:
    return bool(a < b or (a == b and a_id > b_id))


@njit(nogil=True, cache=True)
def push(scores: F32, ids: I32, n: int, score: np.float32, number: int) -> int:
    """Add an entry, in place of the worst (on top) if the heap is full; return the size."""
    if n == scores.size:
        scores[0], ids[0] = score, number
        _sink(scores, ids, n, NONE)
        return n
    at = n
    while at > 0:
        up = (at - 1) // 2
        if not worse(score, number, scores[up], ids[up]):
            break
        scores[at], ids[at] = scores[up], ids[up]
        at = up
    scores[at], ids[at] = score, number
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
