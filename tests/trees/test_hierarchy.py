"""Taxonomies as label trees."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from labelry.errors import DataError
from labelry.trees import Tree, hierarchy, hierarchy_tree, read_hierarchy, to_newick

#          body
#         /    \
#       leg    arm
#      / | \    |
#  knee foot skin      skin is below leg and arm
EDGES = [
    ("body", "leg"),
    ("body", "arm"),
    ("leg", "knee"),
    ("leg", "foot"),
    ("leg", "skin"),
    ("arm", "skin"),
    ("arm", "hand"),
]


def newick(edges: list[tuple[str, str]], names: list[str], *, joint: bool = False) -> str:
    return to_newick(hierarchy_tree(edges, names, joint=joint), names)


def test_a_tree() -> None:
    assert newick(EDGES[:5], ["knee", "foot", "skin", "arm"]) == "((knee,foot,skin),arm);"


def test_several_parents() -> None:
    names = ["knee", "foot", "skin", "hand"]
    assert newick(EDGES, names) == "((knee,foot,skin),hand);"  # arm is a chain to hand
    assert newick(EDGES, names, joint=True) == "((knee,foot,skin),(skin,hand));"
    # The first parent named is the one that counts.
    assert newick(EDGES[::-1], names) == "((hand,skin),(foot,knee));"


def test_labels_at_inner_nodes_get_a_leaf_of_their_own() -> None:
    assert newick(EDGES[:4], ["leg", "knee", "foot", "body"]) == "((knee,foot,leg),body);"
    assert newick(EDGES[:4], ["leg", "knee"]) == "(knee,leg);"


def test_labels_that_the_taxonomy_does_not_know() -> None:
    names = ["knee", "foot", "flu", "cough", "arm"]
    assert newick(EDGES[:4], names) == "((knee,foot),arm,(flu,cough));"
    assert newick(EDGES[:4], ["knee", "foot", "arm", "flu"]) == "((knee,foot),arm,flu);"
    assert newick([], ["flu", "cough"]) == "(flu,cough);"


def test_branches_without_labels_and_chains_go() -> None:
    chain = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "x"), ("d", "y"), ("a", "e"), ("e", "f")]
    assert newick(chain, ["x", "y"]) == "(x,y);"
    assert newick(chain, ["y"]) == "(y);"
    assert newick(chain, ["x", "y", "f"]) == "(f,(x,y));"


def test_several_roots() -> None:
    edges = [("a", "x"), ("a", "y"), ("b", "z"), ("b", "w")]
    assert newick(edges, ["x", "y", "z", "w"]) == "((x,y),(z,w));"


def test_a_label_is_not_twice_below_a_node() -> None:
    diamond = [("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("r", "y"), ("r", "y")]
    assert newick(diamond, ["x", "y"], joint=True) == "(y,x);"


def test_a_whole_branch_below_two_parents() -> None:
    edges = [("r", "a"), ("r", "b"), ("a", "m"), ("b", "m"), ("a", "u"), ("b", "v")]
    edges += [("m", "x"), ("m", "y")]
    names = ["x", "y", "u", "v"]
    assert newick(edges, names, joint=True) == "(((x,y),u),((x,y),v));"
    assert newick(edges, names) == "(((x,y),u),v);"


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ([("a", "a")], "a > a"),
        ([("r", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "x")], "a > b > c > a"),
        ([(str(i), str((i + 1) % 50)) for i in range(50)], r".* > \.\.\. > .*"),
    ],
)
def test_cycles_are_named(edges: list[tuple[str, str]], cycle: str) -> None:
    with pytest.raises(ValueError, match="the hierarchy has a cycle: ") as error:
        hierarchy_tree(edges, ["x"])
    found = str(error.value).split(": ")[1].split(" > ")
    assert found[0] == found[-1]
    if len(edges) < 10:
        steps = list(pairwise(found))
        assert set(steps) <= set(edges)
        assert len(found) == len(cycle.split(" > "))
    else:
        assert "..." in found


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="names must be distinct"):
        hierarchy_tree(EDGES, ["knee", "knee"])
    with pytest.raises(ValueError, match="a tree must have at least 1 label; got 0"):
        hierarchy_tree(EDGES, [])
    # 2^10 paths: a ladder in which each step has two sides
    ladder = [(f"{i}", f"{i}{s}") for i in range(10) for s in "ab"]
    ladder += [(f"{i}{s}", f"{i + 1}") for i in range(10) for s in "ab"]
    assert hierarchy_tree(ladder, ["10"], joint=True).n_nodes == 2
    monkeypatch.setattr(hierarchy, "_MOST_NODES", 1000)
    with pytest.raises(ValueError, match="more than 1,000 nodes; use joint=False"):
        hierarchy_tree(ladder, ["10"], joint=True)
    assert hierarchy_tree(ladder, ["10"]).n_nodes == 2


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("body leg\nleg\tleft knee\r\n")
    assert read_hierarchy(path) == [("body", "leg"), ("leg", "left knee")]
    packed = tmp_path / "edges.gz"
    packed.write_bytes(gzip.compress(b"leg body\n"))
    assert read_hierarchy(packed, child_first=True) == [("body", "leg")]
    tree = hierarchy_tree(read_hierarchy(path), ["left knee"])
    assert isinstance(tree, Tree)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", "''"),
        ("body", "'body'"),
        ("a b c", "'a b c'"),
        ("a\t", r"'a\\t'"),
        ("a\tb\tc", r"'a\\tb\\tc'"),
        ("knee knee", "'knee' below itself"),
    ],
)
def test_reading_errors_name_the_line(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(f"body leg\n{line}\n")
    with pytest.raises(DataError, match=rf"edges\.txt:2: found {found}; expected two"):
        read_hierarchy(path)
