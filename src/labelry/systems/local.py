"""Several clusterings of the rows and a model in each cluster: what SLEEC and LocalLEML share.

Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label classification,
2015: Algorithm 1, line 1, and Algorithm 2, line 1, for each learner of an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import Context
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from threadpoolctl import threadpool_limits

from labelry.linalg.clusters import cluster_sums, nearest_centre, unit_centres, unit_columns
from labelry.linalg.parallel import stream
from labelry.linalg.rows import Block, Matrix, Rows, StreamedRows, summed
from labelry.memory import available
from labelry.progress import phase
from labelry.trees.cluster import Sets, split_sets

I32 = NDArray[np.int32]
Ints = NDArray[np.integer]
T = TypeVar("T")

_CLUSTER_ROWS = 6000  # section 3 of the paper
_BALANCE = 2.0  # most that the sizes of two clusters differ by, as a factor
_N_LEARNERS = 5
_MOST_CLUSTERED = 1 << 22  # entries of the rows that are clustered: 32 MiB
_SHARE = 12  # of the memory: the rows of the clusters that are gathered together


def ensemble_size(n_rows: int, n_clusters: int | None, n_learners: int | None) -> tuple[int, int]:
    """Clusters of a learner and number of learners: the given ones, or the usual ones."""
    n_clusters = min(n_clusters or max(1, n_rows // _CLUSTER_ROWS), n_rows)
    return n_clusters, n_learners or (_N_LEARNERS if n_clusters > 1 else 1)


def n_stored(rows: Rows) -> int:
    """Entries of X that are stored, and one for each row."""
    return sum(rows.map_blocks(_n_stored))


def _n_stored(block: Block) -> int:
    return int(block.X.nnz if issparse(block.X) else block.X.size) + block.n_rows


def make_partitions(
    rows: Rows, n_clusters: int, n_learners: int, *, rng: np.random.Generator, n_jobs: int
) -> list[Sets]:
    """Rows of unit length (or zero) in clusters, once for each learner.

    Balanced, so that no cluster is a large one. Of very many rows some are clustered, drawn at
    random, and each of the others goes to the cluster whose centre is nearest.
    """
    size = n_stored(rows)
    rows.require(
        4 * rows.n_features * n_clusters + 2 * 8 * min(size, _MOST_CLUSTERED),
        f"clustering rows of {rows.n_features:,} features in {n_clusters} clusters",
        "give more memory, or fewer clusters",
    )
    drawn = None
    if size > _MOST_CLUSTERED:
        n_drawn = max(rows.n_rows * _MOST_CLUSTERED // size, n_clusters)
        drawn = rng.permutation(rows.n_rows) < n_drawn
    (X,) = rows.gathered("X") if drawn is None else rows.only(drawn).gathered("X")
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
        return partitions if drawn is None else _with_others(partitions, X, drawn, rows)


def _with_others(
    partitions: list[Sets], X: Matrix, drawn: NDArray[np.bool_], rows: Rows
) -> list[Sets]:
    """Partitions of all rows from those of the rows X that were drawn."""
    of_drawn = [_cluster_of(sets) for sets in partitions]
    n_clusters = len(partitions[0].sizes)
    centres = [unit_centres(X, cluster, n_clusters) for cluster in of_drawn]
    n_jobs = rows.n_jobs

    def nearest(block: Block) -> list[I32]:
        return [nearest_centre(block.X, C, n_jobs) for C in centres]

    found = []
    for own, parts in zip(of_drawn, zip(*rows.map_blocks(nearest), strict=True), strict=True):
        cluster = np.concatenate(parts)
        cluster[drawn] = own  # so that no cluster is empty
        found.append(_sets(cluster, n_clusters))
    return found


def _cluster_of(sets: Sets) -> I32:
    """The cluster of each row."""
    cluster = np.empty(len(sets.members), dtype=np.int32)
    cluster[sets.members] = np.repeat(np.arange(len(sets.sizes)), sets.sizes)
    return cluster


def _sets(cluster: I32, n_clusters: int) -> Sets:
    """The rows of each cluster."""
    sizes = np.bincount(cluster, minlength=n_clusters)
    members = np.argsort(cluster, kind="stable").astype(np.int32)
    return Sets(members, np.concatenate([[0], np.cumsum(sizes)]))


def fit_clusters(
    fit: Callable[[Matrix, csr_array, np.random.Generator, int], T],
    rows: Rows,
    partitions: list[Sets],
    *,
    rng: np.random.Generator,
    n_jobs: int,
) -> list[list[T]]:
    """``fit(X[rows], Y[rows], rng, n_jobs)`` for each cluster of each learner.

    A thread for each cluster if there are enough of them, otherwise all threads for one. Rows that
    are not in memory are gathered for as many clusters at a time as have room there.
    """
    members = [sets.members[a:b] for sets in partitions for a, b in pairwise(sets.bounds.tolist())]
    outer = n_jobs if len(members) >= n_jobs else 1
    tasks = (
        (*task, generator, n_jobs // outer)
        for task, generator in zip(_gathered(rows, members), rng.spawn(len(members)), strict=True)
    )

    def unseen(*task: Any) -> T:
        return Context().run(fit, *task)  # its phases are not shown, be it in a thread or not

    fitted = []
    with (
        threadpool_limits(limits=n_jobs // outer),
        phase("local embeddings", sum(map(len, members)), "rows") as advance,
    ):
        for mine, result in zip(members, stream(unseen, tasks, outer), strict=True):
            fitted.append(result)
            advance(len(mine))
    n_clusters = len(members) // len(partitions)
    return [fitted[i : i + n_clusters] for i in range(0, len(fitted), n_clusters)]


def _gathered(rows: Rows, members: list[I32]) -> Iterator[tuple[Matrix, csr_array]]:
    """X and Y of each of these sets of rows, in their order."""
    rows = rows.held()
    if not isinstance(rows, StreamedRows):
        X, Y = rows.gathered("X", "Y")
        yield from ((X[mine], Y[mine]) for mine in members)
        return
    room = (rows.memory or available() // 2) // _SHARE
    n_bytes = np.cumsum([len(mine) * (rows.n_bytes / rows.n_rows) for mine in members])
    for _, batch in groupby(zip(n_bytes // room, members, strict=True), key=itemgetter(0)):
        chosen = [mine for _, mine in batch]
        keep = np.zeros(rows.n_rows, dtype=bool)
        keep[np.concatenate(chosen)] = True
        X, Y = rows.only(keep).gathered("X", "Y")
        numbers = np.flatnonzero(keep)
        yield from ((X[i], Y[i]) for i in (np.searchsorted(numbers, mine) for mine in chosen))


def cluster_centres(rows: Rows, sets: Sets) -> Matrix:
    """Unit centres of the clusters as columns (n_features, n_clusters)."""
    cluster, n_clusters = _cluster_of(sets), len(sets.sizes)

    def sums(block: Block) -> Matrix:
        return cluster_sums(block.X, cluster[block.start : block.start + block.n_rows], n_clusters)

    return unit_columns(summed(rows.map_blocks(sums)))


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
