"""Pictures of label trees and topics, as matplotlib figures that need no screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labelry.errors import MissingExtraError
from labelry.trees.export import outline
from labelry.trees.structure import Tree

_LINE = 0.2  # height in inches of a line of text
_LEVEL = 3.2  # inches between two levels
_MOST = 400  # most nodes of a readable picture


def canvas(width: float, height: float) -> Any:
    """Return an empty matplotlib figure of this size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "viz", "a picture") from error
    return Figure(figsize=(width, height), layout="constrained")


def tree_picture(
    tree: Tree,
    names: Sequence[object] | None = None,
    counts: ArrayLike | None = None,
    *,
    max_depth: int = 2,
    n_names: int = 3,
) -> Any:
    """Draw a tree from left to right as a matplotlib figure, with frequent labels at each node.

    Parameters are those of `labelry.trees.text_outline`. Lower levels are left out while there are
    too many nodes to read.
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
    # The lowest nodes are placed line by line, each other node at the middle of its children.
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


def topic_picture(model: Any, *, n_topics: int = 12, k: int = 6) -> Any:
    """Draw the largest topics of a `Moments` model, each with bars of its k words and k labels."""
    if n_topics < 1:
        raise ValueError(f"n_topics must be at least 1, got {n_topics}")
    order = np.argsort(-model.topic_proportions_, kind="stable")[:n_topics]
    n_columns = min(4, len(order))
    n_rows = -(-len(order) // n_columns)
    figure = canvas(3.2 * n_columns, (0.9 + 0.36 * k) * n_rows)
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    words, labels = model.topic_words(k), model.topic_labels(k)
    for ax, topic in zip(axes, order, strict=False):
        names, values = [], []
        for found, chances in (words, labels):
            names += [str(name) for name in found[topic]]
            values += chances[topic].tolist()
        n_words = words[0].shape[1]
        colours = ["tab:blue"] * n_words + ["tab:orange"] * (len(names) - n_words)
        ax.barh(range(len(names)), values, color=colours)
        ax.set_yticks(range(len(names)), names, fontsize=7)
        ax.invert_yaxis()
        ax.tick_params(axis="x", labelsize=7)
        ax.set_title(f"topic {topic}: {model.topic_proportions_[topic]:.1%}", fontsize=9)
    for ax in axes[len(order) :]:
        ax.axis("off")
    figure.supxlabel("P[word | topic] (blue) and P[label | topic] (orange)", fontsize=8)
    return figure
