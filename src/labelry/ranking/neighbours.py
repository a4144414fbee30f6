"""Labels of the nearest training rows, in an embedding or as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array, issparse, vstack

from labelry.arrays import F32, I32, I64, Ints, Rng
from labelry.checks import StoredCheck
from labelry.linalg.balanced_clusters import Sets, sparse_products
from labelry.linalg.clusters import nearest_centre, unit_centres
from labelry.linalg.kernels import keep_best
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import run_spans
from labelry.linalg.rows import Rows, in_memory
from labelry.linalg.topk import topk
from labelry.parameters import Between, Settings, param, settings
from labelry.progress import phase
from labelry.ranking.shares import SharesRanker
from labelry.storage.values import AtLeast, Pointers, Sizes

# Steps of k-means. Twice as many find a thousandth more of the neighbours, which no table shows.
_STEPS = 5
_SAMPLE = 64  # points for each centre from which the centres are learnt; not tuned
_BLOCK_BYTES = 32 << 20  # bytes of similarities that are held at a time; not tuned
_LEAST_EXPONENT = -80  # the exponential of a smaller number is zero in float32
_FAST = {"reassoc", "contract", "nsz", "arcp"}


class VectorLists(NamedTuple):
    """An inverted file: points are stored in lists of similar points, vectors included.

    Jégou, Douze, Schmid: Product quantization for nearest neighbor search, 2011, section IV.
    """

    centres: Annotated[F32, "n_features", "n_lists"]
    # List c is ``points[bounds[c] : bounds[c + 1]]``; none is empty.
    bounds: Annotated[I64, "n_lists + 1", Pointers("n_points", least_step=1)]
    n_probes: Annotated[int, AtLeast(1)] = 32  # lists that a query looks into; more find more

    def search(
        self, queries: F32, points: F32, n_neighbors: int, n_jobs: int = 1
    ) -> tuple[I32, F32]:
        """Return the points of largest inner product in the lists nearest to each query.

        The best are first. Places are -1 and minus infinity if the lists hold fewer points.
        """
        n_probes = min(self.n_probes, self.centres.shape[1])
        probes = topk(queries @ self.centres, n_probes, n_jobs)[0]
        near = np.empty((len(queries), n_neighbors), dtype=np.int32)
        inner = np.empty((len(queries), n_neighbors), dtype=np.float32)
        arguments = (queries, points, self.bounds, probes, near, inner)
        run_spans(search_lists, arguments, len(queries), n_jobs)
        return near, inner


def make_lists(points: F32, *, rng: Rng, n_jobs: int = 1) -> tuple[VectorLists, Ints]:
    """Return lists for points of unit length, and the order in which the points must be kept.

    They come from spherical k-means on a sample, and are at most twice the root of the number of
    points, so that a query meets about as many centres as points of a few lists.
    """
    n = len(points)
    n_lists = min(n, round(2 * np.sqrt(n)))
    sample = points[rng.permutation(n)[: _SAMPLE * n_lists]]
    centres = np.ascontiguousarray(sample[:n_lists].T)
    for _ in range(_STEPS):
        centres = unit_centres(sample, nearest_centre(sample, centres, n_jobs), n_lists)
    sets = Sets.of(nearest_centre(points, centres, n_jobs), n_lists)
    kept = sets.take(sets.sizes > 0)
    return VectorLists(np.ascontiguousarray(centres[:, sets.sizes > 0]), kept.bounds), kept.members


@njit(nogil=True, cache=True, fastmath=_FAST)
def _inner(A: F32, i: int, B: F32, j: int) -> np.float32:
    """Return ``A[i] @ B[j]``."""
    total = np.float32(0.0)
    for c in range(A.shape[1]):
        total += A[i, c] * B[j, c]
    return total


@njit(nogil=True, cache=True)
def search_lists(
    queries: F32, points: F32, bounds: I64, probes: I32, near: I32, inner: F32, row0: int, row1: int
) -> None:
    """Find the largest of ``queries[i] @ points[lists probes[i]].T`` for each row, best first."""
    for i in range(row0, row1):
        best, ids = inner[i], near[i]
        best[:] = -np.inf
        ids[:] = -1
        for t in range(probes.shape[1]):
            for r in range(bounds[probes[i, t]], bounds[probes[i, t] + 1]):
                keep_best(best, ids, _inner(queries, i, points, r), r)


@settings
class NeighbourSettings(Settings):
    """How many nearest embedded rows count, and how much each weighs."""

    n_neighbors: int = param(
        default=100,
        least=1,
        help="Training rows that add their labels. More find more labels, and take longer.",
        tune=Between(10, 300, log=True),
    )
    sharpness: float = param(
        default=15.0,
        least=0,
        help="How much more a nearer neighbour weighs. Larger gives more weight to the nearest.",
        tune=Between(2.0, 50.0, log=True),
    )


@settings
class NearestNeighboursSettings(Settings):
    """How to search for the nearest training rows, and how much each weighs."""

    n_neighbors: int = param(
        default=50,
        least=1,
        help="Training rows that add their labels. More find more labels, and take longer.",
        tune=Between(10, 300, log=True),
    )
    sharpness: float = param(
        default=5.0,
        least=0,
        help="How much more a nearer neighbour weighs: exp(sharpness x cosine). Larger gives more "
        "weight to the nearest.",
        tune=Between(2.0, 50.0, log=True),
    )
    index: Literal["exact", "approximate"] = param(
        default="exact",
        help='"approximate" looks at a part of the rows only. It is for dense features and many '
        "rows: of 500,000 a query then meets about 11,000.",
    )


@dataclass(frozen=True, eq=False)
class Neighbours(SharesRanker):
    """Training rows; those most similar to a query, by cosine, add their labels.

    The score of a label is its weighted share of the neighbours, between 0 and 1. A neighbour
    with cosine s weighs exp(sharpness (s - 1)). In an embedding each dimension is first divided by
    the square root of its standard deviation, which is halfway to whitening. Without it, the few
    strongest directions (of the most frequent labels) outweigh the others; with full whitening,
    noise does.

    Without lists, a pair of a query and a training row costs 2 k flops, or 2 for each feature that
    both have if rows are sparse.
    """

    # Training rows, scaled and of unit length; of sparse rows, for each feature the rows with it.
    points: (
        Annotated[F32, "n_points", "n_features"] | Annotated[csr_array, "n_features", "n_points"]
    )
    scale: Annotated[F32, "n_features"] | None  # factor for each dimension of a query
    labels: Annotated[csr_array, "n_points", "n_labels"]
    n_neighbors: Annotated[int, AtLeast(1)] = 100
    sharpness: float = 15.0
    weights: Annotated[F32, "n_points"] | None = None  # factor on the weight of each point
    # Where to look for neighbours; everywhere if None.
    lists: Annotated[VectorLists, Sizes(n_points="n_points")] | None = None

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless there are points, and dense ones where there are lists."""
        if self.labels.shape[0] == 0 or (self.lists is not None and issparse(self.points)):
            raise ValueError("points must be there, and dense where there are lists of them")

    def nearest(self, Z: Matrix, n_jobs: int) -> Iterator[tuple[slice, Ints, F32]]:
        """Yield blocks of rows, their neighbours and the weights of these, which add up to one."""
        step = max(1, _BLOCK_BYTES // (4 * self._n_points()))
        for start in range(0, Z.shape[0], step):
            rows = slice(start, start + step)
            near, cosine = self._search(Z[rows], n_jobs)
            exponent = np.float32(self.sharpness) * (cosine - 1)
            # The nearest keeps some weight, however large the sharpness: the shares are not 0/0.
            exponent -= np.minimum(exponent[:, :1] - _LEAST_EXPONENT, 0)
            weights = np.exp(exponent)
            if self.weights is not None:
                weights *= self.weights[near]
            weights /= weights.sum(axis=1, keepdims=True)
            yield rows, near, weights

    def approximate(self, rng: Rng, n_jobs: int = 1) -> Neighbours:
        """Return the same points in lists, of which a query searches a few: faster if many.

        It finds about 99 of the 100 nearest of 40,000 points.
        """
        if issparse(self.points):
            raise ValueError("index must be exact for sparse rows and texts, got approximate")
        with phase("indexing rows"):
            lists, order = make_lists(self.points, rng=rng, n_jobs=n_jobs)
        weights = None if self.weights is None else self.weights[order]
        points, labels = self.points[order], self.labels[order]
        return replace(self, points=points, labels=labels, weights=weights, lists=lists)

    def with_rows(self, Z: F32, Y: csr_array, n_jobs: int = 1) -> Neighbours:
        """Return neighbours with further embedded rows; Y may have more labels than those so far.

        The scale of the dimensions and the centres of lists stay. If there are lists, each row
        joins the list of the nearest centre. All points are copied.
        """
        new = scaled_rows(Z if self.scale is None else Z * self.scale)
        points = np.concatenate([self.points, new])
        labels = vstack([widened(self.labels, Y.shape[1]), Y], format="csr")
        weights, lists = self.weights, self.lists
        if weights is not None:
            weights = np.concatenate([weights, np.ones(len(new), dtype=np.float32)])
        if lists is not None:
            n_lists = lists.centres.shape[1]
            old = np.repeat(np.arange(n_lists), np.diff(lists.bounds))
            where = np.concatenate([old, nearest_centre(new, lists.centres, n_jobs)])
            order, bounds = Sets.of(where, n_lists)
            points, labels, lists = points[order], labels[order], lists._replace(bounds=bounds)
            weights = None if weights is None else weights[order]
        return replace(self, points=points, labels=labels, weights=weights, lists=lists)

    def _search(self, Z: Matrix, n_jobs: int) -> tuple[Ints, F32]:
        """Return the most similar points of each row, and their cosines."""
        n_neighbors = min(self.n_neighbors, self._n_points())
        if issparse(self.points):
            Z = scaled_rows(csr_array(Z))
            cosines = sparse_products(Z, self.points, slice(0, Z.shape[0]), n_jobs)
            near, cosine = topk(cosines, n_neighbors, n_jobs)
        else:
            Z = Z.toarray() if issparse(Z) else Z
            Z = scaled_rows(Z if self.scale is None else Z * self.scale)
            if self.lists is None:
                near, cosine = topk(Z @ self.points.T, n_neighbors, n_jobs)
            else:
                near, cosine = self.lists.search(Z, self.points, n_neighbors, n_jobs)
        return np.maximum(near, 0), cosine  # what was not found weighs exp(-inf)

    def _n_points(self) -> int:
        return int(self.points.shape[1] if issparse(self.points) else len(self.points))


def widened(Y: csr_array, n_labels: int) -> csr_array:
    """Return the same labels with further empty columns, `n_labels` in all."""
    return csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def fit_neighbours(
    Z: F32,
    Y: csr_array,
    n_neighbors: int = 100,
    sharpness: float = 15.0,
    weights: F32 | None = None,
) -> Neighbours:
    """Keep embedded training rows and their labels."""
    scale = half_whitening(Z, weights)
    return Neighbours(scaled_rows(Z * scale), scale, Y, n_neighbors, sharpness, weights)


def half_whitening(Z: F32, weights: F32 | None = None) -> F32:
    """Return one over the root of the root mean square of each dimension; 0 where that is 0."""
    w = np.ones(len(Z), dtype=np.float32) if weights is None else weights
    total = max(float(w.sum(dtype=np.float64)), np.finfo(np.float32).tiny)
    rms = np.sqrt(np.einsum("i,ij,ij->j", w, Z, Z, dtype=np.float64) / total)
    return np.where(rms > 0, 1 / np.sqrt(np.where(rms > 0, rms, 1)), 0).astype(np.float32)


def plain_neighbours(
    X: Matrix, Y: csr_array, n_neighbors: int = 100, sharpness: float = 15.0
) -> Neighbours:
    """Keep training rows with their own features, sparse or dense, and their labels."""
    points = csr_array(scaled_rows(X).T) if issparse(X) else scaled_rows(X)
    return Neighbours(points, None, Y, n_neighbors, sharpness)


def fit_nearest_neighbours(rows: Rows, settings: NearestNeighboursSettings, rng: Rng) -> Neighbours:
    """Keep the training rows and their labels, in lists if an approximate index is asked for."""
    found = plain_neighbours(*in_memory(rows, "knn"), settings.n_neighbors, settings.sharpness)
    return found if settings.index == "exact" else found.approximate(rng, rows.n_jobs)
