"""The picture of a label tree."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labelry.report.pictures import tree_picture
from labelry.trees import Tree, random_tree


def texts(picture) -> list[str]:
    return [text.get_text() for text in picture.axes[0].texts]


def test_nodes_show_their_most_frequent_labels(tmp_path: Path) -> None:
    tree = Tree.from_parents([-1, 0, 0, 1, 1], [-1, -1, 2, 0, 1], n_labels=3)
    picture = tree_picture(tree, ["hip", "knee", "flu"], [1, 2, 9], n_names=1)
    assert sorted(texts(picture)) == [
        "2 labels: knee, ...",
        "3 labels: flu, ...",
        "flu",
        "hip",
        "knee",
    ]
    assert len(picture.axes[0].lines) == 4  # one to each node below the root
    picture.savefig(tmp_path / "tree.svg")
    assert (tmp_path / "tree.svg").stat().st_size > 1000


def test_a_large_tree_shows_the_levels_that_can_be_read() -> None:
    tree = random_tree(3000, branching=20, rng=np.random.default_rng(0))
    assert len(texts(tree_picture(tree, max_depth=3))) == 1 + 20 + 160
