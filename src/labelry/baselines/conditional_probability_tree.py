"""Conditional probability trees: a binary tree that grows as labels appear."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck, check_at_least, check_positive
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.trees import Tree
from labelry.trees.search import beam_search
from labelry.trees.train import train_independent
from labelry.trees.weights import as_csr, check_tree

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]

_TABLE_BITS = 22  # hashed weights of the regressors while the tree grows
_RATE = np.float32(0.5)  # their step size
_LEFT, _RIGHT = 0, 1


class ConditionalProbabilityTree(LabelRanker):
    """A binary tree of logistic regressions; a leaf's probability is the product on its path.

    The tree grows online: the first row of a new label walks down, at each node to the side
    that the regressor prefers, or that has fewer leaves, and splits the leaf where it arrives.

    Parameters
    ----------
    balance : float
        The paper's alpha, above 0 and at most 1. Larger keeps the tree flatter; smaller follows
        the regressors more.
    C : float
        Weight of the losses against the regulariser; larger fits the training rows more closely.
    beam_width : int
        Nodes kept at each level while searching; 1 follows the more probable side only.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
        Seed for the order of the rows.
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

    Attributes
    ----------
    tree_ : Tree
    weights_ : NodeWeights

    Notes
    -----
    The regressors that grow the tree are online and share a table of hashed weights. When it is
    grown they have done their work: the final ones are trained to convergence on the tree as
    it then is, which is more accurate than the published online ones.

    References
    ----------
    Beygelzimer, Langford, Lifshits, Sorkin, Strehl: Conditional probability tree estimation
    analysis and algorithms, 2009.

    Examples
    --------
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> y = ["a", "a", "b", "b", "c", "c"]
    >>> ConditionalProbabilityTree(C=10.0).fit(X, y).predict(X[::2]).tolist()
    ['a', 'b', 'c']
    """

    system: ClassVar[str] = "conditional-probability-tree"
    probabilities: ClassVar[bool] = True

    def __init__(
        self,
        *,
        balance: float = 0.5,
        C: float = 10.0,
        beam_width: int = 1,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.balance = balance
        self.C = C
        self.beam_width = beam_width
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        X = scaled_rows(X) if self.normalize else X
        self.tree_ = grow_tree(X, Y, self.balance, rng)
        self.weights_ = train_independent(
            X,
            Y,
            self.tree_,
            loss="logistic",
            C=self.C,
            rng=rng,
            n_jobs=resolve_jobs(self.n_jobs),
        )

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        X = scaled_rows(X) if self.normalize else X
        options = {"beam_width": self.beam_width, "n_jobs": resolve_jobs(self.n_jobs)}
        labels, logs = beam_search(self.tree_, self.weights_, X, k, link="sigmoid", **options)
        return labels, np.where(labels < 0, -np.inf, np.exp(logs)).astype(np.float32)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check_tree(check, self.tree_, self.weights_, n_features, n_labels)

    def _check_parameters(self) -> None:
        if not 0 < self.balance <= 1:
            raise ValueError(f"balance must be above 0 and at most 1, got {self.balance}")
        check_positive("C", self.C)
        check_at_least("beam_width", self.beam_width, 1)


def grow_tree(X: Matrix, Y: csr_array, balance: float, rng: np.random.Generator) -> Tree:
    """The tree after one pass over the examples in random order.

    Labels without rows come last, and go where there are fewest leaves.
    """
    n_labels = Y.shape[1]
    if n_labels == 1:
        return Tree.from_parents([-1, 0], [-1, 0], 1)
    row = np.repeat(np.arange(Y.shape[0], dtype=np.int32), np.diff(Y.indptr))
    order = rng.permutation(len(row))
    unseen = np.setdiff1d(np.arange(n_labels), Y.indices).astype(np.int32)
    rows = np.concatenate([row[order], np.full(len(unseen), -1, dtype=np.int32)])
    labels = np.concatenate([Y.indices[order].astype(np.int32), unseen])
    children = np.full((2 * n_labels - 1, 2), -1, dtype=np.int32)
    parent = np.full(len(children), -1, dtype=np.int32)
    label = np.full(len(children), -1, dtype=np.int32)
    table = np.zeros(1 << _TABLE_BITS, dtype=np.float32)
    _grow(*as_csr(X), rows, labels, balance, table, children, parent, label)
    return Tree.from_parents(parent, label, n_labels)


@njit(nogil=True, cache=True, inline="always")
def _slot(node: int, feature: int, size: int) -> np.int64:
    return (np.int64(node) * 0x9E3779B1 + np.int64(feature) * 0x85EBCA6B) & (size - 1)


@njit(nogil=True, cache=True)
def _probability(indices: Ints, data: F32, p0: int, p1: int, table: F32, node: int) -> np.float32:
    """That the row belongs on the right of a node."""
    score = table[_slot(node, -1, table.size)]
    for p in range(p0, p1):
        score += data[p] * table[_slot(node, indices[p], table.size)]
    return np.float32(1.0) / (np.float32(1.0) + np.exp(-score))


@njit(nogil=True, cache=True)
def _grow(
    indptr: Ints,
    indices: Ints,
    data: F32,
    rows: I32,
    labels: I32,
    balance: float,
    table: F32,
    children: I32,
    parent: I32,
    label: I32,
) -> None:
    """Fill `children` (n_nodes, 2), `parent` and `label` of the nodes; node 0 is the root."""
    n_leaves = np.zeros(len(parent), dtype=np.int32)  # below each node
    leaf = np.full((len(parent) + 1) // 2, -1, dtype=np.int32)  # of each label
    label[0] = labels[0]
    leaf[labels[0]] = 0
    n_leaves[0] = 1
    n_nodes = 1
    for t in range(rows.size):
        i = rows[t]
        p0, p1 = (indptr[i], indptr[i + 1]) if i >= 0 else (0, 0)
        y = labels[t]
        if leaf[y] < 0:
            node = 0
            while label[node] < 0:
                n_leaves[node] += 1
                left, right = children[node, _LEFT], children[node, _RIGHT]
                p = _probability(indices, data, p0, p1, table, node)
                # Preference of the regressor against the balance of the leaves.
                preference = (1.0 - balance) * 2.0 * (p - 0.5)
                preference += balance * np.log2(n_leaves[left] / n_leaves[right])
                node = right if preference > 0 else left
            # The leaf becomes a node: its label goes left, the new one right.
            for side in range(2):
                child = n_nodes + side
                children[node, side] = child
                parent[child] = node
                n_leaves[child] = 1
                label[child] = label[node] if side == _LEFT else y
                leaf[label[child]] = child
            label[node] = -1
            n_leaves[node] = 2
            n_nodes += 2
        # One logistic step for each regressor on the path.
        node = leaf[y]
        while node > 0:
            up = parent[node]
            target = np.float32(node == children[up, _RIGHT])
            step = _RATE * (target - _probability(indices, data, p0, p1, table, up))
            table[_slot(up, -1, table.size)] += step
            for q in range(p0, p1):
                table[_slot(up, indices[q], table.size)] += step * data[q]
            node = up
