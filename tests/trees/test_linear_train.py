"""Training the classifiers of a tree: each is the optimum of its own small problem."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from labelry.linalg.kernels import csr_parts
from labelry.linalg.rows import Rows
from labelry.trees import Tree, random_tree
from labelry.trees.learn import side_by_side
from labelry.trees.linear_train import Again, Training, gather_rows, large_weights, train_linear
from labelry.trees.sparse_weights import LEVELS, PackedWeights

ONE_ROOT = np.zeros(1, dtype=np.int32)


def problem(n: int = 150, d: int = 40, n_labels: int = 50) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(0)
    X = csr_array(random_array((n, d), density=0.2, random_state=rng, dtype=np.float32))
    Y = csr_array(random_array((n, n_labels), density=0.04, random_state=rng, dtype=np.float32))
    Y.data[:] = 1.0
    return X, Y


def train(X, Y, tree: Tree, roots=ONE_ROOT, again=None, n_jobs=1, **options) -> PackedWeights:
    how = Training(**{"prune": 0.0, "tolerance": 1e-4, "max_sweeps": 3000, **options})
    rows, rng = Rows(X, Y, n_jobs=n_jobs), np.random.default_rng(0)
    return train_linear(rows, tree, roots, how, again=again, rng=rng)


def linear_classifier(loss: str, C: float):
    """The same problem for scikit-learn, and what its weights are divided by."""
    if loss == "squared_hinge":
        return LinearSVC(C=C, tol=1e-5, max_iter=100_000), 1
    # log(1 + exp(-4 m)) with a margin of w'x is log(1 + exp(-m)) with one of 4 w'x.
    return LogisticRegression(C=16 * C, solver="liblinear", tol=1e-6, max_iter=10_000), 4


@pytest.mark.parametrize(
    ("n_trees", "loss"), [(1, "squared_hinge"), (2, "squared_hinge"), (1, "logistic")]
)
def test_a_child_is_set_against_its_siblings_on_the_rows_of_their_parent(
    n_trees: int, loss: str
) -> None:
    X, Y = problem()
    trees = [
        random_tree(50, branching=3 + i, depth=2, rng=np.random.default_rng(i)) for i in (0, 1)
    ]
    tree = trees[0] if n_trees == 1 else side_by_side(trees)
    roots = ONE_ROOT if n_trees == 1 else np.array([1, 2], dtype=np.int32)
    weights = train(X, Y, tree, roots, C=2.0, loss=loss)
    has = (tree.label_sets @ Y.T).toarray() > 0  # rows with a label below each node
    has[roots] = True
    for node in np.flatnonzero(tree.label < 0)[n_trees > 1 :]:
        first, rows = tree.first_child[node], has[node]
        W = weights.chunk(tree, node, X.shape[1]).toarray()
        for c in range(W.shape[1]):
            y = has[first + c, rows]
            if 0 < y.sum() < len(y):
                root_C = 0.8 if n_trees == 1 else 1.1
                below = 2.0 * (400 / rows.sum()) ** 0.25
                model, factor = linear_classifier(loss, root_C if node in roots else below)
                model.fit(X[rows].toarray(), y)
                if tree.label[first + c] < 0:
                    factor /= 0.875
                assert_allclose(factor * W[:, c], model.coef_[0], atol=2e-3)
                assert_allclose(factor * weights.bias[first + c], model.intercept_[0], atol=2e-3)


@pytest.mark.parametrize("prune", [0.0, 0.1])
def test_some_are_trained_again_and_the_others_stay(prune: float) -> None:
    X, Y = problem()
    tree = random_tree(50, branching=5, depth=2, rng=np.random.default_rng(0))
    some = train(X[:100], Y[:100], tree, prune=prune)
    before = some.by_node(tree, 40)
    after = train(X, Y, tree, prune=prune).by_node(tree, 40)
    chosen = np.random.default_rng(1).random(tree.n_nodes) < 0.3
    chosen[tree.first_child[2] : tree.first_child[3]] = False  # a node with nothing to do
    mixed = train(X, Y, tree, prune=prune, again=Again(some, chosen))
    expected = np.where(chosen[:, None], after.toarray(), before.toarray())
    atol = 2e-3 if prune == 0 else 0.05  # one byte each, and weights at the edge of pruning
    assert_allclose(mixed.by_node(tree, 40).toarray(), expected, atol=max(atol, prune + 0.01))
    assert (np.abs(mixed.by_node(tree, 40).toarray() - expected) < atol).mean() > 0.98
    none = train(X, Y, tree, prune=prune, again=Again(some, np.zeros_like(chosen)))
    for ours, theirs in zip(none, some, strict=True):
        assert_array_equal(ours, theirs)


def test_pruning_drops_the_small_weights_only() -> None:
    X, Y = problem()
    tree = random_tree(50, branching=5, depth=2, rng=np.random.default_rng(0))
    all_weights, large = train(X, Y, tree), train(X, Y, tree, prune=0.2)
    for node in np.flatnonzero(tree.label < 0):
        W = all_weights.chunk(tree, node, 40).toarray()
        W[np.abs(W) <= (0.2 if node else 0.875 * 0.2)] = 0
        found = large.chunk(tree, node, 40).toarray()
        assert_array_equal(found != 0, W != 0)
        assert_allclose(found, W, atol=0.51 * np.abs(W).max() / LEVELS)  # one byte each
    assert_array_equal(large.bias, all_weights.bias)
    assert len(large.weight) < 0.8 * len(all_weights.weight)


def test_children_without_rows_are_never_right() -> None:
    X, Y = problem()
    Y = csr_array(Y.multiply(np.arange(50) >= 20))
    Y.eliminate_zeros()
    nodes = [-1, 0, 0, *(1 + (np.arange(50) >= 20))]  # all labels below node 1 have no rows
    tree = Tree.from_parents(nodes, [-1, -1, -1, *range(50)], 50)
    weights = train(X, Y, tree)
    empty = tree.leaves().nodes[:20]
    assert_array_equal(weights.bias[empty], -1.0)
    assert weights.bias[1] == -1.0
    assert weights.chunk(tree, 1, 40).nnz == 0


def test_the_split_of_large_nodes_and_threads_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, Y = problem()
    tree = random_tree(50, branching=25, depth=2, rng=np.random.default_rng(0))
    one = train(X, Y, tree)
    monkeypatch.setattr("labelry.trees.linear_train._WORK", 1)
    for found, expected in zip(train(X, Y, tree, n_jobs=3), one, strict=True):
        assert_array_equal(found, expected)


def test_rows_gathered_with_features_numbered_anew() -> None:
    X, _ = problem()
    rows = np.array([4, 9, 100], dtype=np.int32)
    (indptr, indices, data), features = gather_rows(csr_parts(X), 40, rows)
    assert_array_equal(indptr, X[rows].indptr)
    assert_array_equal(np.sort(features), np.unique(X[rows].indices))
    assert_array_equal(features[indices], X[rows].indices)
    assert_array_equal(data, X[rows].data)


def test_large_weights() -> None:
    W = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
    features, children = np.array([3, 1, 4, 7, 5], np.int32), np.array([2, 0, 9], np.int32)
    feature, child, weight = large_weights(W, np.float32(0.5), features, children)
    rows, lanes = np.nonzero(np.abs(W[:-1, :3]) > 0.5)
    assert_array_equal(feature, features[rows])
    assert_array_equal(child, children[lanes])
    assert_array_equal(weight, W[rows, lanes])
