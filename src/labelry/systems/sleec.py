"""SLEEC: sparse local embeddings, nearest neighbours in them, and an ensemble of clusterings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from labelry import memory
from labelry.checks import StoredCheck, check_at_least
from labelry.decoders.neighbours import Neighbours, all_votes, half_whitening, vote
from labelry.embeddings.sleec import neighbour_gram, regress, svp
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, consecutive_rows, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows
from labelry.state import storable
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
Ints = NDArray[np.integer]

_FEW_FEATURES = 5000  # up to which all weights are kept: there pruning costs accuracy
_BLOCK_BYTES = 64 << 20  # neighbours of queries held at a time


class Cluster(NamedTuple):
    """What one cluster learnt: its features, the regressor on them, and its embedded rows."""

    features: I32  # (d,) columns of X that the rows of the cluster have
    coef: csr_array  # (d, k)
    intercept: F32  # (k,)
    points: Matrix  # (n, k) embedded rows, scaled, of unit length
    scale: F32  # (k,)


@storable
class Learner(NamedTuple):
    """One clustering with an embedding for each cluster: the clusters' arrays, end to end.

    Attributes
    ----------
    centres : csr_array or array (n_features, n_clusters)
    rows : array (n_rows,)
        Training rows in the order of their clusters.
    row_bounds, feature_bounds : array (n_clusters + 1,)
        Where the rows and the features of each cluster begin.
    features, coef, intercept, points, scale
        As in a cluster.
    """

    centres: Matrix
    rows: I32
    row_bounds: NDArray[np.int64]
    features: I32
    feature_bounds: NDArray[np.int64]
    coef: csr_array
    intercept: F32
    points: Matrix
    scale: F32

    def check_stored(self, check: StoredCheck, n_features: int, n_rows: int) -> None:
        """A ValueError unless the parts of all clusters are there, of so many rows."""
        dim = check.width("intercept", self.intercept)
        n_clusters = len(self.intercept)
        check_at_least("clusters", n_clusters, 1)
        check.matrix("centres", self.centres, n_features, n_clusters)
        for name in ("intercept", "scale"):
            check.array(name, getattr(self, name), n_clusters, dim)
        check.indices("rows", self.rows, n_rows, n_rows)
        check.pointers("row_bounds", self.row_bounds, n_clusters, n_rows, least_step=1)
        check.kind("features", self.features, np.ndarray)
        n_columns = self.features.size
        check.indices("features", self.features, n_columns, n_features)
        check.pointers("feature_bounds", self.feature_bounds, n_clusters, n_columns)
        check.sparse("coef", self.coef, n_columns, dim)
        check.matrix("points", self.points, n_rows, dim)

    def cluster(self, c: int) -> Cluster:
        first, last = self.feature_bounds[c : c + 2]
        points = self.points[self.row_bounds[c] : self.row_bounds[c + 1]]
        return Cluster(
            self.features[first:last],
            consecutive_rows(self.coef, first, last),
            self.intercept[c],
            points.toarray() if issparse(points) else points,
            self.scale[c],
        )


def make_learner(rows: Rows, sets: Sets, clusters: list[Cluster]) -> Learner:
    """A learner from its clusters, in the order of their rows in `sets`."""
    features, coef, intercept, points, scale = zip(*clusters, strict=True)
    return Learner(
        cluster_centres(rows, sets),
        sets.members,
        sets.bounds,
        np.concatenate(features),
        np.cumsum([0, *map(len, features)]),
        vstack(coef, format="csr"),
        np.stack(intercept),
        vstack(points, format="csr") if issparse(points[0]) else np.concatenate(points),
        np.stack(scale),
    )


class SLEEC(LabelRanker):
    """Sparse local embeddings for extreme classification.

    Rows are clustered by their features. In each cluster an embedding is learnt that keeps rows
    with similar label sets close to each other and cares about no other distances, so that the
    label matrix need not be of low rank; a regression predicts it from the features; and the
    nearest training rows there vote for their labels. Several clusterings are averaged. Choose
    it where most labels have few rows.

    Scores are shares of the votes, between 0 and 1.

    Parameters
    ----------
    embedding_dim : int, optional
        Dimensions of each local embedding; larger keeps more distances. By default 100, or 50 from
        100,000 rows on.
    n_learners : int, optional
        Clusterings that are averaged; more are more accurate, and cost in proportion. By default
        5, or 1 where there is one cluster only.
    n_clusters : int, optional
        Clusters of a learner; more are faster and miss more neighbours. By default one for each
        6000 rows.
    n_label_neighbors : int
        Rows whose distance to a row the embedding keeps; more of them is closer to a plain
        low-rank approximation.
    regularization : float
        Ridge of the regressors, in units of the mean squared length of a row; larger shrinks
        predictions.
    l1 : float
        Penalty on the embedded rows; larger leaves fewer of their entries, and so a smaller
        model. 0 is plain ridge regression, and keeps all.
    keep_weights : float, optional
        Share of the weights of a regressor that is kept, the largest ones; smaller makes a smaller
        model. By default all where a cluster has at most 5000 features, otherwise a tenth.
    n_neighbors : int
        Training rows that vote, for each learner.
    sharpness : float
        How much more a nearer neighbour weighs.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    learners_ : list of Learner
    labels_ : csr_array (n_rows + 1, n_labels)
        Labels of the training rows, and a last row without labels: the neighbour that is
        missing where a cluster has fewer than `n_neighbors`.
    errors_ : array (n_learners, n_clusters)
        Objective (4) that the embedding of each cluster was left with, relative to zero.

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
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> SLEEC().fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "sleec"

    def __init__(
        self,
        *,
        embedding_dim: int | None = None,
        n_learners: int | None = None,
        n_clusters: int | None = None,
        n_label_neighbors: int = 100,
        regularization: float = 3.0,
        l1: float = 0.0,
        keep_weights: float | None = None,
        n_neighbors: int = 100,
        sharpness: float = 15.0,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.n_learners = n_learners
        self.n_clusters = n_clusters
        self.n_label_neighbors = n_label_neighbors
        self.regularization = regularization
        self.l1 = l1
        self.keep_weights = keep_weights
        self.n_neighbors = n_neighbors
        self.sharpness = sharpness
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_rows(self, rows: Rows, rng: np.random.Generator) -> None:
        self._check_parameters()
        rows = (rows.unit() if self.normalize else rows).kept()
        n, n_jobs = rows.n_rows, resolve_jobs(self.n_jobs)
        n_clusters, n_learners = ensemble_size(n, self.n_clusters, self.n_learners)
        unit = rows if self.normalize else rows.unit()
        partitions = make_partitions(unit, n_clusters, n_learners, rng=rng, n_jobs=n_jobs)
        self._require_memory(rows, partitions)
        # Alg. 1, lines 2-8 for the clusters of all learners.
        fitted = fit_clusters(self._fit_cluster, rows, partitions, rng=rng, n_jobs=n_jobs)
        self.errors_ = np.array([[error for _, error in learner] for learner in fitted])
        self.learners_ = [
            make_learner(rows, sets, [cluster for cluster, _ in learner])
            for sets, learner in zip(partitions, fitted, strict=True)
        ]
        (Y,) = rows.gathered("Y")
        self.labels_ = csr_array(
            (Y.data, Y.indices, np.append(Y.indptr, Y.indptr[-1:])), shape=(n + 1, Y.shape[1])
        )

    def _fit_cluster(
        self, X: Matrix, Y: csr_array, rng: np.random.Generator, n_jobs: int
    ) -> tuple[Cluster, float]:
        """The embedding of one cluster, and the objective that it was left with."""
        features = used_columns(X)
        X = on_columns(X, features)
        dim = self._dim()
        G = neighbour_gram(Y, self.n_label_neighbors, n_jobs)  # line 3
        Z, errors = svp(G, dim, rng=rng, n_jobs=n_jobs)  # lines 4-5
        Z = np.pad(Z, ((0, 0), (0, dim - Z.shape[1])))  # clusters are stored end to end
        V, points = regress(  # line 6
            X, Z, regularization=self.regularization, l1=self.l1, n_jobs=n_jobs
        )
        coef = _largest(V.coef, self._kept(X.shape[1]))
        if self.l1 == 0:
            points = np.asarray(X @ coef + V.intercept, dtype=np.float32)  # line 7
        scale = half_whitening(points)
        points = scaled_rows(points * scale)
        stored = csr_array(points) if self.l1 else points
        return Cluster(features, coef, V.intercept, stored, scale), float(errors[-1])

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        n_jobs = resolve_jobs(self.n_jobs)
        for rows, near, weights in self._nearest(X):  # Alg. 2, lines 4-5
            vote(near, weights, self.labels_, labels[rows], scores[rows], n_jobs)
        return labels, scores

    def _scores(self, X: Matrix) -> F32:
        out = np.empty((X.shape[0], self.labels_.shape[1]), dtype=np.float32)
        for rows, near, weights in self._nearest(X):
            out[rows] = all_votes(near, weights, self.labels_)
        return out

    def _nearest(self, X: Matrix) -> Iterator[tuple[slice, I32, F32]]:
        """Blocks of rows with their neighbours of all learners; the weights add up to one."""
        X = scaled_rows(X) if self.normalize else X
        m, n_learners = min(self.n_neighbors, self.labels_.shape[0] - 1), len(self.learners_)
        step = max(1, _BLOCK_BYTES // (8 * m * n_learners))
        for start in range(0, X.shape[0], step):
            block = X[start : start + step]
            shape = (block.shape[0], m * n_learners)
            near = np.full(shape, self.labels_.shape[0] - 1, dtype=np.int32)
            weights = np.zeros(shape, dtype=np.float32)
            for i, learner in enumerate(self.learners_):
                columns = slice(i * m, (i + 1) * m)
                self._nearest_of(learner, block, near[:, columns], weights[:, columns])
            weights /= n_learners
            yield slice(start, start + step), near, weights

    def _nearest_of(self, learner: Learner, X: Matrix, near: I32, weights: F32) -> None:
        """Fill in the neighbours (Alg. 2, lines 1-3): queries of one cluster are one product."""
        n_jobs = resolve_jobs(self.n_jobs)
        for c, queries in by_cluster(X, learner.centres, n_jobs):  # line 1
            features, coef, intercept, points, scale = learner.cluster(c)
            Z = np.asarray(on_columns(X[queries], features) @ coef + intercept)  # line 2
            rows = learner.rows[learner.row_bounds[c] : learner.row_bounds[c + 1]]
            judge = Neighbours(points, scale, self.labels_, self.n_neighbors, self.sharpness)
            for part, found, weight in judge.nearest(Z, n_jobs):  # line 3
                near[queries[part], : found.shape[1]] = rows[found]
                weights[queries[part], : found.shape[1]] = weight

    def _dim(self) -> int:
        if self.embedding_dim is not None:
            return self.embedding_dim
        return 100 if self.n_rows_ < 100_000 else 50

    def _kept(self, n_features: int) -> float:
        if self.keep_weights is not None:
            return self.keep_weights
        return 1.0 if n_features <= _FEW_FEATURES else 0.1

    def _require_memory(self, rows: Rows, partitions: list[Sets]) -> None:
        """Of a learner: its points and weights. Of a thread: a Gram matrix and its factor."""
        n, d, n_learners = rows.n_rows, rows.n_features, len(partitions)
        weights = min(n_stored(rows), d * len(partitions[0].sizes))
        largest = max(int(sets.sizes.max()) for sets in partitions)
        learner = 4 * self._dim() * (n + 2 * self._kept(d) * weights)
        thread = 16 * min(largest, 4096) ** 2
        memory.require(
            int(n_learners * learner + resolve_jobs(self.n_jobs) * thread),
            f"SLEEC with {n_learners} learners of {n:,} rows",
            "train fewer learners, keep fewer weights (keep_weights=0.1) or use fewer threads",
        )

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.whole("n_neighbors", self.n_neighbors, 1)
        check.kind("labels_", self.labels_, csr_array)
        n = self.labels_.shape[0]
        check.sparse("labels_", self.labels_, n, n_labels)
        check.kind("learners_", self.learners_, list)
        check_at_least("learners_", len(self.learners_), 1)
        for learner in self.learners_:
            check.kind("a learner", learner, Learner)
            learner.check_stored(check, n_features, n - 1)

    def _check_parameters(self) -> None:
        for name in (
            "embedding_dim",
            "n_learners",
            "n_clusters",
            "n_label_neighbors",
            "n_neighbors",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("regularization", "l1", "sharpness"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        if self.keep_weights is not None and not 0 < self.keep_weights <= 1:
            raise ValueError(f"keep_weights must be in (0, 1], got {self.keep_weights}")


def _largest(coef: F32, share: float) -> csr_array:
    """The given share of the weights, those of the largest absolute value."""
    if share < 1 and coef.size:
        least = np.quantile(np.abs(coef), 1 - share)
        coef = np.where(np.abs(coef) >= least, coef, 0)
    return csr_array(coef)
