"""Estimators that search trees of labels or of rows."""

from __future__ import annotations

from labelry.estimators.base import LabelRanker, estimator
from labelry.trees.conditional_probability_tree import (
    ConditionalProbabilityTreeSettings,
    fit_conditional_probability_tree,
)
from labelry.trees.fastxml import FastXMLSettings, fit_fastxml
from labelry.trees.filter_tree import FilterTreeSettings, fit_filter_tree
from labelry.trees.label_tree import LabelTreeSettings, fit_label_tree
from labelry.trees.linear import LinearTreeSettings, fit_linear_trees
from labelry.trees.lpsr import LPSRSettings, fit_lpsr


@estimator("linear-tree", fit_linear_trees, example="depth=2")
class LinearLabelTree(LabelRanker, LinearTreeSettings):
    """Pruned linear classifiers on one or more shallow trees of labels, searched with a beam.

    Labels with similar rows share a branch. Each child of a node is set against its siblings, on
    the rows that reach the node: the work of one-vs-rest on a small part of the rows. A label of
    very many rows is in no branch of a single tree: its classifier learns from all rows, which is
    more accurate, and no more work than its rows would be in a branch. About
    as accurate as one-vs-rest with few labels and better with rare ones, at a fraction of the
    time and memory. Choose it for sparse rows, such as tf-idf, and thousands of labels or more.

    Notes
    -----
    Scores are products of sigmoids of the margins along a path: between 0 and 1, not calibrated.

    References
    ----------
    Prabhu et al.: Parabel: partitioned label trees for extreme classification, 2018.
    Khandagale, Xiao, Babbar: Bonsai: diverse and shallow trees for extreme multi-label
    classification, 2020. Yu et al.: PECOS: prediction for enormous and correlated output spaces,
    2022.
    """


@estimator("label-tree", fit_label_tree, by_passes=False)
class LabelTree(LabelRanker, LabelTreeSettings):
    """A tree of labels with a linear predictor at each node, searched with a beam.

    Prediction looks at a few nodes of each level, so its time grows with the logarithm of the
    number of labels (Algorithm 1 with ``beam_width=1``). The nodes are trained together for the
    loss of the whole tree. Choose it when one-vs-rest is too slow to train or to search.

    Notes
    -----
    Scores are products of the nodes' softmax (or sigmoid) probabilities: between 0 and 1, not
    calibrated. Memory: for each inner node, its children times the features of its rows.

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 2.
    """


@estimator("filter-tree", fit_filter_tree, by_passes=False)
class FilterTree(LabelRanker, FilterTreeSettings):
    """A random binary tree of labels whose nodes learn which side wins a tournament.

    Nodes are trained from the leaves up, each only on the rows whose label has won all
    rounds below it. Prediction follows one path down, so it is very fast; accuracy is low. Choose
    it to compare with.

    Notes
    -----
    Scores are products of the sigmoids of the margins on the path: between 0 and 1, not
    calibrated.

    References
    ----------
    Beygelzimer, Langford, Ravikumar: Error-correcting tournaments, 2009, section 3 (Filter-train).
    """


@estimator(
    "conditional-probability-tree",
    fit_conditional_probability_tree,
    by_passes=False,
    example="C=10.0",
)
class ConditionalProbabilityTree(LabelRanker, ConditionalProbabilityTreeSettings):
    """A binary tree of logistic regressions; a leaf's probability is the product on its path.

    The tree grows online: the first row of a new label walks down, at each node to the side
    that the regressor prefers, or that has fewer leaves, and splits the leaf where it arrives.
    Choose it to compare with, or for fast probabilities.

    Notes
    -----
    The regressors that grow the tree are online and share a table of hashed weights. They are then
    replaced: the final ones are trained to convergence on the finished tree, which is more accurate
    than the published online ones.

    References
    ----------
    Beygelzimer, Langford, Lifshits, Sorkin, Strehl: Conditional probability tree estimation
    analysis and algorithms, 2009.
    """


@estimator("fastxml", fit_fastxml, by_passes=False)
class FastXML(LabelRanker, FastXMLSettings):
    """Trees that split the rows so that each side has one good ranking of its labels.

    A node sends similar label sets to the same side: sides and rankings are chosen in turn to
    raise nDCG, and a sparse linear separator then learns the sides from the features. A leaf
    keeps how often each label occurs on its rows; the trees are averaged. Choose it for fast
    prediction (one path per tree) and rows with many labels each.

    Scores are the mean shares of rows with a label in the leaves, between 0 and 1.

    Notes
    -----
    Time of a tree: its depth, times the nonzeros of Y for each round (a few) and those of X for
    each sweep (at most a hundred) at a node. Of a query: the weights on one path per tree.

    As the authors' program does, a node finds its separator once, when the sides have settled,
    and weighs the two sides equally. In addition, rows that all have the same labels are not split.

    References
    ----------
    Prabhu, Varma: FastXML: a fast, accurate and stable tree-classifier for extreme multi-label
    learning, 2014.
    """


@estimator("lpsr", fit_lpsr, by_passes=False, example="max_leaf_size=2")
class LPSR(LabelRanker, LPSRSettings):
    """Label partitioning for sublinear ranking: a base ranker that looks at few labels.

    A tree of clusters leads a row to a leaf, and the base ranks only the labels of that leaf.
    Rows that the base ranks well have more weight in the clustering; the labels of a leaf are
    those with which the base has the best precision at `top_k` on its rows. Choose it to
    make one-vs-rest faster, at about the same accuracy.

    Scores are those of the base: margins, or log odds. 0 is the boundary.

    Notes
    -----
    Time of a query: the centres on one path, and the labels of one leaf, for each of its
    features. Training costs what the base does, and its scores of all labels for all rows.

    The labels of a leaf maximise the paper's relaxation of precision at k, with a sigmoid, but by
    Frank-Wolfe steps, which keep to the number of labels. Clusters are balanced.

    References
    ----------
    Weston, Makadia, Yee: Label partitioning for sublinear ranking, 2013.
    """
