"""Node predictors for a fixed tree (section 2.1 of the paper): both of its relaxations.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.linalg import dual_descent
from labelry.linalg.dual_descent import Loss
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import Matrix, product
from labelry.linalg.parallel import run, spans, stream
from labelry.progress import phase
from labelry.trees.structure import Tree
from labelry.trees.train_kernels import Moments, Shape, find_rivals, take_steps
from labelry.trees.weights import NodeWeights, as_csr, chunk_features, empty_weights

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]

_BATCH = 64  # examples whose violations are found before their steps are taken
_PATIENCE = 5  # epochs without a better score on held-out rows


def reach(tree: Tree, Y: csr_array) -> csr_array:
    """Which rows have a label below which node, (n_nodes, n_rows)."""
    rows = csr_array(tree.label_sets @ Y.T)
    rows.sort_indices()
    return rows


class Descent(NamedTuple):
    """Weights, the epochs that led to them (0: those of the start), and their judge's score."""

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
    judge: Callable[[NodeWeights], float] | None = None,
    rng: np.random.Generator,
    n_jobs: int = 1,
) -> Descent:
    """Minimise equation 4: an example's slack is its largest violation at any depth.

    This is relaxation 2. Each label of a row is an example. Rows should have about unit length.

    Parameters
    ----------
    regularization : float
        What the weights shrink by in the first epoch, as a fraction; later less, as the steps do.
    step : float
        First step; larger is quicker and rougher.
    start : NodeWeights, optional
        Where to begin: weights trained on the same rows and tree. Zero when None.
    judge : function, optional
        Score of weights on held-out rows, higher is better. The best are returned, which may be
        the start, and training stops when they have not improved for five epochs.

    Notes
    -----
    Stochastic subgradients with one AdaGrad step size per node; the weights of an epoch are the
    average over its batches. The violations of a batch of 64 are found in parallel, then its
    steps are taken in order: the result does not depend on the number of threads.
    """
    learner = _TreeLoss(X, Y, tree, regularization, step, n_jobs)
    best = Descent(learner.weights, 0, -np.inf)
    if start is not None:
        learner.weights.data[:] = start.data
        best = Descent(start, 0, -np.inf if judge is None else judge(start))
    with phase("tree loss", max_epochs, "epochs") as advance:
        for epoch in range(1, max_epochs + 1):
            averaged = learner.epoch(rng)
            advance(1)
            score = np.inf if judge is None else judge(averaged)
            if judge is None or score > best.score:
                best = Descent(averaged, epoch, score)
            elif epoch == best.n_epochs + _PATIENCE:
                break
    return best


class _TreeLoss:
    """The state of the descent; `losses` holds the mean slack of each epoch."""

    def __init__(
        self,
        X: Matrix,
        Y: csr_array,
        tree: Tree,
        regularization: float,
        step: float,
        n_jobs: int,
    ) -> None:
        self.csr = as_csr(X)
        self.Y = Y
        self.row = np.repeat(np.arange(Y.shape[0], dtype=np.int32), np.diff(Y.indptr))
        self.label = Y.indices.astype(np.int32)
        squares = X.multiply(X).sum(axis=1) if issparse(X) else np.einsum("ij,ij->i", X, X)
        self.energy = (squares + 1.0).astype(np.float32)  # of the row and its constant
        self.shape = Shape(tree.first_child, tree.parent, *tree.leaves())
        self.weights = empty_weights(tree, chunk_features(X, reach(tree, Y)))
        self.moments = Moments(
            np.zeros(tree.n_nodes, dtype=np.float32), np.zeros_like(self.weights.data)
        )
        self.taken = np.full((n_jobs, tree.n_nodes), -1, dtype=np.int32)  # scratch of each thread
        self.regularization, self.step, self.n_jobs = regularization, step, n_jobs
        self.losses: list[float] = []

    def epoch(self, rng: np.random.Generator) -> NodeWeights:
        """One pass over the examples; the average of the weights after each batch."""
        order = rng.permutation(len(self.row))
        data, early = self.weights.data, self.moments.early
        early[:] = 0.0
        scale, before, loss = np.float32(1.0), 0.0, 0.0
        n_batches = max(1, -(-len(order) // _BATCH))
        shrink = self.regularization / np.sqrt(1.0 + len(self.losses)) / n_batches
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            loss += self._batch(batch, scale, before)
            scale *= np.float32(1.0 - shrink)  # w = scale * data: the gradient of the regulariser
            before += float(scale)
        self.losses.append(loss / max(len(order), 1))
        # A step was in the averages of the batches after it: those not counted in `early`.
        averaged = (np.float32(before) * data - early) / np.float32(n_batches)
        data *= scale
        return self.weights._replace(data=averaged)

    def _batch(self, batch: Ints, scale: np.float32, before: float) -> float:
        found = np.empty((len(batch), 2), dtype=np.int32)
        gaps = np.empty(len(batch), dtype=np.float32)
        examples = (self.Y.indptr, self.Y.indices, self.row, self.label)
        state = (self.shape, self.weights, scale, batch, found, gaps)
        parts = zip(self.taken, spans(len(batch), self.n_jobs), strict=False)
        tasks = [(*self.csr, *examples, *state, taken, *span) for taken, span in parts]
        run(find_rivals, tasks, self.n_jobs)
        take_steps(
            *self.csr, self.row, self.energy, self.shape, self.weights, self.moments, scale,
            np.float32(before), np.float32(self.step), batch, found, gaps,
        )  # fmt: skip
        return float(np.maximum(gaps, 0.0).sum())


class NodeTrainer:
    """One classifier per node, each by itself, by dual coordinate descent.

    A node is set against its siblings only, on the rows that reach their parent: all that the
    search ever asks of it. Either way it stores the features of those rows only.

    Parameters
    ----------
    all_rows : bool
        Set a node against all rows without its labels, as the paper does (relaxation 1): the work
        of one-vs-rest at each level, and less accurate.
    loss, C, tolerance, max_sweeps
        As for `OneVsRest`.

    Attributes
    ----------
    weights : NodeWeights
    """

    def __init__(
        self,
        X: Matrix,
        Y: csr_array,
        tree: Tree,
        *,
        all_rows: bool = False,
        loss: Loss = "squared_hinge",
        C: float = 1.0,
        tolerance: float = 0.02,
        max_sweeps: int = 100,
        n_jobs: int = 1,
    ) -> None:
        self.tree = tree
        self.features = chunk_features(X, reach(tree, Y))
        self.weights = empty_weights(tree, self.features)
        self._X = csr_array(X)
        self._energy = (self._X.multiply(self._X).sum(axis=1) + 1.0).astype(np.float32)
        self._all_rows = all_rows
        self._loss = loss
        self._options = (C, tolerance, max_sweeps)
        self._n_jobs = n_jobs

    def train(
        self, nodes: Ints, rows_of: csr_array, rng: np.random.Generator
    ) -> Iterator[tuple[int, I32, I32]]:
        """Train the children of some nodes on the rows `rows_of` (n_nodes, n_rows) of each.

        Yields the node, the rows it was trained on, and the child that now wins each of them.
        """
        seeds = rng.integers(1, 2**31, size=len(nodes))
        tasks = ((int(node), int(seed), rows_of) for node, seed in zip(nodes, seeds, strict=True))
        with phase("training nodes", len(nodes), "nodes") as advance:
            for done in stream(self._train, tasks, self._n_jobs):
                advance(1)
                yield done

    def _train(self, node: int, seed: int, rows_of: csr_array) -> tuple[int, I32, I32]:
        rows = _indices(rows_of, 0 if self._all_rows else node)
        X = self._local(rows, node)
        first, end = self.tree.first_child[node], self.tree.first_child[node + 1]
        block = self.weights.block(self.tree, node)
        for start in range(first, end, LANES):
            group = range(start, min(start + LANES, end))
            signs = np.full((len(rows), LANES), -1, dtype=np.int8)
            for lane, child in enumerate(group):
                signs[np.searchsorted(rows, _indices(rows_of, child)), lane] = 1
            W = lane_zeros(len(block))
            csr = (X.indptr, X.indices, X.data)
            energy = self._energy[rows]
            dual_descent.descend(self._loss, *csr, signs, energy, *self._options, seed, W)
            block[:, start - first : start - first + len(group)] = W[:, : len(group)]
        scores = product(X, block[:-1]) + block[-1]
        return node, rows, (first + scores.argmax(axis=1)).astype(np.int32)

    def _local(self, rows: I32, node: int) -> csr_array:
        """Rows with features numbered as in the chunk of a node."""
        X = csr_array(self._X[rows])
        width = len(self.weights.block(self.tree, node)) - 1
        if width == X.shape[1]:
            return X
        if self._all_rows:
            return csr_array(X[:, _indices(self.features, node)])
        places = np.searchsorted(_indices(self.features, node), X.indices).astype(np.int32)
        return csr_array((X.data, places, X.indptr), shape=(len(rows), width))


def _indices(A: csr_array, row: int) -> I32:
    return A.indices[A.indptr[row] : A.indptr[row + 1]]


def train_independent(
    X: Matrix, Y: csr_array, tree: Tree, *, rng: np.random.Generator, **options: Any
) -> NodeWeights:
    """All nodes by `NodeTrainer`; `options` are its parameters."""
    trainer = NodeTrainer(X, Y, tree, **options)
    for _ in trainer.train(np.flatnonzero(tree.label < 0), reach(tree, Y), rng):
        pass
    return trainer.weights
