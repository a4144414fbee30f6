"""Rembrandt: response embedding via randomized techniques.

Mineiro, Karampatziakis: Fast label embeddings via randomized linear algebra, 2015, Algorithm 2.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from labelry.arrays import F32, Rng
from labelry.linalg.sketch import principal_directions, randomized_eigh
from labelry.linalg.solve import LinearMap, Ridge
from labelry.progress import phase

_NOTHING = np.zeros((0, 0), dtype=np.float32), np.zeros((0, 0), dtype=np.float32)


class Embedding(NamedTuple):
    """Label vectors V (n_labels, k) and the value (k,) of each direction, largest first."""

    vectors: Annotated[F32, "n_labels", "embedding_dim"]
    values: Annotated[F32, "embedding_dim"]
    # Coefficients at which a regression on the embedding of similar rows may begin, if they come
    # with the method.
    start: Annotated[F32, "n_features", "embedding_dim"] | None = None

    def first(self, k: int) -> Embedding:
        """Return the k leading directions."""
        start = None if self.start is None else self.start[:, :k]
        return Embedding(self.vectors[:, :k], self.values[:k], start)


def rembrandt(
    ridge: Ridge,
    embedding_dim: int,
    *,
    regularization: float = 1.0,
    n_oversamples: int = 20,
    n_passes: int = 1,
    center: bool = False,
    rng: Rng,
) -> Embedding:
    """Return leading eigenpairs of Y'HY, the covariance of what ridge regression predicts (Alg. 2).

    H is the hat matrix of the regression on X. Y'HY = A'A where A stacks the predictions X Z* on
    sqrt(r) Z*: the predictions themselves when there is no ridge. It is only ever applied to
    thin matrices, each time by one regression and one more pass: n_passes + 1 regressions for
    embedding_dim + n_oversamples targets. Fewer dimensions come back when the rank of the
    predictions is smaller.

    The ridge r (`regularization`) is in units of mean feature energy. Larger makes the embedding
    follow the few strongest features. If it is too small and features are many, the embedding finds
    only the most frequent labels. With `center`, Y is centred, as in CPLST.
    """
    covariance = PredictionCovariance(ridge, regularization, center)
    # Alg. 2, lines 3-10: randomized PCA of the operator Q -> Y'X Z(Q).
    options = {"n_oversamples": n_oversamples, "n_passes": n_passes}
    pairs = randomized_eigh(covariance, ridge.rows.n_labels, embedding_dim, rng=rng, **options)
    return _with_start(covariance, *pairs)


def updated_rembrandt(ridge: Ridge, before: Embedding, *, regularization: float = 1.0) -> Embedding:
    """Update an embedding of rows that are mostly the same, and come with its regressor.

    It takes the place of the random directions of `rembrandt`, so one regression is enough.
    """
    if len(before.values) == 0:
        return before
    covariance = PredictionCovariance(ridge, regularization, start=before.start)
    return _with_start(covariance, *principal_directions(covariance, before.vectors))


def _with_start(covariance: PredictionCovariance, V: F32, values: F32) -> Embedding:
    Q, Z = covariance.last
    return Embedding(V, values, Z @ (Q.T @ V))  # V is nearly in the span of Q


class PredictionCovariance:
    """Y'HY as an operator on thin matrices, with the last pair (Q, Z) that it solved for.

    `start` is where each regression begins, if it is not far from what is to be found.
    """

    def __init__(
        self, ridge: Ridge, regularization: float, center: bool = False, start: F32 | None = None
    ) -> None:
        self.ridge = ridge
        self.regularization = regularization
        self.center = center
        self.start = start
        self.last = _NOTHING

    def __call__(self, Q: F32) -> F32:
        self.last = _NOTHING  # frees its memory
        with phase("learning label vectors"):
            Z = self.ridge.solve(Q, self.regularization, start=self.start)  # Alg. 2, line 5
            self.last = Q, Z.coef
            return label_response(self.ridge, Z, center=self.center)  # Y'(X Z)


def label_response(ridge: Ridge, Z: LinearMap, *, center: bool = False) -> F32:
    """Return Y' times the predictions of a regressor, (n_labels, k), in one pass.

    With `center`, the mean of the predictions is taken off first.
    """
    offset = -(ridge.mean @ Z.coef) if center else Z.intercept
    out = ridge.rows.cross("Y", "X", Z.coef)
    out += np.outer(ridge.label_sums, offset).astype(np.float32)
    return out
