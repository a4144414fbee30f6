"""Train the linear classifiers of a tree, each child against its siblings.

The rows that reach a node are those with some label below it. For a child of the node, rows with a
label below the child are positive, and the other rows that reach the node are negative. Each
classifier minimises

    1/2 ||w||^2 + C sum_i loss(y_i w'x_i),   loss(m) = max(0, 1 - m)^2  or  log(1 + e^-4m)

and small weights are dropped. The margins of sets of labels are then reduced a little, so that
labels of the second-best set can still rank above those of the best set.

Prabhu et al.: Parabel: partitioned label trees for extreme classification, 2018 (section 4).
Babbar, Schoelkopf: DiSMEC, 2017 (pruning).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.arrays import F32, I32, Bools, Ints, Rng
from labelry.linalg import dual_descent
from labelry.linalg.block_descent import Group, train_by_blocks
from labelry.linalg.dual_descent import (
    LaneProblem,
    MarginLoss,
    block_bounds,
    descend_blocks,
    new_sweeps,
)
from labelry.linalg.kernels import Csr, csr_parts, local_columns
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import spans, stream
from labelry.linalg.rows import Block, Parts, Rows, StreamedRows
from labelry.progress import phase
from labelry.trees.sparse_search import SHARPNESS
from labelry.trees.sparse_weights import PackedChunk, PackedWeights, join_chunks, pack_chunk
from labelry.trees.structure import Tree
from labelry.trees.train import reach

Entries: TypeAlias = tuple[I32, I32, F32]  # feature, child and weight

_WORK = 1 << 20  # most nonzeros times groups of children in a task; not tuned
_BATCH = 1 << 17  # the same for a batch of small nodes; not tuned
# The next four were chosen on the rows that docs/limits.md names. More rows mean more losses
# against the same regulariser, so their weight is smaller: at a root a share of C (a larger one for
# several trees, whose mean overfits less), and below a root C (400 / n)^(1/4) for n rows.
_ROOT_SHARE = 0.4
_ROOT_SHARE_OF_SEVERAL = 0.55
_ROWS_OF_C, _POWER_OF_ROWS = 400, 0.25
_OF_SETS = np.float32(0.875)  # factor on the margins of sets of labels; not tuned
_SHARE = 6  # part of the memory for the rows of a batch of nodes, and for weights; not tuned
_NO_ROWS = -1.0  # intercept of a child without rows: the margin of a row that is not in a class


class Training(NamedTuple):
    """How to train the classifiers of a tree.

    The logistic loss takes four times the margin, so that margins of both losses mean the same. C
    is the weight of the losses against the regulariser for a node of 400 rows. With n rows it is
    multiplied by (400 / n)^(1/4), and at a root by 0.4 (0.55 if there are several trees). Weights
    of at most `prune` are dropped and the others rounded to one byte; with 0 they stay exact.
    """

    loss: MarginLoss = "squared_hinge"
    C: float = 1.25
    prune: float = 0.1
    tolerance: float = 0.1  # projected gradient at which a classifier is done
    max_sweeps: int = 20
    rounds: int | None = None  # see `labelry.linalg.dual_descent.Sweeps`


class Again(NamedTuple):
    """Weights of a tree, and the nodes (n_nodes,) whose classifiers are trained once more."""

    weights: PackedWeights
    chosen: Bools

    def entries(self, tree: Tree, node: int) -> Entries:
        """Return the weights of a node that stay: those of children that are not trained again."""
        feature, child, weight = self.weights.entries(node)
        stays = ~self.chosen[tree.first_child[node] + child]
        return feature[stays].astype(np.int32), child[stays].astype(np.int32), weight[stays]


def train_linear(
    rows: Rows, tree: Tree, roots: I32, how: Training, *, again: Again | None = None, rng: Rng
) -> PackedWeights:
    """Return the weights of all nodes below these roots; each root is reached by all rows.

    Time: for each node the nonzeros of its rows, times its children, times the sweeps. Memory:
    twice the weights that are left, and for each thread the rows of a node and 64 bytes for each of
    their features. Rows that are not in memory are gathered for as many nodes at a time as fit (on
    a cluster, on the workers). A root, and a node whose rows do not fit, are trained by blocks from
    a temporary file; on a cluster each worker trains some of the children.
    """
    inner = np.flatnonzero(tree.label < 0)
    nodes = inner[np.searchsorted(inner, roots[0]) :]  # not the root above several
    bias = np.full(tree.n_nodes, _NO_ROWS, dtype=np.float32)
    chosen = np.ones(tree.n_nodes, dtype=bool)
    if again is not None:
        chosen = again.chosen
        bias[~chosen] = again.weights.bias[~chosen]
    chunks: dict[int, PackedChunk] = {}
    plan = _Plan(tree, len(roots), int(roots[-1]), chosen, how)
    trainer: _Trainer | _StreamedTrainer
    if isinstance(rows, StreamedRows):
        trainer = _StreamedTrainer(rows, plan)
    else:
        X, Y = rows.gathered("X", "Y")
        trainer = _Trainer(X, Y, plan)
    trained = np.intersect1d(nodes, tree.parent[np.flatnonzero(chosen)])
    seeds = rng.integers(1, 2**31, size=len(trained))
    share = np.where(tree.label < 0, _OF_SETS, np.float32(1))

    def pack(node: int, parts: list[_Part]) -> PackedChunk:
        first = tree.first_child[node]
        stay = [] if again is None else [again.entries(tree, node)]
        new = [(p.feature, p.child, share[first + p.child] * p.weight) for p in parts]
        return pack_chunk(*_join_entries([*stay, *new]), rows.n_features)

    parts: list[_Part] = []
    with phase("training classifiers", len(trained), "nodes") as advance:
        for part in trainer.train(trained, seeds, rows.n_jobs):
            bias[part.children] = share[part.children] * part.bias
            parts.append(part)
            if part.last:
                chunks[part.node], parts = pack(part.node, parts), []
                advance(1)
    chunks |= {node: pack(node, []) for node in np.setdiff1d(nodes, trained).tolist()}
    return join_chunks(tree, chunks, bias, rows.n_features, exact=how.prune == 0)


class _Plan(NamedTuple):
    """What is to be trained: the chosen nodes (n_nodes,) of a tree, and how."""

    tree: Tree
    n_roots: int
    last_root: int
    chosen: Bools
    how: Training

    def is_root(self, node: int) -> bool:
        return node <= self.last_root  # node 0, the parent of several roots, is never trained

    def children(self, node: int, n_rows: NDArray[Any]) -> I32:
        """Return the chosen children of a node that have rows, counted from its first.

        They are ordered by frequency: children of similar frequency take a similar number of
        sweeps, so they should be trained in one group.
        """
        part = slice(self.tree.first_child[node], self.tree.first_child[node + 1])
        n_rows = n_rows[part] * self.chosen[part]
        order = np.argsort(-n_rows, kind="stable")
        return order[: np.count_nonzero(n_rows)].astype(np.int32)

    def scaled_loss(self, node: int, n_rows: int) -> tuple[float, np.float32]:
        """Return C of a node for `dual_descent`, and the factor on its weights.

        With v = 4w the logistic objective is 1/32 ||v||^2 + C sum_i log(1 + exp(-y_i v'x_i)).
        """
        if self.is_root(node):
            C = self.how.C * (_ROOT_SHARE if self.n_roots == 1 else _ROOT_SHARE_OF_SEVERAL)
        else:
            C = self.how.C * (_ROWS_OF_C / max(n_rows, 1)) ** _POWER_OF_ROWS
        if self.how.loss == "logistic":
            return float(SHARPNESS) ** 2 * C, 1 / SHARPNESS
        return C, np.float32(1)


class _Part(NamedTuple):
    """The weights of some children of a node, after pruning."""

    feature: I32
    child: I32  # counted from the first child
    weight: F32
    children: I32
    bias: F32
    node: int
    last: bool  # whether these are the last children of the node


_Task: TypeAlias = tuple[int, I32, int, bool]  # a node, some children, a seed, whether the last


class _Trainer:
    """Trains nodes whose rows are in memory."""

    def __init__(self, X: Matrix, Y: csr_array, plan: _Plan) -> None:
        self._X, self._n_features, self._plan = csr_parts(csr_array(X)), X.shape[1], plan
        self._energy = dual_descent.row_energies(self._X.indptr, self._X.data)
        self._rows_of = csr_parts(reach(plan.tree, Y))
        self._all = np.arange(X.shape[0], dtype=np.int32)

    def train(self, nodes: Ints, seeds: Ints, n_jobs: int) -> Iterator[_Part]:
        """Yield the weights of these nodes, in their order."""

        def train_some(*batch: _Task) -> list[_Part]:
            return [self._train(*task) for task in batch]

        return chain.from_iterable(stream(train_some, self._batches(nodes, seeds), n_jobs))

    def _batches(self, nodes: Ints, seeds: Ints) -> Iterator[tuple[_Task, ...]]:
        """Yield tasks. Large nodes come in parts; small ones share a batch, as each costs time."""
        n_rows, n_features = np.diff(self._rows_of.indptr), np.diff(self._X.indptr)
        batch: list[_Task] = []
        total = 0
        for node, seed in zip(nodes.tolist(), seeds.tolist(), strict=True):
            children = self._plan.tree.first_child[node] + self._plan.children(node, n_rows)
            work = int(n_features[self._rows(node)].sum()) + 1
            step = LANES * max(1, _WORK // work)
            for start in range(0, max(len(children), 1), step):
                some = children[start : start + step]
                batch.append((node, some, seed, start + step >= len(children)))
                total += work * -(-len(some) // LANES)
                if total >= _BATCH:
                    yield tuple(batch)
                    batch, total = [], 0
        yield tuple(batch)

    def _train(self, node: int, children: I32, seed: int, last: bool) -> _Part:
        rows, how = self._rows(node), self._plan.how
        C, scale = self._plan.scaled_loss(node, len(rows))
        start = dual_descent.starting_alpha(how.loss, 1, C)
        limits = (how.max_sweeps, how.rounds or dual_descent.NO_END, seed, dual_descent.BLOCK)
        descent = NodeDescent(start, C, how.tolerance, *limits, scale, np.float32(how.prune))
        if len(rows) == len(self._all):
            X, features = self._X, np.arange(self._n_features, dtype=np.int32)
        else:
            X, features = gather_rows(self._X, self._n_features, rows)
        reached = NodeRows(X, features, rows, self._energy[rows])
        hinge = how.loss == "squared_hinge"
        found = train_children(reached, self._rows_of, children, hinge, descent)
        feature, child, weight, bias = found
        child -= self._plan.tree.first_child[node]  # counted from the first child
        return _Part(feature, child, weight, children, bias, node, last)

    def _rows(self, node: int) -> I32:
        indptr, indices, _ = self._rows_of
        if self._plan.is_root(node):
            return self._all
        return indices[indptr[node] : indptr[node + 1]]  # type: ignore[return-value]


class _StreamedTrainer:
    """Trains nodes on rows that do not fit in memory, or that are on a cluster."""

    def __init__(self, rows: StreamedRows, plan: _Plan) -> None:
        rows.require(
            2 * min(8 * dual_descent.BLOCK, rows.n_bytes) + 4 * LANES * (rows.n_features + 1),
            f"training on a block of rows, with weights for {rows.n_features:,} features,",
            "give more memory, or fewer features",
        )
        self._rows, self._plan, self._room = rows, plan, rows.room(_SHARE)
        self._label_sets, n = plan.tree.label_sets, (plan.tree.n_nodes,)
        add = partial(_add_sizes, self._label_sets)
        self._n_rows, self._n_bytes = rows.reduce(add, n, n, dtype=np.float64)

    def train(self, nodes: Ints, seeds: Ints, n_jobs: int) -> Iterator[_Part]:
        """Yield the weights of these nodes, first of those with many rows, such as the roots."""
        large = (nodes <= self._plan.last_root) | (self._n_bytes[nodes] > self._room)
        found = chain(
            self._by_blocks(nodes[large], seeds[large], n_jobs),
            self._gathered(nodes[~large], seeds[~large], n_jobs),
        )
        return map(_Part._make, found)  # results of an interrupted job come back as lists

    def _gathered(self, nodes: Ints, seeds: Ints, n_jobs: int) -> Iterator[_Part]:
        """Train nodes on rows that are gathered in memory, some nodes at a time."""
        plan, label_sets = self._plan, self._label_sets

        def reach_some(block: Block, parts: Parts) -> NDArray[np.intp]:
            return np.flatnonzero(block.side("Y") @ _labels_below(label_sets, nodes[parts]))

        def train(X: Matrix, Y: csr_array, parts: Parts, n_jobs: int) -> Iterator[_Part]:
            return _Trainer(X, Y, plan).train(nodes[parts], seeds[parts], n_jobs)

        n_bytes = self._n_bytes[nodes]
        return self._rows.map_parts(train, reach_some, n_bytes, room=self._room, n_jobs=n_jobs)

    def _by_blocks(self, nodes: Ints, seeds: Ints, n_jobs: int) -> Iterator[_Part]:
        """Train nodes by blocks of their rows; on a cluster each worker trains some children."""
        tasks = []
        for node, seed in zip(nodes.tolist(), seeds.tolist(), strict=True):
            places = self._plan.children(node, self._n_rows)
            for a, b in spans(-(-len(places) // LANES), max(1, self._rows.n_workers)):
                last, n_rows = b * LANES >= len(places), int(self._n_rows[node])
                tasks.append((node, places[a * LANES : b * LANES], seed, last, n_rows))
        train = partial(_train_by_blocks, self._plan, self._room)
        return self._rows.map_tasks(train, tasks, n_jobs=n_jobs)


def _train_by_blocks(plan: _Plan, room: int, rows: Rows, *task: Any) -> _Part:
    """Train some children of a node by blocks of its rows; `places` count from its first child."""
    node, places, seed, last, n_rows, n_jobs = task
    children, label_sets = plan.tree.first_child[node] + places, plan.tree.label_sets
    own, below = _labels_below(label_sets, [node]), csr_array(label_sets[children].T)

    def targets(block: Block) -> tuple[csr_array, csr_array]:
        X, Y = csr_array(block.X), block.side("Y")
        if not plan.is_root(node):
            mine = np.flatnonzero(Y @ own)
            X, Y = X[mine], Y[mine]
        return X, csr_array(Y @ below)

    C, scale = plan.scaled_loss(node, n_rows)
    starts = range(0, len(places), LANES)
    groups = [Group(start, min(start + LANES, len(places)), seed) for start in starts]
    how: dict[str, Any] = {"loss": plan.how.loss, "tolerance": plan.how.tolerance, "C": C}
    how |= {"max_sweeps": plan.how.max_sweeps, "rounds": plan.how.rounds}
    given = (rows.map_blocks(targets), groups, rows.n_features)
    trained = train_by_blocks(*given, memory=room, n_jobs=n_jobs, **how)
    features = np.arange(rows.n_features, dtype=np.int32)
    found: dict[int, Entries] = {}
    bias = np.empty(len(places), dtype=np.float32)
    for group, W in trained:
        mine = slice(starts[group], starts[group] + LANES)
        found[group] = large_weights(W * scale, np.float32(plan.how.prune), features, places[mine])
        bias[mine] = W[-1, : len(places[mine])] * scale
    entries = _join_entries([found[group] for group in sorted(found)])
    return _Part(*entries, children, bias, node, last)


def _labels_below(label_sets: csr_array, nodes: list[int] | Ints) -> F32:
    """Return positive numbers for the labels below one of the nodes, (n_labels,)."""
    return np.asarray(label_sets[nodes].sum(axis=0), dtype=np.float32).ravel()


def _add_sizes(
    label_sets: csr_array, block: Block, n_rows: NDArray[Any], n_bytes: NDArray[Any]
) -> None:
    """Add the rows of a block that reach each node, and the bytes of their X."""
    rows_of = csr_array(label_sets @ block.side("Y").T)
    rows_of.data[:] = 1.0
    X = block.X
    n_features = np.diff(X.indptr) if issparse(X) else np.full(X.shape[0], X.shape[1])
    n_rows += np.diff(rows_of.indptr)
    n_bytes += rows_of @ (8 * (n_features + 1))


def _join_entries(parts: Sequence[Entries]) -> Entries:
    none = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    return tuple(map(np.concatenate, zip(none, *parts, strict=True)))  # type: ignore[return-value]


class NodeRows(NamedTuple):
    """The rows that reach a node, in ascending order, with renumbered features."""

    X: Csr
    features: I32  # the old number of each
    rows: I32
    energy: F32


class NodeDescent(NamedTuple):
    """How to train the children of a node; see `dual_descent`."""

    start: NDArray[Any]  # the first dual variables of a row
    C: float
    tolerance: float
    max_sweeps: int
    rounds: int
    seed: int
    block: int
    scale: np.float32
    prune: np.float32


@njit(nogil=True, cache=True)
def gather_rows(X: Csr, n_features: int, rows: I32) -> tuple[Csr, I32]:
    """Return some rows with renumbered features, and the old number of each."""
    indptr, indices, data = X
    slot = np.full(n_features, -1, dtype=np.int32)
    ptr, local, features = local_columns(indptr, indices, rows, slot)
    values = np.empty(local.size, dtype=np.float32)
    for t in range(rows.size):
        values[ptr[t] : ptr[t + 1]] = data[indptr[rows[t]] : indptr[rows[t] + 1]]
    return Csr(ptr, local, values), features


@njit(nogil=True, cache=True)
def train_children(
    reached: NodeRows, rows_of: Csr, children: I32, hinge: bool, how: NodeDescent
) -> tuple[I32, I32, F32, F32]:
    """Train some children of a node, sixteen at a time; return their pruned weights and biases.

    Row s of `rows_of` holds the numbers of the rows of node s.
    """
    X, features, rows, energy = reached
    start, C, tolerance, max_sweeps, rounds, seed, block, scale, prune = how
    bounds = block_bounds(X.indptr, 0, block)
    alpha = np.empty((rows.size, LANES), dtype=start.dtype)
    signs = np.empty((rows.size, LANES), dtype=np.int8)
    W = lane_zeros(features.size + 1)
    bias: F32 = np.empty(children.size, dtype=np.float32)
    found, n = [], 0
    for begin in range(0, children.size, LANES):
        group = children[begin : begin + LANES]
        alpha[:], W[:], signs[:] = start[0, 0], 0.0, -1
        for lane in range(group.size):
            s = group[lane]
            mine = rows_of.indices[rows_of.indptr[s] : rows_of.indptr[s + 1]]
            for i in np.searchsorted(rows, mine):
                signs[i, lane] = 1
        sweeps = new_sweeps(bounds[1:] - bounds[:-1], max_sweeps, seed, rounds)
        problem = LaneProblem(X.indptr, X.indices, X.data, signs, energy, C, tolerance)
        descend_blocks(sweeps, bounds, hinge, problem, alpha, W)
        W *= scale
        for lane in range(group.size):
            bias[begin + lane] = W[-1, lane]
        found.append(large_weights(W, prune, features, group))
        n += found[-1][0].size
    feature, child, weight = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    at = 0
    for some_features, some_children, some_weights in found:
        for e in range(some_features.size):
            feature[at], child[at], weight[at] = some_features[e], some_children[e], some_weights[e]
            at += 1
    return feature, child, weight, bias


@njit(nogil=True, cache=True)
def large_weights(W: F32, prune: np.float32, features: I32, children: I32) -> Entries:
    """Return feature, child and weight where ``abs(W[:-1, : len(children)]) > prune``."""
    f, lane = np.nonzero(np.abs(W[:-1, : children.size]) > prune)
    return features[f], children[lane], W.reshape(-1)[f * LANES + lane]
