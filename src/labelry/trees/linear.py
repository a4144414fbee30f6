"""Linear classifiers on shallow trees of labels: quick to train, and accurate.

Prabhu et al.: Parabel: partitioned label trees for extreme classification, 2018.
Khandagale, Xiao, Babbar: Bonsai: diverse and shallow trees for extreme multi-label classification,
2020. Yu et al.: PECOS: prediction for enormous and correlated output spaces, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from scipy.sparse import csr_array, hstack

from labelry.arrays import F32, I32, Bools, Ints, Rng
from labelry.checks import StoredCheck
from labelry.errors import ParameterError
from labelry.linalg.dual_descent import MarginLoss
from labelry.linalg.matrices import Matrix, main_rows, scaled_rows
from labelry.linalg.parallel import stream
from labelry.linalg.rows import Block, Rows
from labelry.linalg.sketch import leading_vectors
from labelry.parameters import Between, OneOf, Settings, param, settings
from labelry.progress import counted, phase
from labelry.ranking.ranker import Contributions, Ranker
from labelry.storage.values import AtLeast, Sizes
from labelry.trees.choice import TreeChoice, choose_tree
from labelry.trees.learn import shallow_tree, side_by_side
from labelry.trees.linear_train import Again, Training, train_linear
from labelry.trees.sparse_search import search_forest
from labelry.trees.sparse_weights import PackedWeights
from labelry.trees.structure import Tree

FEW_LABELS = 1000  # most labels for which the first tree is one-vs-rest; not tuned
# docs/limits.md says which rows these two were chosen on.
_JOINT = {"copies": 1, "prune": 0.16}
_FAST = {"n_trees": 3, "prune": 0.14, "beam_width": 6}
_COPIES = 3  # copies of the label centroids in memory while they are clustered
_LEAST_ENTRY = 0.05  # smaller entries of a unit centroid are dropped; not tuned
_ROUNDS = 1  # of the descent; two are no more accurate, and take half as long again.
_ROUNDS_OF_ONE_LEVEL = 2  # A tree of one level is more accurate with two.
_ONE_BYTE = 256  # numbers that one byte can hold
_RARE = 40  # a label on fewer than one row in so many is always in a cluster; not tuned
_VECTOR_DIM = 100  # dimensions of label vectors; not tuned
_SHARE_OF_SETS = 0.1  # weight in label vectors of the classifiers of sets; not tuned
_EXPLAINED = 100  # best labels of a row, among which the score of an explained label is looked up


@settings
class LinearTreeSettings(Settings):
    """How to find trees of labels, train their classifiers and search them."""

    tree: Literal["centroids"] | TreeChoice = param(
        default="centroids",
        help='The grouping of labels. "centroids" clusters them by the mean of their rows. The '
        "other values are those of `LabelTree`.",
        tune=OneOf(("centroids", "rembrandt")),
    )
    n_trees: int = param(
        default=1,
        least=1,
        help="Trees whose scores are averaged. More are more accurate and slower; three are usual.",
        tune=OneOf((1, 2, 3, 5)),
    )
    branching: int | None = param(
        default=None,
        least=2,
        help="Most parts a set of labels is cut into. Larger is a wider tree: more accurate up to "
        "a point, slower. The default is 2 * n_labels ** (1 / depth); with depth 2 and up to "
        "32,768 labels it is at most 256.",
    )
    depth: int | None = param(
        default=None,
        least=1,
        help="Most edges from the root to a leaf. Larger trains faster with very many labels, and "
        "is less accurate. By default 2; the first tree of up to 1,000 labels has 1, which is "
        "one-vs-rest.",
        tune=OneOf((1, 2, 3)),
    )
    beam_width: int = param(
        default=10,
        least=1,
        help="Nodes kept at each level while searching. Larger is more accurate and slower.",
        tune=Between(5, 50, log=True),
    )
    copies: int = param(
        default=0,
        least=0,
        help="Most further places of a label in the tree, in clusters about as close to it as its "
        "own. More tolerate more search errors, and take more time and memory. For one tree.",
    )
    loss: MarginLoss = param(
        default="squared_hinge",
        help="The loss of the classifiers. The first is quicker, and usually more accurate.",
    )
    C: float = param(
        default=1.25,
        above=0,
        help="Weight of the losses against the regulariser, for a node of 400 rows. With n rows it "
        "is multiplied by (400 / n) ** 0.25. Larger fits the training rows more closely.",
        tune=Between(0.1, 30.0, log=True),
    )
    prune: float = param(
        default=0.1,
        least=0,
        help="Drop weights of at most this absolute value, and round the others to one byte. "
        "Larger is a smaller model, less accurate. With 0 all weights stay as they are.",
        tune=Between(0.01, 0.3, log=True),
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")

    def check_together(self) -> None:
        given, n = not isinstance(self.tree, str), self.n_trees
        if given and n > 1:
            raise ParameterError("n_trees", f"must be 1 with a tree that is given, got {n}")
        if self.copies > 0 and (n > 1 or given or self.tree != "centroids"):
            rule = "must be 0 with several trees, or one not of centroids"
            raise ParameterError("copies", f"{rule}; got {self.copies}")


def single_tree_options(n_labels: int) -> dict[str, Any]:
    """Return settings for one tree: labels in two places, and more pruning so that it is no larger.

    They were chosen on held-out rows of WordNet and Debian packages.
    """
    return _JOINT if n_labels > FEW_LABELS else {}


def fast_options(n_labels: int) -> dict[str, Any]:
    """Return settings for three trees that are about as large and as quick to search as one.

    They were chosen on held-out rows of WordNet and Debian packages, and on test rows of sets of
    ICD-10-CM codes, of suggested packages and of maintainers.
    """
    return _FAST if n_labels > FEW_LABELS else {}


@dataclass(frozen=True, eq=False)
class LinearTrees(Ranker):
    """Pruned linear classifiers on one or more shallow trees of labels.

    Scores are products of sigmoids of the margins along a path: between 0 and 1, not calibrated.
    """

    tree: Annotated[Tree, Sizes(n_nodes="n_nodes")]  # below its root are the roots of several
    roots: Annotated[I32, "n_trees"]  # where searches begin
    weights: Annotated[PackedWeights, Sizes(n_nodes="n_nodes")]
    n_features: int
    beam_width: Annotated[int, AtLeast(1)]
    normalize: bool

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k labels with the best paths that a beam search finds."""
        X, how = scaled_rows(X) if self.normalize else X, (self.tree, self.roots, self.weights)
        return search_forest(*how, X, k, beam_width=self.beam_width, n_jobs=n_jobs)

    def label_vectors(self) -> F32:
        """Return the positive weights on the way to each label, in few dimensions (n_labels, k)."""
        nodes = self.weights.by_node(self.tree, self.n_features)
        nodes.data = np.maximum(nodes.data, 0)
        nodes = scaled_rows(nodes)
        share = np.where(self.tree.label < 0, np.float32(_SHARE_OF_SETS), np.float32(1))
        nodes.data *= np.repeat(share, np.diff(nodes.indptr))
        A = scaled_rows(csr_array(self.tree.label_sets.T @ nodes))
        return leading_vectors(A, _VECTOR_DIM)

    def path_weights(self, label: int) -> tuple[I32, csr_array, F32]:
        """Return the classifiers on the way to a label: nodes, weights (m, n_features) and bias.

        The m nodes go from below a root to the label, in one tree after the other. A positive
        product of a weight with a (scaled) feature of a row raises the score of the label.
        """
        parent, roots, upwards = self.tree.parent, set(self.roots.tolist()), []
        for node in np.flatnonzero(self.tree.label == label)[::-1].tolist():
            while node not in roots:
                upwards.append(node)
                node = int(parent[node])
        nodes = np.array(upwards[::-1], dtype=np.int32)
        columns, first = [], self.tree.first_child[parent[nodes]]
        for node, place in zip(parent[nodes], nodes - first, strict=True):
            columns.append(self.weights.chunk(self.tree, node, self.n_features)[:, [place]])
        return nodes, csr_array(hstack(columns).T), self.weights.bias[nodes]

    def contributions(self, x: Matrix, label: int) -> Contributions:
        """Return what each feature of a row adds to the margin of a label (mean of its places).

        There are no contributions for a label that was added after the trees were trained.
        """
        row = csr_array(x)
        if label >= self.tree.n_labels:
            return Contributions(row.indices[:0], np.zeros(0), 0.0)
        _, weights, bias = self.path_weights(label)
        summed = np.asarray(weights[:, row.indices].sum(axis=0), dtype=np.float64).ravel()
        n_paths = np.count_nonzero(self.tree.label == label)
        total = float(bias.sum(dtype=np.float64)) / n_paths
        return Contributions(row.indices, summed * row.data / n_paths, total)

    def scored(
        self, x: Matrix, label: int, n_jobs: int = 1
    ) -> tuple[float | None, dict[str, float]]:
        """Return the score of a label for one row, None if the search does not find it."""
        return score_of(self, x, label, n_jobs), {}

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless weights and roots are those of the tree."""
        self.weights.check_fits(check, self.tree, self.n_features)
        several = len(self.roots) > 1
        first, end = (1, self.tree.first_child[1]) if several else (0, 1)
        if check.values and not np.array_equal(self.roots, np.arange(first, end)):
            raise ValueError("roots must be the root of the tree, or all of its children")


def score_of(ranker: Ranker, x: Matrix, label: int, n_jobs: int) -> float | None:
    """Return the score of a label for one row, None if it is not among the best 100."""
    ids, scores = ranker.topk(x, _EXPLAINED, n_jobs)
    place = np.flatnonzero(ids[0] == label)
    return float(scores[0, place[0]]) if len(place) else None


def fit_linear_trees(
    rows: Rows, settings: LinearTreeSettings, rng: Rng, further: Matrix | None = None
) -> LinearTrees:
    """Cluster the labels into trees, and train a classifier for each child of each node.

    `further` (n_labels, n_features) holds centroids of labels without rows. They give such a label
    its place in the tree.
    """
    rows = (rows.unit() if settings.normalize else rows).kept()
    tree, roots = grow_trees(rows, settings, rng, further)
    weights = train_linear(rows, tree, roots, _training(settings, tree), rng=rng)
    return LinearTrees(
        tree, roots, weights, rows.n_features, settings.beam_width, settings.normalize
    )


def train_linear_trees(
    rows: Rows, settings: LinearTreeSettings, tree: Tree, roots: I32, rng: Rng
) -> LinearTrees:
    """Train the classifiers of given trees, on rows that are already scaled as the settings say."""
    weights = train_linear(rows, tree, roots, _training(settings, tree), rng=rng)
    how = (rows.n_features, settings.beam_width, settings.normalize)
    return LinearTrees(tree, roots, weights, *how)


def retrain_nodes(
    before: LinearTrees, rows: Rows, settings: LinearTreeSettings, nodes: Bools, rng: Rng
) -> LinearTrees:
    """Train the classifiers of the chosen nodes (n_nodes,) again, on these rows."""
    how, again = _training(settings, before.tree), Again(before.weights, nodes)
    weights = train_linear(rows, before.tree, before.roots, how, again=again, rng=rng)
    return replace(before, weights=weights)


def _training(settings: LinearTreeSettings, tree: Tree) -> Training:
    rounds = _ROUNDS_OF_ONE_LEVEL if tree.depth[-1] <= 1 else _ROUNDS
    return Training(settings.loss, settings.C, settings.prune, rounds=rounds)


def grow_trees(
    rows: Rows, settings: LinearTreeSettings, rng: Rng, further: Matrix | None = None
) -> tuple[Tree, I32]:
    """Return the trees of rows that are already scaled, and the roots where searches begin."""
    tree, depth = settings.tree, settings.depth
    if depth == 1 or not isinstance(tree, str):
        depths = [depth or 2]  # one tree: further ones would be the same
    else:
        first = depth or (1 if rows.n_labels <= FEW_LABELS else 2)
        depths = [first] + [depth or 2] * (settings.n_trees - 1)
    V = None
    if isinstance(tree, str) and tree == "centroids":
        with phase("averaging the rows of each label"):
            V = rows.sum_blocks(_centroids)
            V = V if further is None else V + further
        rows.require(
            _COPIES * 8 * V.size,  # stored entries, if it is sparse
            f"a tree of the centroids of {rows.n_labels:,} labels",
            "give more memory, or another tree, such as rembrandt",
        )
        V = main_rows(V, _LEAST_ENTRY)
    n_jobs = rows.n_jobs
    at_once = n_jobs if V is not None and len(depths) > 1 else 1
    tasks = [
        (rows, settings, V, own_depth, own, n_jobs if at_once == 1 else 1)
        for own_depth, own in zip(depths, rng.spawn(len(depths)), strict=True)
    ]
    found = stream(_one_tree, tasks, at_once)  # progress inside of a thread is not shown
    trees = list(found if at_once == 1 else counted(found, "grouping labels", len(tasks), "trees"))
    if len(trees) == 1:
        return trees[0], np.zeros(1, dtype=np.int32)
    return side_by_side(trees), np.arange(1, len(trees) + 1, dtype=np.int32)


def _one_tree(
    rows: Rows, settings: LinearTreeSettings, V: Matrix | None, depth: int, rng: Rng, n_jobs: int
) -> Tree:
    # Up to 256 clusters, of up to 128 labels each, are preferred to more clusters: the numbers of
    # clusters, and of labels within one, then fit into one byte.
    even = int(2 * rows.n_labels ** (1.0 / depth))
    most = even if depth != 2 else max(_ONE_BYTE, 2 * rows.n_labels // _ONE_BYTE)
    branching = settings.branching or max(2, min(even, most))
    if V is None:
        choice: Any = settings.tree  # not "centroids"
        return choose_tree(choice, rows, branching=branching, depth=depth, rng=rng)
    alone = None  # labels with so many rows that they are better in no cluster
    if settings.n_trees == 1 and depth > 1:
        # In a cluster of m labels, the rows of each label are training rows of m classifiers.
        in_cluster = min(rows.n_labels / branching ** (depth - 1), _RARE)
        alone = rows.label_counts() * in_cluster >= rows.n_rows
    shape: dict[str, Any] = {"branching": branching, "depth": depth, "copies": settings.copies}
    return shallow_tree(V, **shape, alone=alone, rng=rng, n_jobs=n_jobs)


def _centroids(block: Block) -> Matrix:
    """Return the sum of the rows of each label, (n_labels, n_features)."""
    return csr_array(block.side("Y").T) @ block.X  # converts Y to CSR; otherwise scipy converts X
