"""Choose the tree of labels of a tree system: learn it, take a given one, or read a taxonomy."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from labelry.arrays import Rng
from labelry.embeddings.rembrandt import rembrandt
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge
from labelry.parameters import Between, OneOf, Settings, param, settings
from labelry.ranking.confusion import surrogate_confusion
from labelry.trees.hierarchy import Edges, hierarchy_tree
from labelry.trees.learn import balanced_tree, random_tree, spectral_tree
from labelry.trees.structure import Tree

TreeLearner = Literal["rembrandt", "confusion", "random"]
TreeChoice: TypeAlias = TreeLearner | Tree | Edges

TREE_HELP = (  # of the parameter `tree`
    'The grouping of labels. "rembrandt" clusters a label embedding. "confusion" (Algorithm 2) '
    "clusters labels that one-vs-rest classifiers confuse on held-out rows, and trains these "
    'classifiers for it. "random" is for comparison. A `Tree` or a taxonomy, which is a list of '
    "(parent, child), is used as it is."
)
_EMBEDDING_DIM = 100  # dimensions of the label vectors that "rembrandt" clusters; not tuned
_BALANCE = 10.0  # largest ratio of the sizes of sibling sets; see docs/trees.md, "Which tree"
_N_CONFUSED = 5  # best labels of a row that count as confused; see docs/trees.md, "Which tree"


@settings
class TreeSearchSettings(Settings):
    """The shape of a tree of labels, and how to search it."""

    branching: int | None = param(
        default=None,
        least=2,
        help="Most children of a node. Larger is a shallower tree: more accurate, slower. The "
        "default is n_labels ** (1 / depth).",
    )
    depth: int = param(
        default=2,
        least=1,
        help="Most edges from the root to a leaf. Larger is faster with very many labels, and "
        "less accurate.",
        tune=OneOf((1, 2, 3)),
    )
    beam_width: int = param(
        default=10,
        least=1,
        help="Nodes kept at each level while searching; 1 follows one path, as the paper does. "
        "Larger is more accurate and slower.",
        tune=Between(1, 50, log=True),
    )


def choose_tree(
    tree: TreeChoice, rows: Rows, *, branching: int | None, depth: int, rng: Rng
) -> Tree:
    """Return the tree of a choice; with None for `branching` it has about `depth` levels."""
    n_labels = rows.n_labels
    if isinstance(tree, Tree):
        if tree.check().n_labels != n_labels:
            raise ValueError(f"tree has {tree.n_labels} labels but Y has {n_labels}")
        return tree
    if not isinstance(tree, str):
        names = rows.known.label_names
        return hierarchy_tree(tree, list(map(str, range(n_labels) if names is None else names)))
    branching = branching or max(2, int(np.ceil(n_labels ** (1.0 / depth))))
    if tree == "random":
        return random_tree(n_labels, branching=branching, depth=depth, rng=rng)
    shape: dict[str, Any] = {"branching": branching, "depth": depth, "balance": _BALANCE}
    if tree == "confusion":
        A = surrogate_confusion(rows, min(_N_CONFUSED, n_labels), rng)
        return spectral_tree(A, rng=rng, n_jobs=rows.n_jobs, **shape)
    embedding = rembrandt(Ridge(rows), min(_EMBEDDING_DIM, n_labels), rng=rng)
    # Each direction is weighted by how well rows predict it, because weak directions are noise.
    V = embedding.vectors * np.maximum(embedding.values, 0)
    return balanced_tree(V, rng=rng, n_jobs=rows.n_jobs, **shape)
