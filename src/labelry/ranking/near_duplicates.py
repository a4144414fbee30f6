"""Find near-duplicates: rows whose cosine is large, without comparing all pairs of rows."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.sparse import csr_array, issparse

from labelry.arrays import CSR, F32, I32, I64, Bools, Ints, Rng
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import resolve_jobs, run, spans
from labelry.linalg.rows import Block, Rows, StreamedRows

# None of these was tuned.
_WINDOW = 1000  # rows before and after it in the list of a feature that a row is compared with
_DRAWN = 4  # rows drawn for each row to hold out: some groups are too large
_LEAST_DRAWN = 10_000  # rows drawn at least: of few rows, most may be in one large group
_AT_ONCE = 4096  # rows whose near-duplicates are sought side by side


def near_duplicates(X: Matrix, similarity: float = 0.9, n_jobs: int | None = 1) -> I32:
    """Return for each row the first row of its group, with which it has at least this cosine.

    Rows have unit length, or are zero. Dense rows are groups of their own: they are measurements,
    of which many are always close.

    Notes
    -----
    Let f be the rarest feature that two rows x, y share. Their cosine is at most the length of what
    x has from f on, in order of frequency, times that of y; so f is among the few rarest features
    of x where the first is at least `similarity`, and of y likewise. Rows are compared only if they
    share such a feature and the product is large enough: all near-duplicates are found, except for
    those that are more than 1,000 rows apart in the list of a feature that they share.

    Bayardo, Ma, Srikant: Scaling up all pairs similarity search, 2007.
    """
    n = X.shape[0]
    return _groups(X, similarity, np.arange(n, dtype=np.int32), n, resolve_jobs(n_jobs))


def drawn_near_duplicates(rows: Rows, similarity: float, n_wanted: int, rng: Rng) -> I32:
    """Return groups of near-duplicates, of about `n_wanted` rows together; -1 for other rows.

    Groups are sought only for rows that are drawn. Groups of more than `n_wanted` rows are left
    out. In streamed rows, near-duplicates in different blocks are not found.
    """
    n_drawn = max(_DRAWN * n_wanted, _LEAST_DRAWN) if n_wanted else 0
    drawn = rng.permutation(rows.n_rows)[:n_drawn].astype(np.int32)
    if not isinstance(rows, StreamedRows):
        return _groups(rows.gathered("X")[0], similarity, drawn, n_wanted, rows.n_jobs)

    def groups(block: Block) -> I32:
        own = drawn - np.int32(block.start)
        own = own[(own >= 0) & (own < block.n_rows)]
        found = _groups(block.X, similarity, own, n_wanted, 1)
        return np.where(found < 0, found, found + np.int32(block.start))

    found = np.concatenate(list(rows.map_blocks(groups)))
    # Of all blocks together there are too many: those that were drawn first.
    sizes = np.bincount(found[found >= 0], minlength=rows.n_rows)
    kept = np.zeros(rows.n_rows + 1, dtype=bool)  # the last is that of no group
    kept[drawn[first_that_fit(sizes[drawn], n_wanted)]] = True
    return np.where(kept[found], found, np.int32(-1))


@njit(nogil=True, cache=True)
def first_that_fit(sizes: Ints, n: int) -> Bools:
    """Return which sizes are taken, if each in turn is taken that fits in what is left of n."""
    fits = np.zeros(sizes.size, dtype=np.bool_)
    for i, size in enumerate(sizes):
        if size <= n:
            fits[i] = True
            n -= size
    return fits


def _groups(X: Matrix, similarity: float, order: I32, n_rows: int, n_jobs: int) -> I32:
    """Return groups of near-duplicates, `n_rows` rows together at most; -1 for other rows.

    The rows begin groups in the given order.
    """
    group = np.full(X.shape[0], -1, dtype=np.int32)
    if not issparse(X):
        group[order[:n_rows]] = order[:n_rows]
        return group
    rarity = np.empty(X.shape[1], dtype=np.int32)
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    rarity[np.argsort(frequency, kind="stable")] = np.arange(X.shape[1])
    # Copies: sorting and eliminating work in place.
    X = csr_array((X.data, rarity[X.indices], X.indptr), shape=X.shape, copy=True)
    X.sort_indices()
    # The length of what a row has from each entry on.
    before = np.concatenate([[0.0], np.cumsum(X.data.astype(np.float64) ** 2)])
    energy = np.repeat(before[X.indptr[1:]], np.diff(X.indptr)) - before[:-1]
    tail = np.sqrt(np.maximum(energy, 0)).astype(np.float32)
    kept = np.where(tail >= np.float32(similarity), tail, np.float32(0))
    prefix = csr_array((kept, X.indices, X.indptr), shape=X.shape, copy=True)
    prefix.eliminate_zeros()
    lists = csr_array(prefix.T)
    rows, short, long = ((A.indptr, A.indices, A.data) for A in (X, prefix, lists))
    largest = np.abs(X).max(axis=1).toarray().ravel()
    problem = (rows, tail, largest, short, long, similarity, _WINDOW)
    n_left, begin = n_rows, 0
    while n_left and begin < len(order):
        some = order[begin : begin + min(n_left, _AT_ONCE)]
        begin += len(some)
        some = some[group[some] == -1]
        tasks = [(*problem, some[a:b]) for a, b in spans(len(some), n_jobs)]
        for task, near in zip(tasks, run(_near_rows, tasks, n_jobs), strict=True):
            n_left = _take_groups(task[-1], *near, n_left, group)
    return np.maximum(group, -1)


@njit(nogil=True, cache=True)
def _near_rows(
    X: CSR,
    tail: F32,
    largest: F32,
    prefix: CSR,
    lists: CSR,
    similarity: float,
    window: int,
    rows: I32,
) -> tuple[I64, I32]:
    """Return the near-duplicates of each of these rows: where they begin and end, and the rows."""
    indptr, indices, data = X
    prefix_indptr, prefix_indices, prefix_tail = prefix
    list_indptr, list_rows, list_tail = lists
    x = np.zeros(list_indptr.size - 1, dtype=np.float32)
    least = np.float32(similarity - 1e-5)  # rounding aside
    compared = np.full(indptr.size - 1, -1, dtype=np.int32)  # the last row it was compared with
    bounds = np.zeros(rows.size + 1, dtype=np.int64)
    near, n_near = np.empty(rows.size + 16, dtype=np.int32), 0
    for r, i in enumerate(rows):
        compared[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = data[p]
        for p in range(prefix_indptr[i], prefix_indptr[i + 1]):
            first, last = list_indptr[prefix_indices[p]], list_indptr[prefix_indices[p] + 1]
            here = first + np.searchsorted(list_rows[first:last], i)
            for q in range(max(here - window, first), min(here + window + 1, last)):
                # Where it is too small, so it is for the features that they share after this one.
                if prefix_tail[p] * list_tail[q] < least:
                    continue
                j = list_rows[q]
                if compared[j] == i:
                    continue
                compared[j] = i  # this is the rarest feature that they share
                n_shared = min(indptr[i + 1] - indptr[i], indptr[j + 1] - indptr[j])
                if n_shared * largest[i] * largest[j] < least:
                    continue  # one has far more features than the other
                total = np.float32(0.0)
                for e in range(indptr[j], indptr[j + 1]):
                    if total + prefix_tail[p] * tail[e] < least:
                        break  # the rest cannot make up for it
                    total += x[indices[e]] * data[e]
                if total >= similarity:
                    if n_near == near.size:
                        near = np.concatenate((near, np.empty_like(near)))
                    near[n_near] = j
                    n_near += 1
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = 0.0
        bounds[r + 1] = n_near
    return bounds, near


@njit(nogil=True, cache=True)
def _take_groups(rows: I32, bounds: I64, near: I32, n_left: int, group: I32) -> int:
    """Let each row in turn begin a group until `n_left` rows are in groups; return what is left.

    A group of more rows than are still wanted is marked by -2 and left out.
    """
    for r, i in enumerate(rows):
        if n_left == 0:
            break
        if group[i] != -1:
            continue
        smallest, size = i, 1  # of the row and its near-duplicates that are in no group
        for j in near[bounds[r] : bounds[r + 1]]:
            if group[j] == -1:
                smallest = min(smallest, j)
                size += 1
        if smallest < i:
            continue  # drawn by a later row: large groups would be drawn more often
        number = i if size <= n_left else -2
        group[i] = number
        for j in near[bounds[r] : bounds[r + 1]]:
            if group[j] == -1:
                group[j] = number
        n_left -= size if number == i else 0
    return n_left
