"""Estimators of low-rank maps, and of models that each belong to a cluster of rows."""

from __future__ import annotations

from typing import Any, Self

from labelry.embeddings.leml import LEMLSettings, fit_leml
from labelry.embeddings.local_leml import LocalLEMLSettings, fit_local_leml
from labelry.embeddings.sleec import SLEECSettings, fit_sleec
from labelry.estimators.base import LabelRanker, estimator


@estimator("leml", fit_leml)
class LEML(LabelRanker, LEMLSettings):
    """Low-rank linear map from features to labels, fitted to the loss itself.

    `Rembrandt` finds the embedding first and the regressor after; LEML fits both to one objective
    by turns. Choose it where some labels of the training rows are unknown (`known` in `fit`), or
    to compare with.

    Notes
    -----
    Squared loss, all labels known: about 20 passes a round, each 4 flops per nonzero and
    dimension. Otherwise about 50 products of 6 flops per row, label and dimension a round.

    References
    ----------
    Yu, Jain, Kar, Dhillon: Large-scale multi-label learning with missing labels, 2014.
    """

    def fit(self, X: Any, y: Any = None, known: Any = None, *, groups: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X, y, groups
            As for every estimator; no rows are held out.
        known : sparse or dense matrix (n_rows, n_labels), optional
            Nonzero where y is known, whether the label is on the row or not. By default all of y
            is known.
        """
        return self._fit(X, y, known=known, groups=groups)


@estimator("local-leml", fit_local_leml, example="n_clusters=2")
class LocalLEML(LabelRanker, LocalLEMLSettings):
    """LEML in clusters of similar rows, averaged over several clusterings.

    The paper of `SLEEC` compares it with this, to show that the gain of SLEEC does not come from
    the clusters: the clusters and the ensemble are the same, but in each cluster there is a
    low-rank linear map from features to labels. Choose it to compare with, or where `LEML` has
    too many labels at once: a cluster has few.

    Scores are those of a least-squares fit to 0 and 1; a label that is not in a cluster has 0
    there. With one cluster it is LEML.

    Notes
    -----
    Prediction costs, for each learner, 2 k flops for each label of the nearest cluster.

    References
    ----------
    Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label
    classification, 2015, section 3.
    """


@estimator("sleec", fit_sleec)
class SLEEC(LabelRanker, SLEECSettings):
    """Sparse local embeddings for extreme classification.

    Rows are clustered by their features. In each cluster an embedding is learnt that keeps rows
    with similar label sets close to each other and leaves all other distances free, so that the
    label matrix need not be of low rank. A regression predicts the embedding from the features,
    and the nearest training rows there add their labels. Several clusterings are averaged. Choose
    it where most labels have few rows.

    Scores are shares of the weights of the neighbours, between 0 and 1.

    Notes
    -----
    Time of a learner is linear in the rows while the clusters keep their size, except for the
    clustering, which grows by one more level of cuts with each doubling.

    References
    ----------
    Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label
    classification, 2015.
    """
