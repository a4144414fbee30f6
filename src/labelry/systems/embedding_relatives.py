"""The systems that Rembrandt is compared with: the same frame with another embedding."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelry.decoders import LinearDecoder
from labelry.embeddings import (
    Embedding,
    cca,
    column_subset,
    compressed_sensing,
    covariance,
    pca,
    plst,
)
from labelry.linalg.rows import Rows
from labelry.linalg.sketch import Operator
from labelry.linalg.solve import LinearMap, Ridge
from labelry.systems.label_embedding import Rembrandt, captured

F32 = NDArray[np.float32]


class PLST(Rembrandt):
    """Principal label space transformation: the embedding of the labels alone.

    As `Rembrandt`, with the leading directions of the label covariance in place of the prediction
    covariance. Features play no part in the embedding.

    References
    ----------
    Tai, Lin: Multilabel classification with principal label space transformation, 2012.
    """

    system: ClassVar[str] = "plst"
    centered: ClassVar[bool] = True

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return plst(
            ridge.rows, dim, n_oversamples=self.n_oversamples, n_passes=self.n_passes, rng=rng
        )

    def _covariance(self, ridge: Ridge) -> Operator:
        return covariance(ridge.rows, "Y")


class CPLST(Rembrandt):
    """Conditional principal label space transformation: Rembrandt on centred labels.

    References
    ----------
    Chen, Lin: Feature-aware label space dimension reduction for multi-label classification, 2012.
    """

    system: ClassVar[str] = "cplst"
    centered: ClassVar[bool] = True


class CompressedSensing(Rembrandt):
    """Random label vectors: what Rembrandt starts from.

    References
    ----------
    Hsu, Kakade, Langford, Zhang: Multi-label prediction via compressed sensing, 2009.
    """

    system: ClassVar[str] = "compressed-sensing"

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return compressed_sensing(ridge.rows.n_labels, dim, rng=rng)

    def _covariance(self, ridge: Ridge) -> Operator:
        raise ValueError("random label vectors capture no energy: embedding_dim must be a number")


class MLCSSP(Rembrandt):
    """Column subset selection: a few labels are predicted, and the others from them.

    As `Rembrandt`, with labels drawn by their leverage in place of an embedding. The least-squares
    decoder is the paper's: labels Y are close to Y_C (Y_C^+ Y) for the chosen columns C.

    References
    ----------
    Bi, Kwok: Efficient multi-label classification with many labels, 2013.
    """

    system: ClassVar[str] = "ml-cssp"

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return column_subset(ridge.rows, dim, n_oversamples=self.n_oversamples, rng=rng)

    def _covariance(self, ridge: Ridge) -> Operator:
        raise ValueError("chosen labels have no spectrum: embedding_dim must be a number")

    def _least_squares(self, rows: Rows) -> LinearDecoder:
        V = self.label_embedding_
        YYV = rows.cross("Y", "Y", V)
        # Y_C^+ Y = (V'Y'YV)^+ V'Y'Y
        D = np.linalg.pinv((V.T @ YYV).astype(np.float64), hermitian=True) @ YYV.T
        return LinearDecoder(D.astype(np.float32), np.zeros(len(V), dtype=np.float32))


class CCA(Rembrandt):
    """Canonical correlations between features and labels.

    As `Rembrandt`, with both features and labels whitened.

    References
    ----------
    Lu, Foster: Large scale canonical correlation analysis with iterative least squares, 2014.
    """

    system: ClassVar[str] = "cca"

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return cca(
            ridge,
            dim,
            regularization=self._ridge(ridge),
            n_oversamples=self.n_oversamples,
            n_passes=max(self.n_passes, 4),
            rng=rng,
        )

    def _covariance(self, ridge: Ridge) -> Operator:
        raise ValueError("correlations have no energy to capture: embedding_dim must be a number")


class PCA(Rembrandt):
    """Principal components of the features, then a decoder; labels play no part in the components.

    With as many components as features it is the decoder on the features themselves, so that
    ``decoder="logistic"`` is plain logistic regression. The label embedding is the mean of
    each label's rows.
    """

    system: ClassVar[str] = "pca"
    supervised: ClassVar[bool] = False

    def _learn(
        self, rows: Rows, dim: int | float, rng: np.random.Generator
    ) -> tuple[LinearMap, Embedding]:
        def components_of(dim: int) -> Embedding:
            return pca(rows, dim, n_oversamples=self.n_oversamples, n_passes=self.n_passes, rng=rng)

        if isinstance(dim, float):
            components = captured(components_of, covariance(rows, "X"), rows.n_features, dim, rng)
        else:
            components = components_of(dim)
        x, _, y, total = rows.totals()
        W = np.ascontiguousarray(components.vectors)
        means = rows.cross("Y", "X", W) / np.maximum(y, 1)[:, None].astype(np.float32)
        offset: F32 = -(x / total @ W).astype(np.float32)
        vectors = np.asarray(means + offset, dtype=np.float32)
        return LinearMap(W, offset), Embedding(vectors, components.values)
