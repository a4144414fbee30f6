"""Label trees: their structure as data, how it is learnt, and how it is written down."""

from labelry.trees.export import from_json, text_outline, to_graphviz, to_json, to_newick
from labelry.trees.hierarchy import hierarchy_tree, read_hierarchy
from labelry.trees.learn import balanced_tree, confusion, random_tree, spectral_tree
from labelry.trees.structure import Lists, Tree, TreeSummary

__all__ = [
    "Lists",
    "Tree",
    "TreeSummary",
    "balanced_tree",
    "confusion",
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
