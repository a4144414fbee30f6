"""Conditional probability trees: a binary tree that grows as labels appear.

Beygelzimer, Langford, Lifshits, Sorkin, Strehl: Conditional probability tree estimation analysis
and algorithms, 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelry.arrays import F32, I32, Ints, Rng
from labelry.linalg.kernels import Csr
from labelry.linalg.matrices import Matrix
from labelry.linalg.rows import Rows, in_memory
from labelry.parameters import Between, param, settings
from labelry.trees.node_predictors import BinaryTreeSettings, NodePredictors, loss_weight, scaled
from labelry.trees.structure import Tree
from labelry.trees.train import train_independent
from labelry.trees.weights import as_csr

_TABLE_BITS = 22  # bits of the place of a hashed weight while the tree grows: 16 MB; not tuned
_RATE = np.float32(0.5)  # step size of the regressors while the tree grows; not tuned
_LEFT, _RIGHT = 0, 1  # columns of `children`


@settings
class ConditionalProbabilityTreeSettings(BinaryTreeSettings):
    """How to grow a binary tree of labels, and to train its regressors."""

    balance: float = param(
        default=0.5,
        above=0,
        most=1,
        help="The paper's alpha. Larger keeps the tree flatter; smaller follows the regressors "
        "more.",
        tune=Between(0.1, 1.0),
    )
    C: float = loss_weight(10.0, 1.0, 100.0)


@dataclass(frozen=True, eq=False)
class ConditionalProbabilities(NodePredictors):
    """A binary tree of logistic regressions; a label's probability is the product on its path."""

    @property
    def probabilities(self) -> bool:
        return True


def fit_conditional_probability_tree(
    rows: Rows, settings: ConditionalProbabilityTreeSettings, rng: Rng
) -> ConditionalProbabilities:
    """Grow a tree in one pass over the rows, and train its regressors to convergence."""
    X, Y = in_memory(rows, "conditional-probability-tree")
    X = scaled(X, settings.normalize)
    tree = grow_label_tree(X, Y, settings.balance, rng)
    how = {"loss": "logistic", "C": settings.C, "n_jobs": rows.n_jobs}
    weights = train_independent(X, Y, tree, rng=rng, **how)
    fixed = (rows.n_features, settings.beam_width, settings.normalize)
    return ConditionalProbabilities(tree, weights, *fixed)


def grow_label_tree(X: Matrix, Y: csr_array, balance: float, rng: Rng) -> Tree:
    """Grow a tree in one pass over the examples, in random order.

    Labels without rows come last, and go where there are fewest leaves.
    """
    n_labels = Y.shape[1]
    if n_labels == 1:
        return Tree.from_parents([-1, 0], [-1, 0], 1)
    row = np.repeat(np.arange(Y.shape[0], dtype=np.int32), np.diff(Y.indptr))
    order = rng.permutation(len(row))
    unseen = np.setdiff1d(np.arange(n_labels), Y.indices).astype(np.int32)
    rows = np.append(row[order], np.full(len(unseen), -1, dtype=np.int32))
    labels = np.append(Y.indices[order].astype(np.int32), unseen)
    children = np.full((2 * n_labels - 1, 2), -1, dtype=np.int32)
    parent, label = (np.full(len(children), -1, dtype=np.int32) for _ in range(2))
    table = np.zeros(1 << _TABLE_BITS, dtype=np.float32)
    _grow_nodes(as_csr(X), rows, labels, balance, table, children, parent, label)
    return Tree.from_parents(parent, label, n_labels)


@njit(nogil=True, cache=True, inline="always")
def _slot(node: int, feature: int, size: int) -> np.int64:
    return (np.int64(node) * 0x9E3779B1 + np.int64(feature) * 0x85EBCA6B) & (size - 1)


@njit(nogil=True, cache=True)
def _probability(indices: Ints, data: F32, p0: int, p1: int, table: F32, node: int) -> np.float32:
    """Return the probability that a row belongs on the right of a node."""
    score = table[_slot(node, -1, table.size)]
    for p in range(p0, p1):
        score += data[p] * table[_slot(node, indices[p], table.size)]
    return np.float32(1.0) / (np.float32(1.0) + np.exp(-score))


@njit(nogil=True, cache=True)
def _grow_nodes(
    X: Csr, rows: I32, labels: I32, balance: float, table: F32, children: I32, up: I32, label: I32
) -> None:
    """Fill `children` (n_nodes, 2), parent `up` and `label` of the nodes; node 0 is the root."""
    indptr, indices, data = X
    n_leaves = np.zeros(len(up), dtype=np.int32)  # below each node
    leaf = np.full((len(up) + 1) // 2, -1, dtype=np.int32)  # of each label
    label[0], leaf[labels[0]], n_leaves[0] = labels[0], 0, 1
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
                # The preference of the regressor is weighed against the balance of the leaves.
                preference = (1.0 - balance) * 2.0 * (p - 0.5)
                preference += balance * np.log2(n_leaves[left] / n_leaves[right])
                node = right if preference > 0 else left
            # The leaf becomes a node: its label goes left, the new one right.
            for side in range(2):
                child = n_nodes + side
                children[node, side] = child
                up[child] = node
                n_leaves[child] = 1
                label[child] = label[node] if side == _LEFT else y
                leaf[label[child]] = child
            label[node] = -1
            n_leaves[node] = 2
            n_nodes += 2
        # One logistic step for each regressor on the path.
        node = leaf[y]
        while node > 0:
            above = up[node]
            target = np.float32(node == children[above, _RIGHT])
            step = _RATE * (target - _probability(indices, data, p0, p1, table, above))
            table[_slot(above, -1, table.size)] += step
            for q in range(p0, p1):
                table[_slot(above, indices[q], table.size)] += step * data[q]
            node = above
