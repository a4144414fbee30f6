"""SLEEC: sparse local embeddings, nearest neighbours in them, and an ensemble of clusterings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from threadpoolctl import threadpool_limits

from labelry import memory
from labelry.decoders.neighbours import Neighbours, all_votes, fit_neighbours, vote
from labelry.embeddings.sleec import neighbour_gram, regress, svp
from labelry.estimator import LabelRanker
from labelry.linalg.clusters import nearest_centre, unit_centres
from labelry.linalg.parallel import resolve_jobs, stream
from labelry.linalg.rows import Matrix, scaled_rows
from labelry.progress import phase
from labelry.state import storable
from labelry.trees.cluster import Sets, split_sets

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]

_CLUSTER_ROWS = 6000  # section 3 of the paper
_BALANCE = 2.0  # most that the sizes of two clusters differ by, as a factor
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

    def cluster(self, c: int) -> Cluster:
        first, last = self.feature_bounds[c : c + 2]
        points = self.points[self.row_bounds[c] : self.row_bounds[c + 1]]
        return Cluster(
            self.features[first:last],
            self.coef[first:last],
            self.intercept[c],
            points.toarray() if issparse(points) else points,
            self.scale[c],
        )


def make_learner(X: Matrix, sets: Sets, clusters: list[Cluster]) -> Learner:
    """A learner from its clusters, in the order of their rows in `sets`."""
    place = np.empty(X.shape[0], dtype=np.int32)
    place[sets.members] = np.repeat(np.arange(len(clusters)), sets.sizes)
    features, coef, intercept, points, scale = zip(*clusters, strict=True)
    return Learner(
        unit_centres(X, place, len(clusters)),
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

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        X = scaled_rows(X) if self.normalize else X
        n = X.shape[0]
        n_clusters = min(self.n_clusters or max(1, n // _CLUSTER_ROWS), n)
        n_learners = self.n_learners or (5 if n_clusters > 1 else 1)
        partitions = self._partitions(X, n_clusters, n_learners, rng)
        members = [s.members[a:b] for s in partitions for a, b in _pairs(s.bounds)]
        self._require_memory(X, n_learners, max(map(len, members)))
        clusters, errors = self._train(X, Y, members, rng)
        self.errors_ = np.array(errors).reshape(n_learners, n_clusters)
        self.learners_ = [
            make_learner(X, sets, clusters[i * n_clusters : (i + 1) * n_clusters])
            for i, sets in enumerate(partitions)
        ]
        self.labels_ = csr_array(
            (Y.data, Y.indices, np.append(Y.indptr, Y.indptr[-1:])), shape=(n + 1, Y.shape[1])
        )

    def _partitions(
        self, X: Matrix, n_clusters: int, n_learners: int, rng: np.random.Generator
    ) -> list[Sets]:
        """Alg. 1, line 1, once for each learner; balanced, so that no cluster is a large one."""
        n = X.shape[0]
        unit = X if self.normalize else scaled_rows(X)
        whole = Sets(np.arange(n, dtype=np.int32), np.array([0, n]))
        partitions = []
        with phase("clustering", n_learners, "learners") as advance:
            for _ in range(n_learners):
                partitions.append(
                    split_sets(
                        unit,
                        whole,
                        np.array([n_clusters]),
                        balance=_BALANCE,
                        rng=rng,
                        n_jobs=resolve_jobs(self.n_jobs),
                    )
                )
                advance(1)
        return partitions

    def _train(
        self, X: Matrix, Y: csr_array, members: list[I32], rng: np.random.Generator
    ) -> tuple[list[Cluster], list[float]]:
        """Alg. 1, lines 2-8 for the clusters of all learners: a thread each if they suffice."""
        n_jobs = resolve_jobs(self.n_jobs)
        outer = n_jobs if len(members) >= n_jobs else 1
        tasks = (
            (X[rows], Y[rows], generator, n_jobs // outer)
            for rows, generator in zip(members, rng.spawn(len(members)), strict=True)
        )
        clusters, errors = [], []
        with (
            threadpool_limits(limits=n_jobs // outer),
            phase("local embeddings", sum(map(len, members)), "rows") as advance,
        ):
            for cluster, error in stream(self._fit_cluster, tasks, outer):
                clusters.append(cluster)
                errors.append(error)
                advance(cluster.points.shape[0])
        return clusters, errors

    def _fit_cluster(
        self, X: Matrix, Y: csr_array, rng: np.random.Generator, n_jobs: int
    ) -> tuple[Cluster, float]:
        """The embedding of one cluster, and the objective that it was left with."""
        features = np.unique(X.indices) if issparse(X) else np.arange(X.shape[1], dtype=np.int32)
        X = _on_features(X, features)
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
        near = fit_neighbours(points, Y)
        stored = csr_array(near.points) if self.l1 else near.points
        return Cluster(features, coef, V.intercept, stored, near.scale), float(errors[-1])

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
        m, n_learners = self.n_neighbors, len(self.learners_)
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
        where = nearest_centre(X, learner.centres, n_jobs)  # line 1
        order = np.argsort(where, kind="stable")
        bounds = np.searchsorted(where[order], np.arange(learner.centres.shape[1] + 1))
        for c, (first, last) in enumerate(_pairs(bounds)):
            if first == last:
                continue
            queries = order[first:last]
            features, coef, intercept, points, scale = learner.cluster(c)
            Z = np.asarray(_on_features(X[queries], features) @ coef + intercept)  # line 2
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

    def _require_memory(self, X: Matrix, n_learners: int, largest: int) -> None:
        """Of a learner: its points and weights. Of a thread: a Gram matrix and its factor."""
        n, d = X.shape
        weights = min(X.nnz, d * n) if issparse(X) else d
        learner = 4 * self._dim() * (n + 2 * self._kept(d) * weights)
        thread = 16 * min(largest, 4096) ** 2
        memory.require(
            int(n_learners * learner + resolve_jobs(self.n_jobs) * thread),
            f"SLEEC with {n_learners} learners of {n:,} rows",
            "train fewer learners, keep fewer weights (keep_weights=0.1) or use fewer threads",
        )

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


def _pairs(bounds: Ints) -> list[tuple[int, int]]:
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _on_features(X: Matrix, features: I32) -> Matrix:
    """``X[:, features]`` for sorted features, at a cost that does not depend on the width of X."""
    if not issparse(X):
        return np.ascontiguousarray(X[:, features])
    if not len(features):
        return csr_array((X.shape[0], 0), dtype=np.float32)
    place = np.minimum(np.searchsorted(features, X.indices), len(features) - 1)
    known = features[place] == X.indices
    indptr = np.concatenate([[0], np.cumsum(known)])[X.indptr]
    parts = (X.data[known], place[known].astype(np.int32), indptr.astype(np.int32))
    return csr_array(parts, shape=(X.shape[0], len(features)))


def _largest(coef: F32, share: float) -> csr_array:
    """The given share of the weights, those of the largest absolute value."""
    if share < 1 and coef.size:
        least = np.quantile(np.abs(coef), 1 - share)
        coef = np.where(np.abs(coef) >= least, coef, 0)
    return csr_array(coef)
