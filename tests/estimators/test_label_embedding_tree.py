"""The label embedding tree as an estimator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import log_softmax

from labelry.estimators import load
from labelry.estimators.joint import LabelEmbeddingTree
from labelry.trees.learn import random_tree
from labelry.trees.structure import Tree


def planted(n: int = 600, c: int = 24, seed: int = 0) -> tuple[csr_array, np.ndarray]:
    """Classes near six group centres: a tree that a linear map can see."""
    rng = np.random.default_rng(seed)
    centers = np.repeat(4 * np.eye(6, 12), c // 6, axis=0)
    means = centers + np.random.default_rng(9).standard_normal((c, 12))
    y = rng.integers(c, size=n)
    return csr_array((means[y] + 0.2 * rng.standard_normal((n, 12))).astype(np.float32)), y


def leaf_scores(model: LabelEmbeddingTree, X: csr_array) -> np.ndarray:
    """Log-probabilities of all labels (n_rows, n_labels), path by path."""
    tree, F = model.tree_, model.sharpness_ * model.embed(X) @ model.node_vectors_.T
    logs = np.zeros_like(F)
    for s in np.flatnonzero(np.diff(tree.first_child)):
        children = slice(tree.first_child[s], tree.first_child[s + 1])
        logs[:, children] = logs[:, [s]] + log_softmax(F[:, children], axis=1)
    best = np.full((X.shape[0], tree.n_labels), -np.inf)
    for leaf in np.flatnonzero(tree.label >= 0):
        best[:, tree.label[leaf]] = np.maximum(best[:, tree.label[leaf]], logs[:, leaf])
    return best


@pytest.mark.parametrize("tree", ["rembrandt", "confusion"])
def test_planted_classes_are_found(tree: str) -> None:
    X, y = planted()
    model = LabelEmbeddingTree(embedding_dim=12, tree=tree, branching=6).fit(X[:500], y[:500])
    assert model.score(X[500:], y[500:]) > 0.9
    greedy = replace(model.fitted_, beam_width=1)  # Algorithm 3
    assert (greedy.topk(X[500:], 1)[0][:, 0] == y[500:]).mean() > 0.85
    assert np.linalg.norm(model.node_vectors_, axis=1).max() <= 1 + 1e-5


def test_a_full_beam_is_exhaustive() -> None:
    X, y = planted(200)
    model = LabelEmbeddingTree(branching=3, beam_width=100, max_epochs=2).fit(X, y)
    ids, scores = model.topk_ids(X, 5)
    expected = leaf_scores(model, X)
    assert_allclose(scores + model.score_threshold_, -np.sort(-expected, axis=1)[:, :5], atol=1e-3)
    assert_allclose(
        np.take_along_axis(expected, ids, axis=1), scores + model.score_threshold_, atol=1e-3
    )


def test_a_beam_of_one_is_algorithm_3() -> None:
    X, y = planted(100)
    model = LabelEmbeddingTree(branching=3, beam_width=1, max_epochs=2).fit(X, y)
    tree, F = model.tree_, model.embed(X) @ model.node_vectors_.T
    found = []
    for f in F:
        s = 0
        while tree.label[s] < 0:
            children = np.arange(tree.first_child[s], tree.first_child[s + 1])
            s = children[f[children].argmax()]
        found.append(tree.label[s])
    assert_array_equal(model.topk_ids(X, 1)[0][:, 0], found)


def test_a_given_tree_is_used_and_a_joint_one_works() -> None:
    X, y = planted(300)
    given = random_tree(24, branching=5, rng=np.random.default_rng(0))
    model = LabelEmbeddingTree(tree=given, max_epochs=5).fit(X, y)
    assert_array_equal(model.tree_.label, given.label)
    # Label 0 once more, below the first inner node that does not have it.
    inner = given.parent[given.leaves().nodes]
    other = next(s for s in inner if s != inner[0])
    joint = Tree.from_parents(np.append(given.parent, other), np.append(given.label, 0), 24)
    model = LabelEmbeddingTree(tree=joint, max_epochs=5, beam_width=50).fit(X, y)
    labels = model.topk_ids(X, 24)[0]
    assert_array_equal(np.sort(labels, axis=1), np.tile(np.arange(24), (300, 1)))
    with pytest.raises(ValueError, match="tree has 24 labels but Y has 3"):
        LabelEmbeddingTree(tree=given).fit(X, y % 3)


@pytest.mark.parametrize(("start", "tree"), [("random", "random"), ("random", "rembrandt")])
def test_random_starts_and_trees_learn(start: str, tree: str) -> None:
    X, y = planted()
    model = LabelEmbeddingTree(start=start, tree=tree, branching=6, embedding_dim=12).fit(X, y)
    assert model.score(X, y) > 0.6  # by chance 0.04


def test_the_same_seed_gives_the_same_model() -> None:
    X, y = planted(200)
    a, b = (LabelEmbeddingTree(max_epochs=2, n_jobs=1).fit(X, y) for _ in range(2))
    assert_array_equal(a.node_vectors_, b.node_vectors_)
    assert_array_equal(a.regressor_.coef, b.regressor_.coef)


def test_a_saved_model_is_the_same(tmp_path: Path) -> None:
    X, y = planted(100)
    model = LabelEmbeddingTree(max_epochs=2, n_jobs=1).fit(X, y)
    model.save(tmp_path / "model")
    for one, two in zip(model.topk_ids(X, 3), load(tmp_path / "model").topk_ids(X, 3), strict=True):
        assert_array_equal(one, two)


@pytest.mark.parametrize(
    "Y",
    [np.zeros((6, 3)), np.ones((6, 3)), np.ones((6, 1)), np.eye(6, 4), np.eye(6, 50)],
    ids=["no labels", "all labels", "one label", "rows without labels", "labels without rows"],
)
@pytest.mark.parametrize("tree", ["rembrandt", "confusion", "random"])
def test_odd_labels(tree: str, Y: np.ndarray) -> None:
    X = csr_array(np.eye(6, 5, dtype=np.float32))  # the last row has no features
    model = LabelEmbeddingTree(tree=tree, max_epochs=2).fit(X, csr_array(Y))
    ids, scores = model.topk_ids(X, 1)
    assert np.isfinite(scores).all()
    assert (ids >= 0).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"tree": "oak"},
            "tree must be one of rembrandt, confusion, random, a Tree, a list of pairs; got",
        ),
        ({"branching": 1}, "branching must be at least 2, got 1"),
        ({"beam_width": 0}, "beam_width must be at least 1, got 0"),
        ({"start": "cold"}, "start must be one of rembrandt, random; got 'cold'"),
    ],
)
def test_parameters_are_checked(parameters: dict, message: str) -> None:
    X, y = planted(50)
    with pytest.raises(ValueError, match=message):
        LabelEmbeddingTree(**parameters).fit(X, y)
