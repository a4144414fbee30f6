"""Predicted labels against true ones: the hits that every measure counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from labelry.arrays import I64, Bools, Ints
from labelry.checks import refuse_masked
from labelry.linalg.matrices import check_sparse


@dataclass(frozen=True)
class Matched:
    """A block of rows whose predictions have been compared with the truth."""

    Y: csr_array  # (n, c), in canonical form and without explicit zeros
    labels: Ints  # (n, k), best first; -1 where there is none
    hits: Bools  # (n, k), which of these labels are true

    @property
    def n_rows(self) -> int:
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    @property
    def n_true(self) -> I64:
        """Return the number of true labels of each row."""
        return np.diff(self.Y.indptr).astype(np.int64)

    @property
    def true_rows(self) -> I64:
        """Return the row of each entry of Y."""
        return np.repeat(np.arange(self.n_rows), self.n_true)

    def first(self, k: int) -> Matched:
        """Return the same with the best `k` predictions only."""
        return Matched(self.Y, self.labels[:, :k], self.hits[:, :k])


def match(Y: Any, labels: ArrayLike) -> Matched:
    """Check the arguments and find the hits, in O(nnz + n k log nnz)."""
    Y = canonical(Y)
    n_rows, n_labels = Y.shape
    labels = _checked_labels(labels, n_rows, n_labels)
    # One key per (row, label); those of a canonical matrix ascend, so a search finds each.
    starts = np.arange(n_rows, dtype=np.int64) * n_labels
    true_keys = np.repeat(starts, np.diff(Y.indptr)) + Y.indices
    keys = starts[:, None] + labels
    place = np.searchsorted(true_keys, keys)
    return Matched(Y, labels, (np.append(true_keys, -1)[place] == keys) & (labels >= 0))


def canonical(Y: Any) -> csr_array:
    """Return `Y` as CSR with sorted, unique, nonzero entries; the argument is never changed."""
    refuse_masked("Y", Y)
    if issparse(Y):
        check_sparse(Y)
    Y = csr_array(Y)
    if Y.ndim != 2 or Y.shape[1] == 0:
        raise ValueError(f"Y must have shape (n, c) with at least one label; got {Y.shape}")
    if not (Y.has_canonical_format and Y.data.all()):
        Y = Y.copy()
        Y.sum_duplicates()
        Y.eliminate_zeros()
    return Y


def keep_above(labels: ArrayLike, scores: ArrayLike, threshold: float) -> Ints:
    """Return the labels whose score is at least `threshold`, and -1 in place of the others.

    >>> keep_above([[4, 2], [1, 3]], [[0.9, 0.4], [0.6, 0.5]], 0.5)
    array([[ 4, -1],
           [ 1,  3]])
    """
    labels = np.asarray(labels)
    return np.where(checked_scores(labels, scores) >= threshold, labels, -1)


def checked_scores(labels: Ints, scores: ArrayLike) -> NDArray[np.floating]:
    refuse_masked("scores", scores)
    scores = np.asarray(scores)
    if scores.shape != labels.shape:
        rule = f"the shape of labels, {labels.shape}"
        raise ValueError(f"scores must have {rule}; got shape {scores.shape}")
    return scores


def check_cutoff(k: int, labels: Ints) -> None:
    if not 1 <= k <= labels.shape[1]:
        rule = f"between 1 and {labels.shape[1]}, the number of predicted places"
        raise ValueError(f"k must be {rule}; got {k}")


def _checked_labels(labels: ArrayLike, n_rows: int, n_labels: int) -> Ints:
    refuse_masked("labels", labels)
    labels = np.asarray(labels)
    if labels.ndim != 2 or len(labels) != n_rows:
        rule = f"shape ({n_rows}, k), a row for each row of Y"
        raise ValueError(f"labels must have {rule}; got shape {labels.shape}")
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be integers; got dtype {labels.dtype}")
    if labels.size and not (labels.min() >= -1 and labels.max() < n_labels):
        wrong = labels.max() if labels.min() >= -1 else labels.min()
        raise ValueError(f"labels must be between -1 and {n_labels - 1}; got {wrong}")
    # A label that is predicted twice in a row would be counted twice.
    ordered = np.sort(labels, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row, place = np.argwhere(twice)[0]
        got = f"label {ordered[row, place]} more than once in row {row}"
        raise ValueError(f"labels must not repeat within a row; got {got}")
    return labels
