"""Joint and sequential embeddings and WSABIE as estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.embeddings import joint_embedding, ranked_space
from labelry.embeddings.violations import LabelViolations
from labelry.estimators import load
from labelry.estimators.joint import WSABIE, JointEmbedding, SequentialEmbedding

ALL = [JointEmbedding, WSABIE, SequentialEmbedding]


def planted(
    n: int = 600, c: int = 30, d: int = 15, noise: float = 0.25, seed: int = 0
) -> tuple[np.ndarray, csr_array]:
    """Rows near the sum of the directions of their one or two labels."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, c), dtype=np.float32)
    Y[np.arange(n), rng.integers(c, size=n)] = 1
    Y[np.arange(n // 3), rng.integers(c, size=n // 3)] = 1
    X = Y @ np.random.default_rng(99).standard_normal((c, d)) + noise * rng.standard_normal((n, d))
    return X.astype(np.float32), csr_array(Y)


@pytest.mark.parametrize("system", ALL)
def test_planted_labels_are_found(system: type[JointEmbedding]) -> None:
    X, Y = planted()
    model = system(embedding_dim=14, n_jobs=1).fit(X[:500], Y[:500])
    assert model.score(X[500:], Y[500:]) > 0.9
    assert model.label_embedding_.shape == (30, 14)
    assert model.embed(X[:3]).shape == (3, 14)


@pytest.mark.parametrize("system", [JointEmbedding, WSABIE])
@pytest.mark.parametrize("start", ["rembrandt", "random"])
def test_label_vectors_stay_in_the_unit_ball(system: type[JointEmbedding], start: str) -> None:
    X, Y = planted(noise=1.0)
    model = system(embedding_dim=10, start=start, max_epochs=3).fit(X, Y)
    assert np.linalg.norm(model.label_embedding_, axis=1).max() <= 1 + 1e-5
    assert model.score(X, Y) > 0.25  # by chance 0.05


@pytest.mark.parametrize("system", ALL)
def test_topk_is_the_best_of_all_scores(system: type[JointEmbedding]) -> None:
    X, Y = planted(n=200)
    model = system(embedding_dim=8, max_epochs=3).fit(X, Y)
    S = model.score_all(X)
    ids, scores = model.topk_ids(X, 4)
    assert_allclose(scores, -np.sort(-S, axis=1)[:, :4], atol=1e-4)
    assert_allclose(np.take_along_axis(S, ids, axis=1), scores, atol=1e-4)


def test_sequential_scores_are_distances() -> None:
    X, Y = planted(n=200)
    model = SequentialEmbedding(embedding_dim=8, max_epochs=2).fit(X, Y)
    V, Z = model.label_embedding_, model.embed(X)
    distance = np.linalg.norm(Z[:, None] - V[None], axis=2)
    assert_allclose(model.score_all(X) + model.score_threshold_, -distance, atol=1e-2)


@pytest.mark.parametrize("system", ALL)
def test_rows_get_about_as_many_labels_as_they_have(system: type[JointEmbedding]) -> None:
    X, Y = planted(n=900)
    predicted = system(embedding_dim=14).fit(X, Y).predict(X)
    assert 0.8 * Y.nnz < predicted.nnz < 1.2 * Y.nnz


def test_the_better_epoch_is_kept_by_rows_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = planted(n=900)
    seen: list[float] = []

    def judged(truth: csr_array, labels: np.ndarray, k: int) -> float:
        seen.append(1.0 if len(seen) == 1 else 0.0)
        assert truth.shape == (45, 30)  # a twentieth
        return seen[-1]

    monkeypatch.setattr(ranked_space, "ndcg_at_k", judged)
    JointEmbedding(max_epochs=20).fit(X, Y)
    assert len(seen) == 8  # the second was best, five more were not; and once for what is kept


def test_auto_takes_the_hardest_negative_of_single_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.eye(4, dtype=np.float32)
    one = csr_array(np.eye(4, dtype=np.float32))
    many = csr_array(np.ones((4, 4), dtype=np.float32))
    used: list[str] = []

    class Seen(LabelViolations):
        def __init__(self, Y: csr_array, negatives: str, **options: object) -> None:
            used.append(negatives)
            super().__init__(Y, negatives, **options)

    monkeypatch.setattr(joint_embedding, "LabelViolations", Seen)
    JointEmbedding(max_epochs=1).fit(X, one)
    JointEmbedding(max_epochs=1).fit(X, many)
    JointEmbedding(max_epochs=1, negatives="sampled").fit(X, one)
    WSABIE(max_epochs=1).fit(X, one)
    assert used == ["hardest", "sampled", "sampled", "warp"]


@pytest.mark.parametrize("system", ALL)
def test_a_saved_model_is_the_same(system: type[JointEmbedding], tmp_path: Path) -> None:
    X, Y = planted(n=60)
    Y = csr_array(Y.toarray() * (np.arange(30) < 29))  # a label without rows
    model = system(embedding_dim=6, max_epochs=2, n_jobs=1).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for one, two in zip(model.topk_ids(X, 3), loaded.topk_ids(X, 3), strict=True):
        assert_array_equal(one, two)
    assert_array_equal(model.label_vectors(), loaded.label_vectors())


@pytest.mark.parametrize("system", ALL)
def test_threads_and_repeats_give_the_same_model(system: type[JointEmbedding]) -> None:
    X, Y = planted(n=300)
    models = [
        system(embedding_dim=6, max_epochs=2, n_jobs=n).fit(csr_array(X), Y) for n in (1, 1, 2)
    ]
    assert_array_equal(models[0].label_embedding_, models[1].label_embedding_)
    assert_array_equal(models[0].regressor_.coef, models[1].regressor_.coef)
    assert models[2].score(X, Y) == pytest.approx(models[0].score(X, Y), abs=0.03)


@pytest.mark.parametrize("system", ALL)
@pytest.mark.parametrize(
    "Y",
    [np.zeros((6, 3)), np.ones((6, 3)), np.ones((6, 1)), np.eye(6, 4), np.eye(6, 50)],
    ids=["no labels", "all labels", "one label", "rows without labels", "labels without rows"],
)
def test_odd_labels(system: type[JointEmbedding], Y: np.ndarray) -> None:
    X = np.eye(6, 5, dtype=np.float32)  # the last row has no features
    model = system(max_epochs=3, n_jobs=1).fit(csr_array(X), csr_array(Y))
    ids, scores = model.topk_ids(csr_array(X), 2)
    assert np.isfinite(scores).all()
    assert ids.shape == (6, min(2, Y.shape[1]))
    one = system(max_epochs=3, n_jobs=1).fit(csr_array(X[:1]), csr_array(Y[:1]))
    assert np.isfinite(one.topk_ids(csr_array(X), 1)[1]).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ({"max_epochs": 0}, "max_epochs must be at least 1, got 0"),
        ({"rate": 0.0}, "rate must be positive, got 0.0"),
        ({"regularization": -1.0}, "regularization must be at least 0, got -1.0"),
        ({"start": "cold"}, "start must be one of rembrandt, random; got 'cold'"),
        ({"negatives": "all"}, "negatives must be one of auto, hardest, sampled; got 'all'"),
    ],
)
def test_parameters_are_checked(parameters: dict, message: str) -> None:
    X, Y = planted(n=20)
    with pytest.raises(ValueError, match=message):
        JointEmbedding(**parameters).fit(X, Y)
