"""Rows to hold out that are as new to a model as those it will meet: no near-duplicates outside.

Where training rows come in near-duplicates (packages of one source, pages of one template) a row
held out at random has a twin among the others, and whoever remembers rows looks better than
he is. Where it is known which rows belong together, that is better than what their features say.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.data.labels import label_counts
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import resolve_jobs, run, spans
from labelry.linalg.rows import Block, Rows, StreamedRows

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]

# Near-duplicates that probabilities are made right for: with all of them a large group, of which
# all are right or none, would bend the curve; with one, rows of groups would count too little.
CALIBRATED_OF_GROUP = 10
FEW_LOST = 0.2  # of the labels of rows held out: with more, new rows may be less new than these
_HALF = 0.5
_WINDOW = 1000  # rows before and after it in the list of a feature that a row is compared with
_DRAWN = 4  # rows drawn for each to hold out,
_AT_ONCE = 4096  # rows whose near-duplicates are sought side by side
_LEAST_DRAWN = 10_000  # but all of a few, of which most may be in one large group


def near_duplicates(X: Matrix, similarity: float = 0.9, n_jobs: int | None = 1) -> I32:
    """For each row the first row of its group; rows of a group are close to that one, by cosine.

    Dense rows are groups of their own: they are measurements, of which many are always close.

    Parameters
    ----------
    X : csr_array or array (n_rows, n_features)
        Rows of unit length, or zero.
    similarity : float
        Least cosine of a near-duplicate; between 0 and 1.
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

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


def held_out_groups(
    X: Matrix, similarity: float, n_rows: int, rng: np.random.Generator, n_jobs: int | None = 1
) -> I32:
    """About `n_rows` rows to hold out, in whole groups of near-duplicates; -1 for other rows.

    As `near_duplicates`, but groups are sought only for rows that are drawn; those of more than
    `n_rows` rows are never held out.
    """
    drawn = _drawn(X.shape[0], n_rows, rng)
    return _groups(X, similarity, drawn, n_rows, resolve_jobs(n_jobs))


def held_out_of(groups: Ints, n_rows: int, most: int, rng: np.random.Generator) -> I32:
    """As `held_out_groups`, of groups (n_rows,) that are given, by their numbers.

    Where all are larger than `n_rows` it is one of them, of at most so many rows as `most`; where
    they are larger than that too, a ValueError.

    Examples
    --------
    >>> held_out_of(np.array([0, 0, 0, 1, 0, 2]), 2, 3, np.random.default_rng(0)).tolist()
    [-1, -1, -1, 3, -1, 5]
    """
    first, group, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )[1:]
    smallest = int(sizes.min(initial=len(groups)))
    if n_rows and smallest > most:
        raise ValueError(
            f"groups must be such that some of the {len(groups):,} rows can be held out, at most "
            f"{most:,}; the smallest group has {smallest:,}"
        )
    order = rng.permutation(len(sizes))
    fits = np.zeros(len(sizes), dtype=bool)
    fits[order] = _first_that_fit(sizes[order], max(n_rows, smallest) if n_rows else 0)
    return np.where(fits, first, -1)[group].astype(np.int32)


def few_of_groups(groups: I32, most: int = 1) -> NDArray[np.intp]:
    """Rows that are held out, but so many of each group at most, those that come first.

    Of groups that are larger on average, it is as many as that. Of near-duplicates only the very
    first has none outside for sure.

    Examples
    --------
    >>> few_of_groups(np.array([-1, 1, 1, 1, -1, 5, 6])).tolist()
    [1, 5, 6]
    >>> few_of_groups(np.array([-1, 1, 1, 1, -1, 5, 6]), most=2).tolist()
    [1, 2, 5, 6]
    >>> few_of_groups(np.array([-1, 1, 1, 1, -1, 5])).tolist()
    [1, 2, 5]
    """
    held_out = np.flatnonzero(groups >= 0)
    order = held_out[np.argsort(groups[held_out], kind="stable")]
    place = np.arange(len(order)) - np.searchsorted(groups[order], groups[order])
    n_groups = max(int(np.count_nonzero(place == 0)), 1)
    return np.sort(order[place < max(most, len(order) // n_groups)])


def lost_share(Y: csr_array, counts: Ints) -> float:
    """How many of the labels of rows to hold out are lost with them: no other row has them.

    Parameters
    ----------
    Y : csr_array (n_held_out, n_labels)
    counts : array (n_labels,)
        Rows of each label, these and the others.

    Examples
    --------
    >>> lost_share(csr_array([[1, 1], [1, 0]]), np.array([7, 1]))
    0.3333333333333333
    """
    lost = label_counts(Y) == counts
    return float(lost[Y.indices].sum() / max(Y.nnz, 1))


def without_lost_labels(groups: I32, Y: csr_array, counts: Ints) -> I32:
    """The groups to hold out: as a rule all of these.

    New rows have labels of which there is no row, and so do those held out. But where more than
    half of their labels are of that kind, the training rows are rather a list of labels than a
    sample of rows: those to come will have labels of the list. Then groups stay with the others
    that have a label which those would not have.

    Parameters
    ----------
    groups : array (n_rows,)
        As of `held_out_groups`.
    Y, counts
        As of `lost_share`.

    Examples
    --------
    >>> Y, groups = csr_array(np.eye(3)), np.array([0, -1, 2, 3])
    >>> without_lost_labels(groups, Y, np.array([7, 2, 1])).tolist()
    [0, -1, 2, 3]
    >>> without_lost_labels(groups, Y, np.array([7, 1, 1])).tolist()
    [0, -1, -1, -1]
    """
    if lost_share(Y, counts) <= _HALF:
        return groups
    lost = label_counts(Y) == counts
    held_out = np.flatnonzero(groups >= 0)
    losing = groups[held_out[Y @ lost.astype(np.float32) > 0]]
    return np.where(np.isin(groups, losing), groups.dtype.type(-1), groups)


def held_out_groups_of(rows: Rows, similarity: float, n_rows: int, rng: np.random.Generator) -> I32:
    """As `held_out_groups`; near-duplicates in different blocks of streamed rows are not found."""
    if not isinstance(rows, StreamedRows):
        return held_out_groups(rows.gathered("X")[0], similarity, n_rows, rng, rows.n_jobs)
    drawn = _drawn(rows.n_rows, n_rows, rng)

    def groups(block: Block) -> I32:
        own = drawn - np.int32(block.start)
        own = own[(own >= 0) & (own < block.n_rows)]
        found = _groups(block.X, similarity, own, n_rows, 1)
        return np.where(found < 0, found, found + np.int32(block.start))

    found = np.concatenate(list(rows.map_blocks(groups)))
    # Of all blocks together there are too many: those that were drawn first.
    sizes = np.bincount(found[found >= 0], minlength=rows.n_rows)
    kept = np.zeros(rows.n_rows + 1, dtype=bool)  # the last is that of no group
    kept[drawn[_first_that_fit(sizes[drawn], n_rows)]] = True
    return np.where(kept[found], found, np.int32(-1))


@njit(nogil=True, cache=True)
def _first_that_fit(sizes: Ints, n: int) -> NDArray[np.bool_]:
    """Which of these are taken if each in turn is that fits in what is left of n."""
    fits = np.zeros(sizes.size, dtype=np.bool_)
    for i, size in enumerate(sizes):
        if size <= n:
            fits[i] = True
            n -= size
    return fits


def _drawn(n: int, n_rows: int, rng: np.random.Generator) -> I32:
    """Rows that may begin a group, more of them than are held out: some groups are too large."""
    n_drawn = max(_DRAWN * n_rows, _LEAST_DRAWN) if n_rows else 0
    return rng.permutation(n)[:n_drawn].astype(np.int32)


def _groups(X: Matrix, similarity: float, order: I32, n_rows: int, n_jobs: int) -> I32:
    """Groups of `n_rows` rows at most, begun by rows in that order; -1 for rows in none."""
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
    tail = np.sqrt(np.maximum(_tail_energy(X), 0)).astype(np.float32)
    kept = np.where(tail >= np.float32(similarity), tail, np.float32(0))
    prefix = csr_array((kept, X.indices, X.indptr), shape=X.shape, copy=True)
    prefix.eliminate_zeros()
    lists = csr_array(prefix.T)
    rows, short, long = ((A.indptr, A.indices, A.data) for A in (X, prefix, lists))
    largest = np.abs(X).max(axis=1).toarray().ravel()
    problem = (*rows, tail, largest, *short, *long, similarity, _WINDOW)
    n_left, begin = n_rows, 0
    while n_left and begin < len(order):
        some = order[begin : begin + min(n_left, _AT_ONCE)]
        begin += len(some)
        some = some[group[some] == -1]
        tasks = [(*problem, some[a:b]) for a, b in spans(len(some), n_jobs)]
        for task, near in zip(tasks, run(_near_rows, tasks, n_jobs), strict=True):
            n_left = _take_groups(task[-1], *near, n_left, group)
    return np.maximum(group, -1)


def _tail_energy(X: csr_array) -> NDArray[np.float64]:
    """For each entry the sum of squares from there to the end of its row."""
    before = np.concatenate([[0.0], np.cumsum(X.data.astype(np.float64) ** 2)])
    return np.repeat(before[X.indptr[1:]], np.diff(X.indptr)) - before[:-1]


@njit(nogil=True, cache=True)
def _near_rows(
    indptr: Ints,
    indices: Ints,
    data: F32,
    tail: F32,
    largest: F32,
    prefix_indptr: Ints,
    prefix_indices: Ints,
    prefix_tail: F32,
    list_indptr: Ints,
    list_rows: Ints,
    list_tail: F32,
    similarity: float,
    window: int,
    rows: I32,
) -> tuple[NDArray[np.int64], I32]:
    """The near-duplicates of each of these rows: where they begin and end, and which they are."""
    x = np.zeros(list_indptr.size - 1, dtype=np.float32)
    least = np.float32(similarity - 1e-5)  # rounding aside
    compared = np.full(indptr.size - 1, -1, dtype=np.int32)  # the last row that a row was with
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
def _take_groups(rows: I32, bounds: NDArray[np.int64], near: I32, n_left: int, group: I32) -> int:
    """Each row in turn begins a group, until so many rows are in groups; how many are left.

    A group of more rows than are still wanted is marked by -2 and left out.
    """
    for r, i in enumerate(rows):
        if n_left == 0:
            break
        if group[i] != -1:
            continue
        members = near[bounds[r] : bounds[r + 1]]
        members = members[group[members] == -1]
        if members.size and members.min() < i:
            continue  # drawn by a later row: large groups would be drawn more often
        fits = 1 + members.size <= n_left
        group[i] = i if fits else -2
        group[members] = group[i]
        n_left -= 1 + members.size if fits else 0
    return n_left
