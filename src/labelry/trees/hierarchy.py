"""Label trees from an existing taxonomy of the labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np

from labelry.arrays import I64, Bools
from labelry.data.cells import bad, shown
from labelry.data.tables import read_lines
from labelry.trees.structure import Tree, ranges, without_nodes

Edges = list[tuple[str, str]]  # of a taxonomy: (parent, child)

_MOST_NODES = 20_000_000  # most nodes of a joint tree before empty branches are dropped; not tuned


def read_hierarchy(path: str | Path, *, child_first: bool = False) -> Edges:
    """Read the edges (parent, child) of a taxonomy, or (child, parent), from a text file.

    A line has two names, separated by a tab or else by blanks. The file may be compressed.
    """
    edges = []
    for number, line in read_lines(path):
        text = line.rstrip("\r\n")
        names = [name.strip() for name in text.split("\t")] if "\t" in text else text.split()
        if len(names) != 2 or not all(names):
            raise bad(shown(text), "two names, separated by a tab or by blanks", path, number)
        if names[0] == names[1]:
            raise bad(f"{shown(names[0])} below itself", "two different names", path, number)
        edges.append((names[1], names[0]) if child_first else (names[0], names[1]))
    return edges


def hierarchy_tree(
    edges: Iterable[tuple[str, str]], names: Sequence[str], *, joint: bool = False
) -> Tree:
    """Return the label tree of a taxonomy, a tree or a directed acyclic graph.

    A label that is an inner node of the taxonomy gets a leaf of its own below that node. Labels
    that the taxonomy does not know go into one more node below the root. Branches without
    labels are left out, and chains of single children are contracted. There may be several roots.

    A node with several parents goes below the one that is named first, or in a `joint` tree below
    each of them. A graph with very many paths gives a very large joint tree.

    >>> edges = [("body", "leg"), ("leg", "knee"), ("leg", "foot"), ("body", "arm")]
    >>> hierarchy_tree(edges, ["knee", "foot", "arm"]).label.tolist()
    [-1, -1, 2, 0, 1]
    """
    if len(set(names)) < len(names):
        raise ValueError("names must be distinct")
    ids: dict[str, int] = {}
    numbers = [[ids.setdefault(name, len(ids)) for name in edge] for edge in edges]
    pairs = np.array(numbers, dtype=np.int64).reshape(-1, 2)
    node_names = list(ids)
    label_of = np.full(len(ids), -1)
    place = np.array([ids.get(name, -1) for name in names], dtype=np.int64)
    label_of[place[place >= 0]] = np.flatnonzero(place >= 0)
    _, first = np.unique(pairs, axis=0, return_index=True)
    parent, child = pairs[np.sort(first)].T  # each edge once, in order of appearance
    _check_acyclic(parent, child, node_names)
    if not joint:
        _, first = np.unique(child, return_index=True)
        first.sort()
        parent, child = parent[first], child[first]
    tree_parent, node = _unfold(parent, child, len(ids))
    label = np.where(node >= 0, label_of[node] if len(ids) else -1, -1)
    return _labelled(tree_parent, label, np.flatnonzero(place < 0), len(names))


def _check_acyclic(parent: I64, child: I64, names: Sequence[str]) -> None:
    parents: dict[int, list[int]] = {}
    for above, below in zip(parent.tolist(), child.tolist(), strict=True):
        parents.setdefault(below, []).append(above)
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle = [names[i] for i in error.args[1]]
        shown_names = cycle if len(cycle) <= 8 else [*cycle[:4], "...", *cycle[-3:]]
        raise ValueError(f"the hierarchy has a cycle: {' > '.join(shown_names)}") from None


def _unfold(parent: I64, child: I64, n: int) -> tuple[I64, I64]:
    """Return parents and graph nodes of the tree that has a node for each path from the root.

    Above several roots, or none, tree node 0 is a root of no graph node (-1).
    """
    order = np.argsort(parent, kind="stable")
    ptr, below = np.searchsorted(parent[order], np.arange(n + 1)), child[order]  # as in `Lists`
    roots = np.setdiff1d(np.arange(n), child)
    parents, nodes = [np.full(1, -1)], [roots]
    if len(roots) != 1:
        parents, nodes = [*parents, np.zeros(len(roots), dtype=np.int64)], [np.full(1, -1), roots]
    first, total = len(nodes) - 1, len(nodes) - 1 + len(roots)  # of the last level; of all
    while len(nodes[-1]):
        start, end = ptr[nodes[-1]], ptr[nodes[-1] + 1]
        parents.append(np.repeat(first + np.arange(len(start)), end - start))
        nodes.append(below[ranges(start, end)])
        first, total = total, total + len(nodes[-1])
        if total > _MOST_NODES:
            problem = f"the joint tree of this hierarchy has more than {_MOST_NODES:,} nodes"
            raise ValueError(f"{problem}; use joint=False")
    return np.concatenate(parents), np.concatenate(nodes)


def _labelled(parent: I64, label: I64, unknown: I64, n_labels: int) -> Tree:
    """Return the tree of these nodes, in breadth-first order, with all labels in leaves."""
    n = len(parent)
    # A label of an inner node gets a leaf below it. Unknown labels get one node for all of them.
    is_inner = np.bincount(parent[1:], minlength=n) > 0
    own = np.flatnonzero(is_inner & (label >= 0))
    extra = np.zeros(min(len(unknown), 1), dtype=np.int64)
    parent = np.concatenate([parent, own, extra, np.full(len(unknown), n + len(own))])
    label = np.concatenate([np.where(is_inner, -1, label), label[own], extra - 1, unknown])
    while True:
        n = len(parent)
        parent, label = without_nodes(parent, label, _useful(parent, label))
        if len(parent) == n:
            return Tree.from_parents(parent, label, n_labels)


def _useful(parent: I64, label: I64) -> Bools:
    """Mark nodes that stay: no empty branch, second leaf of a label, or parent of one child."""
    n = len(parent)
    n_children = np.bincount(parent[1:], minlength=n)
    is_leaf = label >= 0
    keep = is_leaf | (n_children > 1)
    leaves = np.flatnonzero(is_leaf)
    _, first = np.unique(np.stack([parent[leaves], label[leaves]]), axis=1, return_index=True)
    keep[leaves] = False
    keep[leaves[first]] = True
    keep[0] = True
    if n_children[0] == 1:  # the root replaces its only child, unless that is a leaf
        only = np.flatnonzero(parent == 0)
        keep[only] = is_leaf[only]
    return keep
