"""Search among many vectors by looking only at those near the right centres.

Jégou, Douze, Schmid: Product quantization for nearest neighbor search, 2011, section IV: an
inverted file, here with the vectors themselves in its lists.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numba import njit

from labelry.arrays import F32, I32, I64, Ints
from labelry.linalg.balanced_clusters import Sets
from labelry.linalg.clusters import nearest_centre, unit_centres
from labelry.linalg.kernels import keep_best
from labelry.linalg.parallel import run_spans
from labelry.linalg.topk import topk
from labelry.storage.values import AtLeast, Pointers

# Steps of k-means. Twice as many find a thousandth more of the neighbours, which no table shows.
_STEPS = 5
_SAMPLE = 64  # points for each centre from which the centres are learnt; not tuned
_FAST = {"reassoc", "contract", "nsz", "arcp"}


class VectorLists(NamedTuple):
    """Lists of similar points: their centres, and where each begins among the points."""

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


def make_lists(
    points: F32, *, rng: np.random.Generator, n_jobs: int = 1
) -> tuple[VectorLists, Ints]:
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
