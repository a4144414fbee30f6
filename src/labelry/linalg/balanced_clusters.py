"""Cut sets of label vectors into balanced clusters: spherical k-means with bounded sizes.

Dhillon, Modha: Concept decompositions for large sparse text data using clustering, 2001.
Arthur, Vassilvitskii: k-means++, the advantages of careful seeding, 2007.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array, issparse

from labelry.arrays import F32, I32, I64, Bools, Ints, Rng
from labelry.linalg.kernels import Csr, csr_parts
from labelry.linalg.lanes import LANES, add_scaled
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import balanced_spans, run, spans

_MAX_STEPS = 20  # most steps of k-means for one set; not tuned
_GAIN = 1e-2  # k-means stops when the objective gains less than this share in a step; not tuned
_TRIALS = 3  # candidates for each seed, of which the best is taken; not tuned
_SEED_ROWS = 64  # rows per part among which seeds are sought; not tuned
_SAME = 1e-5  # cosines that differ by less count as equal, so that rounding decides nothing
_SPANS_PER_JOB = 8  # pieces of work per thread, because sets differ in the steps that they take


class Cuts(NamedTuple):
    """How sets are cut: their bounds, the parts of each, the sizes of parts, random numbers."""

    bounds: I64
    n_parts: I64
    least: I64
    most: I64
    chance: F32


class Sets(NamedTuple):
    """Disjoint sets of labels: set s is ``members[bounds[s] : bounds[s + 1]]``."""

    members: I32
    bounds: I64

    @classmethod
    def of(cls, numbers: Ints, n_sets: int) -> Sets:
        """Return the sets of the members that have each number, from 0 to ``n_sets - 1``."""
        bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=n_sets))])
        return cls(np.argsort(numbers, kind="stable").astype(np.int32), bounds)

    @property
    def numbers(self) -> I32:
        """Return the set of each member, if the members are 0, 1, 2, ..."""
        numbers = np.empty(len(self.members), dtype=np.int32)
        numbers[self.members] = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return numbers

    @property
    def sizes(self) -> I64:
        return np.diff(self.bounds)

    def take(self, chosen: Bools) -> Sets:
        """Return the sets for which `chosen` is true, in their order."""
        sizes = self.sizes
        bounds = np.concatenate([[0], np.cumsum(sizes[chosen])])
        return Sets(self.members[np.repeat(chosen, sizes)], bounds)


def even_cuts(sets: Sets, n_parts: I64) -> I64:
    """Return bounds that cut set s into ``n_parts[s]`` parts of nearly equal sizes."""
    part = np.arange(n_parts.sum()) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    parts, sizes, starts = (np.repeat(a, n_parts) for a in (n_parts, sets.sizes, sets.bounds[:-1]))
    return np.append(starts + sizes * part // parts, sets.bounds[-1])


def split_sets(
    V: Matrix, sets: Sets, n_parts: I64, *, balance: float, rng: Rng, n_jobs: int
) -> Sets:
    """Cut set s into ``n_parts[s]`` sets of similar vectors, which take its place.

    Rows of V have unit length, or are zero. A set has at most as many parts as members. The sizes
    of its parts differ by a factor of at most `balance` (or by one). Memory: one cosine for each
    pair of a member and a part of its set.
    """
    mean = sets.sizes / n_parts
    least = np.maximum(np.minimum(np.ceil(mean * 2 / (1 + balance)), np.floor(mean)), 1)
    most = np.maximum(np.floor(mean * 2 / (1 + 1 / balance)), np.ceil(mean))
    limits = least.astype(np.int64), most.astype(np.int64)
    rows = V[sets.members]  # in the order of the sets, because they are read many times
    chance = rng.random((len(n_parts), _TRIALS * int(n_parts.max())), dtype=np.float32)
    part = np.zeros(len(sets.members), dtype=np.int32)
    pieces = balanced_spans(sets.bounds, _SPANS_PER_JOB * n_jobs if n_jobs > 1 else 1)
    given = (_flat(rows), V.shape[1], Cuts(sets.bounds, n_parts, *limits, chance), part)
    run(cluster_sets, [(*given, *piece) for piece in pieces], n_jobs)
    part += np.repeat(np.cumsum(n_parts) - n_parts, sets.sizes).astype(np.int32)
    parts = Sets.of(part, int(n_parts.sum()))
    return parts._replace(members=sets.members[parts.members])


def sparse_products(A: csr_array, C: csr_array, rows: slice, n_jobs: int) -> F32:
    """Return ``A[rows] @ C`` of two sparse matrices as a dense array."""
    out = np.zeros((rows.stop - rows.start, C.shape[1]), dtype=np.float32)
    given = (csr_parts(A), csr_parts(C), rows.start, out)
    run(_add_products, [(*given, *span) for span in spans(len(out), n_jobs)], n_jobs)
    return out


def _flat(V: Matrix) -> Csr:
    """Return the CSR arrays of V; those of a dense matrix have no column numbers."""
    if issparse(V):
        return Csr(V.indptr.astype(np.int64), V.indices, V.data)
    indptr = np.arange(V.shape[0] + 1, dtype=np.int64) * V.shape[1]
    return Csr(indptr, np.empty(0, dtype=np.int32), V.reshape(-1))


@njit(nogil=True, cache=True)
def _add_products(A: Csr, C: Csr, first: int, out: F32, row0: int, row1: int) -> None:
    """Compute ``out[i] += a' C`` with row ``first + i`` of A, for i from row0 to row1."""
    for i in range(row0, row1):
        row = out[i]
        for p in range(A.indptr[first + i], A.indptr[first + i + 1]):
            v = A.data[p]
            for q in range(C.indptr[A.indices[p]], C.indptr[A.indices[p] + 1]):
                row[C.indices[q]] += v * C.data[q]


@njit(nogil=True, cache=True)
def cluster_sets(rows: Csr, n_columns: int, cuts: Cuts, part: I32, first: int, last: int) -> None:
    """Fill in the `part` of the members of the sets `first` to `last`."""
    bounds, n_parts, least, most, chance = cuts
    width = -(-np.max(n_parts[first:last]) // LANES) * LANES
    C = np.zeros((n_columns, width), dtype=np.float32)
    trials = np.zeros((n_columns, LANES), dtype=np.float32)
    for s in range(first, last):
        if n_parts[s] > 1:
            a, b, k = bounds[s], bounds[s + 1], n_parts[s]
            _seeds(rows, a, b, k, chance[s], trials, C)
            found = _lloyd(rows, a, b, k, least[s], most[s], C)
            for i in range(found.size):  # numba takes seconds to compile an assignment to a slice
                part[a + i] = found[i]


@njit(nogil=True, cache=True)
def _dots(rows: Csr, i: int, C: F32, out: F32, at: int) -> None:
    """Compute ``out[at] = v_i' C`` for all columns."""
    indptr, indices, data = rows
    p0, width = indptr[i], C.shape[1]
    out[at] = 0.0
    for p in range(p0, indptr[i + 1]):
        line = np.int64(indices[p] if indices.size else p - p0) * width
        for j in range(0, width, LANES):
            add_scaled(out, at * width + j, data[p], C, line + j)


@njit(nogil=True, cache=True)
def _add(rows: Csr, i: int, C: F32, j: int) -> None:
    """Compute ``C[:, j] += v_i``."""
    indptr, indices, data = rows
    p0 = indptr[i]
    for p in range(p0, indptr[i + 1]):
        C[indices[p] if indices.size else p - p0, j] += data[p]


@njit(nogil=True, cache=True)
def _clear(rows: Csr, a: int, b: int, C: F32) -> None:
    """Set to zero the lines of C that the rows a to b can have changed."""
    if rows.indices.size and rows.indptr[b] - rows.indptr[a] < C.shape[0]:
        for p in range(rows.indptr[a], rows.indptr[b]):
            C[rows.indices[p]] = 0.0
    else:
        C[:] = 0.0


@njit(nogil=True, cache=True)
def _seeds(rows: Csr, a: int, b: int, k: int, chance: F32, trials: F32, C: F32) -> None:
    """Set C to `k` rows that are far from one another (k-means++, the best of a few candidates).

    In a large set the candidates are evenly spaced rows. Those of a seed are columns of `trials`,
    which is zero before and after.
    """
    stride = max(1, (b - a) // (_SEED_ROWS * k))
    n = (b - a) // stride
    S, far = np.empty((n, LANES), np.float32), np.empty(n, np.float32)  # far: 1 - cosine with seeds
    row = np.empty(_TRIALS, dtype=np.int64)
    for i in range(n):
        v = a + i * stride
        far[i] = rows.indptr[v + 1] > rows.indptr[v]
    for j in range(k):
        for t in range(_TRIALS):
            row[t] = a + stride * _draw(far, chance[j * _TRIALS + t])
            _add(rows, row[t], trials, t)
        total = np.zeros(_TRIALS)
        for i in range(n):
            _dots(rows, a + i * stride, trials, S, i)
            for t in range(_TRIALS):
                S[i, t] = min(far[i], max(np.float32(1.0) - S[i, t], np.float32(0.0)))
                total[t] += S[i, t]
        best = np.argmin(total)
        for i in range(n):
            far[i] = S[i, best]
        _add(rows, row[best], C, j)
        for t in range(_TRIALS):
            _clear(rows, row[t], row[t] + 1, trials)


@njit(nogil=True, cache=True)
def _draw(weights: F32, chance: float) -> int:
    """Return a place, drawn by weight; all places are equally likely if all weights are zero."""
    total = 0.0
    for w in weights:
        total += w
    if total <= 0.0:
        return int(chance * weights.size)
    left = chance * total
    place = 0
    for i in range(weights.size):
        if weights[i] > 0:
            place = i
            left -= weights[i]
            if left < 0:
                break
    return place


@njit(nogil=True, cache=True)
def _lloyd(rows: Csr, a: int, b: int, k: int, least: int, most: int, C: F32) -> I32:
    """Return the part of each row from a to b, beginning with seeds in C; C is zero afterwards.

    The objective is the sum over parts of |sum of its rows|, which is the sum of the cosines
    between each row and the centre of its part.
    """
    n, best = b - a, 0.0
    S, norm = np.empty((n, C.shape[1]), dtype=np.float32), np.ones(k, dtype=np.float32)
    part = found = np.full(n, -1, dtype=np.int32)
    for step in range(_MAX_STEPS):
        for i in range(n):
            _dots(rows, a + i, C, S, i)
        _clear(rows, a, b, C)
        if step > 0:
            objective = _norms(S, part, norm)
            if objective <= best * (1.0 + _GAIN):
                break
            best, found = objective, part.copy()
        assign(S, norm, least, most, part)
        if step == 0:
            found = part.copy()
        for i in range(n):
            _add(rows, a + i, C, part[i])
    _clear(rows, a, b, C)
    return found


@njit(nogil=True, cache=True)
def _norms(S: F32, part: I32, norm: F32) -> float:
    """Fill in the length of the sum c of each part (|c|^2 = sum of v'c); return their total."""
    squares, total = np.zeros(norm.size), 0.0
    for i in range(part.size):
        squares[part[i]] += S[i, part[i]]
    for j in range(norm.size):
        norm[j] = np.sqrt(max(squares[j], 1e-12))
        total += norm[j]
    return total


@njit(nogil=True, cache=True)
def assign(S: F32, norm: F32, least: int, most: int, part: I32) -> None:
    """Fill in `part`: each row goes to the part with the largest ``S / norm`` that has room.

    Rows that would lose most by their second choice go first. When only as many rows are left as
    parts lack to reach `least`, these parts get them. Of equal parts the smallest wins.
    """
    n, k = len(S), norm.size
    regret = np.empty(n, dtype=np.float32)
    for i in range(n):
        high, second = -np.inf, -np.inf
        for j in range(k):
            S[i, j] /= norm[j]
            if S[i, j] > high:
                high, second = S[i, j], high
            else:
                second = max(second, S[i, j])
        regret[i] = second - high
    size = np.zeros(k, dtype=np.int64)
    lacking = k * least
    order = np.argsort(regret, kind="mergesort")
    for at in range(n):
        i = order[at]
        room = least if n - at <= lacking else most
        choice = -1
        for j in range(k):
            if size[j] < room and (
                choice < 0
                or S[i, j] > S[i, choice] + _SAME
                or (S[i, j] >= S[i, choice] - _SAME and size[j] < size[choice])
            ):
                choice = j
        lacking -= size[choice] < least
        size[choice] += 1
        part[i] = choice
