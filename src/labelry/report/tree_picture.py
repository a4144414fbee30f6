"""The top levels of a label tree as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from labelry.report.canvas import canvas
from labelry.trees.export import outline
from labelry.trees.structure import Tree

_LINE = 0.2  # inches for a line of text
_LEVEL = 3.2  # inches between levels
_MOST = 400  # nodes that a picture can show


def tree_picture(
    tree: Tree,
    names: Sequence[object] | None = None,
    counts: ArrayLike | None = None,
    *,
    max_depth: int = 2,
    n_names: int = 3,
) -> Any:
    """A matplotlib figure: nodes from left to right, each with its most frequent labels.

    Parameters are those of `labelry.trees.text_outline`. The lowest level is left out while the
    nodes would be too many to read.
    """
    nodes = outline(tree, names, counts, max_depth=max_depth, n_names=n_names)
    while len(nodes) > _MOST and max_depth > 1:
        max_depth -= 1
        nodes = outline(tree, names, counts, max_depth=max_depth, n_names=n_names)
    parent = tree.parent
    shown = {node for node, _, _ in nodes}
    children: dict[int, list[int]] = {node: [] for node in shown}
    for node, _, _ in nodes[1:]:
        children[int(parent[node])].append(node)
    # The lowest nodes stand below one another, the others in the middle of their children.
    height: dict[int, float] = {}
    n_lines = 0
    for node, _, _ in reversed(nodes):
        if children[node]:
            height[node] = sum(height[c] for c in children[node]) / len(children[node])
        else:
            height[node] = float(n_lines)
            n_lines += 1
    picture = canvas(_LEVEL * (max_depth + 1), max(2.0, _LINE * (n_lines + 1)))
    axes = picture.add_subplot()
    for node, depth, text in nodes:
        if node:
            above = int(parent[node])
            axes.plot(
                [depth - 0.4, depth - 0.02], [height[above], height[node]], color="0.75", lw=0.8
            )
        axes.text(depth, height[node], text, va="center", fontsize=8)
    axes.set(xlim=(-0.05, max_depth + 1), ylim=(-1, n_lines))
    axes.axis("off")
    return picture
