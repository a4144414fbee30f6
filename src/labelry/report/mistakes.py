"""Count how often each label is right, and find the pairs of labels that a model confuses.

The best R predictions of each row count, where R is the number of its true labels, and at most the
number of ranked labels. So precision and recall of a row are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.metrics.labelwise import LabelCounts
from labelry.metrics.matching import Matched


class Confusion(NamedTuple):
    """A true label that was missed, and the wrong one that took its place.

    `rows` counts how often this happens, `of` the rows in which the first label is true, and `back`
    how often the two labels are confused the other way round.
    """

    true: int
    predicted: int
    rows: int
    of: int
    back: int


def first_r(truth: Matched) -> Matched:
    """Keep the best R predictions of each row; the others become -1."""
    kept = np.arange(truth.labels.shape[1]) < truth.n_true[:, None]
    return Matched(truth.Y, np.where(kept, truth.labels, -1), truth.hits & kept)


def label_counts(truth: Matched) -> LabelCounts:
    """Return for each label how often it is true, predicted, and both."""
    return LabelCounts(truth.n_labels).add(first_r(truth))


def confusions(truth: Matched, n_known: int, n: int) -> list[Confusion]:
    """Return the n pairs of labels that are confused most often.

    Each true label that is missed among the best R of its row is paired with the wrong label that
    is ranked highest there. Labels from `n_known` on, which the model never saw, are left out.
    """
    best = first_r(truth)
    wrong = (best.labels >= 0) & ~best.hits
    first = best.labels[np.arange(best.n_rows), wrong.argmax(axis=1)]
    rows, labels = best.true_rows, best.Y.indices
    any_wrong = np.asarray(wrong.any(axis=1))
    missed = ~_found(best) & any_wrong[rows] & (labels < n_known)
    width = np.int64(truth.n_labels)
    pairs, counts = np.unique(labels[missed] * width + first[rows[missed]], return_counts=True)
    n_true = np.bincount(labels, minlength=truth.n_labels)
    times = dict(zip(pairs.tolist(), counts.tolist(), strict=True))
    found = []
    shares = counts / n_true[pairs // width]
    for i in np.lexsort((-shares, -counts))[:n].tolist():
        true, predicted = divmod(int(pairs[i]), int(width))
        back = times.get(predicted * int(width) + true, 0)
        found.append(Confusion(true, predicted, int(counts[i]), int(n_true[true]), back))
    return found


def _found(best: Matched) -> NDArray[np.bool_]:
    """Return for each entry of Y whether it is among the predictions of its row."""
    width = np.int64(best.n_labels)
    keys = best.true_rows * width + best.Y.indices
    predicted = np.arange(best.n_rows)[:, None] * width + best.labels
    return np.isin(keys, predicted[best.hits])
