"""Shallow trees: few levels, wide, of labels that belong together; and trees side by side."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.trees import Tree, random_tree
from labelry.trees.learn import shallow_tree, side_by_side
from labelry.trees.structure import without_nodes


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("n_labels", "branching", "depth", "n_children"),
    [(300, 25, 2, 25), (300, 30, 2, 25), (40, 5, 2, 5), (40, 30, 1, 40), (2000, 16, 3, 16)],
)
def test_shape(n_labels: int, branching: int, depth: int, n_children: int) -> None:
    V = rng().standard_normal((n_labels, 8))
    tree = shallow_tree(V, branching=branching, depth=depth, rng=rng())
    assert tree.summary().depth == depth
    assert tree.first_child[1] - tree.first_child[0] == n_children
    assert_array_equal(np.sort(tree.label[tree.label >= 0]), np.arange(n_labels))


def test_groups_of_labels_share_a_branch() -> None:
    group = np.repeat(np.arange(25), 12)
    V = csr_array(np.eye(25)[group] + 0.05 * rng().random((300, 25)))
    tree = shallow_tree(V, branching=25, depth=2, rng=rng())
    branch = tree.parent[tree.leaves().nodes]
    same = branch[:, None] == branch[None]
    together = (group[:, None] == group[None]) & ~np.eye(300, dtype=bool)
    assert same[together].mean() > 0.8
    assert same[~together & ~np.eye(300, dtype=bool)].mean() < 0.02


@pytest.mark.parametrize("n_alone", [1, 5, 38, 39, 40])
def test_labels_alone_are_children_of_the_root(n_alone: int) -> None:
    V, alone = rng().standard_normal((40, 8)), np.zeros(40, dtype=bool)
    alone[rng().permutation(40)[:n_alone]] = True
    tree = shallow_tree(V, branching=5, depth=2, alone=alone, rng=rng())
    leaves = tree.leaves().nodes  # in the order of their labels
    assert_array_equal(tree.label[leaves], np.arange(40))
    assert (tree.depth[leaves[alone]] == 1).all()
    if n_alone <= 5:
        others = shallow_tree(V[~alone], branching=5, depth=2, rng=rng())
        assert_array_equal(tree.depth[leaves[~alone]], others.depth[others.leaves().nodes])
        assert tree.first_child[1] - 1 == others.first_child[1] - 1 + n_alone


def test_children_take_the_place_of_a_node_left_out() -> None:
    tree = Tree.from_parents([-1, 0, 0, 1, 1, 2, 2], [-1, -1, -1, 0, 1, 2, 3], 4)
    keep = np.array([True, False, True, True, True, True, True])
    flat = Tree.from_parents(*without_nodes(tree.parent, tree.label, keep), 4)
    assert_array_equal(flat.label, [-1, -1, 0, 1, 2, 3])
    assert_array_equal(flat.parent, [-1, 0, 0, 0, 1, 1])


def test_side_by_side() -> None:
    trees = [random_tree(7, branching=b, rng=np.random.default_rng(b)) for b in (2, 3, 7)]
    joint = side_by_side(trees)
    assert_array_equal(joint.first_child[:2], [1, 4])
    assert joint.n_nodes == 1 + sum(tree.n_nodes for tree in trees)
    ptr, leaves = joint.leaves()
    assert_array_equal(np.diff(ptr), 3)
    for root, tree in enumerate(trees, 1):
        assert joint.first_child[root + 1] - joint.first_child[root] == tree.first_child[1] - 1
        assert joint.n_leaves_below[root] == 7
        assert_array_equal(
            np.sort(joint.depth[leaves])[[0, -1]], [2, 1 + max(t.depth.max() for t in trees)]
        )
