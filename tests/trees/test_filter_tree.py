"""Filter trees: the tournament, odd data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.estimators.trees import FilterTree
from labelry.trees import Tree
from labelry.trees.filter_tree import nodes_at, winners

TREE = Tree.from_parents([-1, 0, 0, 1, 1, 3, 3], [-1, -1, 2, -1, 3, 0, 1], n_labels=4)


def test_nodes_of_a_level_above_each_label() -> None:
    depth = TREE.depth
    for level, expected in ((1, [1, 1, 2, 1]), (2, [3, 3, -1, 4]), (3, [5, 6, -1, -1])):
        found = nodes_at(TREE, level)
        assert_array_equal(found, expected)
        assert (depth[found[found >= 0]] == level).all()


def test_only_winners_go_on() -> None:
    Y = csr_array(np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]]))
    won = np.zeros((4, 7))
    won[[0, 1, 3], [5, 5, 6]] = 1  # row 0: its label 0; row 1: label 0, not its own; row 3: label 1
    left = winners(Y, nodes_at(TREE, 3), csr_array(won))
    assert_array_equal(left.toarray(), [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])


@pytest.mark.parametrize("sparse", [False, True])
def test_separable_classes(sparse: bool) -> None:
    X = np.kron(np.eye(21), np.ones((4, 3)))
    y = np.repeat(np.arange(21), 4)
    model = FilterTree().fit(csr_array(X) if sparse else X, y)
    assert model.score(X, y) == 1.0
    assert np.diff(model.tree_.first_child)[model.tree_.label < 0].max() == 2


def test_upper_nodes_learn_from_rows_that_won_below() -> None:
    """Rows that no classifier can tell apart are left out above their first round."""
    X = np.vstack([np.tile([1.0, 0.0], (30, 1)), np.tile([0.0, 1.0], (10, 1))])
    y = np.array([0] * 20 + [1] * 10 + [2] * 10)
    model = FilterTree(normalize=False).fit(X, y)
    assert_array_equal(model.predict(X), [0] * 30 + [2] * 10)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"C must be positive, got 0"):
        FilterTree(C=0).fit(np.eye(2), [0, 1])
