"""The embeddings that Rembrandt is compared with: the same frame and parts, another embedding."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh

from labelry.arrays import F32
from labelry.embeddings.label_embedding import LabelEmbeddingSettings, Method, rembrandt_method
from labelry.embeddings.rembrandt import Embedding, label_response
from labelry.linalg.rows import Rows, Side
from labelry.linalg.sketch import Operator, orthonormalize, randomized_eigh
from labelry.linalg.solve import Ridge
from labelry.parameters import settings
from labelry.ranking import LinearDecoder

# Part of the largest squared correlation; smaller ones are rounding errors. Not tuned.
_NO_CORRELATION = 1e-4
_LEAST_CCA_PASSES = 4  # canonical correlations converge slowly; not tuned


def compressed_sensing(n_labels: int, embedding_dim: int, *, rng: np.random.Generator) -> Embedding:
    """Draw Gaussian label vectors: Algorithm 2 with q = 0 and p = 0, before any data.

    Hsu, Kakade, Langford, Zhang: Multi-label prediction via compressed sensing, 2009.
    """
    V = rng.standard_normal((n_labels, embedding_dim), dtype=np.float32)
    V /= np.sqrt(np.float32(embedding_dim))
    return Embedding(V, np.ones(embedding_dim, dtype=np.float32))


def principal_components(rows: Rows, side: Side, dim: int, **sketch: Any) -> Embedding:
    """Find principal directions of the centred labels (PLST) or features (PCA; Algorithm 1).

    Tai, Lin: Multilabel classification with principal label space transformation, 2012.
    It takes one pass for the means and `n_passes` + 1 more; `sketch` goes to `randomized_eigh`.
    """
    size = rows.n_labels if side == "Y" else rows.n_features
    return Embedding(*randomized_eigh(covariance(rows, side), size, dim, **sketch))


def covariance(rows: Rows, side: Side) -> Operator:
    """Return A'A - n m m' for A in {X, Y} with mean row m, as an operator on thin matrices."""
    x, _, y, total = rows.totals()
    sums = x if side == "X" else y
    return lambda Q: rows.cross(side, side, Q) - np.outer(sums, sums / total @ Q).astype(np.float32)


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
    """Find canonical directions of the labels: leading pairs of Y'HY v = rho^2 (Y'Y + r I) v.

    The hat matrix H whitens the features and Y'Y the labels, by two regressions in turn: labels
    on features, then predictions on labels (Lu, Foster: Large scale canonical correlation
    analysis with iterative least squares, 2014). Both are centred.
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
    # Whitening makes rounding errors of directions that do not correlate at all very long.
    n_kept = max(1, np.count_nonzero(values > _NO_CORRELATION * values.max(initial=0.0)))
    keep = np.argsort(-values)[: min(embedding_dim, n_kept)]
    return Embedding(Q @ R[:, keep].astype(np.float32), values[keep].astype(np.float32))


def column_subset(
    rows: Rows, embedding_dim: int, *, n_oversamples: int = 20, rng: np.random.Generator
) -> Embedding:
    """Choose some of the labels themselves: V has a single one in each column.

    Labels are drawn, without replacement, in proportion to their leverage: the squared length of
    their row in the leading right singular vectors of Y (Bi, Kwok: Efficient multi-label
    classification with many labels, 2013, Algorithm 1). The values are the probabilities.
    """
    gram = partial(rows.cross, "Y", "Y")
    pairs = randomized_eigh(
        gram, rows.n_labels, embedding_dim, n_oversamples=n_oversamples, rng=rng
    )
    leverage = np.einsum("ij,ij->i", pairs.vectors, pairs.vectors, dtype=np.float64)
    leverage /= leverage.sum() or 1.0
    dim = min(embedding_dim, int(np.count_nonzero(leverage)))
    chosen = rng.choice(rows.n_labels, dim, replace=False, p=leverage if dim else None)
    V = np.zeros((rows.n_labels, dim), dtype=np.float32)
    V[chosen, np.arange(dim)] = 1.0
    return Embedding(V, leverage[chosen].astype(np.float32))


def expanded_columns(rows: Rows, V: F32) -> LinearDecoder:
    """Return the decoder from chosen columns Y_C to all labels, Y_C^+ Y = (V'Y'YV)^+ V'Y'Y."""
    YYV = rows.cross("Y", "Y", V)
    D = np.linalg.pinv((V.T @ YYV).astype(np.float64), hermitian=True) @ YYV.T
    return LinearDecoder(D.astype(np.float32), np.zeros(len(V), dtype=np.float32))


def _principal(side: Side) -> Method:
    return Method(
        embed=lambda ridge, dim, settings, rng: principal_components(
            ridge.rows, side, dim, **settings.sketch_options(), rng=rng
        ),
        energy=lambda ridge, settings: covariance(ridge.rows, side),
        centered=side == "Y",
        of_rows=side == "X",
    )


@settings
class PLSTSettings(LabelEmbeddingSettings):
    """Leading directions of the label covariance; features play no part."""

    method: ClassVar[Method] = _principal("Y")


@settings
class PCASettings(LabelEmbeddingSettings):
    """Principal components of the features."""

    method: ClassVar[Method] = _principal("X")


@settings
class CPLSTSettings(LabelEmbeddingSettings):
    """Rembrandt on centred labels."""

    method: ClassVar[Method] = rembrandt_method(centered=True)


@settings
class CompressedSensingSettings(LabelEmbeddingSettings):
    """Random label vectors."""

    method: ClassVar[Method] = Method(
        embed=lambda ridge, dim, settings, rng: compressed_sensing(
            ridge.rows.n_labels, dim, rng=rng
        ),
        energy="random label vectors capture no energy",
    )


@settings
class MLCSSPSettings(LabelEmbeddingSettings):
    """Labels drawn by their leverage."""

    method: ClassVar[Method] = Method(
        embed=lambda ridge, dim, settings, rng: column_subset(
            ridge.rows, dim, n_oversamples=settings.n_oversamples, rng=rng
        ),
        energy="chosen labels have no spectrum",
        expand=expanded_columns,
    )


@settings
class CCASettings(LabelEmbeddingSettings):
    """Canonical correlations between features and labels."""

    method: ClassVar[Method] = Method(
        embed=lambda ridge, dim, settings, rng: cca(
            ridge,
            dim,
            regularization=settings.embedding_ridge(ridge),
            n_oversamples=settings.n_oversamples,
            n_passes=max(settings.n_passes, _LEAST_CCA_PASSES),
            rng=rng,
        ),
        energy="correlations have no energy to capture",
    )
