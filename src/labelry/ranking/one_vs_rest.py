"""One linear classifier per label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse
from scipy.special import expit

from labelry import memory
from labelry.arrays import F32, I32, Ints, Rng
from labelry.linalg.dual_descent import LaneProblem, MarginLoss, row_energies, train_lanes
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.parallel import stream
from labelry.linalg.rows import Rows, in_memory
from labelry.linalg.topk import topk_blocks
from labelry.parameters import Between, OneOf, Settings, param, settings
from labelry.progress import phase
from labelry.ranking.ranker import Ranker


@settings
class OneVsRestSettings(Settings):
    """How to train one linear classifier per label."""

    loss: MarginLoss = param(
        default="squared_hinge",
        help='"logistic" gives probabilities. "squared_hinge" gives margins, where 0 is the '
        "boundary, and is about twice as fast.",
        tune=OneOf(("squared_hinge", "logistic")),
    )
    C: float = param(
        default=1.0,
        above=0,
        help="Weight of the losses against the regulariser. Larger fits the training rows more "
        "closely.",
        tune=Between(0.1, 30.0, log=True),
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")
    prune: float = param(
        default=0.0,
        least=0,
        help="Drop weights of at most this absolute value and keep the rest as a sparse matrix. 0 "
        "keeps a dense matrix of n_features x n_labels.",
    )
    tolerance: float = param(
        default=0.02,
        least=0,
        help="Projected gradient at which a label is done. Smaller is closer to the optimum.",
    )
    max_sweeps: int = param(default=100, least=1, help="Most passes over the rows for a label.")


@dataclass(frozen=True, eq=False)
class LinearClassifiers(Ranker):
    """One linear classifier per label, whose scores are probabilities or margins."""

    coef: Annotated[Matrix, "n_features", "n_labels"]
    intercept: Annotated[F32, "n_labels"]
    n_sweeps: Annotated[I32, "n_labels"]  # passes over the rows that the label took
    logistic: bool
    normalize: bool

    @property
    def threshold(self) -> float:
        return 0.5 if self.logistic else 0.0  # a probability, or a margin

    @property
    def probabilities(self) -> bool:
        return self.logistic

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        return topk_blocks(
            lambda rows: self.scores(X[rows], n_jobs), X.shape[0], len(self.intercept), k, n_jobs
        )

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        X = scaled_rows(X) if self.normalize else X
        if issparse(self.coef):
            S = X @ self.coef
            S = S.toarray() if issparse(S) else S
        else:
            S = product(X, self.coef, n_jobs)
        S += self.intercept
        return expit(S) if self.logistic else S


def fit_one_vs_rest(rows: Rows, settings: OneVsRestSettings, rng: Rng) -> LinearClassifiers:
    """Train one L2-regularised linear classifier per label, by dual coordinate descent."""
    X, Y = in_memory(rows, "one-vs-rest")
    n_features, n_labels = rows.n_features, rows.n_labels
    dense = settings.prune == 0
    if dense:
        memory.require(
            4 * n_features * n_labels,
            f"one-vs-rest with {n_features:,} features and {n_labels:,} labels",
            "drop small weights (prune=0.01), or use a label tree or an embedding",
        )
    # Labels of similar frequency take about as many sweeps, so they share a group.
    order = np.argsort(-rows.label_counts(), kind="stable")
    groups = [order[i : i + LANES] for i in range(0, n_labels, LANES)]
    seeds = rng.integers(1, 2**31, size=len(groups))
    train = _trainer(csr_array(scaled_rows(X) if settings.normalize else X), Y, settings)
    coef: Matrix = np.zeros((n_features, n_labels), dtype=np.float32) if dense else None
    kept = []  # if weights are pruned: values, features and labels of those that stay
    intercept = np.zeros(n_labels, dtype=np.float32)
    n_sweeps = np.zeros(n_labels, dtype=np.int32)
    with phase("training classifiers", n_labels, "labels") as advance:
        for labels, W, sweeps in stream(train, zip(groups, seeds, strict=True), rows.n_jobs):
            intercept[labels] = W[-1]
            n_sweeps[labels] = sweeps
            if dense:
                coef[:, labels] = W[:-1]
            else:
                features, lanes = np.nonzero(np.abs(W[:-1]) > settings.prune)
                numbers = (features.astype(np.int32), labels[lanes].astype(np.int32))
                kept.append((W[features, lanes], *numbers))
            advance(len(labels))
    if not dense:
        values, *places = (np.concatenate(part) for part in zip(*kept, strict=True))
        coef = csr_array(coo_array((values, places), shape=(n_features, n_labels)))
    logistic = settings.loss == "logistic"
    return LinearClassifiers(coef, intercept, n_sweeps, logistic, settings.normalize)


def _trainer(X: csr_array, Y: csr_array, settings: OneVsRestSettings) -> Any:
    """Return the function that trains one group of labels."""
    csr = (X.indptr, X.indices, X.data)
    rows_of = Y.tocsc()
    energy = row_energies(X.indptr, X.data)
    options = (settings.C, settings.tolerance)

    def train(labels: Ints, seed: int) -> tuple[Ints, F32, int]:
        signs = np.full((X.shape[0], LANES), -1, dtype=np.int8)
        for lane, label in enumerate(labels):
            rows = rows_of.indices[rows_of.indptr[label] : rows_of.indptr[label + 1]]
            signs[rows, lane] = 1
        W = lane_zeros(X.shape[1] + 1)
        problem = LaneProblem(*csr, signs, energy, *options)
        sweeps = train_lanes(settings.loss, problem, settings.max_sweeps, seed, W)
        return labels, W[:, : len(labels)], sweeps

    return train
