"""Estimators to compare with: one classifier per label, and the nearest training rows."""

from __future__ import annotations

from labelry.estimators.base import LabelRanker, estimator
from labelry.ranking.neighbours import NearestNeighboursSettings, fit_nearest_neighbours
from labelry.ranking.one_vs_rest import OneVsRestSettings, fit_one_vs_rest


@estimator("one-vs-rest", fit_one_vs_rest, by_passes=False)
class OneVsRest(LabelRanker, OneVsRestSettings):
    """One L2-regularised linear classifier per label, by dual coordinate descent.

    It is the plain, strong baseline, and accurate if labels have enough rows each. Training and
    prediction both cost time and memory in proportion to the number of labels. Choose it for up to
    some tens of thousands of labels, or to compare with.

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


@estimator("knn", fit_nearest_neighbours, by_passes=False)
class NearestNeighbours(LabelRanker, NearestNeighboursSettings):
    """The labels of the training rows with the most similar features.

    Nothing is learnt. Similarity is the cosine of the features as they are, so they should be
    weighted (tf-idf) already. Choose it to compare with, or for features that are an embedding.

    Scores are shares of the weights of the neighbours, between 0 and 1. `random_state` is the
    seed of the approximate index.
    """
