"""The search by sparse weights against plain products: exhaustive, narrow, several trees."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array
from scipy.special import expit

from labelry.trees import Tree, random_tree
from labelry.trees.learn import side_by_side
from labelry.trees.sparse_search import SHARPNESS, _least_margin, search_forest
from labelry.trees.sparse_weights import PackedWeights, join_chunks, pack_chunk

JOINT = Tree.from_parents([-1, 0, 0, 0, 1, 1, 2, 2, 2], [-1, -1, -1, 3, 0, 1, 1, 2, 0], n_labels=4)
TREES = {
    "even": random_tree(27, branching=3, rng=np.random.default_rng(0)),
    "ragged": random_tree(23, branching=4, depth=3, rng=np.random.default_rng(1)),
    "flat": random_tree(100, branching=100, depth=1, rng=np.random.default_rng(2)),
    "joint": JOINT,
    "one": Tree.from_parents([-1, 0], [-1, 0], 1),
}
ONE_ROOT = np.zeros(1, dtype=np.int32)
THREE = side_by_side(
    [random_tree(27, branching=b, rng=np.random.default_rng(b)) for b in (3, 5, 9)]
)
THREE_ROOTS = np.arange(1, 4, dtype=np.int32)


def problem(tree: Tree, n: int = 40, d: int = 150) -> tuple[csr_array, PackedWeights]:
    rng = np.random.default_rng(0)
    X = csr_array(random_array((n, d), density=0.5, random_state=rng, dtype=np.float32))
    X = csr_array(X.multiply((np.arange(n) != 3)[:, None]), dtype=np.float32)
    X.eliminate_zeros()  # row 3 has no features
    chunks = {}
    for node in np.flatnonzero(tree.label < 0).tolist():
        shape = (d, int(tree.first_child[node + 1] - tree.first_child[node]))
        W = random_array(shape, density=0.1, random_state=rng, data_sampler=rng.standard_normal)
        feature, child = (side.astype(np.int32) for side in W.coords)
        chunks[node] = pack_chunk(feature, child, W.data.astype(np.float32), d)
    bias = rng.standard_normal(tree.n_nodes).astype(np.float32)
    return X, join_chunks(tree, chunks, bias, d)


def leaf_scores(tree: Tree, weights: PackedWeights, X: csr_array, root: int) -> np.ndarray:
    """Score of each label below a root: of its best leaf; 0 for labels not there."""
    paths = np.zeros((X.shape[0], tree.n_nodes))
    paths[:, root] = 1.0
    for node in np.flatnonzero(tree.label < 0):  # breadth-first: parents come first
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        f = X @ weights.chunk(tree, node, X.shape[1]).toarray() + weights.bias[children]
        scores = expit(4 * f)
        if node >= root:
            paths[:, children] = paths[:, [node]] * scores
    best = np.zeros((X.shape[0], tree.n_labels))
    for leaf in np.flatnonzero(tree.label >= 0):
        best[:, tree.label[leaf]] = np.maximum(best[:, tree.label[leaf]], paths[:, leaf])
    return best


def check(labels: np.ndarray, scores: np.ndarray, expected: np.ndarray, k: int) -> None:
    """The k best of what is expected; of nearly equal scores any."""
    assert labels.shape == (len(expected), k)
    best = -np.sort(-expected, axis=1)[:, :k]
    assert_allclose(scores, best, rtol=1e-4, atol=1e-12)
    assert_allclose(np.take_along_axis(expected, labels, axis=1), scores, rtol=1e-4, atol=1e-12)
    assert all(len(set(row)) == k for row in labels.tolist())


@pytest.mark.parametrize("name", TREES)
def test_a_beam_of_full_width_is_exhaustive(name: str) -> None:
    tree = TREES[name]
    X, weights = problem(tree)
    expected = leaf_scores(tree, weights, X, 0)
    for k in {1, min(5, tree.n_labels), tree.n_labels}:
        for rows in (X, X.toarray()):
            found = search_forest(tree, ONE_ROOT, weights, rows, k, beam_width=tree.n_nodes)
            check(*found, expected, k)


def test_several_trees_are_averaged() -> None:
    X, weights = problem(THREE)
    by_tree = [leaf_scores(THREE, weights, X, root) for root in THREE_ROOTS]
    expected = sum(by_tree) / 3
    labels, scores = search_forest(THREE, THREE_ROOTS, weights, X, 27, beam_width=THREE.n_nodes)
    check(labels, scores, expected, 27)
    # A tree is not heard on labels that score less than half of its fifth.
    fifth = sum(np.sort(by_label, axis=1)[:, [-5]] for by_label in by_tree)
    for k in (1, 5):
        labels, scores = search_forest(THREE, THREE_ROOTS, weights, X, k, beam_width=THREE.n_nodes)
        exact = np.take_along_axis(expected, labels, axis=1)
        assert (scores <= exact * (1 + 1e-5)).all()
        assert (scores >= exact - fifth / 6 - 1e-6).all()
        assert (scores[:, 0] >= expected.max(axis=1) - fifth[:, 0] / 6 - 1e-6).all()


def test_a_beam_of_one_follows_the_best_child() -> None:
    tree = TREES["even"]
    X, weights = problem(tree)
    labels, scores = search_forest(tree, ONE_ROOT, weights, X, 5, beam_width=1)
    for i in range(X.shape[0]):
        node, path = 0, 1.0
        while tree.label[tree.first_child[node]] < 0:
            children = np.arange(tree.first_child[node], tree.first_child[node + 1])
            f = X[[i]] @ weights.chunk(tree, node, X.shape[1]) + weights.bias[children]
            score = expit(4 * np.asarray(f).ravel())
            path *= score.max()
            node = children[score.argmax()]
        below = tree.label[tree.first_child[node] : tree.first_child[node + 1]]
        assert set(labels[i, :3].tolist()) == set(below.tolist())
        assert scores[i, 0] <= path * (1 + 1e-5)
    assert_array_equal(labels[:, 3:], -1)
    assert_array_equal(scores[:, 3:], -np.inf)


@pytest.mark.parametrize("case", ["one", "three"])
def test_threads_blocks_and_read_only_arrays_change_nothing(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, roots = (TREES["even"], ONE_ROOT) if case == "one" else (THREE, THREE_ROOTS)
    X, weights = problem(tree)
    expected = search_forest(tree, roots, weights, X, 4, beam_width=3)
    monkeypatch.setattr("labelry.trees.search._DENSE_ENTRIES", 7 * X.shape[1])
    locked = weights.read_only()
    for rows in (X, X.toarray()):
        found = search_forest(tree, roots, locked, rows, 4, beam_width=3, n_jobs=3)
        assert_array_equal(found[0], expected[0])
        assert_allclose(found[1], expected[1], rtol=1e-5)


def test_no_rows() -> None:
    X, weights = problem(JOINT)
    labels, scores = search_forest(JOINT, ONE_ROOT, weights, X[:0], 2, beam_width=2)
    assert labels.shape == scores.shape == (0, 2)


@pytest.mark.parametrize("path", [1.0, 0.3, 1e-6, 1e-30])
def test_no_child_is_passed_over_that_scores_enough(path: float) -> None:
    margins = np.linspace(-12, 6, 2001).astype(np.float32)
    scores = np.float32(path) / (1 + np.exp(-SHARPNESS * margins))
    for margin, score in zip(margins[::20], scores[::20], strict=True):
        least = _least_margin(np.float32(path), score)
        assert (margins[scores >= score] >= least).all()
        if score > 1e-37 and margin < 1.5:  # beyond, scores have too few digits to tell
            assert margin - least < 0.01
    assert _least_margin(np.float32(path), np.float32(0)) == -np.inf
    assert _least_margin(np.float32(path), np.float32(2 * path)) > 1.5
