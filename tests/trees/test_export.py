"""Trees as text."""

from __future__ import annotations

import json

import numpy as np
import pytest

from labelry.trees import (
    Tree,
    from_json,
    random_tree,
    text_outline,
    to_graphviz,
    to_json,
    to_newick,
)
from labelry.trees.export import outline

#  0: (1: (label 0, label 1), label 2)
SMALL = Tree.from_parents([-1, 0, 0, 1, 1], [-1, -1, 2, 0, 1], n_labels=3)
NAMES = ["hip", 'it\'s "left"\nknee \\', "flu"]


@pytest.mark.parametrize("names", [None, [f"label {i}" for i in range(57)]])
def test_json_and_back(names: list[str] | None) -> None:
    tree = random_tree(57, branching=3, max_leaf_size=1, rng=np.random.default_rng(0))
    again = from_json(to_json(tree, names))
    np.testing.assert_array_equal(again.first_child, tree.first_child)
    np.testing.assert_array_equal(again.label, tree.label)
    assert again.n_labels == 57


def test_json_of_a_joint_tree_and_back() -> None:
    tree = Tree.from_parents([-1, 0, 0, 1, 1, 2, 2], [-1, -1, -1, 0, 1, 1, 2], n_labels=3)
    np.testing.assert_array_equal(from_json(to_json(tree)).label, tree.label)


def test_json_is_nested_and_names_the_labels() -> None:
    root = json.loads(to_json(SMALL, NAMES))
    assert root["children"][1] == {"label": 2, "name": "flu"}
    assert root["children"][0]["children"][1] == {"label": 1, "name": NAMES[1]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the tree is not readable JSON: "),
        ("[" * 100_000, "the tree is not readable JSON: "),
        ("[]", r"each node of a tree must be .*; got \[\]"),
        ('{"children": [{"label": "knee"}]}', "each node of a tree must be"),
        ('{"children": [{"label": true}]}', "each node of a tree must be"),
        ('{"children": [{"label": -1}]}', "each node of a tree must be"),
        ('{"children": [{"label": 0, "children": []}]}', "each node of a tree must be"),
        ('{"children": []}', "a tree must have at least 1 label; got 0"),
        ('{"label": 0}', "the root must have children"),
        ('{"children": [{"label": 1}]}', "each label must have a leaf; label 0 has none"),
        ('{"children": [{"label": 2000000000}]}', "label 0 has none"),
        ('{"children": [{"label": 0}, {"children": []}]}', "node 2 has none"),
    ],
)
def test_json_that_is_no_tree(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(text)


def test_deep_trees() -> None:
    n = 20_000  # a chain: inner node i has a leaf and inner node i + 1
    parents = np.concatenate([np.arange(-1, n - 1), np.arange(n), [n - 1]])
    labels = np.concatenate([np.full(n, -1), np.arange(n + 1)])
    tree = Tree.from_parents(parents, labels, n + 1)
    with pytest.raises(ValueError, match=f"a tree of depth {n} is too deep for nested JSON"):
        to_json(tree)
    assert tree.n_leaves_below[0] == n + 1


def test_newick_quotes_names() -> None:
    assert to_newick(SMALL) == "((0,1),2);"
    assert to_newick(SMALL, ["a b", "it's", "(x)"]) == "(('a b','it''s'),'(x)');"
    assert to_newick(SMALL, ["", "a_b", "Bär-1.5"]) == "(('','a_b'),Bär-1.5);"


def test_graphviz() -> None:
    text = to_graphviz(SMALL, NAMES)
    assert text.startswith("digraph tree {\n")
    assert text.endswith("}\n")
    assert '  0 [label="3", shape=ellipse];' in text
    assert '  1 [label="2", shape=ellipse];' in text
    assert r'  4 [label="it' + r"'s \"left\"\nknee \\" + '"];' in text
    assert [line for line in text.splitlines() if "->" in line] == [
        "  0 -> 1;",
        "  0 -> 2;",
        "  1 -> 3;",
        "  1 -> 4;",
    ]
    assert "1 -> 3" not in to_graphviz(SMALL, max_depth=1)


def test_outline() -> None:
    assert text_outline(SMALL, max_depth=0) == "3 labels: 0, 1, 2\n"
    expected = "3 labels: 2, 1, ...\n  2 labels: 1, 0\n  2\n"
    assert text_outline(SMALL, counts=[1, 5, 9], max_depth=1, n_names=2) == expected


def test_outline_as_data() -> None:
    nodes = outline(SMALL, ["hip", "knee", "flu"], None, max_depth=2, n_names=4)
    assert [node for node, _, _ in nodes] == [0, 1, 3, 4, 2]
    assert nodes[1] == (1, 1, "2 labels: hip, knee")


def test_refusals() -> None:
    for write in (to_json, to_newick, to_graphviz, text_outline):
        with pytest.raises(ValueError, match="names must name the 3 labels; got 2"):
            write(SMALL, ["a", "b"])  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"counts must have shape \(3,\); got \(2,\)"):
        text_outline(SMALL, counts=[1, 2])
    with pytest.raises(ValueError, match="max_depth must be at least 0; got -1"):
        text_outline(SMALL, max_depth=-1)
