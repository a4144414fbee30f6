"""Beam search: Algorithm 1, exhaustive search, joint trees, threads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array
from scipy.special import expit, log_softmax

from labelry.trees import Tree, random_tree
from labelry.trees.search import beam_search, beam_search_vectors
from labelry.trees.weights import NodeWeights, empty_weights

JOINT = Tree.from_parents([-1, 0, 0, 0, 1, 1, 2, 2, 2], [-1, -1, -1, 3, 0, 1, 1, 2, 0], n_labels=4)


def problem(tree: Tree, n: int = 25, d: int = 30) -> tuple[csr_array, NodeWeights]:
    rng = np.random.default_rng(0)
    X = csr_array(
        random_array((n, d), density=0.3, random_state=rng, format="csr", dtype=np.float32)
    )
    weights = empty_weights(tree, csr_array(np.ones((tree.n_nodes, d), dtype=np.int8)))
    weights.data[:] = rng.standard_normal(len(weights.data))
    return X, weights


def scores_of_nodes(tree: Tree, weights: NodeWeights, X: csr_array) -> np.ndarray:
    """Scores (n_rows, n_nodes), by plain products."""
    f = np.zeros((X.shape[0], tree.n_nodes))
    for node in np.flatnonzero(tree.label < 0):
        block = weights.block(tree, node)
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        f[:, children] = X.toarray() @ block[:-1] + block[-1]
    return f


def exhaustive(tree: Tree, f: np.ndarray, link: str, sharpness: float) -> np.ndarray:
    """Log-probability of each label: of its best leaf."""
    paths = np.zeros_like(f)
    for node in np.flatnonzero(tree.label < 0):  # breadth-first: parents come first
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        g = sharpness * f[:, children]
        logs = log_softmax(g, axis=1) if link == "softmax" else np.log(expit(g))
        paths[:, children] = paths[:, [node]] + logs
    best = np.full((len(f), tree.n_labels), -np.inf)
    for leaf in np.flatnonzero(tree.label >= 0):
        best[:, tree.label[leaf]] = np.maximum(best[:, tree.label[leaf]], paths[:, leaf])
    return best


TREES = {
    "even": random_tree(27, branching=3, rng=np.random.default_rng(0)),
    "ragged": random_tree(23, branching=4, depth=3, rng=np.random.default_rng(1)),
    "joint": JOINT,
    "one": Tree.from_parents([-1, 0], [-1, 0], 1),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_a_beam_of_full_width_is_exhaustive(name: str, link: str) -> None:
    tree = TREES[name]
    X, weights = problem(tree)
    expected = exhaustive(tree, scores_of_nodes(tree, weights, X), link, 0.7)
    k = min(5, tree.n_labels)
    for rows in (X, X.toarray()):
        labels, scores = beam_search(
            tree, weights, rows, k, beam_width=tree.n_nodes, link=link, sharpness=0.7
        )
        order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
        assert_array_equal(labels, order)
        assert_allclose(scores, np.take_along_axis(expected, order, axis=1), atol=1e-4)


def algorithm_1(tree: Tree, f: np.ndarray) -> int:
    """The leaf that Algorithm 1 arrives at."""
    s = 0
    while tree.label[s] < 0:
        children = np.arange(tree.first_child[s], tree.first_child[s + 1])
        s = children[np.argmax(f[children])]
    return s


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_a_beam_of_one_is_algorithm_1(link: str) -> None:
    tree = TREES["even"]
    assert len(set(tree.depth[tree.label >= 0].tolist())) == 1
    X, weights = problem(tree)
    f = scores_of_nodes(tree, weights, X)
    labels, _ = beam_search(tree, weights, X, 1, beam_width=1, link=link)
    assert_array_equal(labels[:, 0], [tree.label[algorithm_1(tree, row)] for row in f])


def test_a_leaf_passed_on_the_way_is_not_forgotten() -> None:
    """With leaves at several depths, one higher up can be more probable than Algorithm 1's."""
    X, weights = problem(JOINT)
    f = scores_of_nodes(JOINT, weights, X)
    labels, scores = beam_search(JOINT, weights, X, 1, beam_width=1)
    probabilities = exhaustive(JOINT, f, "softmax", 1.0)
    greedy = [JOINT.label[algorithm_1(JOINT, row)] for row in f]
    assert (labels[:, 0] != greedy).any()
    assert set(labels[labels[:, 0] != greedy, 0].tolist()) == {3}  # the leaf at the root
    assert (scores[:, 0] <= probabilities.max(axis=1) + 1e-5).all()


@pytest.mark.parametrize("name", TREES)
def test_node_vectors(name: str) -> None:
    tree = TREES[name]
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((12, 6)).astype(np.float32)
    V = rng.standard_normal((tree.n_nodes, 6)).astype(np.float32)
    expected = exhaustive(tree, Z @ V.T, "softmax", 1.0)
    k = min(5, tree.n_labels)
    labels, scores = beam_search_vectors(tree, V, Z, k, beam_width=tree.n_nodes)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    assert_array_equal(labels, order)
    assert_allclose(scores, np.take_along_axis(expected, order, axis=1), atol=1e-4)


def test_threads_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = TREES["even"]
    X, weights = problem(tree)
    one = beam_search(tree, weights, X, 4, beam_width=3)
    for rows in (X, X.toarray()):
        monkeypatch.setattr("labelry.trees.search._DENSE_ENTRIES", 7 * X.shape[1])
        for found, expected in zip(
            beam_search(tree, weights, rows, 4, beam_width=3, n_jobs=3), one, strict=True
        ):
            assert_allclose(found, expected, rtol=1e-5)


def test_labels_that_a_narrow_beam_does_not_reach_are_none() -> None:
    tree = TREES["even"]
    X, weights = problem(tree)
    labels, scores = beam_search(tree, weights, X, 10, beam_width=1)
    assert (labels[:, 0] >= 0).all()
    assert_array_equal(labels[:, 3:], -1)
    assert_array_equal(scores[:, 3:], -np.inf)


def test_errors() -> None:
    X, weights = problem(JOINT)
    with pytest.raises(ValueError, match="beam_width must be at least 1, got 0"):
        beam_search(JOINT, weights, X, 1, beam_width=0)
    with pytest.raises(ValueError, match="link must be softmax or sigmoid; got 'probit'"):
        beam_search(JOINT, weights, X, 1, beam_width=1, link="probit")
