"""Several clusterings of the rows and a model in each cluster: what SLEEC and LocalLEML share.

Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label classification,
2015: Algorithm 1, line 1, and Algorithm 2, line 1, for each learner of an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import Context
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from threadpoolctl import threadpool_limits

from labelry.linalg.clusters import nearest_centre, unit_centres
from labelry.linalg.parallel import stream
from labelry.linalg.rows import Matrix
from labelry.progress import phase
from labelry.trees.cluster import Sets, split_sets

I32 = NDArray[np.int32]
Ints = NDArray[np.integer]
T = TypeVar("T")

_CLUSTER_ROWS = 6000  # section 3 of the paper
_BALANCE = 2.0  # most that the sizes of two clusters differ by, as a factor
_N_LEARNERS = 5


def ensemble_size(n_rows: int, n_clusters: int | None, n_learners: int | None) -> tuple[int, int]:
    """Clusters of a learner and number of learners: the given ones, or the usual ones."""
    n_clusters = min(n_clusters or max(1, n_rows // _CLUSTER_ROWS), n_rows)
    return n_clusters, n_learners or (_N_LEARNERS if n_clusters > 1 else 1)


def make_partitions(
    X: Matrix, n_clusters: int, n_learners: int, *, rng: np.random.Generator, n_jobs: int
) -> list[Sets]:
    """Rows of unit length (or zero) in clusters, once for each learner.

    Balanced, so that no cluster is a large one.
    """
    whole = Sets(np.arange(X.shape[0], dtype=np.int32), np.array([0, X.shape[0]]))
    partitions = []
    with phase("clustering", n_learners, "learners") as advance:
        for _ in range(n_learners):
            partitions.append(
                split_sets(
                    X, whole, np.array([n_clusters]), balance=_BALANCE, rng=rng, n_jobs=n_jobs
                )
            )
            advance(1)
    return partitions


def fit_clusters(
    fit: Callable[[Matrix, csr_array, np.random.Generator, int], T],
    X: Matrix,
    Y: csr_array,
    partitions: list[Sets],
    *,
    rng: np.random.Generator,
    n_jobs: int,
) -> list[list[T]]:
    """``fit(X[rows], Y[rows], rng, n_jobs)`` for each cluster of each learner.

    A thread for each cluster if there are enough of them, otherwise all threads for one.
    """
    members = [sets.members[a:b] for sets in partitions for a, b in pairwise(sets.bounds.tolist())]
    outer = n_jobs if len(members) >= n_jobs else 1
    tasks = (
        (X[rows], Y[rows], generator, n_jobs // outer)
        for rows, generator in zip(members, rng.spawn(len(members)), strict=True)
    )

    def unseen(*task: Any) -> T:
        return Context().run(fit, *task)  # its phases are not shown, be it in a thread or not

    fitted = []
    with (
        threadpool_limits(limits=n_jobs // outer),
        phase("local embeddings", sum(map(len, members)), "rows") as advance,
    ):
        for rows, result in zip(members, stream(unseen, tasks, outer), strict=True):
            fitted.append(result)
            advance(len(rows))
    n_clusters = len(members) // len(partitions)
    return [fitted[i : i + n_clusters] for i in range(0, len(fitted), n_clusters)]


def cluster_centres(X: Matrix, sets: Sets) -> Matrix:
    """Unit centres of the clusters as columns (n_features, n_clusters)."""
    cluster = np.empty(X.shape[0], dtype=np.int32)
    cluster[sets.members] = np.repeat(np.arange(len(sets.sizes)), sets.sizes)
    return unit_centres(X, cluster, len(sets.sizes))


def by_cluster(X: Matrix, centres: Matrix, n_jobs: int) -> Iterator[tuple[int, Ints]]:
    """Each cluster that is the nearest of some row, with these rows."""
    where = nearest_centre(X, centres, n_jobs)
    order = np.argsort(where, kind="stable")
    bounds = np.searchsorted(where[order], np.arange(centres.shape[1] + 1))
    for c, (first, last) in enumerate(pairwise(bounds.tolist())):
        if first < last:
            yield c, order[first:last]


def used_columns(A: Matrix) -> I32:
    """Columns of a sparse matrix that hold something, in order; all columns of a dense one."""
    return np.unique(A.indices) if issparse(A) else np.arange(A.shape[1], dtype=np.int32)


def on_columns(A: Matrix, columns: I32) -> Matrix:
    """``A[:, columns]`` for sorted columns, at a cost that does not depend on the width of A."""
    if not issparse(A):
        return np.ascontiguousarray(A[:, columns])
    if not len(columns):
        return csr_array((A.shape[0], 0), dtype=np.float32)
    place = np.minimum(np.searchsorted(columns, A.indices), len(columns) - 1)
    known = columns[place] == A.indices
    indptr = np.concatenate([[0], np.cumsum(known)])[A.indptr]
    parts = (A.data[known], place[known].astype(np.int32), indptr.astype(np.int32))
    return csr_array(parts, shape=(A.shape[0], len(columns)))
