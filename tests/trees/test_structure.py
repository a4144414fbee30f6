"""Trees as data: what they say of themselves, and what is no tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelry.trees.structure import Tree, ranges

#        0
#      /   \
#     1     2        label 3 sits in 2
#    / \
#   3   4            label 0 sits in 3
#      / \
#     5   6          labels 1 and 2
SMALL = Tree.from_parents([-1, 0, 0, 1, 1, 4, 4], [-1, -1, 3, 0, -1, 1, 2], n_labels=4)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any tree of up to 30 nodes, with its labels and nodes in any order."""
    n = draw(st.integers(2, 30))
    parent = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, n)]
    leaves = sorted(set(range(n)) - set(parent))
    label = np.full(n, -1)
    label[leaves] = draw(st.permutations(range(len(leaves))))
    place = np.array(draw(st.permutations(range(n))))  # new number of each node
    moved_parent, moved_label = np.empty(n, dtype=int), np.empty(n, dtype=int)
    moved_parent[place] = [place[p] if p >= 0 else -1 for p in parent]
    moved_label[place] = label
    return Tree.from_parents(moved_parent, moved_label, len(leaves))


def test_the_small_tree() -> None:
    assert SMALL.first_child.tolist() == [1, 3, 5, 5, 5, 7, 7, 7]
    assert SMALL.label.tolist() == [-1, -1, 3, 0, -1, 1, 2]
    assert SMALL.parent.tolist() == [-1, 0, 0, 1, 1, 4, 4]
    assert SMALL.depth.tolist() == [0, 1, 1, 2, 2, 3, 3]
    assert SMALL.leaves().nodes.tolist() == [3, 5, 6, 2]
    assert SMALL.leaves().ptr.tolist() == [0, 1, 2, 3, 4]
    assert SMALL.paths().ptr.tolist() == [0, 2, 5, 8, 9]
    assert SMALL.paths().nodes.tolist() == [1, 3, 1, 4, 5, 1, 4, 6, 2]
    assert SMALL.n_leaves_below.tolist() == [4, 3, 1, 1, 2, 1, 1]
    assert SMALL.label_sets.toarray().astype(int).tolist() == [
        [1, 1, 1, 1],
        [1, 1, 1, 0],
        [0, 0, 0, 1],
        [1, 0, 0, 0],
        [0, 1, 1, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
    ]
    for array in (*SMALL[:2], SMALL.parent, SMALL.depth, *SMALL.leaves(), *SMALL.paths()):
        assert array.dtype == np.int32


def test_a_joint_tree_has_several_leaves_of_a_label() -> None:
    tree = Tree.from_parents([-1, 0, 0, 1, 1, 2, 2], [-1, -1, -1, 0, 1, 1, 2], n_labels=3)
    assert tree.leaves().ptr.tolist() == [0, 1, 3, 4]
    assert tree.leaves().nodes.tolist() == [3, 4, 5, 6]
    assert tree.paths().nodes.tolist() == [1, 3, 1, 4, 2, 5, 2, 6]
    assert tree.label_sets.toarray()[:3].tolist() == [[1, 1, 1], [1, 1, 0], [0, 1, 1]]


def test_summary() -> None:
    summary = SMALL.summary()
    assert summary[:4] == (4, 4, 3, 3)
    assert summary.mean_depth == pytest.approx(9 / 4)
    assert (summary.branching, summary.max_branching) == (2.0, 2)
    uneven = Tree.from_parents(
        [-1, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2], [-1, -1, -1, *range(8)], n_labels=8
    )
    assert uneven.summary().balance == 3.0  # 6 leaves beside 2


def test_one_label() -> None:
    tree = Tree.from_parents([-1, 0], [-1, 0], n_labels=1)
    assert tree.paths().nodes.tolist() == [1]
    assert tree.summary() == (1, 1, 1, 1, 1.0, 1.0, 1, 1.0)


@settings(max_examples=50, deadline=None)
@given(trees())
def test_any_tree_is_breadth_first_whatever_the_order_of_its_nodes(tree: Tree) -> None:
    parent, depth = tree.parent, tree.depth
    assert (np.diff(parent) >= 0).all()  # siblings together, in the order of their parents
    assert (depth[1:] == depth[parent[1:]] + 1).all()
    leaves, paths = tree.leaves(), tree.paths()
    assert sorted(leaves.nodes) == np.flatnonzero(tree.label >= 0).tolist()
    for j, leaf in enumerate(leaves.nodes):
        path = paths.nodes[paths.ptr[j] : paths.ptr[j + 1]]
        assert path[-1] == leaf
        assert parent[path].tolist() == [0, *path[:-1]]
    sets = tree.label_sets.toarray()
    for s in np.flatnonzero(tree.label < 0):  # each label set is the union of those of children
        children = sets[tree.first_child[s] : tree.first_child[s + 1]]
        np.testing.assert_array_equal(sets[s], children.sum(axis=0))
    np.testing.assert_array_equal(tree.n_leaves_below, sets.sum(axis=1))


@settings(max_examples=200, deadline=None)
@given(trees(), st.data())
def test_check_finds_a_changed_number_or_leaves_a_tree(tree: Tree, data: st.DataObject) -> None:
    first, label = tree.first_child.copy(), tree.label.copy()
    array = data.draw(st.sampled_from([first, label]))
    place = data.draw(st.integers(0, len(array) - 1))
    array[place] += data.draw(st.sampled_from([-2, -1, 1, 2]))
    changed = Tree(first, label, tree.n_labels)
    try:
        changed.check()
    except ValueError:
        return
    # Some changes move a child to a neighbouring node: still every label hangs below the root.
    assert array is first
    assert changed.label_sets.sum() >= tree.n_labels
    assert changed.paths().ptr[-1] == changed.depth[changed.leaves().nodes].sum()


@pytest.mark.parametrize(
    ("first_child", "label", "n_labels", "reason"),
    [
        ([1, 1], [-1], 0, "a tree must have at least 1 label; got 0"),
        ([1], [], 1, "must begin with 1 and end with 0"),
        ([1, 3, 3], [-1, 0, 1], 2, r"first_child must have shape \(4,\)"),
        ([0, 3, 3, 3], [-1, 0, 1], 2, "must begin with 1 and end with 3, .* got 0 and 3"),
        ([1, 3, 3, 2], [-1, 0, 1], 2, "must begin with 1 and end with 3, .* got 1 and 2"),
        ([1, 4, 3, 3], [-1, 0, 1], 2, "must not decrease; got 4, 3 at 1"),
        ([1, 2, 2, 4, 4], [-1, 0, -1, 1], 2, "node 2 must be a child of a node before it"),
        ([1, 3, 3, 3], [-1, 0, 2], 2, "label must be between -1 and 1; got -1 to 2"),
        ([1, 3, 3, 3], [-1, 0, -2], 2, "label must be between -1 and 1; got -2 to 0"),
        ([1, 1], [0], 1, "the root must have children"),
        ([1, 3, 3, 3], [-1, 0, -1], 1, "without children must have a label; node 2 has none"),
        ([1, 3, 3, 3], [0, 1, 2], 3, "with children must have label -1; node 0 has 0"),
        ([1, 3, 3, 3], [-1, 0, 2], 3, "each label must have a leaf; label 1 has none"),
        ([1, 3, 3, 3], [-1, 0, 1], 2**31, "each label must have a leaf; label 2 has none"),
        ([1, 3, 3, 3], [-1, 0, 0], 1, "a label once among its children; 0 has 0 twice"),
    ],
)
def test_what_is_no_tree(
    first_child: list[int], label: list[int], n_labels: int, reason: str
) -> None:
    tree = Tree(np.array(first_child, np.int32), np.array(label, np.int32), n_labels)
    with pytest.raises(ValueError, match=reason):
        tree.check()


@pytest.mark.parametrize(
    ("parent", "label", "reason"),
    [
        ([-1, 0], [-1], "equally long; got 2 and 1"),
        ([-1, 2], [-1, 0], "parent must be between -1 and 1; got -1 to 2"),
        ([-1, -1], [0, 1], r"one node must be the root \(parent -1\); got 2"),
        ([1, 0], [-1, 0], r"one node must be the root \(parent -1\); got 0"),
        ([], [], r"one node must be the root \(parent -1\); got 0"),
        ([-1, 0, 3, 2], [-1, 0, -1, -1], "node 2 is not below the root"),
    ],
)
def test_what_are_no_parents(parent: list[int], label: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Tree.from_parents(parent, label, 1)


def test_a_tree_can_be_saved(stored) -> None:
    again = stored(SMALL)
    assert isinstance(again, Tree)
    assert again.check().n_labels == 4
    np.testing.assert_array_equal(again.first_child, SMALL.first_child)


def test_ranges() -> None:
    assert ranges(np.array([3, 7, 7, 0]), np.array([5, 7, 8, 2])).tolist() == [3, 4, 7, 0, 1]
    assert ranges(np.array([], dtype=int), np.array([], dtype=int)).tolist() == []
