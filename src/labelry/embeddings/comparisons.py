"""The embeddings that Rembrandt is compared with, from the same parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from labelry.embeddings.embedding import Embedding
from labelry.embeddings.rembrandt import label_response
from labelry.linalg.rows import Rows, Side
from labelry.linalg.sketch import orthonormalize, randomized_eigh
from labelry.linalg.solve import Ridge

F32 = NDArray[np.float32]


def compressed_sensing(n_labels: int, embedding_dim: int, *, rng: np.random.Generator) -> Embedding:
    """Random Gaussian label vectors: Algorithm 2 with q = 0 and p = 0, before any data.

    Hsu, Kakade, Langford, Zhang: Multi-label prediction via compressed sensing, 2009.
    """
    V = rng.standard_normal((n_labels, embedding_dim), dtype=np.float32)
    V /= np.sqrt(np.float32(embedding_dim))
    return Embedding(V, np.ones(embedding_dim, dtype=np.float32))


def plst(
    rows: Rows,
    embedding_dim: int,
    *,
    n_oversamples: int = 20,
    n_passes: int = 1,
    rng: np.random.Generator,
) -> Embedding:
    """Principal directions (n_labels, k) of the centred labels.

    Tai, Lin: Multilabel classification with principal label space transformation, 2012.
    One pass for the means and `n_passes` + 1 more.
    """
    return _principal_directions(rows, "Y", embedding_dim, n_oversamples, n_passes, rng)


def pca(
    rows: Rows,
    n_components: int,
    *,
    n_oversamples: int = 20,
    n_passes: int = 1,
    rng: np.random.Generator,
) -> Embedding:
    """Principal directions (n_features, k) of the centred features (Algorithm 1)."""
    return _principal_directions(rows, "X", n_components, n_oversamples, n_passes, rng)


def _principal_directions(
    rows: Rows, side: Side, rank: int, n_oversamples: int, n_passes: int, rng: np.random.Generator
) -> Embedding:
    """Eigenpairs of A'A - n m m' for A in {X, Y} with mean row m."""
    x, _, y, total = rows.totals()
    sums = x if side == "X" else y

    def apply(Q: F32) -> F32:
        return rows.cross(side, side, Q) - np.outer(sums, sums / total @ Q).astype(np.float32)

    pairs = randomized_eigh(
        apply, len(sums), rank, n_oversamples=n_oversamples, n_passes=n_passes, rng=rng
    )
    return Embedding(*pairs)


def cca(
    ridge: Ridge,
    embedding_dim: int,
    *,
    regularization: float = 1.0,
    label_regularization: float = 1e-3,
    n_oversamples: int = 20,
    n_passes: int = 4,
    rng: np.random.Generator,
) -> Embedding:
    """Canonical directions of the labels: leading pairs of Y'HY v = rho^2 (Y'Y + r I) v.

    Both sides whitened, the features by the hat matrix H and the labels by Y'Y, as two
    regressions in turn: labels on features, then predictions on labels (Lu, Foster: Large scale
    canonical correlation analysis with iterative least squares, 2014). Both are centred.
    The values are the squared canonical correlations.
    """
    rows = ridge.rows
    labels = Ridge(rows.swapped())
    n_columns = min(embedding_dim + n_oversamples, rows.n_labels)
    Q = rng.standard_normal((rows.n_labels, n_columns), dtype=np.float32)
    for _ in range(n_passes):
        Z = ridge.solve(orthonormalize(Q), regularization)
        Q = labels.solve(Z.coef, label_regularization).coef  # whitens: (Y'Y + r I)^-1 Y'X Z
    # The exact solution within the subspace that was found.
    Q = orthonormalize(Q)
    A = Q.T @ label_response(ridge, ridge.solve(Q, regularization), center=True)
    B = Q.T @ labels.gram_times(Q, label_regularization)
    values, R = eigh((A + A.T) / 2, (B + B.T) / 2)
    keep = np.argsort(-values)[:embedding_dim]
    return Embedding(Q @ R[:, keep].astype(np.float32), values[keep].astype(np.float32))
