"""Training the linear classifiers of a tree, each child against its siblings.

A child of a node is right for the rows with a label below it, and wrong for the other rows that
reach the node, i.e. have some label below that. Each classifier minimises

    1/2 ||w||^2 + C sum_i loss(y_i w'x_i),   loss(m) = max(0, 1 - m)^2  or  log(1 + e^-4m)

and small weights are dropped.

References
----------
Prabhu et al.: Parabel: partitioned label trees for extreme classification, 2018 (section 4).
Babbar, Schoelkopf: DiSMEC, 2017 (pruning).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.linalg import dual_descent
from labelry.linalg.dual_descent import Loss
from labelry.linalg.lanes import LANES
from labelry.linalg.parallel import stream
from labelry.linalg.rows import Matrix
from labelry.progress import phase
from labelry.trees.sparse_weights import Chunk, SparseWeights, join_chunks, pack_chunk
from labelry.trees.structure import Tree
from labelry.trees.train import reach

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]
Entries: TypeAlias = tuple[I32, I32, F32]  # feature, child and weight

_WORK = 1 << 20  # nonzeros times groups of children of a task: nodes with more are split
_ROOT_SHARE = 0.4  # of C at a root, where all rows are losses against the same regulariser
_SHARPNESS = 4.0  # log-odds of a margin of 1, as in the search
_NO_ROWS = -1.0  # intercept of a child that no row has: what others tend to on foreign rows


def train_linear(
    X: Matrix,
    Y: csr_array,
    tree: Tree,
    roots: I32,
    *,
    loss: Loss = "squared_hinge",
    C: float = 1.25,
    prune: float = 0.1,
    tolerance: float = 0.1,
    max_sweeps: int = 20,
    rng: np.random.Generator,
    n_jobs: int = 1,
) -> SparseWeights:
    """The weights of all nodes below these roots; each root is reached by all rows.

    Time: for each node the nonzeros of its rows, times its children, times the sweeps. Memory:
    the weights that are left twice, and for each thread the rows of a node and 64 bytes for each
    of their features.

    Parameters
    ----------
    loss : {"squared_hinge", "logistic"}
        The second of four times the margin, so that margins of both mean the same.
    C : float
        Weight of the losses against the regulariser, below a root two fifths of it; larger fits
        the rows more closely.
    prune : float
        Weights of at most this absolute value are dropped; larger is smaller and faster.
    tolerance, max_sweeps
        As for `OneVsRest`.
    """
    trainer = _Trainer(X, Y, tree, roots, loss, (C, tolerance, max_sweeps), prune)
    inner = np.flatnonzero(tree.label < 0)
    nodes = inner[np.searchsorted(inner, roots[0]) :]  # not the root above several
    seeds = rng.integers(1, 2**31, size=len(nodes))
    bias = np.full(tree.n_nodes, _NO_ROWS, dtype=np.float32)
    chunks: dict[int, Chunk] = {}
    parts: list[_Part] = []
    with phase("training nodes", len(nodes), "nodes") as advance:
        for part in stream(trainer.train, trainer.tasks(nodes, seeds), n_jobs):
            bias[part.children] = part.bias
            parts.append(part)
            if part.last:
                chunks[part.node] = pack_chunk(*_joined([p[:3] for p in parts]), X.shape[1])
                parts = []
                advance(1)
    return join_chunks(tree, chunks, bias)


class _Part(NamedTuple):
    """What is left of the weights of some children of a node."""

    feature: I32
    child: I32  # counted from the first child
    weight: F32
    children: I32
    bias: F32
    node: int
    last: bool  # whether these are the last children of the node


class _Trainer:
    def __init__(
        self,
        X: Matrix,
        Y: csr_array,
        tree: Tree,
        roots: I32,
        loss: Loss,
        options: tuple[float, float, int],
        prune: float,
    ) -> None:
        self._X = csr_array(X)
        self._energy = (self._X.multiply(self._X).sum(axis=1) + 1.0).astype(np.float32)
        self._tree, self._roots = tree, set(roots.tolist())
        self._rows_of = reach(tree, Y)
        self._all = np.arange(X.shape[0], dtype=np.int32)
        self._loss, self._options, self._prune = loss, options, np.float32(prune)

    def tasks(self, nodes: Ints, seeds: Ints) -> Iterator[tuple[int, I32, int, bool]]:
        """Nodes with their children that have rows; large nodes in several parts."""
        n_rows = np.diff(self._rows_of.indptr)
        n_features = np.diff(self._X.indptr)
        for node, seed in zip(nodes.tolist(), seeds.tolist(), strict=True):
            first, end = self._tree.first_child[node], self._tree.first_child[node + 1]
            # Children of like frequency take a like number of sweeps: put them in one group.
            order = np.argsort(-n_rows[first:end], kind="stable")
            children = (first + order[: np.count_nonzero(n_rows[first:end])]).astype(np.int32)
            work = int(n_features[self._rows(node)].sum()) + 1
            step = LANES * max(1, _WORK // work)
            for start in range(0, max(len(children), 1), step):
                last = start + step >= len(children)
                yield node, children[start : start + step], seed, last

    def train(self, node: int, children: I32, seed: int, last: bool) -> _Part:
        """Train some children of a node."""
        rows = self._rows(node)
        csr, features = self._local(rows)
        C, tolerance, max_sweeps = self._options
        C *= _ROOT_SHARE if node in self._roots else 1.0
        stop = (tolerance, max_sweeps, seed)
        found: list[Entries] = []
        bias = np.empty(len(children), dtype=np.float32)
        for start in range(0, len(children), LANES):
            group = children[start : start + LANES]
            signs = np.full((len(rows), LANES), -1, dtype=np.int8)
            for lane, child in enumerate(group):
                signs[np.searchsorted(rows, self._rows(child)), lane] = 1
            W = np.zeros((len(features) + 1, LANES), dtype=np.float32)
            energy = self._energy[rows]
            if self._loss == "logistic":
                # With v = 4w: 1/32 ||v||^2 + C sum_i log(1 + exp(-y_i v'x_i))
                dual_descent.logistic(*csr, signs, energy, _SHARPNESS**2 * C, *stop, W)
                W /= np.float32(_SHARPNESS)
            else:
                dual_descent.squared_hinge(*csr, signs, energy, C, *stop, W)
            places = group - self._tree.first_child[node]
            found.append(large_weights(W, self._prune, features, places))
            bias[start : start + LANES] = W[-1, : len(group)]
        return _Part(*_joined(found), children, bias, node, last)

    def _rows(self, node: int) -> I32:
        if node in self._roots:
            return self._all
        return self._rows_of.indices[self._rows_of.indptr[node] : self._rows_of.indptr[node + 1]]

    def _local(self, rows: I32) -> tuple[tuple[Ints, I32, F32], I32]:
        """CSR arrays of some rows, with their features numbered anew; and those features."""
        X = self._X
        if len(rows) == X.shape[0]:
            return (X.indptr, X.indices, X.data), np.arange(X.shape[1], dtype=np.int32)
        indptr = np.zeros(len(rows) + 1, dtype=X.indptr.dtype)
        np.cumsum(np.diff(X.indptr)[rows], out=indptr[1:])
        indices = np.empty(indptr[-1], dtype=np.int32)
        data = np.empty(indptr[-1], dtype=np.float32)
        features = np.empty(min(X.shape[1], len(data)), dtype=np.int32)
        number = np.zeros(X.shape[1], dtype=np.int32)
        n = gather_rows(X.indptr, X.indices, X.data, rows, indices, data, features, number)
        return (indptr, indices, data), features[:n]


def _joined(parts: Sequence[Entries]) -> Entries:
    none = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    feature, child, weight = zip(none, *parts, strict=True)
    return np.concatenate(feature), np.concatenate(child), np.concatenate(weight)


@njit(nogil=True, cache=True)
def gather_rows(
    indptr: Ints,
    indices: Ints,
    data: F32,
    rows: I32,
    out_indices: I32,
    out_data: F32,
    features: I32,
    number: I32,
) -> int:
    """Copy rows, with features numbered as they come; returns how many there are.

    ``number[f]`` is 1 + the new number of feature f; zero at first.
    """
    n, at = 0, 0
    for i in rows:
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            if number[f] == 0:
                features[n] = f
                n += 1
                number[f] = n
            out_indices[at] = number[f] - 1
            out_data[at] = data[p]
            at += 1
    return n


@njit(nogil=True, cache=True)
def large_weights(W: F32, prune: np.float32, features: I32, children: I32) -> Entries:
    """Feature, child and weight where ``abs(W[:-1, : len(children)]) > prune``."""
    n = 0
    for f in range(features.size):
        for lane in range(children.size):
            n += abs(W[f, lane]) > prune
    feature = np.empty(n, dtype=np.int32)
    child = np.empty(n, dtype=np.int32)
    weight = np.empty(n, dtype=np.float32)
    at = 0
    for f in range(features.size):
        for lane in range(children.size):
            if abs(W[f, lane]) > prune:
                feature[at] = features[f]
                child[at] = children[lane]
                weight[at] = W[f, lane]
                at += 1
    return feature, child, weight
