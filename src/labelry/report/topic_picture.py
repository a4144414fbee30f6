"""Topics as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelry.report.canvas import canvas
from labelry.systems.moments import Moments


def topic_picture(model: Moments, *, n_topics: int = 12, k: int = 6) -> Any:
    """A matplotlib figure of the largest topics: their share, words and labels as bars.

    Parameters
    ----------
    n_topics : int
        Topics shown, largest first; all when there are fewer.
    k : int
        Words and labels shown of each.
    """
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
