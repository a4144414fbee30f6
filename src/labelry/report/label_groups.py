"""Group the labels of a map where they lie densely, and name each group by its words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from labelry.arrays import F32, F64, I64, Ints
from labelry.data.function_words import FUNCTION_WORDS

MOST_GROUPS = 24  # most groups that are told apart; the page reuses its twelve colours
GREY = 255  # group of a label that lies in no group

# None of these is tuned; they were chosen by looking at maps.
_GRID = 128  # cells along each side of the map
_BLUR = 0.025  # least width of the blur of the density, as a share of the side of the map
_BLUR_OF_FEW = 0.7  # the blur of n labels is at least this over the square root of n
_EDGE = 0.1  # a group ends where the density is below this share of its peak
_FEWEST, _FEWEST_SHARE = 3, 0.005  # labels that a group needs, and their share of all labels
_LEAST_SHARE = 0.2  # share of a group's labels that have a word which may name the group


def dense_groups(
    points: F32, U: F32, counts: Ints, names: Sequence[str]
) -> tuple[NDArray[np.uint8], list[str]]:
    """Return the group of each label, and for each group the word or two that name it, or "".

    A group is a hill of the density of the `points` in the unit square. At most `MOST_GROUPS`
    hills become groups: those with many labels, similar vectors `U`, and a word that few others
    have, if there is such a word anywhere. The group with the most rows (`counts`) is 0. All other
    labels are `GREY`.
    """
    hill, inside = _hills(points)
    hill = np.where(inside, hill, hill.max() + 1)  # the last hill holds what lies between
    size = np.bincount(hill, minlength=hill.max() + 1)
    sums = _membership(hill, len(size)) @ U
    likeness = (sums**2).sum(axis=1) / np.maximum(size, 1) ** 2
    worth, words = _characteristic_words(hill, size, names)
    value = size * likeness * (worth if worth.any() else 1)
    value[size < max(_FEWEST, _FEWEST_SHARE * len(points))] = 0
    if not inside.all():
        value[-1] = 0
    best = np.argsort(-value, kind="stable")[:MOST_GROUPS]
    best = best[value[best] > 0]
    rows = np.bincount(hill, counts, len(size))[best]
    best = best[np.argsort(-rows, kind="stable")]
    group = np.full(len(size), GREY, dtype=np.uint8)
    group[best] = np.arange(len(best))
    return group[hill], [words[i] for i in best.tolist()]


def _hills(points: F32) -> tuple[I64, NDArray[np.bool_]]:
    """Return for each point the hill of density on which it lies, and whether it is near the top.

    From each cell of a grid one climbs to the densest of the cells around it until there is none
    that is denser: cells with the same summit are one hill.
    """
    cells = np.minimum((points * _GRID).astype(np.int64), _GRID - 1)
    cell = cells[:, 0] * _GRID + cells[:, 1]
    count = np.bincount(cell, minlength=_GRID**2).reshape(_GRID, _GRID).astype(np.float64)
    blur = max(_BLUR, _BLUR_OF_FEW / np.sqrt(len(points)))
    density = gaussian_filter(count, blur * _GRID, mode="constant")
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(density, 1, constant_values=-1), (3, 3)
    )
    step = around.reshape(_GRID, _GRID, 9).argmax(axis=2)
    row, column = np.indices(density.shape)
    summit = ((row + step // 3 - 1) * _GRID + column + step % 3 - 1).ravel()
    while not np.array_equal(further := summit[summit], summit):
        summit = further
    height = density.ravel()
    inside = height[cell] > _EDGE * height[summit[cell]]
    return np.unique(summit[cell], return_inverse=True)[1].astype(np.int64), inside


def _membership(hill: I64, n_hills: int) -> csr_array:
    """Return a matrix (n_hills, n_labels) with a 1 where a label is on a hill."""
    n = len(hill)
    one = np.ones(n, dtype=np.float32)
    return csr_array((one, (hill, np.arange(n))), shape=(n_hills, n))


def _characteristic_words(hill: I64, size: I64, names: Sequence[str]) -> tuple[F64, list[str]]:
    """Return for each hill its most characteristic word, and how characteristic that word is.

    A word, or two in a row, says p log(p / q), where p is the share of the labels of the hill that
    have it and q the share of the others: what it adds to the divergence of Kullback and Leibler. A
    word names one hill only.
    """
    worth, words = np.zeros(len(size)), [""] * len(size)
    letters = CountVectorizer(
        binary=True,
        ngram_range=(1, 2),
        stop_words=sorted(FUNCTION_WORDS),
        token_pattern=r"[^\W\d_]{2,}",
        min_df=min(2, len(names)),
        dtype=np.float32,
    )
    try:
        has = letters.fit_transform(names)
    except ValueError:  # no name has a word that another has
        return worth, words
    within = (_membership(hill, len(size)) @ has).tocoo()  # (n_hills, n_words)
    others = np.asarray(has.sum(axis=0)).ravel()[within.col] - within.data
    p = within.data / size[within.row]
    q = (others + 1) / (len(names) - size[within.row] + 2)
    said = np.where(p >= _LEAST_SHARE, p * np.log(p / q), 0)
    taken: set[int] = set()
    vocabulary = letters.get_feature_names_out()
    for i in np.argsort(-said, kind="stable").tolist():
        if said[i] <= 0:
            break
        at, word = int(within.row[i]), int(within.col[i])
        if not words[at] and word not in taken:
            taken.add(word)
            worth[at], words[at] = said[i], str(vocabulary[word]).capitalize()
    return worth, words
