"""Estimators of low-rank maps, and of models that each belong to a cluster of rows."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from labelry.embeddings.leml import LEMLSettings, fit_leml
from labelry.embeddings.local_leml import LocalLEMLSettings, fit_local_leml
from labelry.embeddings.sleec import SLEECSettings, fit_sleec
from labelry.estimators.base import LabelRanker, estimator


@estimator
class LEML(LabelRanker, LEMLSettings):
    """Low-rank linear map from features to labels, fitted to the loss itself.

    `Rembrandt` finds the embedding first and the regressor after; LEML fits both to one objective
    by turns. Choose it where some labels of the training rows are unknown (`known` in `fit`), or
    to compare with.

    Attributes
    ----------
    fitted_ : labelry.embeddings.leml.LowRankMap

    Notes
    -----
    Squared loss, all labels known: about 20 passes a round, each 4 flops per nonzero and
    dimension. Otherwise about 50 products of 6 flops per row, label and dimension a round.

    References
    ----------
    Yu, Jain, Kar, Dhillon: Large-scale multi-label learning with missing labels, 2014.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> LEML().fit(X, y).predict(X[::2]).tolist()
    ['a', 'b', 'c', 'd']
    """

    system: ClassVar[str] = "leml"
    fit_function = staticmethod(fit_leml)

    def fit(self, X: Any, y: Any = None, known: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : sparse or dense matrix (n_rows, n_features), list of str, Dataset, Shards or Rows
            The last three have their labels with them, and y is None.
        y : sparse or dense indicator (n_rows, n_labels), class vector, or lists of labels
        known : sparse or dense matrix (n_rows, n_labels), optional
            Nonzero where y is known, whether the label is on the row or not. By default all of y
            is known.
        """
        return self._fit(X, y, known=known)


@estimator
class LocalLEML(LabelRanker, LocalLEMLSettings):
    """LEML in clusters of similar rows, averaged over several clusterings.

    The paper of `SLEEC` compares it with this, to show that the gain of SLEEC does not come from
    the clusters: the clusters and the ensemble are the same, but in each cluster there is a
    low-rank linear map from features to labels. Choose it to compare with, or where `LEML` has
    too many labels at once: a cluster has few.

    Scores are those of a least-squares fit to 0 and 1; a label that is not in a cluster has 0
    there. With one cluster it is LEML.

    Attributes
    ----------
    fitted_ : labelry.embeddings.local_leml.LocalLowRankMaps

    Notes
    -----
    Prediction costs, for each learner, 2 k flops for each label of the nearest cluster.

    References
    ----------
    Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label
    classification, 2015, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> LocalLEML(n_clusters=2).fit(X, y).predict(X[::2]).tolist()
    ['a', 'b', 'c', 'd']
    """

    system: ClassVar[str] = "local-leml"
    fit_function = staticmethod(fit_local_leml)


@estimator
class SLEEC(LabelRanker, SLEECSettings):
    """Sparse local embeddings for extreme classification.

    Rows are clustered by their features. In each cluster an embedding is learnt that keeps rows
    with similar label sets close to each other and leaves all other distances free, so that the
    label matrix need not be of low rank. A regression predicts the embedding from the features,
    and the nearest training rows there add their labels. Several clusterings are averaged. Choose
    it where most labels have few rows.

    Scores are shares of the weights of the neighbours, between 0 and 1.

    Attributes
    ----------
    fitted_ : labelry.embeddings.sleec.LocalNeighbours

    Notes
    -----
    Time of a learner is linear in the rows while the clusters keep their size, except for the
    clustering, which grows by one more level of cuts with each doubling.

    References
    ----------
    Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label
    classification, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> SLEEC().fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "sleec"
    fit_function = staticmethod(fit_sleec)
