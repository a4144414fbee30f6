"""SLEEC: learners, their neighbours and the ensemble, against plain computations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, issparse, random_array

from labelry.checks import StoredCheck
from labelry.embeddings.sleec import LocalNeighbours, largest_weights
from labelry.errors import MemoryBudgetError
from labelry.estimators.local import SLEEC
from labelry.storage.values import pack, unpack


def grouped(n: int = 600, n_groups: int = 120, seed: int = 0) -> tuple[csr_array, csr_array]:
    """Each row is of one of many small groups, which has three words and two labels of its own."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n)
    words = np.concatenate([3 * group + i for i in range(3)])
    rows = np.tile(np.arange(n), 3)
    X = csr_array((np.ones(3 * n, np.float32), (rows, words)), shape=(n, 3 * n_groups))
    X = X + 0.3 * random_array(X.shape, density=0.01, rng=rng, format="csr", dtype=np.float32)
    labels = np.concatenate([2 * group, 2 * group + 1])
    Y = csr_array((np.ones(2 * n, np.float32), (np.tile(np.arange(n), 2), labels)))
    return csr_array(X), Y


X, Y = grouped()
TRAIN, TEST = slice(0, 480), slice(480, 600)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_clusters": 5},
        {"n_clusters": 3, "l1": 0.3},
        {"n_clusters": 2, "n_learners": 1, "keep_weights": 1.0},
    ],
)
def test_learns_labels_with_few_rows_each(parameters) -> None:
    model = SLEEC(**parameters).fit(X[TRAIN], Y[TRAIN])
    assert model.score(X[TEST], Y[TEST]) > 0.9
    labels, scores = model.topk_ids(X[TEST], 2)
    assert np.diff(scores, axis=1).max() <= 1e-6
    assert scores.max() <= 1 + 1e-5
    assert model.errors_.shape == (len(model.learners_), parameters.get("n_clusters", 1))
    assert (model.errors_ < 0.6).all()
    full = model.score_all(X[TEST])
    assert_allclose(np.take_along_axis(full, labels, axis=1), scores, atol=1e-5)


def test_dense_and_sparse_features_agree() -> None:
    options = {"n_clusters": 2, "n_learners": 2, "keep_weights": 1.0, "n_jobs": 1}
    sparse = SLEEC(**options).fit(X, Y).score_all(X[:50])
    dense = SLEEC(**options).fit(X.toarray(), Y).score_all(X[:50].toarray())
    assert np.mean(np.abs(sparse - dense) > 0.05) < 0.01


def test_each_learner_holds_every_row_once_in_balanced_clusters() -> None:
    model = SLEEC(n_clusters=7, n_learners=3).fit(X, Y)
    assert len(model.learners_) == 3
    for learner in model.learners_:
        assert_array_equal(np.sort(learner.rows), np.arange(600))
        sizes = np.diff(learner.row_bounds)
        assert sizes.max() <= 2 * sizes.min()
        assert learner.centres.shape == (X.shape[1], 7)
        for c in range(7):
            features, _, _, points, _ = learner.cluster(c)
            rows = learner.rows[learner.row_bounds[c] : learner.row_bounds[c + 1]]
            assert_array_equal(features, np.unique(X[rows].indices))
            assert points.shape == (sizes[c], 100)
    assert not np.array_equal(model.learners_[0].rows, model.learners_[1].rows)


def test_a_plain_computation_of_one_learner() -> None:
    """Algorithm 2 with all weights, from what the model stores."""
    model = SLEEC(n_clusters=3, n_learners=1, n_neighbors=4, embedding_dim=10).fit(X, Y)
    (learner,) = model.learners_
    unit = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    got = model.score_all(X[:20])
    for i in range(20):
        c = int(np.argmax(unit[i] @ learner.centres.toarray()))
        features, coef, intercept, points, scale = learner.cluster(c)
        z = (unit[i, features] @ coef.toarray() + intercept) * scale
        cosine = points @ (z / np.linalg.norm(z))
        near = np.argsort(-cosine)[:4]
        weights = np.exp(15 * (cosine[near] - 1))
        rows = learner.rows[learner.row_bounds[c] + near]
        assert_allclose(got[i], weights / weights.sum() @ Y.toarray()[rows], atol=1e-4)


def test_an_l1_penalty_stores_sparse_embeddings() -> None:
    plain, sparse = (SLEEC(l1=l1, embedding_dim=20).fit(X, Y).learners_[0] for l1 in (0.0, 0.5))
    assert not issparse(plain.points)
    assert issparse(sparse.points)
    assert sparse.points.nnz < 0.7 * np.count_nonzero(plain.points)


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SLEEC(n_clusters=3, n_learners=2, n_neighbors=5).fit(X, Y)
    whole = model.topk_ids(X, 3)
    monkeypatch.setattr("labelry.embeddings.sleec._NEAR_BYTES", 8 * 5 * 2 * 50)
    ids, scores = model.topk_ids(X, 3)
    assert_array_equal(ids, whole[0])
    assert_allclose(scores, whole[1], atol=1e-5)


@pytest.mark.parametrize(
    ("A", "B", "parameters"),
    [
        (X[:50], np.zeros((50, 3)), {}),  # no label on any row
        (X[:50], np.ones((50, 3)), {"n_clusters": 2}),  # every label on every row
        (np.zeros((6, 4)), np.eye(6, 4), {"n_clusters": 3}),  # no features; rows without labels
        (csr_array((6, 4)), np.eye(6, 4), {"n_clusters": 3}),
        (np.ones((5, 2)), np.eye(5, 9), {"n_clusters": 5}),  # one row a cluster; unused labels
        (np.ones((5, 2)), np.eye(5, 9), {"n_clusters": 50, "l1": 0.5}),  # more than rows
        (np.ones((1, 1)), np.ones((1, 2)), {}),  # one row
        (np.ones((4, 1)), np.ones((4, 1)), {"n_learners": 3}),  # one label
    ],
)
def test_odd_data_gives_finite_scores(A, B: np.ndarray, parameters) -> None:
    model = SLEEC(**parameters).fit(A, csr_array(B))
    labels, scores = model.predict_topk(A, k=2)
    assert np.isfinite(scores[labels >= 0]).all()
    assert not np.isnan(scores).any()
    assert (scores[labels < 0] == -np.inf).all()
    assert (labels >= 0).any() == B.any()


def test_missing_neighbours_add_no_labels() -> None:
    """Clusters of one row and a hundred neighbours: the labels are those of the one row."""
    model = SLEEC(n_clusters=4, n_learners=1).fit(np.eye(4), csr_array(np.eye(4)))
    labels, scores = model.topk_ids(np.eye(4), 2)
    assert_array_equal(labels, [[0, -1], [1, -1], [2, -1], [3, -1]])
    assert_allclose(scores[:, 0], 1, rtol=1e-5)


def test_largest_weights() -> None:
    W = np.arange(-10, 10, dtype=np.float32).reshape(4, 5)
    kept = largest_weights(W, 0.25)
    assert sorted(kept.data.tolist()) == [-10, -9, -8, 8, 9]
    assert_array_equal(largest_weights(W, 1.0).toarray(), W)


def test_too_little_memory_is_said_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelry.memory.available", lambda: 50_000)
    with pytest.raises(MemoryBudgetError, match=r"SLEEC with 1 learners.*keep_weights=0\.1"):
        SLEEC().fit(X, Y)


def test_errors_name_the_parameter() -> None:
    for parameters, message in (
        ({"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ({"n_clusters": 0}, "n_clusters must be at least 1, got 0"),
        ({"regularization": -1}, "regularization must be at least 0, got -1"),
        ({"keep_weights": 0}, "keep_weights must be above 0 and at most 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            SLEEC(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("learners.1.rows", 600, "rows must be from 0 to 599"),
        ("learners.1.row_bounds", 601, "row_bounds must rise from 0 to 600"),
        ("learners.0.features", 360, "features must be from 0 to 359"),
        ("labels.indices", 240, "labels.indices must be from 0 to 239"),
    ],
)
def test_damaged_learners_are_refused(name: str, value: int, message: str) -> None:
    model, arrays = SLEEC(n_clusters=3, n_learners=2, embedding_dim=4).fit(X, Y), {}
    packed = pack(model.fitted_, "it", arrays)
    sizes = {"n_features": X.shape[1], "n_labels": Y.shape[1]}

    def read() -> LocalNeighbours:
        return unpack(LocalNeighbours, packed, "it", arrays, dict(sizes), StoredCheck())

    assert_array_equal(read().topk(X, 2)[0], model.topk_ids(X, 2)[0])
    with pytest.raises(ValueError, match="learners must be there, as many as errors has rows"):
        unpack(LocalNeighbours, packed | {"learners": []}, "it", arrays, sizes, StoredCheck())
    arrays[f"it.{name}"] = arrays[f"it.{name}"].copy()
    arrays[f"it.{name}"][-1] = value
    with pytest.raises(ValueError, match=message):
        read()
