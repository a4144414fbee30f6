"""The statistics of a dataset that people quote."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelry.data.dataset import Dataset, Features
from labelry.data.shards import Shards
from labelry.memory import check_fits

_LABEL_BYTES = 40  # of counts of a label, and of sorting them
TAIL_ROWS = 5  # a label with at most so many rows is a tail label


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of a dataset; those of features or texts are None where there are none."""

    n_rows: int
    n_features: int | None
    n_labels: int
    labels_per_row_mean: float
    labels_per_row_max: int
    rows_per_label_mean: float  # over all labels, those without rows too
    rows_per_label_median: float
    rows_per_label_max: int
    labels_without_rows: int
    rows_without_labels: int
    rows_without_features: int | None  # a row of zeros has no features
    tail_label_share: float  # of the labels: those with at most TAIL_ROWS rows
    tail_occurrence_share: float  # of these labels in all label occurrences
    features_per_row_mean: float | None  # nonzero features
    density: float | None  # nonzero features as a share of all features
    words_per_document_mean: float | None  # words are separated by whitespace
    words_per_document_max: int | None
    label_frequencies: NDArray[np.int64]  # rows of each label, descending

    def to_dict(self) -> dict[str, Any]:
        """Return all statistics as plain numbers and lists, for JSON."""
        return asdict(self) | {"label_frequencies": self.label_frequencies.tolist()}


def describe(dataset: Dataset | Shards) -> Statistics:
    """Compute the statistics of a dataset, in one pass over its nonzeros, one shard at a time.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> stats = describe(Dataset(csr_array([[1, 0, 1], [0, 0, 1]]), texts=["a b", "c"]))
    >>> stats.labels_per_row_mean, stats.words_per_document_mean, stats.label_frequencies
    (1.5, 1.5, array([2, 1, 0]))
    """
    n_labels = dataset.n_labels
    check_fits(
        _LABEL_BYTES * n_labels,
        f"counting rows of {n_labels:,} labels",
        "number labels without gaps",
    )
    rows = np.zeros(n_labels, dtype=np.int64)
    of_labels, of_features, of_words = [], [], []  # of each row of a part
    for part in dataset.datasets():
        rows += np.bincount(part.Y.indices[part.Y.data != 0], minlength=dataset.n_labels)
        of_labels.append(_nonzeros_per_row(part.Y))
        if part.X is not None:
            of_features.append(_nonzeros_per_row(part.X))
        if part.texts is not None:
            of_words.append(np.array([len(text.split()) for text in part.texts]))
    labels = np.concatenate(of_labels)
    features, words = (
        np.concatenate(found) if found else None for found in (of_features, of_words)
    )
    n_cells = dataset.n_rows * (dataset.n_features or 0)
    rows = np.sort(rows)[::-1]
    tail = rows[rows <= TAIL_ROWS]
    return Statistics(
        n_rows=dataset.n_rows,
        n_features=dataset.n_features,
        n_labels=dataset.n_labels,
        labels_per_row_mean=_mean(labels, len(labels)),
        labels_per_row_max=int(labels.max(initial=0)),
        rows_per_label_mean=_mean(rows, len(rows)),
        rows_per_label_median=float(np.median(rows)) if len(rows) else 0.0,
        rows_per_label_max=int(rows.max(initial=0)),
        labels_without_rows=int(np.sum(rows == 0)),
        rows_without_labels=int(np.sum(labels == 0)),
        rows_without_features=None if features is None else int(np.sum(features == 0)),
        tail_label_share=len(tail) / len(rows) if len(rows) else 0.0,
        tail_occurrence_share=_mean(tail, rows.sum()),
        features_per_row_mean=None if features is None else _mean(features, len(features)),
        density=None if features is None else _mean(features, n_cells),
        words_per_document_mean=None if words is None else _mean(words, len(words)),
        words_per_document_max=None if words is None else int(words.max(initial=0)),
        label_frequencies=rows,
    )


def _nonzeros_per_row(A: Features) -> NDArray[np.int64]:
    """Count the nonzeros of each row; a stored zero is none."""
    if isinstance(A, np.ndarray):
        return np.count_nonzero(A, axis=1)
    if not A.data.all():
        A = A.copy()
        A.eliminate_zeros()
    return np.diff(A.indptr)


def _mean(values: NDArray[np.int64], number: Any) -> float:
    """Return the sum of values divided by a count; 0 if the count is 0."""
    return float(values.sum()) / float(number) if number else 0.0
