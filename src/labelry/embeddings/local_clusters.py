"""Cluster the rows several times and fit a model to each cluster, for SLEEC and LocalLEML.

Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label classification,
2015: Algorithm 1, line 1, and Algorithm 2, line 1, for each learner of an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from threadpoolctl import threadpool_limits

from labelry.arrays import I32, I64, Bools, Ints, Rng
from labelry.checks import StoredCheck
from labelry.linalg.balanced_clusters import Sets, split_sets
from labelry.linalg.clusters import cluster_sums, nearest_centre, unit_centres, unit_columns
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import stream
from labelry.linalg.rows import Block, Parts, Rows
from labelry.parameters import Between, Settings, param, settings
from labelry.progress import phase
from labelry.storage.values import Indices, Pointers

T = TypeVar("T")

_CLUSTER_ROWS = 6000  # rows of a cluster by default; section 3 of the paper
_BALANCE = 2.0  # most that the sizes of two clusters differ by, as a factor; not tuned
_N_LEARNERS = 5  # learners by default, if there are several clusters; not tuned
_MOST_CLUSTERED = 1 << 22  # most entries of the rows that are clustered, 32 MiB; not tuned
_SHARE = 12  # rows that are gathered together take one part in so many of the memory; not tuned


@settings
class EnsembleSettings(Settings):
    """How many clusterings to average, and how fine they are."""

    n_learners: int | None = param(
        default=None,
        least=1,
        help="Clusterings that are averaged. More are more accurate, and cost in proportion. By "
        "default 5, or 1 where there is one cluster only.",
        tune=Between(3, 15),
    )
    n_clusters: int | None = param(
        default=None,
        least=1,
        help="Clusters of a learner. More are faster, and each model learns from fewer rows. By "
        "default one for each 6000 rows.",
    )


@dataclass(frozen=True, eq=False)
class Clustering:
    """One clustering with a model in each cluster: the arrays of the clusters, end to end."""

    centres: Annotated[Matrix, "n_features", "n_clusters"]
    # For each cluster the columns of X that its rows have, and where those of each cluster begin.
    features: Annotated[Ints, "n_used", Indices("n_features")]
    feature_bounds: Annotated[I64, "n_clusters + 1", Pointers("n_used")]

    def features_of(self, c: int) -> Ints:
        return part_of(self.features, self.feature_bounds, c)

    def queries(self, X: Matrix, n_jobs: int) -> Iterator[tuple[int, Ints, Matrix]]:
        """Yield each cluster that is the nearest of some row, these rows, and its features of them.

        Algorithm 2, line 1.
        """
        sets = Sets.of(nearest_centre(X, self.centres, n_jobs), self.centres.shape[1])
        for c in np.flatnonzero(sets.sizes).tolist():
            rows = part_of(*sets, c)
            yield c, rows, on_columns(X[rows], self.features_of(c))

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError if there is no cluster."""
        if self.centres.shape[1] == 0:
            raise ValueError("a clustering must have at least 1 cluster")


def part_of(A: Matrix, bounds: I64, c: int) -> Matrix:
    """Return the part of an array that belongs to cluster c."""
    return A[bounds[c] : bounds[c + 1]]


def ensemble_size(n_rows: int, n_clusters: int | None, n_learners: int | None) -> tuple[int, int]:
    """Return the clusters of a learner and the number of learners: given, or the usual ones."""
    n_clusters = min(n_clusters or max(1, n_rows // _CLUSTER_ROWS), n_rows)
    return n_clusters, n_learners or (_N_LEARNERS if n_clusters > 1 else 1)


def n_stored(rows: Rows) -> int:
    """Return the number of stored entries of X plus the number of rows; one pass."""
    return sum(rows.map_blocks(lambda b: int(b.X.nnz if issparse(b.X) else b.X.size) + b.n_rows))


def cluster_rows(
    rows: Rows, settings: EnsembleSettings, normalize: bool, rng: Rng
) -> tuple[Rows, list[Sets]]:
    """Return the rows in a form for many passes, and their clusters for each learner."""
    rows = (rows.unit() if normalize else rows).kept()
    sizes = ensemble_size(rows.n_rows, settings.n_clusters, settings.n_learners)
    return rows, make_partitions(rows if normalize else rows.unit(), *sizes, rng=rng)


def make_partitions(rows: Rows, n_clusters: int, n_learners: int, *, rng: Rng) -> list[Sets]:
    """Cluster rows of unit length (or zero), once for each learner.

    Clusters are balanced: none is much larger than another. Of very many rows a random sample is
    clustered, and each of the others goes to the cluster whose centre is nearest.
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
    whole = Sets(np.arange(X.shape[0], dtype=np.int32), np.array([0, X.shape[0]]))
    partitions, n_parts, n_jobs = [], np.array([n_clusters]), rows.n_jobs
    with phase("clustering", n_learners, "learners") as advance:
        for _ in range(n_learners):
            sets = split_sets(X, whole, n_parts, balance=_BALANCE, rng=rng, n_jobs=n_jobs)
            partitions.append(sets)
            advance(1)
        return partitions if drawn is None else _with_others(partitions, X, drawn, rows)


def _with_others(partitions: list[Sets], X: Matrix, drawn: Bools, rows: Rows) -> list[Sets]:
    """Return partitions of all rows, from those of the rows X that were drawn."""
    of_drawn = [sets.numbers for sets in partitions]
    n_clusters, n_jobs = len(partitions[0].sizes), rows.n_jobs
    centres = [unit_centres(X, cluster, n_clusters) for cluster in of_drawn]

    def nearest(block: Block) -> list[I32]:
        return [nearest_centre(block.X, C, n_jobs) for C in centres]

    found = []
    for own, parts in zip(of_drawn, zip(*rows.map_blocks(nearest), strict=True), strict=True):
        cluster = np.concatenate(parts)
        cluster[drawn] = own  # so that no cluster is empty
        found.append(Sets.of(cluster, n_clusters))
    return found


def fit_clusters(
    fit: Callable[[Matrix, csr_array, Rng, int], T], rows: Rows, partitions: list[Sets], *, rng: Rng
) -> list[list[T]]:
    """Return ``fit(X[rows], Y[rows], rng, n_jobs)`` for each cluster of each learner.

    Each cluster has one thread if there are enough clusters; otherwise all threads work on one
    cluster. Rows that are not in memory are gathered for as many clusters at a time as have room
    there; on several machines the workers gather them.
    """
    members = [sets.members[a:b] for sets in partitions for a, b in pairwise(sets.bounds.tolist())]
    # Seeds, not generators: a worker that fits a cluster again must draw the same numbers.
    seeds = rng.bit_generator.seed_seq.spawn(len(members))  # type: ignore[attr-defined]
    n_rows, n_clusters = rows.n_rows, len(members) // len(partitions)
    of_learner = [sets.numbers + i * n_clusters for i, sets in enumerate(partitions)]

    def choose(block: Block, parts: Parts) -> NDArray[np.intp]:
        wanted = np.zeros(len(members), dtype=bool)
        wanted[parts] = True
        here = slice(block.start, block.start + block.n_rows)
        return np.flatnonzero(np.any([wanted[part[here]] for part in of_learner], axis=0))

    def work(X: Matrix, Y: csr_array, parts: Parts, n_jobs: int) -> Iterator[tuple[int, T]]:
        outer = n_jobs if len(parts) >= n_jobs else 1
        places = _places([members[part] for part in parts], n_rows)
        tasks = (
            (part, X[mine], Y[mine], np.random.default_rng(seeds[part]), n_jobs // outer)
            for part, mine in zip(parts.tolist(), places, strict=True)
        )
        with threadpool_limits(limits=n_jobs // outer):
            yield from stream(unseen, tasks, outer)

    def unseen(part: int, *task: Any) -> tuple[int, T]:
        return part, Context().run(fit, *task)  # phases of a single cluster are not shown

    n_bytes = np.array([len(mine) * rows.n_bytes / n_rows for mine in members])
    fitted: dict[int, T] = {}
    with phase("local embeddings", sum(map(len, members)), "rows") as advance:
        found = rows.map_parts(work, choose, n_bytes, room=rows.room(_SHARE), n_jobs=rows.n_jobs)
        for part, result in found:
            fitted[part] = result
            advance(len(members[part]))
    return [
        [fitted[part] for part in range(first, first + n_clusters)]
        for first in range(0, len(members), n_clusters)
    ]


def _places(members: list[I32], n_rows: int) -> Iterator[Ints]:
    """Yield the places of the members of each set among those of all, in the order of the rows."""
    gathered = np.zeros(n_rows, dtype=bool)
    gathered[np.concatenate(members)] = True
    place = np.cumsum(gathered) - 1
    return (place[mine] for mine in members)


def cluster_centres(rows: Rows, sets: Sets) -> Matrix:
    """Return the unit centres of the clusters as columns, (n_features, n_clusters)."""
    cluster, n_clusters = sets.numbers, len(sets.sizes)

    def sums(block: Block) -> Matrix:
        return cluster_sums(block.X, cluster[block.start : block.start + block.n_rows], n_clusters)

    return unit_columns(rows.sum_blocks(sums))


def used_columns(A: Matrix) -> I32:
    """Return the columns of a sparse matrix that hold something, in order; all of a dense one."""
    return np.unique(A.indices) if issparse(A) else np.arange(A.shape[1], dtype=np.int32)


def on_columns(A: Matrix, columns: Ints) -> Matrix:
    """Return ``A[:, columns]`` for sorted columns; the cost does not depend on the width of A."""
    if not issparse(A):
        return np.ascontiguousarray(A[:, columns])
    if not len(columns):
        return csr_array((A.shape[0], 0), dtype=np.float32)
    place = np.minimum(np.searchsorted(columns, A.indices), len(columns) - 1)
    known = columns[place] == A.indices
    indptr = np.concatenate([[0], np.cumsum(known)])[A.indptr]
    parts = (A.data[known], place[known].astype(np.int32), indptr.astype(np.int32))
    return csr_array(parts, shape=(A.shape[0], len(columns)))
