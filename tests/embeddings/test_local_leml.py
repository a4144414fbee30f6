"""LocalLEML: maps in clusters, against one map and plain computations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.embeddings.leml import LEMLSettings, fit_leml
from labelry.errors import MemoryBudgetError
from labelry.estimators.local import LEML, LocalLEML
from labelry.linalg.rows import Rows


def planted(n: int = 500, n_parts: int = 4) -> tuple[np.ndarray, csr_array]:
    """In each part of the space, five labels that depend on the features in a way of its own."""
    rng = np.random.default_rng(0)
    part = rng.integers(n_parts, size=n)
    X = rng.standard_normal((n, 12)) + 4 * rng.standard_normal((n_parts, 12))[part]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores = np.einsum("nd,ndl->nl", X, rng.standard_normal((n_parts, 12, 5))[part])
    Y = np.zeros((n, 5 * n_parts), dtype=np.float32)
    Y[np.arange(n), 5 * part + scores.argmax(axis=1)] = 1
    return X.astype(np.float32), csr_array(Y)


X, Y = planted()
TRAIN, TEST = slice(0, 400), slice(400, 500)


@pytest.mark.parametrize("as_given", [np.asarray, csr_array])
def test_local_maps_do_what_one_map_of_their_rank_cannot(as_given) -> None:
    A = as_given(X)
    local = LocalLEML(embedding_dim=5, n_clusters=4).fit(A[TRAIN], Y[TRAIN])
    single = LEML(embedding_dim=5).fit(A[TRAIN], Y[TRAIN])
    assert local.score(A[TEST], Y[TEST]) > single.score(A[TEST], Y[TEST]) + 0.1
    assert len(local.learners_) == 5
    labels, scores = local.topk_ids(A[TEST], 3)
    full = local.score_all(A[TEST])
    assert_allclose(np.take_along_axis(full, labels, axis=1), scores, atol=1e-5)
    assert_allclose(scores, np.sort(full, axis=1)[:, :-4:-1], atol=1e-5)


def test_one_cluster_is_leml() -> None:
    local = LocalLEML(embedding_dim=6).fit(X, Y)
    seed_of_cluster = np.random.default_rng(0).spawn(1)[0]
    single = fit_leml(Rows(X, Y), LEMLSettings(embedding_dim=6), seed_of_cluster)
    assert len(local.learners_) == 1
    assert_allclose(local.score_all(X[:50]), single.scores(X[:50]), atol=1e-4)


def test_a_plain_computation_from_what_is_stored() -> None:
    model = LocalLEML(embedding_dim=4, n_clusters=3, n_learners=2).fit(X, Y)
    got = model.score_all(X[:20])
    expected = np.zeros_like(got)
    for learner in model.learners_:
        for i in range(20):
            c = int(np.argmax(X[i] @ learner.centres))
            features, W, intercept, labels, H = learner.cluster(c)
            expected[i, labels] += (X[i, features] @ W + intercept) @ H.T / 2
    assert_allclose(got, expected, atol=1e-5)


def test_a_cluster_knows_only_its_own_features_and_labels() -> None:
    """Two blocks that share nothing, one of lower rank: each cluster stores one block."""
    A = np.kron(np.eye(2), np.eye(6)).astype(np.float32)[np.tile(np.arange(12), 3)]
    B = np.hstack([np.kron(np.eye(2), np.eye(6))[:, :6], np.repeat([[0], [1]], 6, axis=0)])
    B = B[np.tile(np.arange(12), 3)]
    A[:, :6] += 0.5 * (A[:, :6].sum(axis=1, keepdims=True) > 0)
    A[:, 6:] += 0.5 * (A[:, 6:].sum(axis=1, keepdims=True) > 0)
    model = LocalLEML(n_clusters=2, n_learners=1).fit(csr_array(A), csr_array(B))
    (learner,) = model.learners_
    stored = sorted(
        (features.tolist(), labels.tolist())
        for features, _, _, labels, _ in map(learner.cluster, (0, 1))
    )
    assert stored == [(list(range(6)), list(range(6))), (list(range(6, 12)), [6])]
    assert_array_equal(model.topk_ids(csr_array(A), 1)[0][:, 0], B.argmax(axis=1))


@pytest.mark.parametrize(
    ("A", "B", "parameters"),
    [
        (X[:20], np.zeros((20, 3)), {}),  # no label on any row
        (X[:20], np.ones((20, 3)), {"n_clusters": 2}),  # every label on every row
        (np.zeros((6, 4)), np.eye(6, 4), {"n_clusters": 3}),  # no features; rows without labels
        (csr_array((6, 4)), np.eye(6, 4), {"n_clusters": 3}),
        (np.ones((5, 2)), np.eye(5, 9), {"n_clusters": 50}),  # one row a cluster; unused labels
        (np.ones((1, 1)), np.ones((1, 2)), {}),  # one row
        (np.ones((4, 1)), np.ones((4, 1)), {"n_learners": 3}),  # one label
    ],
)
def test_odd_data_gives_finite_scores(A, B: np.ndarray, parameters) -> None:
    model = LocalLEML(**parameters).fit(A, csr_array(B))
    labels, scores = model.topk_ids(A, 2)
    assert (labels >= 0).all()
    assert np.isfinite(scores).all()


def test_too_little_memory_is_said_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelry.memory.available", lambda: 50_000)
    with pytest.raises(MemoryBudgetError, match=r"LocalLEML with 5 learners of 2 clusters"):
        LocalLEML(n_clusters=2).fit(X, Y)


def test_errors_name_the_parameter() -> None:
    for parameters, message in (
        ({"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ({"n_learners": 0}, "n_learners must be at least 1, got 0"),
        ({"regularization": 0.0}, r"regularization must be positive, got 0\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            LocalLEML(**parameters).fit(X, Y)
