"""FastXML: an ensemble of trees over rows whose nodes optimise a ranking.

With delta_i the side of row i (0 left, 1 right; -1 and +1 in the paper) and r the rankings of the
labels on the two sides, the split of a node minimises

    ||w||_1 + sum_i C_delta log(1 + exp(-delta_i w'x_i)) - sum_i nDCG(r of the side of i, y_i)

over delta and r in turn, from random sides, and then over w. nDCG(r, y) is I(y) times the sum of
1 / log(1 + rank) over the labels of y, and I(y) makes it 1 for a perfect ranking.

Prabhu, Varma: FastXML: a fast, accurate and stable tree-classifier for extreme multi-label
learning, 2014.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array, vstack

from labelry.arrays import F32, F64, I8, I32, Ints, Rng
from labelry.checks import StoredCheck
from labelry.linalg.kernels import Csr, local_columns
from labelry.linalg.l1_logistic import Problem, l1_logistic
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import stream
from labelry.linalg.rows import Rows, in_memory
from labelry.parameters import Between, Settings, param, settings
from labelry.progress import counted
from labelry.ranking.shares import SharesRanker
from labelry.storage.values import Sizes
from labelry.trees.row_trees import RowForest, join_trees, matrix_of_lists
from labelry.trees.weights import as_csr, frozen

_BLOCK_BYTES = 64 << 20  # bytes of leaves and their weights that a query holds; not tuned
_FEWEST_LEAVES = 4  # least leaves of a tree, whatever `max_leaf_size` is; not tuned
_MOST_ROUNDS = 100  # most rounds of ranking and choosing sides; a few dozen are usual
_TOLERANCE = 0.01  # tolerance of a separator, relative to the subgradients at zero; not tuned
_NEWTON_STEPS = 10  # most Newton steps of a separator; not tuned
_SWEEPS = 10  # most sweeps over the features in a Newton step; not tuned
_NONE = np.empty(0, dtype=np.int32)
_LEAF = (0, _NONE, np.empty(0, dtype=np.float32), np.float32(0.0))  # `split_node` without split


@settings
class FastXMLSettings(Settings):
    """How to grow trees over rows."""

    n_trees: int = param(
        default=50,
        least=1,
        help="Trees whose scores are averaged. More are more accurate, and cost in proportion.",
        tune=Between(20, 100, log=True),
    )
    max_leaf_size: int = param(
        default=10,
        least=1,
        help="Most rows of a leaf. Larger is a smaller and smoother model. Never more than a "
        "quarter of all rows. Rows that no separator can tell apart stay together in a larger "
        "leaf.",
        tune=Between(5, 50, log=True),
    )
    max_leaf_labels: int = param(
        default=100,
        least=1,
        help="Labels kept in a leaf, the most frequent ones. Larger matters only if leaves have "
        "that many.",
    )
    C: float = param(
        default=1.0,
        above=0,
        help="Weight of the separator's losses against its sparsity. Larger uses more features.",
        tune=Between(0.1, 30.0, log=True),
    )
    normalize: bool = param(
        default=False,
        help="Scale each row of X to unit length first. The paper does not; smaller values of X "
        "then need a larger C for the same splits.",
    )


@dataclass(frozen=True, eq=False)
class LeafShares(SharesRanker):
    """Trees over rows, and how frequent each label is in their leaves.

    The score of a label is its mean share in the leaves that a row reaches, between 0 and 1.
    """

    forest: Annotated[RowForest, Sizes(n_nodes="n_nodes")]
    # Share of the rows of a leaf that have a label; empty for inner nodes.
    labels: Annotated[csr_array, "n_nodes", "n_labels"]
    normalize: bool

    def nearest(self, X: Matrix, n_jobs: int) -> Iterator[tuple[slice, I32, F32]]:
        """Yield blocks of rows with their leaf in each tree, and the weight of it in the mean."""
        step = max(1, _BLOCK_BYTES // (8 * len(self.forest.root)))
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            part = scaled_rows(X[rows]) if self.normalize else X[rows]
            leaves = self.forest.leaves(part, n_jobs)
            yield rows, leaves, np.full(leaves.shape, 1.0 / leaves.shape[1], dtype=np.float32)

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless there are trees."""
        if len(self.forest.root) == 0:
            raise ValueError("forest must have at least 1 tree, got 0")


def fit_fastxml(rows: Rows, settings: FastXMLSettings, rng: Rng) -> LeafShares:
    """Grow trees from different random sides, and count the labels in their leaves."""
    X, Y = in_memory(rows, "fastxml")
    data = training_rows(scaled_rows(X) if settings.normalize else X, Y)
    leaf_size = min(settings.max_leaf_size, max(1, X.shape[0] // _FEWEST_LEAVES))
    tasks = ((data, leaf_size, settings.C, own) for own in rng.spawn(settings.n_trees))
    grown = stream(grow_row_tree, tasks, rows.n_jobs)
    found = counted(grown, "growing trees", settings.n_trees, "trees")
    trees, members = zip(*found, strict=True)
    shares = [label_shares(rows_of, Y, settings.max_leaf_labels) for rows_of in members]
    labels = csr_array(vstack(shares, format="csr"))
    return LeafShares(join_trees(trees), labels, settings.normalize)


class TrainingRows(NamedTuple):
    """Rows as the kernels take them; all trees share one."""

    X: Csr
    Y: tuple[Ints, Ints]  # indptr and indices
    ideal: F64  # I(y) of each row: one over the gain of a perfect ranking
    n_features: int
    n_labels: int


def training_rows(X: Matrix, Y: csr_array) -> TrainingRows:
    """Return rows as the kernels take them."""
    n_labels = np.diff(Y.indptr)
    gains = np.cumsum(1.0 / np.log(2.0 + np.arange(max(int(n_labels.max()), 1))))
    # A row without labels gains nothing on either side, whatever its scale.
    ideal = 1.0 / gains[np.maximum(n_labels, 1) - 1]
    y_indptr, y_indices, ideal = frozen(Y.indptr, Y.indices, ideal)
    return TrainingRows(as_csr(X), (y_indptr, y_indices), ideal, X.shape[1], Y.shape[1])


def grow_row_tree(
    data: TrainingRows, max_leaf_size: int, C: float, rng: Rng
) -> tuple[RowForest, csr_array]:
    """Grow one tree, from random sides at each node.

    Returns the tree, and 1 for each row in a leaf, (n_nodes, n_rows).
    """
    n = len(data.ideal)
    rows = np.arange(n, dtype=np.int32)  # those of a node are consecutive
    slots = [np.full(size, -1, dtype=np.int32) for size in (data.n_features, data.n_labels)]
    spans, left, splits = [(0, n)], [], []
    for first, last in spans:  # the list grows while it is read: breadth first
        split = _LEAF
        if last - first > max_leaf_size:
            side = rng.integers(0, 2, size=last - first, dtype=np.int8)
            split = split_node(data, C, rows[first:last], side, *slots)
        n_left = split[0]
        left.append(len(spans) if n_left else -1)
        splits.append(split)
        if n_left:
            spans += [(first, first + n_left), (first + n_left, last)]
    _, features, values, bias = zip(*splits, strict=True)
    tree = RowForest(
        np.zeros(1, dtype=np.int32),
        np.array(left, dtype=np.int32),
        matrix_of_lists(features, np.concatenate(values), data.n_features),
        np.array(bias, dtype=np.float32),
    )
    members = [rows[a:b] if child < 0 else _NONE for (a, b), child in zip(spans, left, strict=True)]
    return tree, matrix_of_lists(members, np.ones(n, dtype=np.float32), n)


def label_shares(members: csr_array, Y: csr_array, most: int) -> csr_array:
    """Return the share of the rows of each set that have a label, (n_sets, n_labels).

    Only the `most` largest shares of a set are kept; of equal ones those of smaller numbers.
    """
    counts = csr_array(members @ Y)
    counts.sort_indices()
    sets = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    order = np.lexsort((-counts.data, sets))  # within each set the most frequent first
    place = np.arange(counts.nnz) - counts.indptr[sets]
    kept = np.sort(order[place < most])
    shares = counts.data[kept] / np.diff(members.indptr)[sets[kept]]
    indptr = np.searchsorted(sets[kept], np.arange(counts.shape[0] + 1)).astype(np.int32)
    return csr_array((shares.astype(np.float32), counts.indices[kept], indptr), shape=counts.shape)


@njit(nogil=True, cache=True)
def split_node(
    data: TrainingRows, C: float, rows: I32, side: I8, x_slot: I32, y_slot: I32
) -> tuple[int, I32, F32, np.float32]:
    """Split the rows of a node; return the number of rows on the left, features, weights, bias.

    Reorders `rows` so that the left ones come first. `side` holds the random sides to begin with.
    The number is 0 where there is no split: all rows have the same labels, or all are on one side.
    The slots (n_features,) and (n_labels,) are scratch, and hold -1 before and after.
    """
    none = (0, np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32), np.float32(0.0))
    y_ptr, y_local, labels = local_columns(data.Y[0], data.Y[1], rows, y_slot)
    if y_local.size == labels.size * rows.size:  # every row has every label
        return none
    choose_sides(y_ptr, y_local, labels.size, data.ideal[rows], side)
    n_right = 0
    for s in side:
        n_right += s
    if n_right == 0 or n_right == rows.size:
        return none
    x_ptr, x_local, features = local_columns(data.X.indptr, data.X.indices, rows, x_slot)
    columns = _by_column(x_ptr, x_local, data.X, rows, features.size)
    w, margins = _separator(columns, side, n_right, C)
    right = margins > 0.0
    n_left = int(rows.size - np.count_nonzero(right))
    if n_left == 0 or n_left == rows.size:
        return none
    rows[:] = np.concatenate((rows[~right], rows[right]))
    kept = np.flatnonzero(w[: features.size])
    return n_left, features[kept], w[kept].astype(np.float32), np.float32(w[-1])


@njit(nogil=True, cache=True)
def choose_sides(ptr: Ints, labels: Ints, n_labels: int, ideal: F64, side: I8) -> int:
    """Improve the sides of the rows until no row changes; return the number of rounds.

    Alternates two closed forms: the ranking of each side that is best for its rows, and the side
    of each row whose ranking is better for it (on a draw it stays). nDCG never falls.
    """
    gain = np.empty((2, n_labels))
    for round_ in range(_MOST_ROUNDS):
        rank_sides(ptr, labels, ideal, side, gain)
        changed = False
        for i in range(side.size):
            # This is v- - v+ of the paper, up to I(y) > 0: the log losses cancel because w = 0.
            better = 0.0
            for p in range(ptr[i], ptr[i + 1]):
                better += gain[1, labels[p]] - gain[0, labels[p]]
            if (better > 0.0 and side[i] == 0) or (better < 0.0 and side[i] == 1):
                side[i] = 1 - side[i]
                changed = True
        if not changed:
            return round_ + 1
    return _MOST_ROUNDS


@njit(nogil=True, cache=True)
def rank_sides(ptr: Ints, labels: Ints, ideal: F64, side: I8, gain: F64) -> None:
    """Fill in ``gain[s, l] = 1 / log(1 + r)``, where r = 1, 2, ... ranks label l on side s.

    Labels are ranked by the sum of I(y_i) y_i over the rows of the side. Labels without rows there
    come last. They still have a gain, because otherwise a label could hardly change its side.
    """
    gain[:] = 0.0
    for i in range(side.size):
        for p in range(ptr[i], ptr[i + 1]):
            gain[side[i], labels[p]] += ideal[i]
    for s in range(2):
        order = np.argsort(-gain[s], kind="mergesort")
        for r in range(order.size):
            gain[s, order[r]] = 1.0 / np.log(2.0 + r)


@njit(nogil=True, cache=True)
def _by_column(ptr: Ints, local: I32, X: Csr, rows: I32, n_columns: int) -> Csr:
    """Return the columns of the local rows, and a last column of ones: the constant feature."""
    indptr, _, data = X
    starts = np.zeros(n_columns + 2, dtype=np.int64)
    for j in local:
        starts[j + 1] += 1
    starts[n_columns + 1] = rows.size
    for j in range(n_columns + 1):
        starts[j + 1] += starts[j]
    place = starts.copy()
    members = np.empty(starts[-1], dtype=np.int32)
    values = np.ones(starts[-1], dtype=np.float32)
    for t in range(rows.size):
        for p in range(ptr[t], ptr[t + 1]):
            q = place[local[p]]
            place[local[p]] += 1
            members[q] = t
            values[q] = data[indptr[rows[t]] + p - ptr[t]]
        members[starts[n_columns] + t] = t
    return Csr(starts, members, values)


@njit(nogil=True, cache=True)
def _separator(columns: Csr, side: I8, n_right: int, C: float) -> tuple[F64, F64]:
    """Return the sparse separator of the two sides, and the margin of each row."""
    signs, costs = np.empty(side.size, dtype=np.int8), np.empty(side.size)
    for i in range(side.size):
        signs[i] = 1 if side[i] == 1 else -1
        # C_delta gives both sides equal weight, so that the smaller one is not ignored.
        costs[i] = C * side.size / (n_right if side[i] == 1 else side.size - n_right)
    w, margins = np.zeros(columns.indptr.size - 1), np.zeros(side.size)
    problem = Problem(columns, signs, costs)
    l1_logistic(problem, w, margins, _TOLERANCE, _NEWTON_STEPS, _SWEEPS)
    return w, margins
