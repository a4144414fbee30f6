"""The embeddings that Rembrandt is compared with: the same frame and parts, another embedding."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
from scipy.linalg import eigh

from labelry.arrays import F32, Rng
from labelry.embeddings.label_embedding import (
    LabelEmbeddingSettings,
    Method,
    centered_decoder,
    rembrandt_method,
)
from labelry.embeddings.rembrandt import Embedding, label_response
from labelry.linalg.rows import Rows, Side
from labelry.linalg.sketch import Operator, orthonormalize, randomized_eigh
from labelry.linalg.solve import Ridge
from labelry.parameters import settings
from labelry.ranking.linear import LinearDecoder

# Part of the largest squared correlation; smaller ones are rounding errors. Not tuned.
_NO_CORRELATION = 1e-4
_LEAST_CCA_PASSES = 4  # canonical correlations converge slowly; not tuned
_LABEL_RIDGE = 1e-3  # of the labels in the whitening; not tuned

# Each function that embeds has the signature of `Method.embed`.


def compressed_sensing(ridge: Ridge, dim: int, how: LabelEmbeddingSettings, rng: Rng) -> Embedding:
    """Draw Gaussian label vectors: Algorithm 2 with q = 0 and p = 0, before any data.

    Hsu, Kakade, Langford, Zhang: Multi-label prediction via compressed sensing, 2009.
    """
    V = rng.standard_normal((ridge.rows.n_labels, dim), dtype=np.float32)
    V /= np.sqrt(np.float32(dim))
    return Embedding(V, np.ones(dim, dtype=np.float32))


def principal_components(
    ridge: Ridge, dim: int, how: LabelEmbeddingSettings, rng: Rng, *, side: Side
) -> Embedding:
    """Find principal directions of the centred labels (PLST) or features (PCA; Algorithm 1).

    Tai, Lin: Multilabel classification with principal label space transformation, 2012.
    It takes one pass for the means and `n_passes` + 1 more.
    """
    size = ridge.rows.n_labels if side == "Y" else ridge.rows.n_features
    operator, options = covariance(ridge, how, side=side), how.sketch_options()
    return Embedding(*randomized_eigh(operator, size, dim, **options, rng=rng))


def covariance(ridge: Ridge, how: LabelEmbeddingSettings, *, side: Side) -> Operator:
    """Return A'A - n m m' for A in {X, Y} with mean row m, as an operator on thin matrices."""
    rows = ridge.rows
    x, _, y, total = rows.totals()
    sums = x if side == "X" else y
    return lambda Q: rows.cross(side, side, Q) - np.outer(sums, sums / total @ Q).astype(np.float32)


def cca(ridge: Ridge, dim: int, how: LabelEmbeddingSettings, rng: Rng) -> Embedding:
    """Find canonical directions of the labels: leading pairs of Y'HY v = rho^2 (Y'Y + r I) v.

    The hat matrix H whitens the features and Y'Y the labels, by two regressions in turn: labels
    on features, then predictions on labels (Lu, Foster: Large scale canonical correlation
    analysis with iterative least squares, 2014). Both are centred.
    The values are the squared canonical correlations.
    """
    rows, regularization = ridge.rows, how.embedding_ridge(ridge)
    labels = Ridge(rows.swapped())
    n_columns = min(dim + how.n_oversamples, rows.n_labels)
    Q = rng.standard_normal((rows.n_labels, n_columns), dtype=np.float32)
    for _ in range(max(how.n_passes, _LEAST_CCA_PASSES)):
        Z = ridge.solve(orthonormalize(Q), regularization)
        Q = labels.solve(Z.coef, _LABEL_RIDGE).coef  # whitens: (Y'Y + r I)^-1 Y'X Z
    # The exact solution within the subspace that was found.
    Q = orthonormalize(Q)
    A = Q.T @ label_response(ridge, ridge.solve(Q, regularization), center=True)
    B = Q.T @ labels.gram_times(Q, _LABEL_RIDGE)
    values, R = eigh((A + A.T) / 2, (B + B.T) / 2)
    # Whitening makes rounding errors of directions that do not correlate at all very long.
    n_kept = max(1, np.count_nonzero(values > _NO_CORRELATION * values.max(initial=0.0)))
    keep = np.argsort(-values)[: min(dim, n_kept)]
    return Embedding(Q @ R[:, keep].astype(np.float32), values[keep].astype(np.float32))


def column_subset(ridge: Ridge, dim: int, how: LabelEmbeddingSettings, rng: Rng) -> Embedding:
    """Choose some of the labels themselves: V has a single one in each column.

    Labels are drawn, without replacement, in proportion to their leverage: the squared length of
    their row in the leading right singular vectors of Y (Bi, Kwok: Efficient multi-label
    classification with many labels, 2013, Algorithm 1). The values are the probabilities.
    """
    gram, n_labels = partial(ridge.rows.cross, "Y", "Y"), ridge.rows.n_labels
    pairs = randomized_eigh(gram, n_labels, dim, n_oversamples=how.n_oversamples, rng=rng)
    leverage = np.einsum("ij,ij->i", pairs.vectors, pairs.vectors, dtype=np.float64)
    leverage /= leverage.sum() or 1.0
    dim = min(dim, int(np.count_nonzero(leverage)))
    chosen = rng.choice(n_labels, dim, replace=False, p=leverage if dim else None)
    V = np.zeros((n_labels, dim), dtype=np.float32)
    V[chosen, np.arange(dim)] = 1.0
    return Embedding(V, leverage[chosen].astype(np.float32))


def expanded_columns(rows: Rows, V: F32) -> LinearDecoder:
    """Return the decoder from chosen columns Y_C to all labels, Y_C^+ Y = (V'Y'YV)^+ V'Y'Y."""
    YYV = rows.cross("Y", "Y", V)
    D = np.linalg.pinv((V.T @ YYV).astype(np.float64), hermitian=True) @ YYV.T
    return LinearDecoder(D.astype(np.float32), np.zeros(len(V), dtype=np.float32))


@settings
class PLSTSettings(LabelEmbeddingSettings):
    """Leading directions of the label covariance; features play no part."""

    method: ClassVar[Method] = Method(
        partial(principal_components, side="Y"), partial(covariance, side="Y"), centered_decoder
    )


@settings
class PCASettings(LabelEmbeddingSettings):
    """Principal components of the features."""

    method: ClassVar[Method] = Method(
        partial(principal_components, side="X"), partial(covariance, side="X"), of_rows=True
    )


@settings
class CPLSTSettings(LabelEmbeddingSettings):
    """Rembrandt on centred labels."""

    method: ClassVar[Method] = rembrandt_method(centered=True, expand=centered_decoder)


@settings
class CompressedSensingSettings(LabelEmbeddingSettings):
    """Random label vectors."""

    method: ClassVar[Method] = Method(compressed_sensing, "random label vectors capture no energy")


@settings
class MLCSSPSettings(LabelEmbeddingSettings):
    """Labels drawn by their leverage."""

    method: ClassVar[Method] = Method(
        column_subset, "chosen labels have no spectrum", expanded_columns
    )


@settings
class CCASettings(LabelEmbeddingSettings):
    """Canonical correlations between features and labels."""

    method: ClassVar[Method] = Method(cca, "correlations have no energy to capture")
