"""Label embedding trees: rows and the nodes of a label tree in one space."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck, check_at_least, check_one_of
from labelry.embeddings.joint import JointMap, random_start, unit_start
from labelry.embeddings.violations import Paths, TreeViolations
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows
from labelry.systems.joint_embedding import RankingEmbedding, Start, rembrandt_start
from labelry.systems.tree_choice import TreeChoice, check_tree_choice, choose_tree
from labelry.trees.search import beam_search_vectors
from labelry.trees.structure import Tree

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_SHARPNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class LabelEmbeddingTree(RankingEmbedding):
    """A label tree whose nodes are vectors in the space that rows are mapped to.

    One map W for all nodes and one short vector per node, trained on the tree loss: at each step
    down, the node that holds the true label must beat its siblings. A prediction maps the row
    once and then walks down the tree, so it costs O(embedding_dim (nonzeros + log n_labels)).
    Choose it for very fast prediction with very many labels.

    Parameters
    ----------
    embedding_dim : int
        Dimensions of the space. Larger is more accurate up to a point, and slower.
    tree : {"rembrandt", "confusion", "random"}, Tree or edges
        "rembrandt" clusters a label embedding. "confusion" (Algorithm 2) clusters labels that a
        one-vs-rest classifier confuses on held-out rows: needs that classifier. "random" is
        for comparison. Or a tree that is given, or a taxonomy: a list of (parent, child).
    branching : int, optional
        Most children of a node. Larger is a shallower tree: more accurate, slower. By default
        the root of order `depth` of the number of labels.
    depth : int
        Most edges from the root to a leaf.
    beam_width : int
        Nodes followed at each level; 1 is the paper's Algorithm 3. Larger is more accurate and
        slower.
    start : {"rembrandt", "random"}
        Where to begin: from the randomized embedding, or from random vectors as in the paper.
    rate : float
        Length of the first steps relative to W and V. Larger learns faster and less finely.
    regularization : float
        Shrinking of W. Larger fits the training rows less closely.
    max_epochs : int
        Most passes over the rows; the best is kept, by held-out rows.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    tree_ : Tree
    regressor_ : LinearMap
        From features to the space.
    node_vectors_ : array (n_nodes, embedding_dim)
        Vectors within the unit ball; that of the root is not used.
    sharpness_ : float
        Factor on the scores of nodes before their softmax, chosen on held-out rows.
    score_threshold_ : float

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.2.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> model = LabelEmbeddingTree(branching=2).fit(X, list("aabbccdd"))
    >>> model.predict(X[::2]).tolist()
    ['a', 'b', 'c', 'd']
    """

    system: ClassVar[str] = "label-embedding-tree"

    def __init__(
        self,
        *,
        embedding_dim: int = 100,
        tree: TreeChoice = "rembrandt",
        branching: int | None = None,
        depth: int = 2,
        beam_width: int = 10,
        start: Start = "rembrandt",
        rate: float = 0.3,
        regularization: float = 0.1,
        max_epochs: int = 20,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.tree = tree
        self.branching = branching
        self.depth = depth
        self.beam_width = beam_width
        self.start = start
        self.rate = rate
        self.regularization = regularization
        self.max_epochs = max_epochs
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        X = self._scaled(X)
        self.tree_ = choose_tree(
            self.tree,
            Rows(X, Y, n_jobs=self.n_jobs),
            self.classes_,
            branching=self.branching,
            depth=self.depth,
            n_jobs=self.n_jobs,
            rng=rng,
        )
        if self.start == "rembrandt":
            labels = unit_start(rembrandt_start(X, Y, self.embedding_dim, self.n_jobs, rng))
            # A node begins at the mean of the labels below it.
            start = unit_start(JointMap(labels.regressor, self.tree_.label_sets @ labels.vectors))
        else:
            start = random_start(X.shape[1], self.tree_.n_nodes, self.embedding_dim, rng)
        violations = TreeViolations(Y, _paths(self.tree_), n_jobs=resolve_jobs(self.n_jobs))
        self._learn(X, Y, start, violations, rng)

    def _set(self, found: JointMap) -> None:
        self.regressor_, self.node_vectors_ = found

    def _judged(self, Z: F32, Y: csr_array, k: int) -> float:
        """Their best over sharpnesses of the softmax, which stays; the smallest of equals."""
        scores = {}
        for sharpness in _SHARPNESS:
            self.sharpness_ = sharpness
            scores[sharpness] = super()._judged(Z, Y, k)
        self.sharpness_ = max(scores, key=scores.__getitem__)
        return scores[self.sharpness_]

    def _ranked(self, Z: F32, k: int) -> tuple[Ints, F32]:
        # Algorithm 3, with a beam.
        return beam_search_vectors(
            self.tree_,
            self.node_vectors_,
            Z,
            k,
            beam_width=self.beam_width,
            sharpness=self.sharpness_,
            n_jobs=resolve_jobs(self.n_jobs),
        )

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        LabelRanker._check_stored(self, check, n_features, n_labels)  # it has no label vectors
        check.kind("tree_", self.tree_, Tree)
        self.tree_.check_stored(check, n_labels)
        dim = check.width("node_vectors_", self.node_vectors_)
        check.array("node_vectors_", self.node_vectors_, self.tree_.n_nodes, dim)
        check.number("sharpness_", self.sharpness_)
        self._check_map(check, n_features, dim)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_one_of("start", self.start, ("rembrandt", "random"))
        check_tree_choice(self.tree, self.branching)
        for name in ("depth", "beam_width"):
            check_at_least(name, getattr(self, name), 1)


def _paths(tree: Tree) -> Paths:
    return Paths(tree.first_child, tree.parent, tree.leaves().ptr, *tree.paths())
