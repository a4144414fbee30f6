"""Trees of labels and trees of rows: structure, learners, node predictors, search and export.

A method belongs here if its fitted value is searched along paths of a tree. Label vectors do not
(`labelry.embeddings`), nor does anything that ranks labels without a tree (`labelry.ranking`) or
that is made of several methods (`labelry.tagging`).
"""

from labelry.trees.export import from_json, text_outline, to_graphviz, to_json, to_newick
from labelry.trees.hierarchy import hierarchy_tree, read_hierarchy
from labelry.trees.learn import balanced_tree, random_tree, spectral_tree
from labelry.trees.structure import Tree

__all__ = [
    "Tree",
    "balanced_tree",
    "from_json",
    "hierarchy_tree",
    "random_tree",
    "read_hierarchy",
    "spectral_tree",
    "text_outline",
    "to_graphviz",
    "to_json",
    "to_newick",
]
