"""Estimators that embed the labels: Rembrandt and the methods it is compared with."""

from __future__ import annotations

from typing import Any, Self

from labelry.embeddings.comparisons import (
    CCASettings,
    CompressedSensingSettings,
    CPLSTSettings,
    MLCSSPSettings,
    PCASettings,
    PLSTSettings,
)
from labelry.embeddings.label_embedding import LabelEmbeddingSettings, fit_label_embedding
from labelry.estimators.base import LabelRanker, estimator


class EmbeddingRanker(LabelRanker):
    """Base of the estimators here, which take weights of rows."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X, y, groups
            As for every estimator.
        sample_weight : array (n_rows,), optional
            Importance of each row: one of weight 2 counts as two rows, one of weight 0 as none.
        """
        return self._fit(X, y, weights=sample_weight, groups=groups)


@estimator("rembrandt", fit_label_embedding, example="embedding_dim=4")
class Rembrandt(EmbeddingRanker, LabelEmbeddingSettings):
    """Randomized label embeddings with a choice of decoders.

    Labels are embedded in the leading directions of what a ridge regression can predict of
    them (Algorithm 2), the embedding is predicted by another regression, and a decoder turns it
    back into labels (Algorithm 3). Training needs a few passes over the rows, whatever the
    number of labels. Choose it for a model that is small and quick to train, and for the label
    embedding itself.

    Attributes
    ----------
    fitted_ : labelry.embeddings.label_embedding.LabelEmbedding or CorrectedLabelEmbedding
        With its parts ``label_embedding_``, ``spectrum_``, ``regressor_`` and ``decoder_``.

    References
    ----------
    Mineiro, Karampatziakis: Fast label embeddings via randomized linear algebra, 2015.
    """


@estimator("plst", fit_label_embedding)
class PLST(EmbeddingRanker, PLSTSettings):
    """Principal label space transformation: the embedding of the labels alone.

    As `Rembrandt`, with the leading directions of the label covariance in place of the prediction
    covariance. Features play no part in the embedding.

    References
    ----------
    Tai, Lin: Multilabel classification with principal label space transformation, 2012.
    """


@estimator("cplst", fit_label_embedding)
class CPLST(EmbeddingRanker, CPLSTSettings):
    """Conditional principal label space transformation: Rembrandt on centred labels.

    References
    ----------
    Chen, Lin: Feature-aware label space dimension reduction for multi-label classification, 2012.
    """


@estimator("compressed-sensing", fit_label_embedding)
class CompressedSensing(EmbeddingRanker, CompressedSensingSettings):
    """Random label vectors: what Rembrandt starts from.

    References
    ----------
    Hsu, Kakade, Langford, Zhang: Multi-label prediction via compressed sensing, 2009.
    """


@estimator("ml-cssp", fit_label_embedding)
class MLCSSP(EmbeddingRanker, MLCSSPSettings):
    """Column subset selection: a few labels are predicted, and the others from them.

    As `Rembrandt`, with labels drawn by their leverage in place of an embedding. The least-squares
    decoder is the paper's: labels Y are close to Y_C (Y_C^+ Y) for the chosen columns C.

    References
    ----------
    Bi, Kwok: Efficient multi-label classification with many labels, 2013.
    """


@estimator("cca", fit_label_embedding)
class CCA(EmbeddingRanker, CCASettings):
    """Canonical correlations between features and labels.

    As `Rembrandt`, with both features and labels whitened.

    References
    ----------
    Lu, Foster: Large scale canonical correlation analysis with iterative least squares, 2014.
    """


@estimator("pca", fit_label_embedding)
class PCA(EmbeddingRanker, PCASettings):
    """Principal components of the features, then a decoder; labels play no part in the components.

    With as many components as features it is the decoder on the features themselves, so that
    ``decoder="logistic"`` is plain logistic regression. The label embedding is the mean of
    each label's rows.
    """
