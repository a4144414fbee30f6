"""Write label trees as text: for people, for drawing programs, and as JSON to read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from labelry.trees.structure import Tree

T = TypeVar("T")
Names: TypeAlias = Sequence[object] | None  # of the labels; None: their numbers


def to_json(tree: Tree, names: Names = None) -> str:
    """Return nested JSON: ``{"children": [...]}``, or ``{"label": 3, "name": "knee"}`` for a leaf.

    >>> to_json(Tree.from_parents([-1, 0, 0], [-1, 0, 1], 2), ["hip", "knee"])
    '{"children": [{"label": 0, "name": "hip"}, {"label": 1, "name": "knee"}]}'
    """
    texts = _label_texts(tree, names)

    def leaf(y: int) -> dict[str, Any]:
        return {"label": y} if names is None else {"label": y, "name": texts[y]}

    try:
        nested: dict[str, Any] = _fold(tree, leaf, lambda children: {"children": children})
        return json.dumps(nested, ensure_ascii=False)
    except RecursionError as error:
        raise ValueError(f"a tree of depth {tree.depth[-1]} is too deep for nested JSON") from error


def from_json(text: str) -> Tree:
    """Return the tree that `to_json` wrote; labels are read by number, not by name."""
    try:
        root = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the tree is not readable JSON: {error}") from error
    parents, labels = [-1], [-1]
    open_nodes = [(root, 0)]
    for node, s in open_nodes:  # grows while it is read: breadth-first
        children = node.get("children") if isinstance(node, dict) else None
        label = node.get("label") if isinstance(node, dict) else None
        if isinstance(children, list) and label is None:
            open_nodes += [(child, len(parents) + i) for i, child in enumerate(children)]
            parents += [s] * len(children)
            labels += [-1] * len(children)
        elif children is None and type(label) is int and 0 <= label < 1 << 31:
            labels[s] = label
        else:
            rule = 'each node of a tree must be {"children": [...]} or {"label": number}'
            raise ValueError(f"{rule}; got {json.dumps(node)[:60]}")
    return Tree.from_parents(parents, labels, max(labels) + 1)


def to_newick(tree: Tree, names: Names = None) -> str:
    """Return Newick, the notation for phylogenetic trees; names are quoted where needed.

    >>> to_newick(Tree.from_parents([-1, 0, 0], [-1, 0, 1], 2), ["hip", "left knee"])
    "(hip,'left knee');"
    """

    def quoted(text: str) -> str:
        plain = text and all(c.isalnum() or c in "-.+" for c in text)
        return text if plain else "'" + text.replace("'", "''") + "'"

    texts = list(map(quoted, _label_texts(tree, names)))
    return _fold(tree, texts.__getitem__, lambda children: f"({','.join(children)})") + ";"


def to_graphviz(tree: Tree, names: Names = None, *, max_depth: int | None = None) -> str:
    """Return a graph in the DOT language; inner nodes show the number of leaves below them.

    Levels more than `max_depth` below the root are left out.
    """
    texts = _label_texts(tree, names)
    parent, below = tree.parent.tolist(), tree.n_leaves_below.tolist()
    lines = ["digraph tree {", "  rankdir=LR;", "  node [shape=box];"]
    for s in range(_n_shown(tree, max_depth)):
        y = int(tree.label[s])
        text = _dot_string(texts[y] if y >= 0 else str(below[s]))
        lines.append(f"  {s} [label={text}{'' if y >= 0 else ', shape=ellipse'}];")
        if s:
            lines.append(f"  {parent[s]} -> {s};")
    return "\n".join([*lines, "}"]) + "\n"


def text_outline(
    tree: Tree,
    names: Names = None,
    counts: ArrayLike | None = None,
    *,
    max_depth: int = 2,
    n_names: int = 4,
) -> str:
    """Return an indented outline: the number of labels below each node, and the names of some.

    These are the `n_names` most frequent labels by `counts` (n_labels,), otherwise the first ones.

    >>> tree = Tree.from_parents([-1, 0, 0, 1, 1], [-1, -1, 2, 0, 1], n_labels=3)
    >>> print(text_outline(tree, ["hip", "knee", "flu"], [1, 2, 9]), end="")
    3 labels: flu, knee, hip
      2 labels: knee, hip
        hip
        knee
      flu
    """
    nodes = outline(tree, names, counts, max_depth=max_depth, n_names=n_names)
    return "".join("  " * depth + text + "\n" for _, depth, text in nodes)


def outline(
    tree: Tree, names: Names, counts: ArrayLike | None, *, max_depth: int, n_names: int
) -> list[tuple[int, int, str]]:
    """Return the lines of `text_outline`: number, depth and text of each node, depth first."""
    texts = _label_texts(tree, names)
    frequency = np.zeros(tree.n_labels) if counts is None else np.asarray(counts)
    if frequency.shape != (tree.n_labels,):
        raise ValueError(f"counts must have shape ({tree.n_labels},); got {frequency.shape}")
    n = _n_shown(tree, max_depth)
    sets, depth = tree.label_sets[:n], tree.depth.tolist()

    def line(s: int) -> str:
        labels = sets.indices[sets.indptr[s] : sets.indptr[s + 1]]
        top = labels[np.lexsort((labels, -frequency[labels]))[:n_names]]
        shown = ", ".join(texts[y] for y in top) + (", ..." if len(labels) > len(top) else "")
        of = "label" if len(labels) == 1 else "labels"
        return shown if tree.label[s] >= 0 else f"{len(labels)} {of}: {shown}"

    return [(s, depth[s], line(s)) for s in _depth_first(tree, n)]


def _label_texts(tree: Tree, names: Names) -> list[str]:
    names = range(tree.n_labels) if names is None else names
    if len(names) != tree.n_labels:
        raise ValueError(f"names must name the {tree.n_labels} labels; got {len(names)}")
    return list(map(str, names))


def _fold(tree: Tree, leaf: Callable[[int], T], inner: Callable[[list[T]], T]) -> T:
    """Return the value of the root, from ``leaf(label)`` and ``inner(values of the children)``."""
    first, label = tree.first_child.tolist(), tree.label.tolist()
    values: list[Any] = [None] * tree.n_nodes
    for s in reversed(range(tree.n_nodes)):  # children come after their parents
        values[s] = leaf(label[s]) if label[s] >= 0 else inner(values[first[s] : first[s + 1]])
    root: T = values[0]
    return root


def _n_shown(tree: Tree, max_depth: int | None) -> int:
    """Return how many nodes are at most `max_depth` below the root: the first ones."""
    if max_depth is None:
        return tree.n_nodes
    if max_depth < 0:
        raise ValueError(f"max_depth must be at least 0; got {max_depth}")
    return int(np.searchsorted(tree.depth, max_depth, "right"))


def _depth_first(tree: Tree, n: int) -> list[int]:
    """Return the first n nodes, each followed by those below it."""
    first = tree.first_child.clip(max=n).tolist()
    order, stack = [], [0]
    while stack:
        order.append(stack.pop())
        stack += reversed(range(*first[order[-1] : order[-1] + 2]))
    return order


def _dot_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
