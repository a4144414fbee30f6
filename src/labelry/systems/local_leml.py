"""LEML in clusters: low-rank maps for similar rows, and an ensemble of clusterings."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry import memory
from labelry.checks import StoredCheck, check_at_least
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows
from labelry.linalg.topk import topk_blocks
from labelry.state import storable
from labelry.systems.leml import LEML
from labelry.systems.local import (
    by_cluster,
    cluster_centres,
    ensemble_size,
    fit_clusters,
    make_partitions,
    n_stored,
    on_columns,
    used_columns,
)
from labelry.trees.cluster import Sets

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Ints = NDArray[np.integer]


class LEMLCluster(NamedTuple):
    """What one cluster learnt: scores of its labels are (x W + w) H'."""

    features: I32  # (d,) columns of X that the rows of the cluster have
    W: F32  # (d, k)
    intercept: F32  # (k,) w
    labels: I32  # (c,) columns of Y
    H: F32  # (c, k)


@storable
class LEMLLearner(NamedTuple):
    """One clustering with the factors of each cluster: the clusters' arrays, end to end.

    Attributes
    ----------
    centres : csr_array or array (n_features, n_clusters)
    feature_bounds, label_bounds : array (n_clusters + 1,)
        Where the features and the labels of each cluster begin.
    features, W, intercept, labels, H
        As in a cluster; factors of lower rank have columns of zeros.
    """

    centres: Matrix
    features: I32
    feature_bounds: I64
    W: F32
    intercept: F32
    labels: I32
    label_bounds: I64
    H: F32

    def check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        """A ValueError unless the parts of all clusters are there."""
        dim = check.width("intercept", self.intercept)
        n_clusters = len(self.intercept)
        check_at_least("clusters", n_clusters, 1)
        check.matrix("centres", self.centres, n_features, n_clusters)
        check.array("intercept", self.intercept, n_clusters, dim)
        for numbers, bounds, factor, end in (
            ("features", "feature_bounds", "W", n_features),
            ("labels", "label_bounds", "H", n_labels),
        ):
            value = getattr(self, numbers)
            check.kind(numbers, value, np.ndarray)
            check.indices(numbers, value, value.size, end)
            check.pointers(bounds, getattr(self, bounds), n_clusters, value.size)
            check.array(factor, getattr(self, factor), value.size, dim)

    def cluster(self, c: int) -> LEMLCluster:
        features = slice(*self.feature_bounds[c : c + 2])
        labels = slice(*self.label_bounds[c : c + 2])
        return LEMLCluster(
            self.features[features],
            self.W[features],
            self.intercept[c],
            self.labels[labels],
            self.H[labels],
        )


def make_learner(rows: Rows, sets: Sets, clusters: list[LEMLCluster]) -> LEMLLearner:
    """A learner from its clusters, in the order of their rows in `sets`."""
    features, W, intercept, labels, H = zip(*clusters, strict=True)
    rank = max(map(len, intercept))
    return LEMLLearner(
        cluster_centres(rows, sets),
        np.concatenate(features),
        np.cumsum([0, *map(len, features)]),
        np.concatenate([_widened(part, rank) for part in W]),
        np.concatenate([_widened(part[None], rank) for part in intercept]),
        np.concatenate(labels),
        np.cumsum([0, *map(len, labels)]),
        np.concatenate([_widened(part, rank) for part in H]),
    )


class LocalLEML(LabelRanker):
    """LEML in clusters of similar rows, averaged over several clusterings.

    What `SLEEC` compares itself with to show that its gain is not the clusters': the same
    clusters and ensemble, but in each a low-rank linear map from features to labels. Choose
    it to compare with, or where `LEML` has too many labels at once: a cluster has few.

    Scores are those of a least-squares fit to 0 and 1; a label that a cluster has not seen has 0
    there. Where there is one cluster, it is LEML.

    Parameters
    ----------
    embedding_dim : int
        Rank of each map. Larger is more accurate up to a point.
    n_learners : int, optional
        Clusterings that are averaged; more are more accurate, and cost in proportion. By default
        5, or 1 where there is one cluster only.
    n_clusters : int, optional
        Clusters of a learner; more are faster, and fit fewer rows each. By default one for each
        6000 rows.
    regularization : float
        Weight of half the squared factors, in units of the root of the number of rows in a
        cluster; larger fits the training rows less closely.
    n_rounds : int
        Most turns of each factor; stops when the objective falls by less than a thousandth.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    learners_ : list of LEMLLearner

    Notes
    -----
    Prediction costs, for each learner, 2 k flops for each label of the nearest cluster.

    References
    ----------
    Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label
    classification, 2015, section 3.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> LocalLEML(n_clusters=2).fit(X, y).predict(X[::2]).tolist()
    ['a', 'b', 'c', 'd']
    """

    system: ClassVar[str] = "local-leml"

    def __init__(
        self,
        *,
        embedding_dim: int = 100,
        n_learners: int | None = None,
        n_clusters: int | None = None,
        regularization: float = 0.03,
        n_rounds: int = 10,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.n_learners = n_learners
        self.n_clusters = n_clusters
        self.regularization = regularization
        self.n_rounds = n_rounds
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_rows(self, rows: Rows, rng: np.random.Generator) -> None:
        self._check_parameters()
        rows = (rows.unit() if self.normalize else rows).kept()
        n_jobs = resolve_jobs(self.n_jobs)
        n_clusters, n_learners = ensemble_size(rows.n_rows, self.n_clusters, self.n_learners)
        self._require_memory(rows, n_clusters, n_learners)
        unit = rows if self.normalize else rows.unit()
        partitions = make_partitions(unit, n_clusters, n_learners, rng=rng, n_jobs=n_jobs)
        fitted = fit_clusters(self._fit_cluster, rows, partitions, rng=rng, n_jobs=n_jobs)
        self.learners_ = [
            make_learner(rows, sets, clusters)
            for sets, clusters in zip(partitions, fitted, strict=True)
        ]

    def _fit_cluster(
        self, X: Matrix, Y: csr_array, rng: np.random.Generator, n_jobs: int
    ) -> LEMLCluster:
        """LEML on the features and labels that some row of the cluster has."""
        features, labels = used_columns(X), used_columns(Y)
        if not len(labels):
            none = np.empty((0, 0), dtype=np.float32)
            return LEMLCluster(features[:0], none, none.ravel(), labels, none)
        model = LEML(
            embedding_dim=self.embedding_dim,
            regularization=self.regularization,
            n_rounds=self.n_rounds,
            normalize=False,
            n_jobs=n_jobs,
        )
        model._fit(on_columns(X, features), on_columns(Y, labels), rng)
        W, intercept = model.regressor_[:-1], model.regressor_[-1]
        return LEMLCluster(features, W, intercept, labels, model.label_embedding_)

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        return topk_blocks(
            lambda rows: self._scores(X[rows]),
            X.shape[0],
            len(self.classes_),
            k,
            resolve_jobs(self.n_jobs),
        )

    def _scores(self, X: Matrix) -> F32:
        X = scaled_rows(X) if self.normalize else X
        n_jobs = resolve_jobs(self.n_jobs)
        out = np.zeros((X.shape[0], len(self.classes_)), dtype=np.float32)
        for learner in self.learners_:
            for c, rows in by_cluster(X, learner.centres, n_jobs):
                features, W, intercept, labels, H = learner.cluster(c)
                Z = product(on_columns(X[rows], features), W, n_jobs) + intercept
                out[np.ix_(rows, labels)] += Z @ H.T
        out /= len(self.learners_)
        return out

    def _require_memory(self, rows: Rows, n_clusters: int, n_learners: int) -> None:
        """Of the factors: a row for each feature and label of each cluster."""
        features = min(n_clusters * rows.n_features, n_stored(rows))
        labels = min(n_clusters * rows.n_labels, int(self.label_counts_.sum()))
        memory.require(
            4 * n_learners * self.embedding_dim * (features + labels),
            f"LocalLEML with {n_learners} learners of {n_clusters} clusters",
            "train fewer learners or choose a smaller embedding_dim",
        )

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.kind("learners_", self.learners_, list)
        check_at_least("learners_", len(self.learners_), 1)
        for learner in self.learners_:
            check.kind("a learner", learner, LEMLLearner)
            learner.check_stored(check, n_features, n_labels)

    def _check_parameters(self) -> None:
        for name in ("embedding_dim", "n_learners", "n_clusters", "n_rounds"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        if not self.regularization > 0:
            raise ValueError(f"regularization must be above 0, got {self.regularization}")


def _widened(M: F32, width: int) -> F32:
    return np.pad(M, ((0, 0), (0, width - M.shape[1])))
