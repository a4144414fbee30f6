"""One linear classifier per label."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse
from scipy.special import expit

from labelry import memory
from labelry.checks import StoredCheck, check_at_least, check_one_of, check_positive
from labelry.estimator import LabelRanker
from labelry.linalg import dual_descent
from labelry.linalg.dual_descent import Loss
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.parallel import resolve_jobs, stream
from labelry.linalg.topk import topk_blocks
from labelry.progress import phase

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]


class OneVsRest(LabelRanker):
    """One L2-regularised linear classifier per label, by dual coordinate descent.

    The plain, strong baseline: accurate when labels have enough rows each; training and
    prediction both cost time and memory in proportion to the number of labels. Choose it up to
    some tens of thousands of labels, or to have something to compare with.

    Parameters
    ----------
    loss : {"squared_hinge", "logistic"}
        "logistic" gives probabilities; "squared_hinge" gives margins (0 is the boundary) and is
        about twice as fast.
    C : float
        Weight of the losses against the regulariser; larger fits the training rows more closely.
    normalize : bool
        Scale each row of X to unit length first.
    prune : float
        Drop weights of at most this absolute value and keep the rest as a sparse matrix; 0 keeps
        a dense matrix of n_features x n_labels.
    tolerance : float
        Projected gradient at which a label is done; smaller is closer to the optimum.
    max_sweeps : int
        Most passes over the rows for a label.
    random_state : int, optional
        Seed for the order of the rows.
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

    Attributes
    ----------
    coef_ : array or csr_array (n_features, n_labels)
    intercept_ : array (n_labels,)
    n_sweeps_ : array (n_labels,)

    Notes
    -----
    Time: 4 flops per nonzero of X, label and sweep. Memory while training: n_features x n_labels
    floats, unless pruned, and about 6 bytes x n_rows x 16 for each thread.

    Examples
    --------
    >>> X = [[2.0, 0.1], [1.0, 0.0], [0.0, 1.0], [0.1, 3.0]]
    >>> model = OneVsRest().fit(X, ["cat", "cat", "dog", "dog"])
    >>> model.predict([[1.0, 0.2]]).tolist()
    ['cat']
    """

    system: ClassVar[str] = "one-vs-rest"

    def __init__(
        self,
        *,
        loss: Loss = "squared_hinge",
        C: float = 1.0,
        normalize: bool = True,
        prune: float = 0.0,
        tolerance: float = 0.02,
        max_sweeps: int = 100,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.loss = loss
        self.C = C
        self.normalize = normalize
        self.prune = prune
        self.tolerance = tolerance
        self.max_sweeps = max_sweeps
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Score from which `predict` says yes: probability one half, or margin zero."""
        return 0.5 if self.loss == "logistic" else 0.0

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities."""
        return self.loss == "logistic"

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        n_jobs = resolve_jobs(self.n_jobs)
        n_labels = Y.shape[1]
        if self.prune == 0:
            memory.require(
                4 * X.shape[1] * n_labels,
                f"one-vs-rest with {X.shape[1]:,} features and {n_labels:,} labels",
                "drop small weights (prune=0.01), or use a label tree or an embedding",
            )
        # Labels of like frequency take a like number of sweeps: put them in one group.
        order = np.argsort(-self.label_counts_, kind="stable")
        groups = [order[i : i + LANES] for i in range(0, n_labels, LANES)]
        seeds = rng.integers(1, 2**31, size=len(groups))
        train = self._trainer(csr_array(self._scaled(X)), Y)
        parts = _DenseParts(X.shape[1], n_labels) if self.prune == 0 else _SparseParts(self.prune)
        self.intercept_ = np.zeros(n_labels, dtype=np.float32)
        self.n_sweeps_ = np.zeros(n_labels, dtype=np.int32)
        with phase("training classifiers", n_labels, "labels") as advance:
            for labels, W, sweeps in stream(train, zip(groups, seeds, strict=True), n_jobs):
                self.intercept_[labels] = W[-1]
                self.n_sweeps_[labels] = sweeps
                parts.add(labels, W[:-1])
                advance(len(labels))
        self.coef_ = parts.matrix((X.shape[1], n_labels))

    def _trainer(self, X: csr_array, Y: csr_array) -> Any:
        """The function that trains one group of labels."""
        csr = (X.indptr, X.indices, X.data)
        rows_of = Y.tocsc()
        energy = dual_descent.row_energies(X.indptr, X.data)
        options = (self.C, self.tolerance, self.max_sweeps)

        def train(labels: Ints, seed: int) -> tuple[Ints, F32, int]:
            signs = np.full((X.shape[0], LANES), -1, dtype=np.int8)
            for lane, label in enumerate(labels):
                rows = rows_of.indices[rows_of.indptr[label] : rows_of.indptr[label + 1]]
                signs[rows, lane] = 1
            W = lane_zeros(X.shape[1] + 1)
            sweeps = dual_descent.descend(self.loss, *csr, signs, energy, *options, seed, W)
            return labels, W[:, : len(labels)], sweeps

        return train

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        return topk_blocks(
            lambda rows: self._scores(X[rows]),
            X.shape[0],
            len(self.classes_),
            k,
            resolve_jobs(self.n_jobs),
        )

    def _scores(self, X: Matrix) -> F32:
        X = self._scaled(X)
        if issparse(self.coef_):
            S = X @ self.coef_
            S = S.toarray() if issparse(S) else S
        else:
            S = product(X, self.coef_, resolve_jobs(self.n_jobs))
        S += self.intercept_
        return expit(S) if self.loss == "logistic" else S

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.matrix("coef_", self.coef_, n_features, n_labels)
        check.array("intercept_", self.intercept_, n_labels)

    def _scaled(self, X: Matrix) -> Matrix:
        return scaled_rows(X) if self.normalize else X

    def _check_parameters(self) -> None:
        check_one_of("loss", self.loss, dual_descent.LOSSES)
        check_positive("C", self.C)
        check_at_least("prune", self.prune, 0)
        check_at_least("max_sweeps", self.max_sweeps, 1)


class _DenseParts:
    """Collects weights in one dense matrix."""

    def __init__(self, n_features: int, n_labels: int) -> None:
        self._coef = np.zeros((n_features, n_labels), dtype=np.float32)

    def add(self, labels: Ints, W: F32) -> None:
        self._coef[:, labels] = W

    def matrix(self, shape: tuple[int, int]) -> F32:
        return self._coef


class _SparseParts:
    """Collects only the weights above a threshold."""

    def __init__(self, prune: float) -> None:
        self._prune = prune
        self._parts: list[tuple[Ints, Ints, F32]] = []

    def add(self, labels: Ints, W: F32) -> None:
        rows, lanes = np.nonzero(np.abs(W) > self._prune)
        self._parts.append((rows.astype(np.int32), labels[lanes].astype(np.int32), W[rows, lanes]))

    def matrix(self, shape: tuple[int, int]) -> csr_array:
        rows, columns, values = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return csr_array(coo_array((values, (rows, columns)), shape=shape))
