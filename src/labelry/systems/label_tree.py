"""Label trees: linear predictors at the nodes of a tree of labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.checks import StoredCheck, check_at_least, check_one_of
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows
from labelry.metrics import precision_at_k
from labelry.systems.tree_choice import TreeChoice, check_tree_choice, choose_tree
from labelry.trees.search import LINKS, Link, beam_search
from labelry.trees.train import Descent, train_independent, train_tree_loss
from labelry.trees.weights import NodeWeights, check_tree

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Training = Literal["tree-loss", "siblings", "independent"]

_HELD_OUT = 0.1  # of the rows, to find out how to train; at most
_MOST_HELD_OUT = 5000
# First steps of the tree loss that are tried: near the start where rows are few for their labels,
# as in texts; far from it where classes overlap, as in images.
_STEPS = (0.1, 1.0, 30.0)
_SHARPNESS = (1.0, 0.5, 2.0, 1.5, 0.3, 3.0, 0.2, 4.0, 0.1, 6.0, 8.0)  # the first of equals


class LabelTree(LabelRanker):
    """A tree of labels with a linear predictor at each node, searched with a beam.

    Prediction looks at a few nodes of each level, so its time grows with the logarithm of the
    number of labels (Algorithm 1 with ``beam_width=1``). The nodes are trained together for the
    loss of the whole tree. Choose it when one-vs-rest is too slow to train or to ask.

    Parameters
    ----------
    tree : {"rembrandt", "confusion", "random"}, Tree or edges
        "rembrandt" clusters a label embedding. "confusion" (Algorithm 2) clusters labels that a
        one-vs-rest classifier confuses on held-out rows: needs that classifier. "random" is
        for comparison. Or a tree that is given, or a taxonomy: a list of (parent, child).
    training : {"tree-loss", "siblings", "independent"}
        "independent" trains each node by itself against all rows (relaxation 1), "siblings" on
        the rows that reach its parent. "tree-loss" goes on from there to minimise the largest
        violation along the path of each row (relaxation 2).
    branching : int, optional
        Most children of a node. Larger is a shallower tree: more accurate, slower. By default
        the root of order `depth` of the number of labels.
    depth : int
        Most edges from the root to a leaf.
    beam_width : int
        Nodes kept at each level while searching; larger is more accurate and slower.
    regularization : float
        For "tree-loss" what weights shrink by in the first epoch, as a fraction; otherwise the
        inverse of C; larger gives smaller weights.
    max_epochs : int
        Most passes over the rows; "tree-loss" stops early on held-out rows.
    normalize : bool
        Scale sparse rows to unit length, or columns of a dense X to mean zero and equal variance.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

    Attributes
    ----------
    tree_ : Tree
    weights_ : NodeWeights
    link_ : {"softmax", "sigmoid"}
        What makes probabilities of the scores of siblings.
    sharpness_ : float
        Factor on the scores of nodes before their softmax, chosen on held-out rows.

    Notes
    -----
    Scores are products of the nodes' softmax (or sigmoid) probabilities: between 0 and 1, not
    calibrated. Memory: for each inner node, its children times the features of its rows.

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 2.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> LabelTree().fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "label-tree"

    def __init__(
        self,
        *,
        tree: TreeChoice = "rembrandt",
        training: Training = "tree-loss",
        branching: int | None = None,
        depth: int = 2,
        beam_width: int = 10,
        regularization: float | None = None,
        max_epochs: int = 50,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.tree = tree
        self.training = training
        self.branching = branching
        self.depth = depth
        self.beam_width = beam_width
        self.regularization = regularization
        self.max_epochs = max_epochs
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        self._learn_scaling(X)
        X = self._scaled(X)
        self.tree_ = choose_tree(
            self.tree,
            Rows(X, Y, n_jobs=self.n_jobs),
            self.classes_,
            branching=self.branching,
            depth=self.depth,
            n_jobs=self.n_jobs,
            rng=rng,
        )
        self.sharpness_ = 1.0
        if self.training == "tree-loss":
            self._fit_tree_loss(X, Y, rng)
        else:
            self.link_: Link = "sigmoid"
            self.weights_ = train_independent(
                X,
                Y,
                self.tree_,
                all_rows=self.training == "independent",
                C=1.0 if self.regularization is None else 1.0 / self.regularization,
                max_sweeps=self.max_epochs,
                rng=rng,
                n_jobs=resolve_jobs(self.n_jobs),
            )

    def _fit_tree_loss(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        """First on a part of the rows, to find out how; then so on all of them."""
        self.link_ = "softmax"
        train, held_out = _split(Y, rng)
        step, n_epochs = _STEPS[0], self.max_epochs
        if len(held_out):
            step, n_epochs = self._choose_descent(X, Y, train, held_out, rng)
        self.weights_ = self._descend(X, Y, rng, [step], n_epochs)[0].weights

    def _choose_descent(
        self, X: Matrix, Y: csr_array, train: Ints, held_out: Ints, rng: np.random.Generator
    ) -> tuple[float, int]:
        """Step and number of epochs; sets what makes probabilities of the scores of nodes."""

        def accuracy(
            weights: NodeWeights,
            link: Link = "softmax",
            sharpness: float = 1.0,
            beam_width: int = 1,
        ) -> float:
            best = self._search(weights, X[held_out], 1, link, sharpness, beam_width)[0]
            return precision_at_k(Y[held_out], best, 1)

        found = self._descend(X[train], Y[train], rng, _STEPS, self.max_epochs, accuracy)
        best = max(range(len(found)), key=lambda i: found[i].score)
        weights = found[best].weights
        links: list[tuple[Link, float]] = [("softmax", s) for s in _SHARPNESS]
        self.link_, self.sharpness_ = max(
            [*links, ("sigmoid", 1.0)],
            key=lambda how: accuracy(weights, how[0], how[1], self.beam_width),
        )
        return _STEPS[best], found[best].n_epochs

    def _descend(
        self,
        X: Matrix,
        Y: csr_array,
        rng: np.random.Generator,
        steps: Sequence[float],
        max_epochs: int,
        judge: Callable[[NodeWeights], float] | None = None,
    ) -> list[Descent]:
        """The descent of each first step, all from nodes that were trained by themselves."""
        n_jobs = resolve_jobs(self.n_jobs)
        # With few rows per label many weights have no loss; those near here generalise better.
        start = train_independent(X, Y, self.tree_, rng=rng, n_jobs=n_jobs)
        return [
            train_tree_loss(
                X,
                Y,
                self.tree_,
                regularization=0.0 if self.regularization is None else self.regularization,
                step=step,
                max_epochs=max_epochs,
                start=start,
                judge=judge,
                rng=rng,
                n_jobs=n_jobs,
            )
            for step in steps
        ]

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        X = self._scaled(X)
        labels, logs = self._search(
            self.weights_, X, k, self.link_, self.sharpness_, self.beam_width
        )
        return labels, np.where(labels < 0, -np.inf, np.exp(logs)).astype(np.float32)

    def _search(
        self,
        weights: NodeWeights,
        X: Matrix,
        k: int,
        link: Link,
        sharpness: float,
        beam_width: int,
    ) -> tuple[NDArray[np.int32], F32]:
        return beam_search(
            self.tree_,
            weights,
            X,
            k,
            beam_width=beam_width,
            link=link,
            sharpness=sharpness,
            n_jobs=resolve_jobs(self.n_jobs),
        )

    def _learn_scaling(self, X: Matrix) -> None:
        """Shift and scale of the columns of a dense X, so that rows have about unit length."""
        self.shift_, self.scale_ = None, None
        if self.normalize and not issparse(X):
            # In double: squares of large and of small values do not fit in float32.
            mean = X.mean(axis=0, dtype=np.float64)
            variance = np.einsum("ij,ij->j", X, X, dtype=np.float64) / X.shape[0] - mean**2
            deviation = np.sqrt(np.maximum(variance, 0) * X.shape[1])
            constant = deviation <= 1e-6 * np.abs(mean)
            scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
            self.shift_, self.scale_ = mean.astype(np.float32), scale.astype(np.float32)

    def _scaled(self, X: Matrix) -> Matrix:
        if not self.normalize:
            return X
        if self.shift_ is None:
            return scaled_rows(X)
        return ((X.toarray() if issparse(X) else X) - self.shift_) * self.scale_

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check_tree(check, self.tree_, self.weights_, n_features, n_labels)
        check_one_of("link_", self.link_, LINKS)
        check.number("sharpness_", self.sharpness_)
        check.kind("shift_", self.shift_, np.ndarray, None)
        if self.shift_ is not None:
            check.array("shift_", self.shift_, n_features)
            check.array("scale_", self.scale_, n_features)

    def _check_parameters(self) -> None:
        check_tree_choice(self.tree, self.branching)
        check_one_of("training", self.training, ("tree-loss", "siblings", "independent"))
        for name in ("depth", "beam_width", "max_epochs"):
            check_at_least(name, getattr(self, name), 1)
        if self.regularization is not None:
            check_at_least("regularization", self.regularization, 0)
            if self.training != "tree-loss" and self.regularization == 0:
                raise ValueError(f"regularization must be positive for {self.training}, got 0")


def _split(Y: csr_array, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Rows to train on, and a few to judge by."""
    candidates = np.flatnonzero(np.diff(Y.indptr))
    size = min(_MOST_HELD_OUT, int(_HELD_OUT * len(candidates)))
    if size < 20:  # too few to judge by
        return np.arange(Y.shape[0]), np.arange(0)
    held_out = np.sort(rng.choice(candidates, size=size, replace=False))
    return np.setdiff1d(np.arange(Y.shape[0]), held_out), held_out
