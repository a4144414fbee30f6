"""Hold rows out: every validation split and every fold is drawn here.

If training data holds near-duplicates (packages of one source, pages of one template), a random
split leaks: models that memorise rows look too good. So whole groups are held out.

- `validation_split` and `folds` are for a choice inside of one method, such as an epoch or a
  dimension. They hold out whole groups if ``rows.known.groups`` are given, and rows otherwise.
- `hold_out` is for probabilities, re-rankers and tuning, which compare methods. If no groups are
  given, it takes rows with a large cosine as a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.arrays import I32, Bools, Ints, Rng
from labelry.data.labels import label_counts
from labelry.linalg.rows import Rows
from labelry.progress import phase
from labelry.ranking.near_duplicates import drawn_near_duplicates, first_that_fit

# Rows of a group that probabilities are calibrated on. All rows of a large group, which are all
# right or all wrong, would bend the curve; with one row, groups would count too little. Not tuned.
CALIBRATED_OF_GROUP = 10
# Share of lost labels above which new rows may resemble the training rows more. Not tuned.
FEW_LOST = 0.2
_HALF = 0.5  # share of lost labels above which the rows are a list of labels; not tuned


class Split(NamedTuple):
    """Numbers of the rows to train on and of those that are held out."""

    training: Ints
    held_out: Ints

    @property
    def is_held_out(self) -> Bools:
        """Return which rows are held out, (n_rows,)."""
        mask = np.zeros(len(self.training) + len(self.held_out), dtype=bool)
        mask[self.held_out] = True
        return mask


def validation_split(
    n_rows: int, n_wanted: int, rng: Rng, *, groups: Ints | None = None, among: Ints | None = None
) -> Split:
    """Hold out `n_wanted` random rows, or whole groups of about as many rows together.

    If each group is larger than `n_wanted`, one of the smallest is held out; a ValueError if it
    has more than half of the rows. Without groups, `among` are the rows that may be held out.

    >>> rng = np.random.default_rng(0)
    >>> split = validation_split(6, 2, rng, groups=np.array([0, 0, 0, 1, 0, 1]))
    >>> sorted(split.held_out.tolist())
    [3, 5]
    """
    if groups is not None:
        held_out = drawn_groups(groups, n_wanted, n_rows // 2, rng) >= 0
        return Split(*(rng.permutation(np.flatnonzero(part)) for part in (~held_out, held_out)))
    if among is not None:
        drawn = rng.choice(among, n_wanted, replace=False)
        return Split(np.setdiff1d(np.arange(n_rows), drawn), drawn)
    order = rng.permutation(n_rows)
    return Split(order[n_wanted:], order[:n_wanted])


def folds(n_rows: int, n_folds: int, rng: Rng, *, groups: Ints | None = None) -> list[Split]:
    """Return splits that hold out each row once; rows of a group are in one fold.

    There are fewer folds if there are fewer rows or groups; a ValueError if there is only one.

    >>> splits = folds(5, 3, np.random.default_rng(0), groups=np.array([4, 4, 7, 9, 7]))
    >>> [split.held_out.tolist() for split in splits]
    [[2, 4], [3], [0, 1]]
    """
    group = np.arange(n_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_groups = int(group.max(initial=-1)) + 1
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2, got {n_folds}")
    if n_groups < 2:
        what = "rows" if groups is None else "groups of rows"
        raise ValueError(f"out-of-fold scores need at least 2 {what}, got {n_groups}")
    fold = (rng.permutation(n_groups) % n_folds)[group]
    return [
        Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f))
        for f in range(min(n_folds, n_groups))
    ]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that are held out from a fit."""

    groups: I32  # (n_rows,) number of one row of the group; -1 for rows that are not held out
    chosen: NDArray[np.intp]  # (n_unseen,) numbers of the first rows of each group
    unseen: Rows  # these rows, in memory
    counts: I32  # (n_labels,) rows of each label that are held out
    lost: float  # share of the labels of the rows that were drawn; see `lost_share`

    @property
    def seen(self) -> Bools:
        """Return which rows are not held out, (n_rows,)."""
        return self.groups < 0


def hold_out(
    rows: Rows,
    n_wanted: int,
    most: int,
    similarity: float,
    rng: Rng,
    *,
    of_group: int = CALIBRATED_OF_GROUP,
    keep_labels: bool = True,
) -> HeldOut:
    """Draw about `n_wanted` of the rows, which have unit length, in whole groups.

    If ``rows.known.groups`` are given, these are the groups. If each of them is larger than
    `n_wanted`, one group is held out, of at most `most` rows. Otherwise a group is rows whose
    cosine is at least `similarity`; in streamed rows these are found within a block. `unseen` has
    `of_group` rows of each group (`few_of_groups`). With `keep_labels`, rows whose labels would be
    lost are not held out if these are most labels (`without_lost_labels`).
    """
    if rows.known.groups is not None:
        groups = drawn_groups(rows.known.groups, n_wanted, most, rng)
    else:
        with phase("looking for near-duplicates"):
            groups = drawn_near_duplicates(rows, similarity, n_wanted, rng)
    drawn = groups >= 0
    X, Y = rows.only(drawn).gathered("X", "Y")
    lost = lost_share(Y, rows.label_counts())
    if keep_labels:
        groups = without_lost_labels(groups, Y, rows.label_counts())
    mine = groups[drawn]
    few = few_of_groups(mine, of_group)
    unseen = Rows(X[few], Y[few], n_jobs=rows.n_jobs)
    counts = label_counts(Y[np.flatnonzero(mine >= 0)])
    return HeldOut(groups, np.flatnonzero(drawn)[few], unseen, counts, lost)


def drawn_groups(groups: Ints, n_wanted: int, most: int, rng: Rng) -> I32:
    """Return some of the given groups (n_rows,), as `drawn_near_duplicates` does.

    If all are larger than `n_wanted`, one of at most `most` rows is taken; a ValueError if there is
    none.

    >>> drawn_groups(np.array([0, 0, 0, 1, 0, 2]), 2, 3, np.random.default_rng(0)).tolist()
    [-1, -1, -1, 3, -1, 5]
    """
    first, group, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )[1:]
    smallest = int(sizes.min(initial=len(groups)))
    if n_wanted and smallest > most:
        raise ValueError(
            f"groups must be such that some of the {len(groups):,} rows can be held out, at most "
            f"{most:,}; the smallest group has {smallest:,}"
        )
    order = rng.permutation(len(sizes))
    fits = np.zeros(len(sizes), dtype=bool)
    fits[order] = first_that_fit(sizes[order], max(n_wanted, smallest) if n_wanted else 0)
    return np.where(fits, first, -1)[group].astype(np.int32)


def few_of_groups(groups: I32, most: int = 1) -> NDArray[np.intp]:
    """Return the numbers of the first `most` rows of each group, of rows that are held out.

    If groups are larger on average, that many rows are taken. Only the first row of a group of
    near-duplicates is certain to have none among the other rows.

    >>> few_of_groups(np.array([-1, 1, 1, 1, -1, 5, 6])).tolist()
    [1, 5, 6]
    >>> few_of_groups(np.array([-1, 1, 1, 1, -1, 5])).tolist()
    [1, 2, 5]
    """
    held_out = np.flatnonzero(groups >= 0)
    order = held_out[np.argsort(groups[held_out], kind="stable")]
    place = np.arange(len(order)) - np.searchsorted(groups[order], groups[order])
    n_groups = max(int(np.count_nonzero(place == 0)), 1)
    return np.sort(order[place < max(most, len(order) // n_groups)])


def lost_share(Y: csr_array, counts: Ints) -> float:
    """Return the share of the labels of rows to hold out that are lost: no other row has them.

    `Y` are the labels of these rows, and `counts` the rows of each label, these and the others.

    >>> lost_share(csr_array([[1, 1], [1, 0]]), np.array([7, 1]))
    0.3333333333333333
    """
    lost = label_counts(Y) == counts
    return float(lost[Y.indices].sum() / max(Y.nnz, 1))


def without_lost_labels(groups: I32, Y: csr_array, counts: Ints) -> I32:
    """Return the groups of rows to hold out without those that have a label of no other row.

    But all groups are returned unless most of their labels would be lost. New rows have labels
    without training rows, and so have rows that are held out. If more than half of their labels are
    lost, the training rows are a list of labels and no sample of rows: new rows will have labels of
    the list. `Y` and `counts` are those of `lost_share`.

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
