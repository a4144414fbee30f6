"""Estimators that learn a space of rows and labels by ranking true labels above wrong ones."""

from __future__ import annotations

from labelry.embeddings.joint_embedding import (
    JointEmbeddingSettings,
    SequentialEmbeddingSettings,
    WSABIESettings,
    fit_joint_embedding,
    fit_sequential_embedding,
)
from labelry.estimators.base import LabelRanker, estimator
from labelry.trees.label_embedding_tree import LabelEmbeddingTreeSettings, fit_label_embedding_tree


@estimator("joint-embedding", fit_joint_embedding, by_passes=False)
class JointEmbedding(LabelRanker, JointEmbeddingSettings):
    """Rows and labels in one space, learnt together: the non-convex label embedding.

    Stochastic gradient descent on W and V so that (W x)'V_y exceeds (W x)'V_j by a margin for each
    true label y and wrong label j. More accurate than embeddings that are found before the
    regressor; choose it for a small model with fast prediction when there are many rows per label.

    Notes
    -----
    Scores are inner products less a threshold: above zero is a yes, and rows then have as many
    labels as they should, on average. An epoch costs O(n_rows embedding_dim (n_labels + nonzeros
    of a row)). Beyond 16,384 labels a batch of rows looks at a random choice of as many.

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.1.
    """


@estimator("wsabie", fit_joint_embedding, by_passes=False)
class WSABIE(LabelRanker, WSABIESettings):
    """Joint embedding with the WARP loss, which weighs the top of the ranking most.

    Learns as `JointEmbedding` does, but draws wrong labels until one comes too close to the true
    label. The number of draws N gives the weight 1 + 1/2 + ... + 1/r of the step,
    r = (n_labels - 1) / N. Choose it where the first few labels of many have to be right.

    Notes
    -----
    Scores are as in `JointEmbedding`: above zero is a yes.

    References
    ----------
    Weston, Bengio, Usunier: WSABIE: scaling up to large vocabulary image annotation, 2011.
    """


@estimator("sequential-embedding", fit_sequential_embedding, by_passes=False)
class SequentialEmbedding(LabelRanker, SequentialEmbeddingSettings):
    """Label vectors from confusions first, then the map of rows: a sequence of convex problems.

    One-vs-rest classifiers tell which labels are confused; Laplacian eigenmaps put those close
    together; and a max-margin W maps rows nearer to their own label than to any other
    (constraint 6). Here for comparison: `JointEmbedding` is more accurate and needs no one-vs-rest
    classifiers.

    Notes
    -----
    Scores are distances, negated, less a threshold: above zero is a yes.

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.1.
    """


@estimator("label-embedding-tree", fit_label_embedding_tree, by_passes=False, example="branching=2")
class LabelEmbeddingTree(LabelRanker, LabelEmbeddingTreeSettings):
    """A label tree whose nodes are vectors in the space that rows are mapped to.

    One map W for all nodes and one short vector per node, trained on the tree loss: at each step
    down, the node that holds the true label must beat its siblings. A prediction maps the row
    once and then walks down the tree, so it costs O(embedding_dim (nonzeros + log n_labels)).
    Choose it for very fast prediction with very many labels.

    Notes
    -----
    Scores are logarithms of products of softmaxes along a path, less a threshold: above zero is a
    yes.

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.2.
    """
