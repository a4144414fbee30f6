"""SLEEC: sparse local embeddings, nearest neighbours in them, and an ensemble of clusterings.

Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label classification,
NIPS 2015: Algorithms 1 and 2. Here a row is a row: Z (n, k) is the transpose of the paper's, and so
are X, Y and V.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
from numba import njit
from scipy.linalg import eigh
from scipy.sparse import csr_array, eye_array, issparse, vstack

from labelry import memory
from labelry.arrays import F32, F64, I32, I64, Ints, Rng
from labelry.checks import StoredCheck
from labelry.embeddings import local_clusters as local
from labelry.linalg.balanced_clusters import Sets
from labelry.linalg.matrices import Matrix, consecutive_rows, product, scaled_rows
from labelry.linalg.parallel import balanced_spans, run
from labelry.linalg.rows import Rows
from labelry.linalg.sketch import orthonormalize
from labelry.linalg.solve import LinearMap, Ridge
from labelry.linalg.topk import topk
from labelry.parameters import Between, param, settings
from labelry.ranking.neighbours import Neighbours, NeighbourSettings, half_whitening
from labelry.ranking.shares import SharesRanker
from labelry.storage.values import AtLeast, Indices, Pointers, Sizes

# Most features with which all weights are kept, because pruning costs accuracy there: see "How
# the defaults were chosen" in docs/sleec.md.
_FEW_FEATURES = 5000
_KEPT = 0.1  # share of the weights that is kept with more features
_MANY_ROWS = 100_000  # least rows with which embeddings have 50 dimensions, not 100; the paper's
_NEAR_BYTES = 64 << 20  # most bytes of the neighbours of queries at a time; not tuned
_BLOCK_BYTES = 32 << 20  # bytes of inner products that are held at a time; not tuned
_FAST = {"reassoc", "contract", "nsz", "arcp"}


@settings
class SLEECSettings(local.EnsembleSettings, NeighbourSettings):
    """How to cluster rows, embed those of each cluster, and search for neighbours."""

    embedding_dim: int | None = param(
        default=None,
        least=1,
        help="Dimensions of each local embedding. Larger keeps more distances. By default 100, or "
        "50 from 100,000 rows on.",
        tune=Between(20, 200, log=True),
    )
    n_label_neighbors: int = param(
        default=100,
        least=1,
        help="Rows whose distance to a row the embedding keeps. More of them is closer to a plain "
        "low-rank approximation.",
        tune=Between(15, 300, log=True),
    )
    regularization: float = param(
        default=3.0,
        least=0,
        help="Ridge of the regressors, in units of the mean squared length of a row. Larger "
        "shrinks predictions.",
        tune=Between(0.1, 30.0, log=True),
    )
    l1: float = param(
        default=0.0,
        least=0,
        help="Penalty on the embedded rows. Larger leaves fewer of their entries, and so a smaller "
        "model; 0 is plain ridge regression, and keeps all.",
    )
    keep_weights: float | None = param(
        default=None,
        above=0,
        most=1,
        help="Share of the weights of a regressor that is kept, the largest ones. Smaller makes a "
        "smaller model. By default all where a cluster has at most 5000 features, otherwise a "
        "tenth.",
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")


# The result of one cluster: features (d,) of its rows, the regressor coef (d, k) and intercept (k,)
# on them, and its embedded rows: points (n, k), scaled and of unit length, and their scale (k,).
SLEECCluster = tuple[Ints, csr_array, F32, Matrix, F32]


@dataclass(frozen=True, eq=False)
class SLEECLearner(local.Clustering):
    """One clustering with an embedding for each cluster: the arrays of the clusters, end to end."""

    # Training rows in the order of their clusters, and where the rows of each cluster begin.
    rows: Annotated[I32, "n_rows", Indices("n_rows")]
    row_bounds: Annotated[I64, "n_clusters + 1", Pointers("n_rows", least_step=1)]
    coef: Annotated[csr_array, "n_used", "dim"]
    intercept: Annotated[F32, "n_clusters", "dim"]
    points: Annotated[Matrix, "n_rows", "dim"]
    scale: Annotated[F32, "n_clusters", "dim"]

    def cluster(self, c: int) -> SLEECCluster:
        """Return the part of one cluster."""
        points = local.part_of(self.points, self.row_bounds, c)
        return (
            self.features_of(c),
            consecutive_rows(self.coef, *self.feature_bounds[c : c + 2]),
            self.intercept[c],
            points.toarray() if issparse(points) else points,
            self.scale[c],
        )


def _learner(rows: Rows, sets: Sets, clusters: list[SLEECCluster]) -> SLEECLearner:
    """Return a learner from its clusters, which are in the order of `sets`."""
    features, coef, intercept, points, scale = zip(*clusters, strict=True)
    return SLEECLearner(
        local.cluster_centres(rows, sets),
        np.concatenate(features),
        np.cumsum([0, *map(len, features)]),
        sets.members,
        sets.bounds,
        vstack(coef, format="csr"),
        np.stack(intercept),
        vstack(points, format="csr") if issparse(points[0]) else np.concatenate(points),
        np.stack(scale),
    )


@dataclass(frozen=True, eq=False)
class LocalNeighbours(SharesRanker):
    """The nearest training rows in the embedding of a cluster, averaged over several clusterings.

    Scores are shares of the weights of the neighbours, between 0 and 1 (Alg. 2, lines 4-5).
    """

    learners: tuple[Annotated[SLEECLearner, Sizes(n_rows="n_rows", n_clusters="n_clusters")], ...]
    # Labels of the training rows, and a last row without labels: it stands for the neighbours that
    # are missing where a cluster has fewer than `n_neighbors` rows.
    labels: Annotated[csr_array, "n_rows + 1", "n_labels"]
    # Objective (4) that was left after the embedding of each cluster, relative to zero.
    errors: Annotated[F64, "n_learners", "n_clusters"]
    n_neighbors: Annotated[int, AtLeast(1)]
    sharpness: float
    normalize: bool

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless there is a learner for each row of the errors."""
        if not 0 < len(self.learners) == len(self.errors):
            raise ValueError("learners must be there, as many as errors has rows")

    def nearest(self, X: Matrix, n_jobs: int) -> Iterator[tuple[slice, I32, F32]]:
        """Yield blocks of rows with their neighbours of all learners; weights add up to one."""
        X = scaled_rows(X) if self.normalize else X
        n_points, n_learners = self.labels.shape[0] - 1, len(self.learners)
        m = min(self.n_neighbors, n_points)
        step = max(1, _NEAR_BYTES // (8 * m * n_learners))
        for start in range(0, X.shape[0], step):
            block = X[start : start + step]
            shape = (block.shape[0], m * n_learners)
            near = np.full(shape, n_points, dtype=np.int32)
            weights = np.zeros(shape, dtype=np.float32)
            for i, learner in enumerate(self.learners):
                columns = np.arange(i * m, (i + 1) * m)
                for c, queries, own in learner.queries(block, n_jobs):  # Alg. 2, line 1
                    _, coef, intercept, points, scale = learner.cluster(c)
                    Z = np.asarray(own @ coef + intercept)  # line 2: one product for a cluster
                    mine = local.part_of(learner.rows, learner.row_bounds, c)
                    how = (self.labels, self.n_neighbors, self.sharpness)
                    for part, found, w in Neighbours(points, scale, *how).nearest(Z, n_jobs):
                        at = queries[part, None], columns[: found.shape[1]]  # line 3
                        near[at], weights[at] = mine[found], w
            weights /= n_learners
            yield slice(start, start + step), near, weights


def fit_sleec(rows: Rows, settings: SLEECSettings, rng: Rng) -> LocalNeighbours:
    """Cluster the rows several times, and embed the rows of each cluster (Algorithm 1)."""
    rows, partitions = local.cluster_rows(rows, settings, settings.normalize, rng)  # line 1
    dim = settings.embedding_dim or (100 if rows.n_rows < _MANY_ROWS else 50)
    _require_memory(rows, partitions, dim, settings.keep_weights)
    # A copy: the settings may be an estimator that holds a former model, and this goes to workers.
    fit = partial(_fit_cluster, replace(settings), dim)
    fitted = local.fit_clusters(fit, rows, partitions, rng=rng)  # lines 2-8, of all learners
    learners = tuple(
        _learner(rows, sets, [cluster for cluster, _ in learner])
        for sets, learner in zip(partitions, fitted, strict=True)
    )
    (Y,) = rows.gathered("Y")
    indptr = np.append(Y.indptr, Y.indptr[-1:])
    labels = csr_array((Y.data, Y.indices, indptr), shape=(len(Y.indptr), Y.shape[1]))
    errors = np.array([[error for _, error in learner] for learner in fitted])
    fixed = (settings.n_neighbors, settings.sharpness, settings.normalize)
    return LocalNeighbours(learners, labels, errors, *fixed)


def _fit_cluster(
    how: SLEECSettings, dim: int, X: Matrix, Y: csr_array, rng: Rng, n_jobs: int
) -> tuple[SLEECCluster, float]:
    """Return the embedding of one cluster, and the objective that was left."""
    features = local.used_columns(X)
    X = local.on_columns(X, features)
    G = neighbour_gram(Y, how.n_label_neighbors, n_jobs)  # line 3
    Z, errors = svp(G, dim, rng=rng, n_jobs=n_jobs)  # lines 4-5
    Z = np.pad(Z, ((0, 0), (0, dim - Z.shape[1])))  # clusters are stored end to end
    l1, r = how.l1, how.regularization
    V, points = regress(X, Z, regularization=r, l1=l1, n_jobs=n_jobs)  # line 6
    coef = largest_weights(V.coef, _share(how.keep_weights, X.shape[1]))
    if l1 == 0:
        points = np.asarray(X @ coef + V.intercept, dtype=np.float32)  # line 7
    scale = half_whitening(points)
    points = scaled_rows(points * scale)
    stored = csr_array(points) if l1 else points
    return (features, coef, V.intercept, stored, scale), float(errors[-1])


def largest_weights(coef: F32, share: float) -> csr_array:
    """Return the given share of the weights, those of the largest absolute value."""
    if share < 1 and coef.size:
        least = np.quantile(np.abs(coef), 1 - share)
        coef = np.where(np.abs(coef) >= least, coef, 0)
    return csr_array(coef)


def _share(keep_weights: float | None, n_features: int) -> float:
    return keep_weights or (1.0 if n_features <= _FEW_FEATURES else _KEPT)


def _require_memory(
    rows: Rows, partitions: list[Sets], dim: int, keep_weights: float | None
) -> None:
    """Refuse points and weights of learners, and matrices of threads, that do not fit."""
    n, d, n_learners = rows.n_rows, rows.n_features, len(partitions)
    weights = min(local.n_stored(rows), d * len(partitions[0].sizes))
    largest = max(int(sets.sizes.max()) for sets in partitions)
    learner = 4 * dim * (n + 2 * _share(keep_weights, d) * weights)
    thread = 16 * min(largest, 4096) ** 2  # the Gram matrix and its factor
    memory.require(
        int(n_learners * learner + rows.n_jobs * thread),
        f"SLEEC with {n_learners} learners of {n:,} rows",
        "train fewer learners, keep fewer weights (keep_weights=0.1) or use fewer threads",
    )


def neighbour_gram(Y: csr_array, n_neighbors: int, n_jobs: int = 1) -> csr_array:
    """Return P_Omega(Y Y') of equation 2, (n, n), symmetric, for label vectors of unit length.

    Omega holds for each row the `n_neighbors` rows (itself among them) that have the largest
    inner products with it, and the same pairs the other way round. Rows that share no label are
    not neighbours, so a row without labels has none.
    """
    n = Y.shape[0]
    U = scaled_rows(Y)
    V = csr_array(U.T)
    step = max(1, _BLOCK_BYTES // (4 * n))
    parts = []
    for start in range(0, n, step):
        near, inner = topk((U[start : start + step] @ V).toarray(), min(n_neighbors, n), n_jobs)
        rows, places = np.nonzero(inner > 0)
        parts.append((rows + start, near[rows, places], inner[rows, places]))
    rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    G = csr_array((values, (rows, columns)), shape=(n, n))
    G = csr_array(G.maximum(G.T))
    G.sort_indices()
    return G


def svp(
    G: csr_array,
    embedding_dim: int,
    *,
    max_steps: int = 10,
    tolerance: float = 1e-3,
    rng: Rng,
    n_jobs: int = 1,
) -> tuple[F32, F64]:
    """Return Z with Z Z' near G on the pairs that G stores, by singular value projection.

    With it come the objectives (4) at zero and after each step, relative to zero.

    Sub-routine 3 with step 1: M <- P_k(M + P_Omega(G - M)), equation 6. M = U diag(s) U' is never
    formed, only its entries in Omega. The projection is exact within the span of [U, R U], R the
    sparse residual, which is one step of block Krylov iteration from where the last one ended.
    U lies in that span, so the objective cannot grow.

    It stops when a step takes off no more than the `tolerance` times the objective at zero. Fewer
    columns come back where the rank is smaller. A step costs 8 flops per pair and dimension, and
    about 20 n k^2; memory is 3 n k floats besides G.
    """
    n = G.shape[0]
    U = orthonormalize(rng.standard_normal((n, min(embedding_dim, n)), dtype=np.float32))
    s = np.zeros(U.shape[1], dtype=np.float32)
    R = G.copy()  # line 1: M = 0
    errors = [_energy(R)]
    Z = U * s
    for _ in range(max_steps if errors[0] > 0 else 0):
        Q = orthonormalize(np.hstack([U, product(R, U, n_jobs)]))
        # Lines 3-4: the eigenvalues of Q'(M + R) Q.
        QU = Q.T @ U
        values, E = eigh((QU * s) @ QU.T + Q.T @ product(R, Q, n_jobs))
        keep = np.argsort(-values)[:embedding_dim]
        keep = keep[values[keep] > 0]  # line 5
        U, s = Q @ E[:, keep], values[keep]  # line 6
        Z = U * np.sqrt(s)
        given = (G.indptr, G.indices, G.data, np.ascontiguousarray(Z), R.data)
        tasks = [(*given, *span) for span in balanced_spans(G.indptr, n_jobs)]
        run(subtract_inner_products, tasks, n_jobs)  # R = P_Omega(G - Z Z')
        errors.append(_energy(R))
        if errors[-2] - errors[-1] <= tolerance * errors[0]:
            break
    return Z, np.array(errors) / max(errors[0], np.finfo(float).tiny)


def _energy(R: csr_array) -> float:
    return float(np.square(R.data, dtype=np.float64).sum())


@njit(nogil=True, cache=True, fastmath=_FAST)
def subtract_inner_products(
    indptr: Ints, indices: Ints, data: F32, Z: F32, out: F32, row0: int, row1: int
) -> None:
    """Set ``out[p] = data[p] - Z[i] @ Z[j]`` for the nonzeros p = (i, j) of a span of rows."""
    for i in range(row0, row1):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            total = np.float32(0.0)
            for c in range(Z.shape[1]):
                total += Z[i, c] * Z[j, c]
            out[p] = data[p] - total


def regress(
    X: Matrix, Z: F32, *, regularization: float, l1: float = 0.0, n_steps: int = 10, n_jobs: int = 1
) -> tuple[LinearMap, F32]:
    """Return V that predicts Z from X, and the embedding of the rows to store with it.

    Equation 5, halved, with an intercept that is not penalised:

        minimise  1/2 ||Z - X V||^2 + r/2 ||V||^2 + mu ||X V||_1

    Without `l1` it is a ridge regression and the embedding is X V. With it, ADMM (sub-routine 4,
    smoothing rho = 1) splits off the l1 term as alpha = X V, and alpha, which is sparse, is
    the embedding. `regularization` is r in units of the mean squared length of a row, tr(XX')/n;
    `l1` is mu in units of the root mean square of Z.
    """
    n, k = Z.shape
    rows = Rows(X, eye_array(n, dtype=np.float32, format="csr"), n_jobs=n_jobs)
    ridge = Ridge(rows, tolerance=1e-3)
    r = regularization * X.shape[1] / n  # as Ridge counts it, by features
    V = ridge.solve(Z, r)
    P = V(X, n_jobs)
    if l1 == 0 or k == 0:
        return V, P
    threshold = np.float32(l1 * np.sqrt(np.square(Z).mean()))
    alpha, beta = np.zeros_like(Z), np.zeros_like(Z)  # line 1
    for _ in range(n_steps):
        # Lines 3-4: with rho = 1, half the target and half the ridge give the paper's V.
        target: F32 = np.float32(0.5) * (Z + alpha - beta)
        V = ridge.solve(target, r / 2, start=V.coef)
        P = V(X, n_jobs)
        alpha = P + beta  # line 5
        alpha = np.sign(alpha) * np.maximum(np.abs(alpha) - threshold, 0)  # line 6
        beta += P - alpha  # line 7
    return V, alpha
