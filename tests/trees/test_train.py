"""Training the nodes of a fixed tree: the tree loss and independent classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.estimators.baselines import OneVsRest
from labelry.trees import Tree, random_tree
from labelry.trees import train as training
from labelry.trees.search import beam_search
from labelry.trees.train import _TreeLoss, train_independent, train_tree_loss

JOINT = Tree.from_parents([-1, 0, 0, 1, 1, 1, 2, 2, 2], [-1, -1, -1, 0, 1, 3, 1, 2, 0], n_labels=4)


def separable(c: int = 9, copies: int = 6) -> tuple[csr_array, csr_array]:
    """Nine blocks on the diagonal: label j is on the rows that have features 3j to 3j + 2."""
    X = np.kron(np.eye(c), np.ones((copies, 3))) / np.sqrt(3)
    return csr_array(X, dtype=np.float32), csr_array(np.kron(np.eye(c), np.ones((copies, 1))))


def multilabel(n: int = 40, d: int = 25, c: int = 4) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(0)
    X = csr_array(
        random_array((n, d), density=0.3, random_state=rng, format="csr", dtype=np.float32)
    )
    Y = rng.random((n, c)) < 0.35
    return X, csr_array(Y.astype(np.float32))


def node_matrix(learner: _TreeLoss, tree: Tree, d: int) -> np.ndarray:
    """Weights (n_nodes, d + 1); all chunks have all features."""
    W = np.zeros((tree.n_nodes, d + 1))
    for node in np.flatnonzero(tree.label < 0):
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        W[children] = learner.weights.block(tree, node).T
    return W


def twin_rival(tree: Tree, f: np.ndarray, y: int, labels: np.ndarray) -> tuple[float, int, int]:
    """The pair with the largest violation, on the path where that is smallest."""
    sets, parent, best = tree.label_sets.toarray(), tree.parent, (np.inf, -1, -1)
    for leaf in np.flatnonzero(tree.label == y):
        worst, r = (-np.inf, -1, -1), leaf
        while r > 0:
            for s in np.flatnonzero(parent == parent[r]):
                if not sets[s, labels].any() and 1 + f[s] - f[r] > worst[0]:
                    worst = (1 + f[s] - f[r], r, s)
            r = parent[r]
        best = min(best, worst)
    return best


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("regularization", [0.0, 0.5])
def test_an_epoch_equals_a_plain_one(
    monkeypatch: pytest.MonkeyPatch, dense: bool, regularization: float
) -> None:
    monkeypatch.setattr(training, "_BATCH", 1)  # plain stochastic gradients
    X, Y = multilabel()
    n, d = X.shape
    learner = _TreeLoss(X.toarray() if dense else X, Y, JOINT, regularization, 2.0, 1)
    averaged = learner.epoch(np.random.default_rng(5))

    A = np.hstack([X.toarray(), np.ones((n, 1))])
    W = np.zeros((JOINT.n_nodes, d + 1))
    squares, total, losses = np.zeros(JOINT.n_nodes), np.zeros_like(W), []
    row = np.repeat(np.arange(n), np.diff(Y.indptr))
    order = np.random.default_rng(5).permutation(len(row))
    for e in order:
        x, labels = A[row[e]], Y[[row[e]]].indices
        gap, r, s = twin_rival(JOINT, W @ x, Y.indices[e], labels)
        losses.append(max(gap, 0))
        if gap > 0:
            for node, sign in ((r, 1), (s, -1)):
                squares[node] += x @ x
                W[node] += sign * 2.0 / np.sqrt(squares[node]) * x
        W *= 1 - regularization / len(order)
        total += W
    assert_allclose(learner.losses, [np.mean(losses)], rtol=1e-4)
    assert_allclose(node_matrix(learner, JOINT, d), W, atol=1e-3)
    learner.weights = averaged
    assert_allclose(node_matrix(learner, JOINT, d), total / len(order), atol=1e-3)


def test_the_loss_goes_to_zero_where_labels_are_separable() -> None:
    X, Y = separable()
    tree = random_tree(9, branching=3, rng=np.random.default_rng(0))
    learner = _TreeLoss(X, Y, tree, 0.0, 4.0, 1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        weights = learner.epoch(rng)
    assert learner.losses[0] > 0.2
    assert learner.losses[-1] == 0.0
    labels, _ = beam_search(tree, weights, X, 1, beam_width=1)
    assert_array_equal(labels[:, 0], Y.indices)


def test_threads_change_nothing() -> None:
    X, Y = multilabel(n=200, c=30)
    tree = random_tree(30, branching=6, rng=np.random.default_rng(0))
    one, two = (
        train_tree_loss(
            X, Y, tree, max_epochs=3, rng=np.random.default_rng(1), n_jobs=n_jobs
        ).weights
        for n_jobs in (1, 2)
    )
    assert one.data.tobytes() == two.data.tobytes()
    assert np.abs(one.data).max() > 0


def test_training_stops_when_the_score_does_not_rise() -> None:
    X, Y = separable()
    tree = random_tree(9, branching=3, rng=np.random.default_rng(0))
    seen = []

    def score(weights) -> float:
        seen.append(weights)
        return -abs(len(seen) - 2)  # the second epoch is the best

    best = train_tree_loss(X, Y, tree, score=score, rng=np.random.default_rng(0)).weights
    assert best is seen[1]
    assert len(seen) == 2 + training._PATIENCE


def test_a_start_with_the_best_score_is_kept() -> None:
    X, Y = separable()
    tree = random_tree(9, branching=3, rng=np.random.default_rng(0))
    start = train_independent(X, Y, tree, rng=np.random.default_rng(0))
    seen = []

    def score(weights) -> float:
        seen.append(weights.data.copy())
        return -len(seen)

    best = train_tree_loss(
        X, Y, tree, start=start, score=score, rng=np.random.default_rng(0)
    ).weights
    assert best is start
    assert_array_equal(start.data, seen[0])  # the descent works on a copy
    assert len(seen) == 1 + training._PATIENCE
    # The first epoch begins where the start was: nothing is violated by much.
    assert np.abs(seen[1] - seen[0]).max() < np.abs(seen[0]).max()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_independent_nodes_under_one_root_are_one_vs_rest(loss: str) -> None:
    X, Y = multilabel(c=20)
    flat = random_tree(20, branching=20, depth=1, rng=np.random.default_rng(0))
    weights = train_independent(
        X, Y, flat, loss=loss, tolerance=1e-4, max_sweeps=2000, rng=np.random.default_rng(0)
    )
    # Rows without labels reach no node.
    some = np.diff(Y.indptr) > 0
    other = OneVsRest(loss=loss, normalize=False, tolerance=1e-4, max_sweeps=2000)
    other.fit(X[some], Y[some])
    block = weights.block(flat, 0)
    assert_allclose(block[:-1], other.coef_[:, flat.label[1:]], atol=1e-3)
    assert_allclose(block[-1], other.intercept_[flat.label[1:]], atol=1e-3)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_independent_training_of_small_chunks(n_jobs: int) -> None:
    X, Y = separable(c=30)
    tree = random_tree(30, branching=3, rng=np.random.default_rng(0))
    weights = train_independent(X, Y, tree, rng=np.random.default_rng(0), n_jobs=n_jobs)
    assert len(weights.slot_feature) > 0  # some chunks know few features
    labels, _ = beam_search(tree, weights, X, 1, beam_width=1, link="sigmoid")
    assert_array_equal(labels[:, 0], Y.indices)
