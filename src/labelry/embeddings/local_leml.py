"""LEML in clusters: low-rank maps for similar rows, and an ensemble of clusterings.

Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label classification,
2015, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from scipy.sparse import csr_array

from labelry import memory
from labelry.arrays import F32, I64, Ints, Rng
from labelry.checks import StoredCheck
from labelry.embeddings import local_clusters as local
from labelry.embeddings.leml import LEMLSettings, LowRankSettings, fit_leml
from labelry.linalg.balanced_clusters import Sets
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.rows import Rows
from labelry.linalg.topk import topk_blocks
from labelry.parameters import settings
from labelry.ranking.ranker import Ranker
from labelry.storage.values import Indices, Pointers


@settings
class LocalLEMLSettings(LowRankSettings, local.EnsembleSettings):
    """How to cluster rows, and fit a low-rank map to those of each cluster."""


# The result of one cluster: features (d,) of its rows, W (d, k), intercept (k,), labels (c,) of its
# rows, and H (c, k). Scores of its labels are (x W + w) H'.
LEMLCluster = tuple[Ints, F32, F32, Ints, F32]


@dataclass(frozen=True, eq=False)
class LEMLLearner(local.Clustering):
    """One clustering with the factors of each cluster: the arrays of the clusters, end to end.

    `label_bounds` says where the labels of each cluster begin. Factors of lower rank have columns
    of zeros.
    """

    W: Annotated[F32, "n_used", "rank"]
    intercept: Annotated[F32, "n_clusters", "rank"]
    labels: Annotated[Ints, "n_used_labels", Indices("n_labels")]
    label_bounds: Annotated[I64, "n_clusters + 1", Pointers("n_used_labels")]
    H: Annotated[F32, "n_used_labels", "rank"]

    def cluster(self, c: int) -> LEMLCluster:
        """Return the part of one cluster."""
        return (
            self.features_of(c),
            local.part_of(self.W, self.feature_bounds, c),
            self.intercept[c],
            local.part_of(self.labels, self.label_bounds, c),
            local.part_of(self.H, self.label_bounds, c),
        )


def _learner(rows: Rows, sets: Sets, clusters: list[LEMLCluster]) -> LEMLLearner:
    """Return a learner from its clusters, which are in the order of `sets`."""
    features, W, intercept, labels, H = zip(*clusters, strict=True)
    rank = max(map(len, intercept))
    return LEMLLearner(
        local.cluster_centres(rows, sets),
        np.concatenate(features),
        np.cumsum([0, *map(len, features)]),
        np.concatenate([_widened(part, rank) for part in W]),
        np.concatenate([_widened(part[None], rank) for part in intercept]),
        np.concatenate(labels),
        np.cumsum([0, *map(len, labels)]),
        np.concatenate([_widened(part, rank) for part in H]),
    )


@dataclass(frozen=True, eq=False)
class LocalLowRankMaps(Ranker):
    """A low-rank map from features to labels in each cluster, averaged over several clusterings.

    Scores are those of a least-squares fit to 0 and 1. A label that is not in a cluster has 0
    there.
    """

    learners: tuple[LEMLLearner, ...]
    n_labels: int
    normalize: bool

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        return topk_blocks(
            lambda rows: self.scores(X[rows], n_jobs), X.shape[0], self.n_labels, k, n_jobs
        )

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        X = scaled_rows(X) if self.normalize else X
        out = np.zeros((X.shape[0], self.n_labels), dtype=np.float32)
        for learner in self.learners:
            for c, rows, own in learner.queries(X, n_jobs):
                _, W, intercept, labels, H = learner.cluster(c)
                Z = product(own, W, n_jobs) + intercept
                out[np.ix_(rows, labels)] += Z @ H.T
        out /= len(self.learners)
        return out

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError if there is no learner."""
        if not self.learners:
            raise ValueError("learners must be there")


def fit_local_leml(rows: Rows, settings: LocalLEMLSettings, rng: Rng) -> LocalLowRankMaps:
    """Cluster the rows several times, and fit a low-rank map to the rows of each cluster."""
    rows, partitions = local.cluster_rows(rows, settings, settings.normalize, rng)
    rank, ridge, n_rounds = settings.embedding_dim, settings.regularization, settings.n_rounds
    _require_memory(rows, partitions, rank)
    of_cluster = LEMLSettings(
        embedding_dim=rank, regularization=ridge, n_rounds=n_rounds, normalize=False
    )
    fitted = local.fit_clusters(partial(_fit_cluster, of_cluster), rows, partitions, rng=rng)
    learners = (_learner(rows, *learner) for learner in zip(partitions, fitted, strict=True))
    return LocalLowRankMaps(tuple(learners), rows.n_labels, settings.normalize)


def _fit_cluster(
    settings: LEMLSettings, X: Matrix, Y: csr_array, rng: Rng, n_jobs: int
) -> LEMLCluster:
    """Fit LEML on the features and labels that some row of the cluster has."""
    features, labels = local.used_columns(X), local.used_columns(Y)
    if not len(labels):
        none = np.empty((0, 0), dtype=np.float32)
        return features[:0], none, none.ravel(), labels, none
    rows = Rows(local.on_columns(X, features), local.on_columns(Y, labels), n_jobs=n_jobs)
    model = fit_leml(rows, settings, rng)
    W, H = model.regressor, model.label_embedding
    return features, W[:-1], W[-1], labels, H


def _require_memory(rows: Rows, partitions: list[Sets], dim: int) -> None:
    """Refuse factors that do not fit: a row for each feature and label of each cluster."""
    n_learners, n_clusters = len(partitions), len(partitions[0].sizes)
    features = min(n_clusters * rows.n_features, local.n_stored(rows))
    labels = min(n_clusters * rows.n_labels, int(rows.label_counts().sum()))
    memory.require(
        4 * n_learners * dim * (features + labels),
        f"LocalLEML with {n_learners} learners of {n_clusters} clusters",
        "train fewer learners or choose a smaller embedding_dim",
    )


def _widened(M: F32, width: int) -> F32:
    return np.pad(M, ((0, 0), (0, width - M.shape[1])))
