"""Filter trees: a tournament of labels, trained from the first round up.

Beygelzimer, Langford, Ravikumar: Error-correcting tournaments, 2009, section 3 (Filter-train).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from labelry.arrays import I32, Rng
from labelry.linalg.rows import Rows, in_memory
from labelry.parameters import settings
from labelry.trees.learn import random_tree
from labelry.trees.node_predictors import BinaryTreeSettings, NodePredictors, loss_weight, scaled
from labelry.trees.structure import Tree
from labelry.trees.train import NodeTrainer, reach


@settings
class FilterTreeSettings(BinaryTreeSettings):
    """How to train the rounds of a tournament of labels."""

    C: float = loss_weight(1.0, 0.1, 30.0)


@dataclass(frozen=True, eq=False)
class Tournament(NodePredictors):
    """A binary tree of labels; each node predicts which of its sides wins."""

    @property
    def threshold(self) -> float:
        """Return the score of a label whose probability is one half in each round."""
        return float(0.5 ** int(self.tree.depth.max()))


def fit_filter_tree(rows: Rows, settings: FilterTreeSettings, rng: Rng) -> Tournament:
    """Train the nodes of a random binary tree from the leaves up, each on the winners below it."""
    X, Y = in_memory(rows, "filter-tree")
    tree = random_tree(Y.shape[1], branching=2, rng=rng)
    X = scaled(X, settings.normalize)
    trainer = NodeTrainer(X, Y, tree, C=settings.C, n_jobs=rows.n_jobs)
    winning = Y.copy()  # labels that have won all their rounds so far
    depth = tree.depth
    for level in range(int(depth.max()) - 1, -1, -1):
        nodes = np.flatnonzero((depth == level) & (tree.label < 0))
        _, rows_of, won_by = zip(*trainer.train(nodes, reach(tree, winning), rng), strict=True)
        row, node = np.concatenate(rows_of), np.concatenate(won_by)
        won = csr_array((np.ones(len(row), np.float32), (row, node)), (Y.shape[0], len(depth)))
        winning = winners(winning, nodes_at(tree, level + 1), won)
    fixed = (rows.n_features, settings.beam_width, settings.normalize)
    return Tournament(tree, trainer.weights, *fixed)


def nodes_at(tree: Tree, level: int) -> I32:
    """Return the node at depth `level` above the leaf of each label; -1 if the leaf is higher."""
    nodes, depth, parent = tree.leaves().nodes.copy(), tree.depth, tree.parent
    for _ in range(int(depth.max())):
        nodes = np.where(depth[nodes] > level, parent[nodes], nodes)
    return np.where(depth[nodes] == level, nodes, -1).astype(np.int32)


def winners(Y: csr_array, node_of: I32, won: csr_array) -> csr_array:
    """Return the labels of Y whose node (n_labels,) won in their row, or that have none (-1)."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    node = node_of[Y.indices]
    stays = (node < 0) | (np.asarray(won[rows, node]).ravel() > 0)
    kept = (Y.data[stays], (rows[stays], Y.indices[stays]))
    return csr_array(kept, shape=Y.shape)
