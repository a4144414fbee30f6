"""Label embedding trees: rows and the nodes of a label tree in one space.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from labelry.arrays import F32, Ints, Rng
from labelry.embeddings.joint_descent import JointMap, random_start, rembrandt_start, unit_start
from labelry.embeddings.ranked_space import JointSettings, RankedSpace, learn_space, rows_to_learn
from labelry.embeddings.violations import Paths, TreeViolations
from labelry.linalg.rows import Rows
from labelry.parameters import param, settings
from labelry.storage.values import AtLeast, Sizes
from labelry.trees.choice import TREE_HELP, TreeChoice, TreeSearchSettings, choose_tree
from labelry.trees.search import beam_search_vectors
from labelry.trees.structure import Tree

_SHARPNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # candidates; held-out rows choose; not tuned


@settings
class LabelEmbeddingTreeSettings(JointSettings, TreeSearchSettings):
    """How to find a tree of labels, embed its nodes and search it."""

    tree: TreeChoice = param(default="rembrandt", help=TREE_HELP)


@dataclass(frozen=True, eq=False)
class EmbeddedTree(RankedSpace):
    """A label tree whose nodes have vectors in the space of the rows."""

    tree: Annotated[Tree, Sizes(n_nodes="n_nodes")]
    # Vectors within the unit ball; that of the root is not used.
    node_vectors: Annotated[F32, "n_nodes", "embedding_dim"]
    sharpness: float  # factor on the scores of nodes before their softmax, from held-out rows
    beam_width: Annotated[int, AtLeast(1)]

    def ranked(self, Z: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the labels of the k best leaves that Algorithm 3 finds, with a beam."""
        how: dict[str, Any] = {"beam_width": self.beam_width, "sharpness": self.sharpness}
        return beam_search_vectors(self.tree, self.node_vectors, Z, k, **how, n_jobs=n_jobs)


def fit_label_embedding_tree(
    rows: Rows, settings: LabelEmbeddingTreeSettings, rng: Rng
) -> EmbeddedTree:
    """Choose a tree, then learn W and the node vectors together on the tree loss."""
    rows, _, Y = rows_to_learn(rows, settings, "label-embedding-tree")
    branching, depth = settings.branching, settings.depth
    tree = choose_tree(settings.tree, rows, branching=branching, depth=depth, rng=rng)
    if settings.start == "rembrandt":
        labels = rembrandt_start(rows, settings.embedding_dim, rng)
        # A node begins at the mean of the labels below it.
        start = unit_start(labels._replace(vectors=tree.label_sets @ labels.vectors))
    else:
        start = random_start(rows.n_features, tree.n_nodes, settings.embedding_dim, rng)

    def trees(found: JointMap) -> list[EmbeddedTree]:
        fixed = (found.regressor, 0.0, settings.normalize, tree, found.vectors)
        return [EmbeddedTree(*fixed, each, settings.beam_width) for each in _SHARPNESS]

    paths = Paths(tree.first_child, tree.parent, tree.leaves().ptr, *tree.paths())
    violations = TreeViolations(Y, paths, n_jobs=rows.n_jobs)
    return learn_space(rows, start, violations, settings, trees, rng)
