"""Node predictors for a fixed tree (section 2.1 of the paper): both of its relaxations.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array, issparse

from labelry.arrays import F32, I32, Ints, Rng
from labelry.linalg.dual_descent import LaneProblem, MarginLoss, train_lanes
from labelry.linalg.kernels import Csr, csr_parts
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import Matrix, product
from labelry.linalg.parallel import run, spans, stream
from labelry.progress import counted, phase
from labelry.trees.structure import Tree
from labelry.trees.weights import (
    NodeWeights,
    as_csr,
    chunk_features,
    empty_weights,
    feature_row,
    score_children,
)

_BATCH = 64  # examples whose violations are found before the steps for them; not tuned
_PATIENCE = 5  # epochs without a better validation score before training stops; not tuned
_NONE = np.int32(-1)


def reach(tree: Tree, Y: csr_array) -> csr_array:
    """Return 1 for each row that has a label below a node, (n_nodes, n_rows)."""
    rows = csr_array(tree.label_sets @ Y.T)
    rows.sort_indices()
    return rows


class Descent(NamedTuple):
    """Weights, the number of epochs before them (0: the start), and their score."""

    weights: NodeWeights
    n_epochs: int
    score: float


def train_tree_loss(
    X: Matrix,
    Y: csr_array,
    tree: Tree,
    *,
    regularization: float = 0.0,
    step: float = 1.0,
    max_epochs: int = 50,
    start: NodeWeights | None = None,
    score: Callable[[NodeWeights], float] | None = None,
    rng: Rng,
    n_jobs: int = 1,
) -> Descent:
    """Minimise equation 4: an example's slack is its largest violation at any depth.

    This is relaxation 2. Each label of a row is an example. Rows should have about unit length.

    Stochastic subgradients from `start` (zero when None), with one AdaGrad step size per node; the
    first is `step`, and in the first epoch the weights shrink by `regularization`. The weights of
    an epoch are the average over its batches. The violations of a batch of 64 are found in
    parallel, then its steps are taken in order: the number of threads changes nothing.

    With a `score` of weights, such as the accuracy on a validation split, the best weights are
    returned, and training stops after five epochs without a better score.
    """
    learner = _TreeLoss(X, Y, tree, regularization, step, n_jobs)
    best = Descent(learner.weights, 0, -np.inf)
    if start is not None:
        learner.weights.data[:] = start.data
        best = Descent(start, 0, -np.inf if score is None else score(start))
    with phase("training the tree", max_epochs, "epochs") as advance:
        for epoch in range(1, max_epochs + 1):
            averaged = learner.epoch(rng)
            advance(1)
            reached = np.inf if score is None else score(averaged)
            if score is None or reached > best.score:
                best = Descent(averaged, epoch, reached)
            elif epoch == best.n_epochs + _PATIENCE:
                break
    return best


class _TreeLoss:
    """State of the descent; `losses` holds the mean slack of each epoch."""

    def __init__(
        self, X: Matrix, Y: csr_array, tree: Tree, regularization: float, step: float, n_jobs: int
    ) -> None:
        row = np.repeat(np.arange(Y.shape[0], dtype=np.int32), np.diff(Y.indptr))
        squares = X.multiply(X).sum(axis=1) if issparse(X) else np.einsum("ij,ij->i", X, X)
        energy = (squares + 1.0).astype(np.float32)  # of the row and its constant
        self.examples = Examples(as_csr(X), Y.indptr, Y.indices.astype(np.int32), row, energy)
        self.shape = TreeArrays(tree.first_child, tree.parent, *tree.leaves())
        self.weights = empty_weights(tree, chunk_features(X, reach(tree, Y)))
        self.squares = np.zeros(tree.n_nodes, dtype=np.float32)  # squared gradients so far
        self.early = np.zeros_like(self.weights.data)  # each step times the scales before it
        self.taken = np.full((n_jobs, tree.n_nodes), -1, dtype=np.int32)  # scratch of each thread
        self.regularization, self.step, self.n_jobs = regularization, step, n_jobs
        self.losses: list[float] = []

    def epoch(self, rng: Rng) -> NodeWeights:
        """Make one pass over the examples; return the mean of the weights after each batch."""
        order = rng.permutation(len(self.examples.row))
        data, early = self.weights.data, self.early
        early[:] = 0.0
        scale, before, loss = np.float32(1.0), 0.0, 0.0
        n_batches = max(1, -(-len(order) // _BATCH))
        shrink = self.regularization / np.sqrt(1.0 + len(self.losses)) / n_batches
        for start in range(0, len(order), _BATCH):
            loss += self._batch(order[start : start + _BATCH], scale, before)
            scale *= np.float32(1.0 - shrink)  # w = scale * data: the gradient of the regulariser
            before += float(scale)
        self.losses.append(loss / max(len(order), 1))
        # A step was in the averages of the batches after it: those not counted in `early`.
        averaged = (np.float32(before) * data - early) / np.float32(n_batches)
        data *= scale
        return self.weights._replace(data=averaged)

    def _batch(self, chosen: Ints, scale: np.float32, before: float) -> float:
        n, rates = len(chosen), (scale, np.float32(before), np.float32(self.step))
        batch = Batch(chosen, np.empty((n, 2), np.int32), np.empty(n, np.float32), *rates)
        given = (self.examples, self.shape, self.weights, batch)
        parts = zip(self.taken, spans(n, self.n_jobs), strict=False)
        run(find_rivals, [(*given, taken, *span) for taken, span in parts], self.n_jobs)
        take_steps(*given, self.squares, self.early)
        return float(np.maximum(batch.gaps, 0.0).sum())


@dataclass(eq=False)
class NodeTrainer:
    """One classifier per node, each by itself, by dual coordinate descent.

    A node is trained against its siblings, on the rows that reach their parent, because a search
    compares only siblings. It stores the features of those rows only. With `all_rows` it is trained
    against all rows without its labels, as the paper does (relaxation 1): each level then costs as
    much as one-vs-rest, and the tree is less accurate. The other options are those of
    `labelry.ranking.one_vs_rest.OneVsRestSettings`.
    """

    X: Matrix
    Y: csr_array
    tree: Tree
    _: KW_ONLY
    all_rows: bool = False
    loss: MarginLoss = "squared_hinge"
    C: float = 1.0
    tolerance: float = 0.02
    max_sweeps: int = 100
    n_jobs: int = 1

    def __post_init__(self) -> None:
        self.features = chunk_features(self.X, reach(self.tree, self.Y))
        self.weights = empty_weights(self.tree, self.features)
        self.X = csr_array(self.X)
        self.energy = (self.X.multiply(self.X).sum(axis=1) + 1.0).astype(np.float32)

    def train(self, nodes: Ints, rows_of: csr_array, rng: Rng) -> Iterator[tuple[int, I32, I32]]:
        """Train the children of some nodes on the rows `rows_of` (n_nodes, n_rows) of each.

        Yields the node, its training rows, and the child with the best score for each of them.
        """
        seeds = rng.integers(1, 2**31, size=len(nodes))
        tasks = ((int(node), int(seed), rows_of) for node, seed in zip(nodes, seeds, strict=True))
        done = stream(self._train, tasks, self.n_jobs)
        return counted(done, "training classifiers", len(nodes), "nodes")

    def _train(self, node: int, seed: int, rows_of: csr_array) -> tuple[int, I32, I32]:
        rows = _indices(rows_of, 0 if self.all_rows else node)
        X = self._local(rows, node)
        first, end = self.tree.first_child[node], self.tree.first_child[node + 1]
        block = self.weights.block(self.tree, node)
        for start in range(first, end, LANES):
            group = range(start, min(start + LANES, end))
            signs = np.full((len(rows), LANES), -1, dtype=np.int8)
            for lane, child in enumerate(group):
                signs[np.searchsorted(rows, _indices(rows_of, child)), lane] = 1
            W = lane_zeros(len(block))
            how = (self.energy[rows], self.C, self.tolerance)
            problem = LaneProblem(*csr_parts(X), signs, *how)
            train_lanes(self.loss, problem, self.max_sweeps, seed, W)
            block[:, start - first : start - first + len(group)] = W[:, : len(group)]
        scores = product(X, block[:-1]) + block[-1]
        return node, rows, (first + scores.argmax(axis=1)).astype(np.int32)

    def _local(self, rows: I32, node: int) -> csr_array:
        """Return rows with features numbered as in the chunk of a node."""
        X = csr_array(self.X[rows])
        width = len(self.weights.block(self.tree, node)) - 1
        if width == X.shape[1]:
            return X
        if self.all_rows:
            return csr_array(X[:, _indices(self.features, node)])
        places = np.searchsorted(_indices(self.features, node), X.indices).astype(np.int32)
        return csr_array((X.data, places, X.indptr), shape=(len(rows), width))


def _indices(A: csr_array, row: int) -> I32:
    return A.indices[A.indptr[row] : A.indptr[row + 1]]


def train_independent(
    X: Matrix, Y: csr_array, tree: Tree, *, rng: Rng, **options: Any
) -> NodeWeights:
    """Train all nodes by `NodeTrainer`; `options` are its parameters."""
    trainer = NodeTrainer(X, Y, tree, **options)
    for _ in trainer.train(np.flatnonzero(tree.label < 0), reach(tree, Y), rng):
        pass
    return trainer.weights


class TreeArrays(NamedTuple):
    """The arrays of a tree that the kernels use."""

    first_child: I32
    parent: I32
    leaf_ptr: I32  # leaves of label y: leaf_node[leaf_ptr[y] : leaf_ptr[y + 1]]
    leaf_node: I32


class Examples(NamedTuple):
    """Rows with their labels; an entry of Y is an example, with a row and a label."""

    X: Csr
    y_indptr: Ints
    label: I32
    row: I32
    energy: F32  # of each row


class Batch(NamedTuple):
    """Some examples, and what is found out about them.

    The weights are `scale` times the stored numbers; `before` is the sum of earlier scales.
    """

    chosen: Ints
    found: I32  # (n, 2)
    gaps: F32  # (n,)
    scale: np.float32
    before: np.float32
    rate: np.float32


@njit(nogil=True, cache=True)
def find_rivals(
    of: Examples, tree: TreeArrays, weights: NodeWeights, batch: Batch, taken: I32, t0: int, t1: int
) -> None:
    """Find the pair ``found[t] = (r, s)`` of example ``chosen[t]`` with the largest violation.

    The violation is ``gaps[t] = 1 + f_s - f_r``. r is on the path to the label of the example, and
    s is a sibling of r that holds no label of the row (constraint 2 of the paper). If there are
    several paths to the label, the one with the smallest violation counts. Without any s the pair
    is (-1, -1) and the gap minus infinity. ``taken[s]`` is the last row seen with a label below
    node s; -1 at first.
    """
    X, y_indptr, label, row, _ = of
    first_child, parent, leaf_ptr, leaf_node = tree
    chosen, found, gaps, scale, _, _ = batch
    scores = np.empty(np.max(np.diff(first_child)), dtype=np.float32)
    for t in range(t0, t1):
        i = row[chosen[t]]
        for y in label[y_indptr[i] : y_indptr[i + 1]]:
            for leaf in leaf_node[leaf_ptr[y] : leaf_ptr[y + 1]]:
                _mark_path(leaf, parent, taken, i)
        y = label[chosen[t]]
        gaps[t] = np.inf
        for leaf in leaf_node[leaf_ptr[y] : leaf_ptr[y + 1]]:
            gap = np.float32(-np.inf)
            best_r, best_s = _NONE, _NONE
            r = leaf
            while r > 0:
                p = parent[r]
                start = first_child[p]
                f = scores[: first_child[p + 1] - start]
                score_children(X, i, weights, p, f)
                for c in range(f.size):
                    violation = np.float32(1.0) + scale * (f[c] - f[r - start])
                    if violation > gap and taken[start + c] != i:
                        gap = violation
                        best_r, best_s = r, start + c
                r = p
            if gap < gaps[t]:
                gaps[t] = gap
                found[t, 0], found[t, 1] = best_r, best_s


@njit(nogil=True, cache=True)
def _mark_path(leaf: int, parent: I32, taken: I32, mark: int) -> None:
    node = leaf
    while node > 0:
        taken[node] = mark
        node = parent[node]


@njit(nogil=True, cache=True)
def take_steps(
    of: Examples, shape: TreeArrays, weights: NodeWeights, batch: Batch, squares: F32, early: F32
) -> None:
    """Compute ``w_r += step_r x`` and ``w_s -= step_s x`` for each violated pair of a batch.

    The step of a node is ``rate / sqrt(sum of its ||x||^2 so far)``.
    """
    indptr, indices, data = of.X
    chosen, found, gaps, scale, before, rate = batch
    for t in range(chosen.size):
        if not gaps[t] > 0:
            continue
        i = of.row[chosen[t]]
        p = shape.parent[found[t, 0]]
        n_children = shape.first_child[p + 1] - shape.first_child[p]
        for side in range(2):
            node = found[t, side]
            squares[node] += of.energy[i]
            step = (np.float32(1.0) - np.float32(2.0) * side) * rate / scale
            step /= np.sqrt(squares[node])
            column = node - shape.first_child[p]
            at = weights.block_ptr[p + 1] - n_children + column
            weights.data[at] += step
            early[at] += before * step
            _, slot_feature, slot_row, _, _ = weights
            slots = weights.slot_ptr[p], weights.slot_ptr[p + 1]
            for q in range(indptr[i], indptr[i + 1]):
                place = feature_row(slot_feature, slot_row, *slots, indices[q])
                at = weights.block_ptr[p] + place * n_children + column
                weights.data[at] += step * data[q]
                early[at] += before * step * data[q]
