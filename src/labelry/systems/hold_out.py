"""Rows to hold out that are as new to a model as those it will meet: no near-duplicates outside.

Where training rows come in near-duplicates (packages of one source, pages of one template) a row
held out at random has a twin among the others, and whoever remembers rows looks better than
he is.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.linalg.rows import Block, Matrix, Rows, StreamedRows

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]

_WINDOW = 1000  # later rows of a feature that a row is compared with


def held_out_rows(groups: Ints, n_rows: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """About `n_rows` rows of whole groups, drawn at random; larger groups are never held out.

    Examples
    --------
    >>> held_out_rows(np.array([0, 0, 0, 3]), 2, np.random.default_rng(0)).tolist()
    [False, False, False, True]
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    order = order[sizes[order] <= n_rows]
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[np.cumsum(sizes[order]) <= n_rows]] = True
    return chosen[group]


def near_duplicates(X: Matrix, similarity: float = 0.9) -> I32:
    """For each row the first row of its group; rows of a group are close to that one, by cosine.

    Dense rows are groups of their own: they are measurements, of which many are always close.

    Parameters
    ----------
    X : csr_array or array (n_rows, n_features)
        Rows of unit length, or zero.
    similarity : float
        Least cosine of a near-duplicate; between 0 and 1.

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
    if not issparse(X):
        return np.arange(n, dtype=np.int32)
    rarity = np.empty(X.shape[1], dtype=np.int32)
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    rarity[np.argsort(frequency, kind="stable")] = np.arange(X.shape[1])
    # Copies: sorting and eliminating work in place.
    X = csr_array((X.data, rarity[X.indices], X.indptr), shape=X.shape, copy=True)
    X.sort_indices()
    tail = np.sqrt(np.maximum(_tail_energy(X), 0))
    rare = tail >= similarity
    kept = np.where(rare, tail, 0).astype(np.float32)
    prefix = csr_array((kept, X.indices, X.indptr), shape=X.shape, copy=True)
    prefix.eliminate_zeros()
    lists = csr_array(prefix.T)
    group = np.full(n, -1, dtype=np.int32)
    rows, short, long = ((A.indptr, A.indices, A.data) for A in (X, prefix, lists))
    _group_rows(*rows, *short, *long, similarity, _WINDOW, group)
    return group


def near_duplicates_of(rows: Rows, similarity: float = 0.9) -> I32:
    """As `near_duplicates`; where rows are not in memory, for each block of them by itself."""
    if not isinstance(rows, StreamedRows):
        return near_duplicates(rows.gathered("X")[0], similarity)

    def groups(block: Block) -> I32:
        return near_duplicates(block.X, similarity) + np.int32(block.start)

    return np.concatenate(list(rows.map_blocks(groups)))


def _tail_energy(X: csr_array) -> NDArray[np.float64]:
    """For each entry the sum of squares from there to the end of its row."""
    before = np.concatenate([[0.0], np.cumsum(X.data.astype(np.float64) ** 2)])
    return np.repeat(before[X.indptr[1:]], np.diff(X.indptr)) - before[:-1]


@njit(nogil=True, cache=True)
def _group_rows(
    indptr: Ints,
    indices: Ints,
    data: F32,
    prefix_indptr: Ints,
    prefix_indices: Ints,
    prefix_tail: F32,
    list_indptr: Ints,
    list_rows: Ints,
    list_tail: F32,
    similarity: float,
    window: int,
    group: I32,
) -> None:
    """Each row that is in no group yet begins one, of the later rows that are close to it."""
    x = np.zeros(list_indptr.size - 1, dtype=np.float32)
    least = np.float32(similarity - 1e-5)  # rounding aside
    start = list_indptr[:-1].copy()  # of the rows after i in the list of a feature
    compared = np.full(group.size, -1, dtype=np.int32)  # the last row that a row was compared with
    for i in range(group.size):
        first, last = prefix_indptr[i], prefix_indptr[i + 1]
        for p in range(first, last):
            start[prefix_indices[p]] += 1  # the lists ascend: this is row i itself
        if group[i] >= 0:
            continue
        group[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = data[p]
        for p in range(first, last):
            f = prefix_indices[p]
            for q in range(start[f], min(start[f] + window, list_indptr[f + 1])):
                j = list_rows[q]
                if group[j] < 0 and compared[j] != i:
                    compared[j] = i  # f is the rarest that they share
                    if prefix_tail[p] * list_tail[q] < least:
                        continue
                    total = np.float32(0.0)
                    for e in range(indptr[j], indptr[j + 1]):
                        total += x[indices[e]] * data[e]
                    if total >= similarity:
                        group[j] = i
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = 0.0
