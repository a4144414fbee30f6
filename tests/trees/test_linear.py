"""The linear label tree: what it learns, its shapes of trees, odd data, errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import expit

from labelry.estimators.baselines import OneVsRest
from labelry.estimators.trees import LinearLabelTree
from labelry.metrics import precision_at_k
from labelry.trees import linear as linear_tree
from labelry.trees import random_tree
from labelry.trees.linear_train import train_linear


def documents(n: int = 600, n_labels: int = 60, seed: int = 0) -> tuple[csr_array, csr_array]:
    """Rows with one to three labels; a label has words of its own, and shares some in its group."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, n_labels), dtype=np.float32)
    for _ in range(3):
        Y[np.arange(n), rng.integers(0, n_labels, n)] = 1
    words = np.zeros((n_labels, 4 * n_labels), dtype=np.float32)
    for y in range(n_labels):
        words[y, 3 * y : 3 * y + 3] = 1
        words[y, 3 * n_labels + y // 6] = 1
    X = (Y @ words) * (rng.random((n, 4 * n_labels)) < 0.7)
    X += rng.random(X.shape) < 0.02
    return csr_array(X, dtype=np.float32), csr_array(Y)


def p_at_3(model: LinearLabelTree, X: csr_array, Y: csr_array) -> float:
    return precision_at_k(Y, model.topk_ids(X, 3)[0], 3)


@pytest.mark.parametrize("n_trees", [1, 3])
@pytest.mark.parametrize("depth", [2, 3])
def test_learns_labels_of_new_rows(n_trees: int, depth: int) -> None:
    X, Y = documents()
    model = LinearLabelTree(depth=depth, n_trees=n_trees).fit(X, Y)
    assert model.tree_.summary().depth == depth + (n_trees > 1)
    assert_array_equal(model.roots_, [0] if n_trees == 1 else [1, 2, 3])
    new_X, new_Y = documents(seed=1)
    assert p_at_3(model, new_X, new_Y) > 0.75
    _, scores = model.predict_topk(new_X, k=5)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert 0 <= scores.min() <= scores.max() <= 1


def test_more_trees_and_a_wider_beam_do_not_hurt() -> None:
    X, Y = documents()
    new_X, new_Y = documents(seed=1, n=2000)
    one, three = (LinearLabelTree(depth=2, n_trees=t).fit(X, Y) for t in (1, 3))
    assert p_at_3(three, new_X, new_Y) > p_at_3(one, new_X, new_Y)
    narrow = LinearLabelTree(depth=2, beam_width=1).fit(X, Y)
    assert p_at_3(narrow, new_X, new_Y) < p_at_3(one, new_X, new_Y) - 0.05


def test_few_labels_are_one_vs_rest() -> None:
    X, Y = documents()
    ours = LinearLabelTree(prune=0.0).fit(X, Y)
    # At a root two fifths of C count.
    theirs = OneVsRest(C=0.5, tolerance=0.1, max_sweeps=20).fit(X, Y)
    assert ours.tree_.summary().depth == 1
    same = ours.topk_ids(X, 3)[0] == theirs.topk_ids(X, 3)[0]
    assert same.mean() > 0.97


@pytest.mark.parametrize(
    ("shape", "rounds"), [({"depth": 1}, 2), ({"depth": 2}, 1), ({"n_trees": 3}, 1)]
)
def test_descent_goes_on_for_longer_where_all_is_one_vs_rest(
    monkeypatch: pytest.MonkeyPatch, shape: dict, rounds: int
) -> None:
    asked = []

    def train(*given, **options):
        asked.append(given[3].rounds)
        return train_linear(*given, **options)

    monkeypatch.setattr(linear_tree, "train_linear", train)
    LinearLabelTree(**shape).fit(*documents(100, 20))
    assert asked == [rounds]


def test_shapes_of_trees() -> None:
    X, Y = documents(n=300)
    trees = LinearLabelTree(n_trees=3).fit(X, Y).tree_
    n_children = np.diff(trees.first_child)[1:4]
    assert n_children[0] == 60  # the first tree is flat
    assert (n_children[1:] < 20).all()
    assert len(LinearLabelTree(depth=1, n_trees=3).fit(X, Y).roots_) == 1
    assert LinearLabelTree(depth=2, branching=5).fit(X, Y).tree_.first_child[1] == 6


@pytest.mark.parametrize("tree", ["rembrandt", "random", "confusion"])
def test_other_learners(tree: str) -> None:
    X, Y = documents()
    model = LinearLabelTree(tree=tree, depth=2).fit(X, Y)
    assert model.tree_.summary().depth == 2
    assert p_at_3(model, X, Y) > 0.8


def test_a_given_tree_and_a_taxonomy() -> None:
    X, Y = documents()
    tree = random_tree(60, branching=4, rng=np.random.default_rng(0))
    assert LinearLabelTree(tree=tree).fit(X, Y).tree_ is tree
    edges = [(f"group {y // 6}", str(y)) for y in range(60)]
    lists = [[str(y) for y in Y[[i]].indices] for i in range(Y.shape[0])]
    model = LinearLabelTree(tree=edges).fit(X, lists)
    assert_array_equal(np.diff(model.tree_.first_child)[:11], [10] + [6] * 10)
    labels, _ = model.predict_topk(X, k=1)
    assert np.mean([row[0] in own for row, own in zip(labels, lists, strict=True)]) > 0.9


def test_dense_rows_and_sparse_rows_are_the_same() -> None:
    X, Y = documents(n=200)
    sparse, dense = (LinearLabelTree(depth=2).fit(rows, Y) for rows in (X, X.toarray()))
    assert_array_equal(sparse.tree_.label, dense.tree_.label)
    assert_array_equal(sparse.topk_ids(X, 5)[0], dense.topk_ids(X.toarray(), 5)[0])


def test_threads_and_seed() -> None:
    X, Y = documents(n=200)
    one, two, other = (
        LinearLabelTree(depth=2, n_trees=2, n_jobs=n_jobs, random_state=seed).fit(X, Y)
        for n_jobs, seed in ((1, 0), (2, 0), (2, 1))
    )
    assert one.weights_.weight.tobytes() == two.weights_.weight.tobytes()
    assert one.tree_.label.tobytes() == two.tree_.label.tobytes()
    assert one.tree_.label.tobytes() != other.tree_.label.tobytes()


def test_rows_are_scaled_unless_told_otherwise() -> None:
    X, Y = documents(n=200)
    model = LinearLabelTree(depth=2).fit(X, Y)
    assert_allclose(model.topk_ids(X * 8, 5)[1], model.topk_ids(X, 5)[1], rtol=1e-5)
    raw = LinearLabelTree(depth=2, normalize=False).fit(X, Y)
    assert abs(raw.topk_ids(X * 8, 5)[1] - raw.topk_ids(X, 5)[1]).max() > 0.01


def test_pruning_makes_a_smaller_model_that_is_about_as_good() -> None:
    X, Y = documents()
    new_X, new_Y = documents(seed=1)
    whole, pruned = (LinearLabelTree(depth=2, prune=p).fit(X, Y) for p in (0.0, 0.1))
    assert len(pruned.weights_.weight) < 0.8 * len(whole.weights_.weight)
    assert abs(p_at_3(pruned, new_X, new_Y) - p_at_3(whole, new_X, new_Y)) < 0.02


@pytest.mark.parametrize("n_trees", [1, 2])
def test_path_weights_explain_the_score(n_trees: int) -> None:
    X, Y = documents(n=200)
    model = LinearLabelTree(depth=2, n_trees=n_trees, normalize=False).fit(X, Y)
    labels, scores = model.topk_ids(X[:5], 60)
    for i in range(5):
        y, score = labels[i, 0], scores[i, 0]
        nodes, weights, bias = model.fitted_.path_weights(y)
        assert len(nodes) == 2 * n_trees
        assert_array_equal(model.tree_.label[nodes[1::2]], y)
        margins = weights @ X[[i]].toarray()[0] + bias
        each_tree = expit(4 * margins).reshape(n_trees, 2).prod(axis=1)
        assert score <= each_tree.mean() * (1 + 1e-4)
        assert_allclose(score, each_tree.mean(), rtol=1e-4)


def test_copies_score_as_the_best_of_their_places() -> None:
    X, Y = documents(n=300)
    model = LinearLabelTree(depth=2, branching=8, copies=1, beam_width=100, normalize=False)
    model.fit(X, Y)
    n_places = np.bincount(model.tree_.label[model.tree_.label >= 0])
    assert n_places.min() == 1
    assert n_places.max() == 2
    labels, scores = model.topk_ids(X[:5], 60)
    for i in range(5):
        assert_array_equal(np.sort(labels[i]), np.arange(60))  # each once
        for y, score in zip(labels[i].tolist(), scores[i].tolist(), strict=True):
            _, weights, bias = model.fitted_.path_weights(y)
            margins = weights @ X[[i]].toarray()[0] + bias
            assert_allclose(score, expit(4 * margins).reshape(-1, 2).prod(axis=1).max(), rtol=1e-3)


def test_logistic_loss() -> None:
    X, Y = documents()
    new_X, new_Y = documents(seed=1)
    hinge, logistic = (
        LinearLabelTree(depth=2, loss=loss).fit(X, Y) for loss in ("squared_hinge", "logistic")
    )
    assert abs(p_at_3(hinge, new_X, new_Y) - p_at_3(logistic, new_X, new_Y)) < 0.02
    # Its margins are log odds, a quarter of them: what a score says is about what happens.
    labels, scores = LinearLabelTree(loss="logistic", prune=0.0).fit(X, Y).topk_ids(new_X, 60)
    hits = np.take_along_axis(new_Y.toarray(), labels, axis=1)
    assert abs(scores.mean() - hits.mean()) < 0.02


@pytest.mark.parametrize("n_trees", [1, 2])
def test_labels_of_the_same_words_are_similar(n_trees: int) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(600) % 40
    X = np.eye(20, dtype=np.float32)[y // 2]  # a word for each pair of labels
    own = np.eye(40, dtype=np.float32)[y] * rng.integers(0, 2, (600, 1))  # and at times its own
    model = LinearLabelTree(n_trees=n_trees, depth=2, branching=6)
    model.fit(np.hstack([X, 0.5 * own]).astype(np.float32), y)
    assert model.label_vectors().shape == (40, 40)
    near = [model.similar_labels(label, 1)[0][0] for label in range(40)]
    assert np.mean(np.array(near) == np.arange(40) ^ 1) > 0.9


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        (np.ones((4, 2)), np.ones((4, 3))),  # every label on every row; a feature in every row
        (np.zeros((4, 2)), np.eye(4, 3)),  # rows without features; a row without labels
        (np.ones((3, 2)), np.eye(3, 5)),  # labels without rows; duplicate rows
        (np.ones((1, 1)), np.ones((1, 1))),  # one of everything
        (np.eye(2), np.zeros((2, 3))),  # no labels at all
    ],
)
@pytest.mark.parametrize(
    "options", [{}, {"depth": 2}, {"depth": 3, "n_trees": 2}, {"depth": 2, "copies": 1}]
)
@pytest.mark.parametrize("sparse", [False, True])
def test_odd_data(X: np.ndarray, Y: np.ndarray, options: dict, sparse: bool) -> None:
    rows = csr_array(X) if sparse else X
    model = LinearLabelTree(**options).fit(rows, csr_array(Y))
    labels, scores = model.predict_topk(rows, k=10)
    assert_array_equal(np.sort(labels, axis=1), np.tile(np.arange(Y.shape[1]), (len(X), 1)))
    assert 0 < scores.min() <= scores.max() <= 1


def test_errors_name_the_parameter() -> None:
    X, Y = documents(n=50)
    tree = random_tree(60, branching=4, rng=np.random.default_rng(0))
    for options, message in (
        (
            {"tree": "oak"},
            "tree must be one of centroids, rembrandt, confusion, random, a Tree, a list of pairs; "
            "got 'oak'",
        ),
        ({"tree": tree, "n_trees": 2}, "n_trees must be 1 with a tree that is given, got 2"),
        ({"n_trees": 0}, "n_trees must be at least 1, got 0"),
        ({"branching": 1}, "branching must be at least 2, got 1"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"copies": -1}, "copies must be at least 0, got -1"),
        ({"copies": 1, "n_trees": 2}, "copies must be 0 with several trees"),
        ({"loss": "hinge"}, "loss must be one of squared_hinge, logistic"),
        ({"beam_width": 0}, "beam_width must be at least 1, got 0"),
        ({"prune": -1.0}, r"prune must be at least 0, got -1\.0"),
        ({"C": 0.0}, r"C must be positive, got 0\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            LinearLabelTree(**options).fit(X, Y)


def test_a_label_of_very_many_rows_is_in_no_branch() -> None:
    X, Y = documents(n=300)
    everywhere = np.zeros(60, dtype=bool)
    everywhere[7] = True
    Y = csr_array((Y + csr_array(np.where(everywhere, 1.0, np.zeros((300, 60))))) > 0)
    model = LinearLabelTree(depth=2).fit(X, Y.astype(np.float32))
    depth = model.tree_.depth[model.tree_.leaves().nodes]
    assert_array_equal(depth == 1, everywhere)
    assert (model.topk_ids(X, 5)[0] == 7).any(axis=1).all()
    other = LinearLabelTree(depth=2, tree="random").fit(X, Y.astype(np.float32))
    assert (other.tree_.depth[other.tree_.leaves().nodes] == 2).all()
