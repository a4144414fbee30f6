"""Linear classifiers on a shallow tree of labels: the strong and quick linear model."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, issparse
from sklearn.utils.validation import check_is_fitted

from labelry.checks import StoredCheck, check_at_least, check_one_of, check_positive
from labelry.data.labels import label_counts
from labelry.estimator import LabelRanker
from labelry.linalg.dual_descent import LOSSES, Loss
from labelry.linalg.matrices import Matrix, main_rows, scaled_rows
from labelry.linalg.parallel import resolve_jobs, run, stream
from labelry.linalg.rows import Block, Rows
from labelry.linalg.sketch import leading_vectors
from labelry.progress import phase
from labelry.systems.tree_choice import TreeChoice, check_tree_choice, choose_tree
from labelry.trees.former_weights import SparseWeights
from labelry.trees.linear_train import Again, train_linear
from labelry.trees.shallow import shallow_tree, side_by_side
from labelry.trees.sparse_search import search_forest
from labelry.trees.sparse_weights import PackedWeights
from labelry.trees.structure import Tree

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

FEW_LABELS = 1000  # up to here one classifier per label is the better tree, and quick enough
_JOINT = {"copies": 1, "prune": 0.16}
_FAST = {"n_trees": 3, "prune": 0.14, "beam_width": 6}
_COPIES = 3  # of label centroids, to cluster them
_LEAST_ENTRY = 0.05  # of a centroid of unit length: smaller ones tell labels hardly apart
_TOLERANCE = 0.1
_ROUNDS = 1  # two are no more accurate, and take half as long again;
_ROUNDS_OF_ONE_LEVEL = 2  # but where there is nothing but one-vs-rest they are, with few features
_MAX_SWEEPS = 20
_ONE_BYTE = 256
_RARE = 40  # a label on fewer than one row in so many is always in a cluster
_VECTOR_DIM = 100  # of label vectors
_SHARE_OF_SETS = 0.1  # in them, of the classifiers of sets that a label is in


def single_tree_options(n_labels: int) -> dict[str, Any]:
    """What makes the most of one tree: labels in two places, of no larger size for more pruning.

    Chosen on held-out rows of WordNet and Debian packages.
    """
    return _JOINT if n_labels > FEW_LABELS else {}


def fast_options(n_labels: int) -> dict[str, Any]:
    """Several trees that are about as large and as quick to search as one needs to be.

    Chosen on held-out rows of WordNet and Debian packages, and on test rows of sets of ICD-10-CM
    codes, of suggested packages and of maintainers.
    """
    return _FAST if n_labels > FEW_LABELS else {}


class LinearLabelTree(LabelRanker):
    """Pruned linear classifiers on one or more shallow trees of labels, searched with a beam.

    Labels with similar rows share a branch. Each child of a node is set against its siblings, on
    the rows that reach the node: the work of one-vs-rest on a small part of the rows. A label of
    very many rows is in no branch of a single tree: its classifier learns from all rows, which is
    more accurate, and no more work than its rows would be in a branch. About
    as accurate as one-vs-rest with few labels and better with rare ones, at a fraction of the
    time and memory. Choose it for sparse rows, such as tf-idf, and thousands of labels or more.

    Parameters
    ----------
    tree : {"centroids", "rembrandt", "confusion", "random"}, Tree or edges
        "centroids" clusters labels by the mean of their rows. The others are those of `LabelTree`.
    n_trees : int
        Trees whose scores are averaged. More are more accurate and slower; three are usual.
    branching : int, optional
        Most parts a set of labels is cut into. Larger is a wider tree: more accurate up to a point,
        slower. By default twice the root of order `depth` of the number of labels, but with up to
        32,768 labels at most 256.
    depth : int, optional
        Most edges from the root to a leaf. Larger trains faster with very many labels, and is less
        accurate. By default 2; the first tree of up to 1,000 labels has 1, which is one-vs-rest.
    beam_width : int
        Nodes kept at each level while searching; larger is more accurate and slower.
    copies : int
        Most further places of a label in the tree, where it is about as close to the others as in
        its own. More forgive more errors, and take more time and memory. For one tree.
    loss : {"squared_hinge", "logistic"}
        What the classifiers minimise. The first is quicker, and usually more accurate.
    C : float
        Weight of the losses against the regulariser, of a node of 400 rows; of more it is less, by
        the fourth root. Larger fits the training rows more closely.
    prune : float
        Drop weights of at most this absolute value, and round the others to one byte; larger is a
        smaller model, less accurate. With 0 all weights stay as they are.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

    Attributes
    ----------
    tree_ : Tree
        With several trees, their roots are the children of its root.
    roots_ : array (n_trees,)
        Where searches begin.
    weights_ : PackedWeights
    n_columns_ : int
        Features that the weights are for.

    Notes
    -----
    Scores are products of sigmoids of the margins along a path: between 0 and 1, not calibrated.

    References
    ----------
    Prabhu et al.: Parabel: partitioned label trees for extreme classification, 2018.
    Khandagale, Xiao, Babbar: Bonsai: diverse and shallow trees for extreme multi-label
    classification, 2020. Yu et al.: PECOS: prediction for enormous and correlated output spaces,
    2022.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> LinearLabelTree(depth=2).fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "linear-tree"

    def __init__(
        self,
        *,
        tree: Literal["centroids"] | TreeChoice = "centroids",
        n_trees: int = 1,
        branching: int | None = None,
        depth: int | None = None,
        beam_width: int = 10,
        copies: int = 0,
        loss: Loss = "squared_hinge",
        C: float = 1.25,
        prune: float = 0.1,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.tree = tree
        self.n_trees = n_trees
        self.branching = branching
        self.depth = depth
        self.beam_width = beam_width
        self.copies = copies
        self.loss = loss
        self.C = C
        self.prune = prune
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_rows(
        self, rows: Rows, rng: np.random.Generator, further: Matrix | None = None
    ) -> None:
        """As of every system. `further` are centroids of labels that these rows have not.

        (n_labels, n_features): the place in the tree that such a label would have.
        """
        self._check_parameters()
        rows = (rows.unit() if self.normalize else rows).kept()
        self._grow(rows, rng, further)
        self._train(rows, rng)

    def _fit_again(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> LinearLabelTree:
        """A model of these rows, of the length they have, on the trees of this one."""
        model = copy(self)
        model._train(Rows(X, Y, n_jobs=self.n_jobs), rng)
        return model

    def _grow(self, rows: Rows, rng: np.random.Generator, further: Matrix | None = None) -> None:
        """Find the trees, of rows of the length they have."""
        trees = self._trees(rows, rng, further)
        self.tree_ = trees[0] if len(trees) == 1 else side_by_side(trees)
        self.roots_ = np.arange(len(trees), dtype=np.int32) + (len(trees) > 1)

    def _train(
        self, rows: Rows, rng: np.random.Generator, chosen: NDArray[np.bool_] | None = None
    ) -> None:
        """Train the classifiers of these trees; again only those of the chosen nodes, if given."""
        self.n_columns_ = rows.n_features
        one_level = self.tree_.depth.max(initial=0) <= 1
        self.weights_: PackedWeights = train_linear(
            rows,
            self.tree_,
            self.roots_,
            loss=self.loss,
            C=self.C,
            prune=self.prune,
            tolerance=_TOLERANCE,
            max_sweeps=_MAX_SWEEPS,
            rounds=_ROUNDS_OF_ONE_LEVEL if one_level else _ROUNDS,
            again=None if chosen is None else Again(self.weights_, chosen),
            rng=rng,
            n_jobs=resolve_jobs(self.n_jobs),
        )

    def _trees(
        self, rows: Rows, rng: np.random.Generator, further: Matrix | None = None
    ) -> list[Tree]:
        if self.depth == 1 or not isinstance(self.tree, str):
            depths = [self.depth or 2]  # more of them would all be the same
        elif self.depth is not None:
            depths = [self.depth] * self.n_trees
        else:
            depths = [1 if rows.n_labels <= FEW_LABELS else 2] + [2] * (self.n_trees - 1)
        V = None
        if isinstance(self.tree, str) and self.tree == "centroids":
            with phase("label centroids"):
                V = rows.sum_blocks(_centroids)
                V = V if further is None else V + further
            rows.require(
                _COPIES * 8 * (V.nnz if issparse(V) else V.size),
                f"a tree of the centroids of {rows.n_labels:,} labels",
                "give more memory, or another tree, such as rembrandt",
            )
            V = main_rows(V, _LEAST_ENTRY)
        n_jobs = resolve_jobs(self.n_jobs)
        at_once = n_jobs if V is not None and len(depths) > 1 else 1
        tasks = [
            (rows, V, depth, own, n_jobs if at_once == 1 else 1)
            for depth, own in zip(depths, rng.spawn(len(depths)), strict=True)
        ]
        if at_once == 1:
            return run(self._one_tree, tasks, 1)
        trees = []
        with phase("trees", len(tasks), "trees") as advance:  # what threads do is not shown
            for tree in stream(self._one_tree, tasks, at_once):
                trees.append(tree)
                advance(1)
        return trees

    def _one_tree(
        self, rows: Rows, V: Matrix | None, depth: int, rng: np.random.Generator, n_jobs: int
    ) -> Tree:
        branching = self.branching or _default_branching(rows.n_labels, depth)
        if V is not None:
            one = self.n_trees == 1 and depth > 1
            return shallow_tree(
                V,
                branching=branching,
                depth=depth,
                copies=self.copies,
                alone=_alone(rows, branching ** (depth - 1)) if one else None,
                rng=rng,
                n_jobs=n_jobs,
            )
        return choose_tree(
            self.tree,  # type: ignore[arg-type]
            rows,
            self.classes_,
            branching=branching,
            depth=depth,
            n_jobs=n_jobs,
            rng=rng,
        )

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        return search_forest(
            self.tree_,
            self.roots_,
            self.weights_,
            self._scaled(X),
            k,
            beam_width=self.beam_width,
            n_jobs=resolve_jobs(self.n_jobs),
        )

    def label_vectors(self) -> F32:
        """What speaks for each label on the way to it, in few dimensions (n_labels, k)."""
        check_is_fitted(self)
        nodes = self.weights_.by_node(self.tree_, self.n_columns_)
        nodes.data = np.maximum(nodes.data, 0)
        nodes = scaled_rows(nodes)
        share = np.where(self.tree_.label < 0, np.float32(_SHARE_OF_SETS), np.float32(1))
        nodes.data *= np.repeat(share, np.diff(nodes.indptr))
        A = scaled_rows(csr_array(self.tree_.label_sets.T @ nodes))
        return leading_vectors(A, _VECTOR_DIM)

    def path_weights(self, label: int) -> tuple[NDArray[np.int32], csr_array, F32]:
        """What speaks for a label, by its column number: the classifiers on the way to it.

        Returns
        -------
        nodes : array (m,)
            Nodes of `tree_`, from below a root to the label, of one tree after the other.
        weights : csr_array (m, n_features)
            A positive product with a (scaled) feature of a row speaks for the label.
        bias : array (m,)
        """
        check_is_fitted(self)
        parent, roots, upwards = self.tree_.parent, set(self.roots_.tolist()), []
        for node in np.flatnonzero(self.tree_.label == label)[::-1].tolist():
            while node not in roots:
                upwards.append(node)
                node = int(parent[node])
        nodes = np.array(upwards[::-1], dtype=np.int32)
        columns = [
            self.weights_.chunk(self.tree_, parent[s], self.n_columns_)[
                :, [s - self.tree_.first_child[parent[s]]]
            ]
            for s in nodes.tolist()
        ]
        return nodes, csr_array(hstack(columns).T), self.weights_.bias[nodes]

    def _scaled(self, X: Matrix) -> Matrix:
        return scaled_rows(X) if self.normalize else X

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.kind("tree_", self.tree_, Tree)
        self.tree_.check_stored(check, n_labels)
        check.kind("weights_", self.weights_, PackedWeights, SparseWeights)
        self.weights_.check_stored(check, self.tree_, n_features)
        if isinstance(self.weights_, SparseWeights):
            self.weights_ = self.weights_.packed(self.tree_, n_features)
        check_one_of("n_columns_", self.n_columns_, (n_features,))
        check.kind("roots_", self.roots_, np.ndarray)
        n_trees = self.roots_.size
        check.array("roots_", self.roots_, n_trees, dtype="int32")
        if check.values:  # one root, or all its children
            n_roots = 1 if n_trees == 1 else self.tree_.first_child[1] - 1
            if (self.roots_ != np.arange(n_roots) + (n_trees > 1)).any():
                raise ValueError("roots_ must be the root of the tree, or all of its children")

    def _check_parameters(self) -> None:
        check_tree_choice(self.tree, self.branching, "centroids")
        if not isinstance(self.tree, str) and self.n_trees > 1:
            raise ValueError(f"n_trees must be 1 with a tree that is given, got {self.n_trees}")
        if self.copies > 0 and (self.n_trees > 1 or self.tree != "centroids"):
            raise ValueError(
                f"copies must be 0 with several trees, or one not of centroids; got {self.copies}"
            )
        check_one_of("loss", self.loss, LOSSES)
        for name, least in (("n_trees", 1), ("beam_width", 1), ("copies", 0), ("prune", 0)):
            check_at_least(name, getattr(self, name), least)
        if self.depth is not None:
            check_at_least("depth", self.depth, 1)
        check_positive("C", self.C)


def _default_branching(n_labels: int, depth: int) -> int:
    """Parts that a set is cut into.

    Rather than more than 256 clusters there are up to 128 labels in each: numbers of both then
    are of one byte.
    """
    even = int(2 * n_labels ** (1.0 / depth))
    return max(2, even if depth != 2 else min(even, max(_ONE_BYTE, 2 * n_labels // _ONE_BYTE)))


def _alone(rows: Rows, n_clusters: int) -> NDArray[np.bool_]:
    """Labels of so many rows that they are better in no cluster."""
    (counts,) = rows.reduce(_add_counts, (rows.n_labels,), dtype=np.float64)
    # In a cluster of m labels, the rows of each are losses of m classifiers.
    return counts * min(rows.n_labels / n_clusters, _RARE) >= rows.n_rows


def _add_counts(block: Block, counts: NDArray[np.float64]) -> None:
    counts += label_counts(block.side("Y"))


def _centroids(block: Block) -> Matrix:
    """Sum of the rows of each label, (n_labels, n_features)."""
    return csr_array(block.side("Y").T) @ block.X  # as CSR it is Y that is converted, not X
