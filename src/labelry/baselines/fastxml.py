"""FastXML: an ensemble of trees over rows whose nodes optimise a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from labelry.baselines.fastxml_kernels import split_node
from labelry.checks import StoredCheck, check_at_least, check_positive
from labelry.decoders.neighbours import all_votes, vote
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs, stream
from labelry.progress import phase
from labelry.trees.row_trees import RowForest, join_trees
from labelry.trees.weights import as_csr, frozen

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]

_BLOCK_BYTES = 64 << 20  # leaves of queries held at a time
_NONE = np.empty(0, dtype=np.int32)
_LEAF = (0, _NONE, np.empty(0, dtype=np.float32), np.float32(0.0))  # as from split_node


class FastXML(LabelRanker):
    """Trees that split the rows so that each side has one good ranking of its labels.

    A node sends similar label sets to the same side: sides and rankings are chosen in turn to
    raise nDCG, and a sparse linear separator then learns the sides from the features. A leaf
    knows how often each label occurs on its rows; the trees are averaged. Choose it for fast
    prediction (one path per tree) and rows with many labels each.

    Scores are the mean shares of rows with a label in the leaves, between 0 and 1.

    Parameters
    ----------
    n_trees : int
        More are more accurate, and cost in proportion.
    max_leaf_size : int
        Most rows of a leaf; larger is a smaller and smoother model. Never more than a quarter of
        all rows. Rows that no separator can tell apart stay together in a larger leaf.
    max_leaf_labels : int
        Labels kept in a leaf, the most frequent ones; larger matters only if leaves have that many.
    C : float
        Weight of the separator's losses against its sparsity; larger uses more features.
    normalize : bool
        Scale each row of X to unit length first. The paper does not; smaller values of X then
        need a larger C for the same splits.
    random_state : int, optional
        Seed for the sides from which each node begins.
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

    Attributes
    ----------
    forest_ : RowForest
    leaf_labels_ : csr_array (n_nodes, n_labels)
        Share of the rows of a leaf that have a label; empty for inner nodes.

    Notes
    -----
    Time of a tree: its depth, times the nonzeros of Y for each round (a few) and those of X for
    each sweep (at most a hundred) at a node. Of a query: the weights on one path per tree.

    As the authors' program does, a node finds its separator once, when the sides have settled,
    and weighs the two sides equally. In addition, rows that all have the same labels are not split.

    References
    ----------
    Prabhu, Varma: FastXML: a fast, accurate and stable tree-classifier for extreme multi-label
    learning, 2014.

    Examples
    --------
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> FastXML().fit(X, ["a", "a", "b", "b", "c", "c"]).predict(X[::2]).tolist()
    ['a', 'b', 'c']
    """

    system: ClassVar[str] = "fastxml"

    def __init__(
        self,
        *,
        n_trees: int = 50,
        max_leaf_size: int = 10,
        max_leaf_labels: int = 100,
        C: float = 1.0,
        normalize: bool = False,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.max_leaf_size = max_leaf_size
        self.max_leaf_labels = max_leaf_labels
        self.C = C
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        data = _training_rows(scaled_rows(X) if self.normalize else X, Y)
        leaf_size = min(self.max_leaf_size, max(1, X.shape[0] // 4))
        tasks = ((data, leaf_size, self.C, generator) for generator in rng.spawn(self.n_trees))
        trees, members = [], []
        with phase("growing trees", self.n_trees, "trees") as advance:
            for tree, rows_of in stream(grow_tree, tasks, resolve_jobs(self.n_jobs)):
                trees.append(tree)
                members.append(rows_of)
                advance(1)
        self.forest_ = join_trees(trees)
        leaves = [label_shares(rows_of, Y, self.max_leaf_labels) for rows_of in members]
        self.leaf_labels_ = csr_array(vstack(leaves, format="csr"))

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        n_jobs = resolve_jobs(self.n_jobs)
        step = max(1, _BLOCK_BYTES // (8 * self.n_trees))
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            leaves, weights = self._leaves(X[rows])
            vote(leaves, weights, self.leaf_labels_, labels[rows], scores[rows], n_jobs)
        return labels, scores

    def _scores(self, X: Matrix) -> F32:
        return all_votes(*self._leaves(X), self.leaf_labels_)

    def _leaves(self, X: Matrix) -> tuple[I32, F32]:
        """The leaf of each row in each tree, and its weight in the mean."""
        X = scaled_rows(X) if self.normalize else X
        leaves = self.forest_.leaves(X, resolve_jobs(self.n_jobs))
        return leaves, np.full(leaves.shape, 1.0 / leaves.shape[1], dtype=np.float32)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.kind("forest_", self.forest_, RowForest)
        self.forest_.check_stored(check, n_features)
        check_at_least("trees", len(self.forest_.root), 1)
        check.sparse("leaf_labels_", self.leaf_labels_, len(self.forest_.left), n_labels)

    def _check_parameters(self) -> None:
        check_positive("C", self.C)
        for name in ("n_trees", "max_leaf_size", "max_leaf_labels"):
            check_at_least(name, getattr(self, name), 1)


class _TrainingRows(NamedTuple):
    """What all trees share."""

    X: tuple[Ints, Ints, F32]  # CSR
    Y: tuple[Ints, Ints]
    ideal: F64  # (n_rows,) I(y): one over the gain of a perfect ranking
    n_features: int
    n_labels: int


def _training_rows(X: Matrix, Y: csr_array) -> _TrainingRows:
    n_labels = np.diff(Y.indptr)
    gains = np.cumsum(1.0 / np.log(2.0 + np.arange(max(int(n_labels.max()), 1))))
    # A row without labels gains nothing on either side, whatever its scale.
    ideal = 1.0 / gains[np.maximum(n_labels, 1) - 1]
    y_indptr, y_indices, ideal = frozen(Y.indptr, Y.indices, ideal)
    return _TrainingRows(as_csr(X), (y_indptr, y_indices), ideal, X.shape[1], Y.shape[1])


def grow_tree(
    data: _TrainingRows, max_leaf_size: int, C: float, rng: np.random.Generator
) -> tuple[RowForest, csr_array]:
    """One tree, from random sides at each node, and the rows (n_nodes, n_rows) of its leaves."""
    n = len(data.ideal)
    rows = np.arange(n, dtype=np.int32)  # those of a node are consecutive
    slots = (
        np.full(data.n_features, -1, dtype=np.int32),
        np.full(data.n_labels, -1, dtype=np.int32),
    )
    spans, left, splits = [(0, n)], [], []
    for first, last in spans:  # which grows meanwhile: breadth first
        split = _LEAF
        if last - first > max_leaf_size:
            side = rng.integers(0, 2, size=last - first, dtype=np.int8)
            split = split_node(*data.X, *data.Y, data.ideal, C, rows[first:last], side, *slots)
        n_left = split[0]
        left.append(len(spans) if n_left else -1)
        splits.append(split)
        if n_left:
            spans += [(first, first + n_left), (first + n_left, last)]
    _, features, values, bias = zip(*splits, strict=True)
    tree = RowForest(
        np.zeros(1, dtype=np.int32),
        np.array(left, dtype=np.int32),
        _csr(features, np.concatenate(values), data.n_features),
        np.array(bias, dtype=np.float32),
    )
    members = [rows[a:b] if child < 0 else _NONE for (a, b), child in zip(spans, left, strict=True)]
    return tree, _csr(members, np.ones(n, dtype=np.float32), n)


def _csr(indices: Sequence[I32], values: F32, n_columns: int) -> csr_array:
    """A matrix from the column numbers of each row, and the values of all rows."""
    indptr = np.cumsum([0, *map(len, indices)], dtype=np.int32)
    return csr_array((values, np.concatenate(indices), indptr), shape=(len(indices), n_columns))


def label_shares(members: csr_array, Y: csr_array, most: int) -> csr_array:
    """The share of the rows of each set that have a label, (n_sets, n_labels).

    Keeps the `most` largest shares of a set; of equal ones those of smaller label numbers.
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
