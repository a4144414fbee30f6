"""Measures that count for each label: F1 and coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from labelry.metrics.matching import Matched, canonical, check_cutoff, match


class LabelCounts:
    """How often each label is true, predicted, and both; blocks of rows are added one by one."""

    def __init__(self, n_labels: int) -> None:
        self.true, self.predicted, self.both = np.zeros((3, n_labels), dtype=np.int64)

    def add(self, block: Matched) -> LabelCounts:
        labels = block.labels
        return self.count(block.Y.indices, labels[labels >= 0], labels[block.hits])

    def count(self, true: NDArray[Any], predicted: NDArray[Any], both: NDArray[Any]) -> LabelCounts:
        """Count labels, one for each pair of row and label."""
        # In place: a bincount would fill an array of all labels for each block.
        np.add.at(self.true, true, 1)
        np.add.at(self.predicted, predicted, 1)
        np.add.at(self.both, both, 1)
        return self

    def micro_f1(self) -> float:
        """Return F1 over all pairs of row and label; nan if none is true or predicted."""
        total = self.true.sum() + self.predicted.sum()
        return float(2 * self.both.sum() / total) if total else float("nan")

    def macro_f1(self) -> float:
        """Return the mean F1 of all labels; it is 0 for one that is neither true nor predicted."""
        return float(np.mean(2 * self.both / np.maximum(self.true + self.predicted, 1)))

    def coverage(self) -> float:
        """Return the share of the labels on at least one row that were found on at least one."""
        n_true = np.count_nonzero(self.true)
        return np.count_nonzero(self.both) / n_true if n_true else float("nan")


def micro_f1_at_k(Y: Any, labels: ArrayLike, k: int) -> float:
    """Return F1 over all pairs of row and label if the best `k` of each row are predicted.

    For a threshold on top-k scores give ``keep_above(labels, scores, threshold)``.

    >>> micro_f1_at_k([[1, 0, 1], [0, 1, 0]], [[0, 1], [1, 0]], k=1)
    0.8
    """
    return _counts_at_k(Y, labels, k).micro_f1()


def macro_f1_at_k(Y: Any, labels: ArrayLike, k: int) -> float:
    """Return F1 of each label if the best `k` of each row are predicted, averaged over labels.

    A column of Y that is neither true nor predicted anywhere counts 0, as in scikit-learn.
    (napkinXC leaves out such columns after the last label it met.)
    """
    return _counts_at_k(Y, labels, k).macro_f1()


def micro_f1(Y: Any, scores: Any, threshold: float = 0.5) -> float:
    """Return F1 over all pairs of row and label if scores from `threshold` on are predictions.

    `scores` (n, c) are sparse: what is not stored is not predicted.
    """
    return _counts_above(Y, scores, threshold).micro_f1()


def macro_f1(Y: Any, scores: Any, threshold: float = 0.5) -> float:
    """Return F1 of each label, averaged as in `macro_f1_at_k`; arguments as in `micro_f1`."""
    return _counts_above(Y, scores, threshold).macro_f1()


def coverage_at_k(Y: Any, labels: ArrayLike, k: int) -> float:
    """Return the share of the labels on at least one row that are a hit in some top k."""
    return _counts_at_k(Y, labels, k).coverage()


def _counts_at_k(Y: Any, labels: ArrayLike, k: int) -> LabelCounts:
    block = match(Y, labels)
    check_cutoff(k, block.labels)
    return LabelCounts(block.n_labels).add(block.first(k))


def _counts_above(Y: Any, scores: Any, threshold: float) -> LabelCounts:
    Y, scores = canonical(Y), csr_array(scores, copy=True)
    if scores.shape != Y.shape:
        raise ValueError(f"scores must have the shape of Y, {Y.shape}; got {scores.shape}")
    scores.sum_duplicates()
    scores.data = scores.data >= threshold
    scores.eliminate_zeros()
    both = (Y != 0).multiply(scores).tocsr()
    return LabelCounts(Y.shape[1]).count(Y.indices, scores.indices, both.indices)
