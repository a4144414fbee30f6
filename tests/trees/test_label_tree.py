"""Label trees: the orderings of the paper, the choices of tree, odd data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.estimators.trees import LabelTree
from labelry.trees import random_tree


def clusters(
    n: int = 800, groups: int = 6, each: int = 6, noise: float = 0.35, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Classes in groups: a class is its group's place and a smaller step of its own."""
    places = np.random.default_rng(7)
    centers = np.repeat(3 * places.standard_normal((groups, 10)), each, axis=0)
    centers += places.standard_normal(centers.shape)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(centers), n)
    X = centers[y] + noise * rng.standard_normal((n, 10))
    return X.astype(np.float32), y


@pytest.mark.parametrize("training", ["tree-loss", "siblings", "independent"])
@pytest.mark.parametrize("tree", ["rembrandt", "confusion", "random"])
def test_learns_groups_of_classes(training: str, tree: str) -> None:
    X, y = clusters()
    model = LabelTree(tree=tree, training=training).fit(X, y)
    assert model.tree_.n_labels == 36
    assert model.tree_.summary().depth == 2
    test_X, test_y = clusters(n=300, seed=1)
    assert model.score(test_X, test_y) > {"rembrandt": 0.8, "confusion": 0.7, "random": 0.6}[tree]
    _, scores = model.predict_topk(test_X, k=3)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert scores.max() <= 1
    assert scores[np.isfinite(scores)].min() >= 0


@pytest.mark.parametrize("training", ["tree-loss", "siblings", "independent"])
def test_by_algorithm_1_a_learnt_tree_beats_a_random_one(training: str) -> None:
    X, y = clusters(n=1500, noise=0.6)
    test_X, test_y = clusters(n=1500, noise=0.6, seed=1)
    learnt, chance = (
        LabelTree(tree=tree, training=training, beam_width=1).fit(X, y).score(test_X, test_y)
        for tree in ("rembrandt", "random")
    )
    assert learnt > chance + 0.05


def test_a_taxonomy_in_place_of_a_learnt_tree() -> None:
    X, y = clusters(groups=3, each=2, n=200)
    edges = [(f"group {g}", str(2 * g + i)) for g in range(3) for i in range(2)]
    model = LabelTree(tree=edges).fit(X, [str(label) for label in y])
    assert model.tree_.n_nodes == 10
    assert_array_equal(np.diff(model.tree_.first_child)[:4], [3, 2, 2, 2])
    assert_array_equal(model.tree_.label[4:].reshape(3, 2) // 2, [[0, 0], [1, 1], [2, 2]])
    assert model.score(X, [str(label) for label in y]) > 0.9


def test_sparse_rows_of_several_labels() -> None:
    X = csr_array(np.kron(np.eye(9), np.ones((8, 3))), dtype=np.float32)
    X += csr_array(np.roll(X.toarray(), 3, axis=1))  # each row has the features of two labels
    Y = csr_array((X[:, ::3].toarray() > 0).astype(np.float32))
    model = LabelTree(branching=3).fit(X, Y)
    labels, _ = model.predict_topk(X, k=2)
    right = Y.toarray()[np.arange(X.shape[0])[:, None], labels]
    assert right[:, 0].all()
    assert right[:, 1].mean() > 0.7  # a sibling of the first label may come before the second


def test_threads_and_seed() -> None:
    X, y = clusters(n=300)
    one, two, other = (
        LabelTree(n_jobs=n_jobs, random_state=seed, max_epochs=3).fit(X, y)
        for n_jobs, seed in ((1, 0), (2, 0), (2, 1))
    )
    assert one.weights_.data.tobytes() == two.weights_.data.tobytes()
    assert one.weights_.data.tobytes() != other.weights_.data.tobytes()


def test_scaling_makes_shift_and_scale_of_columns_irrelevant() -> None:
    X, y = clusters(n=300)
    factors = np.float32(2.0) ** np.arange(-5, 5)
    one, two = LabelTree().fit(X, y), LabelTree().fit(X * factors, y)
    assert (one.predict(X) == two.predict(X * factors)).mean() > 0.99
    assert_array_equal(one.predict(csr_array(X)), one.predict(X))


def test_a_given_tree() -> None:
    X, y = clusters(n=300)
    tree = random_tree(36, branching=4, rng=np.random.default_rng(0))
    model = LabelTree(tree=tree).fit(X, y)
    assert model.tree_ is tree
    with pytest.raises(ValueError, match="tree has 36 labels but Y has 3"):
        LabelTree(tree=tree).fit(X[:3], [0, 1, 2])


def test_a_model_of_a_chosen_tree_can_be_saved(tmp_path: Path) -> None:
    X, y = clusters(n=100)
    model = LabelTree(max_epochs=2).fit(X, y)
    model.save(tmp_path / "model")
    assert (tmp_path / "model").is_dir()


def test_rows_that_were_held_out_are_learnt_in_the_end() -> None:
    X = np.eye(400, dtype=np.float32)  # a feature and a label of its own for each row
    model = LabelTree(max_epochs=3).fit(X, np.arange(400))
    assert model.score(X, np.arange(400)) == 1.0


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        (np.ones((4, 2)), np.ones((4, 3))),  # every label on every row
        (np.zeros((4, 2)), np.eye(4, 3)),  # rows without features; a row without labels
        (np.ones((3, 2)), np.eye(3, 5)),  # labels without rows; duplicate rows
        (np.ones((1, 1)), np.ones((1, 1))),  # one of everything
    ],
)
@pytest.mark.parametrize("training", ["tree-loss", "siblings", "independent"])
@pytest.mark.parametrize("tree", ["rembrandt", "confusion", "random"])
@pytest.mark.parametrize("sparse", [False, True])
def test_odd_data(X: np.ndarray, Y: np.ndarray, training: str, tree: str, sparse: bool) -> None:
    rows = csr_array(X) if sparse else X
    model = LabelTree(training=training, tree=tree, max_epochs=3).fit(rows, csr_array(Y))
    labels, scores = model.predict_topk(rows, k=10)
    assert_array_equal(np.sort(labels, axis=1), np.tile(np.arange(Y.shape[1]), (len(X), 1)))
    assert np.isfinite(scores).all()


def test_errors_name_the_parameter() -> None:
    X, y = clusters(n=100)
    for options, message in (
        (
            {"tree": "oak"},
            "tree must be one of rembrandt, confusion, random, a Tree, a list of pairs; got",
        ),
        (
            {"training": "none"},
            "training must be one of tree-loss, siblings, independent; got 'none'",
        ),
        ({"branching": 1}, "branching must be at least 2, got 1"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"beam_width": 0}, "beam_width must be at least 1, got 0"),
        ({"max_epochs": 0}, "max_epochs must be at least 1, got 0"),
        ({"regularization": -1.0}, r"regularization must be at least 0, got -1\.0"),
        ({"regularization": 0, "training": "independent"}, "regularization must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            LabelTree(**options).fit(X, y)
