"""The re-ranker: the same as scikit-learn's models, calibrated, better than each scorer."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier

from labelry.ranking import rerank
from labelry.ranking.evidence import as_probabilities, best_candidates, evidence
from labelry.ranking.rerank import (
    Boosted,
    Logistic,
    Reranker,
    fit_reranker,
    mean_reranker,
    with_logarithms,
)

N, M = 1500, 8


def made(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two scorers, each with half of what decides: candidates, features and hits."""
    rng = np.random.default_rng(seed)
    candidates = np.tile(np.arange(M, dtype=np.int32), (N, 1))
    candidates[:, -1] = np.where(rng.random(N) < 0.5, -1, M - 1)
    a, b = rng.random((2, N, M), dtype=np.float32)
    hits = (rng.random((N, M)) < expit(8 * (a + b) - 11)) & (candidates >= 0)
    return candidates, evidence(candidates, [a, b], np.zeros((N, M), dtype=np.float32)), hits


def top(candidates: np.ndarray, S: np.ndarray, hits: np.ndarray) -> float:
    S = np.where(candidates >= 0, S, -np.inf)
    return float(hits[np.arange(N), S.argmax(axis=1)].mean())


@pytest.mark.parametrize("kind", ["average", "logistic", "boosted"])
def test_both_scorers_are_better_than_one_and_the_probabilities_right(kind: str) -> None:
    candidates, F, hits = made(0)
    model = fit_reranker(candidates, F, hits, kind=kind, rng=np.random.default_rng(0))
    candidates, F, hits = made(1)
    S = model.log_odds(candidates, F, n_jobs=2)
    assert np.isneginf(S[candidates < 0]).all()
    assert np.isfinite(S[candidates >= 0]).all()
    assert top(candidates, S, hits) > 0.04 + max(top(candidates, F[..., j], hits) for j in (0, 3))
    p = as_probabilities(S)[candidates >= 0]
    assert p.min() > 0
    assert p.max() < 1
    likely = p > 0.5
    assert abs(p[likely].mean() - hits[candidates >= 0][likely].mean()) < 0.06


def test_boosted_trees_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    class Kept(HistGradientBoostingClassifier):
        def fit(self, X, y):
            kept.append(self)
            return super().fit(X, y)

    monkeypatch.setattr(rerank, "HistGradientBoostingClassifier", Kept)
    candidates, F, hits = made(0)
    model = fit_reranker(candidates, F, hits, kind="boosted", rng=np.random.default_rng(0))
    (forest,) = model.models
    assert isinstance(forest, Boosted)
    assert (forest.feature >= 0).any()
    candidates, F, _ = made(1)
    listed = candidates >= 0
    expected = kept[0].decision_function(F[listed])
    assert_allclose(model.log_odds(candidates, F)[listed], expected, atol=1e-4)


def test_leaves_are_found_as_in_plain_python() -> None:
    nodes = {"feature": [1, -1, 0, -1, -1], "left": [1, 0, 3, 0, 0], "right": [2, 0, 4, 0, 0]}
    ints = {name: np.array(values, dtype=np.int32) for name, values in nodes.items()}
    threshold = np.array([0.5, 10.0, 0.25, 20.0, 30.0], dtype=np.float32)
    forest = Boosted(np.array([0, 2], dtype=np.int32), threshold=threshold, offset=1.0, **ints)
    F = np.array([[[0.25, 0.5], [0.3, 0.6], [0, 0]]], dtype=np.float32)
    out = forest.log_odds(np.array([[4, 2, -1]]), F)
    assert out.tolist() == [[1 + 10 + 20, 1 + 30 + 30, 1]]


def test_average_is_a_mean_of_the_log_odds_and_boosted_trees_count_three_times() -> None:
    candidates, F, hits = made(0)
    model, logistic, boosted = (
        fit_reranker(candidates, F, hits, kind=kind, rng=np.random.default_rng(0))
        for kind in ("average", "logistic", "boosted")
    )
    assert [type(part) for part in model.models] == [Logistic, Boosted]
    mean = (logistic.log_odds(candidates, F) + 3 * boosted.log_odds(candidates, F)) / 4
    listed = candidates >= 0
    assert_allclose(model.log_odds(candidates, F)[listed], mean[listed], rtol=1e-4, atol=1e-5)
    few = fit_reranker(
        candidates[:50], F[:50], hits[:50], kind="average", rng=np.random.default_rng(0)
    )
    assert [type(part) for part in few.models] == [Logistic]


@pytest.mark.parametrize("kinds", [("average", "average"), ("logistic", "boosted")])
def test_the_mean_of_rerankers_is_that_of_their_log_odds(kinds) -> None:
    parts = [
        fit_reranker(*made(seed), kind=kind, rng=np.random.default_rng(0))
        for seed, kind in enumerate(kinds)
    ]
    candidates, F, _ = made(2)
    expected = sum(part.log_odds(candidates, F) for part in parts) / 2
    assert_allclose(mean_reranker(parts).log_odds(candidates, F), expected, rtol=1e-4, atol=1e-4)


def test_logarithms_are_of_scores_and_ranks() -> None:
    F = np.array([[0.0, 0.5, 2, 0.25, 1, 0, 7, 3, 4]], dtype=np.float32)
    assert_array_equal(with_logarithms(F)[:, :7], F[:, :7])
    assert_allclose(with_logarithms(F)[0, 7:], np.log([1e-4, 0.25, 3, 1]), atol=1e-6)


def test_nothing_to_tell_apart() -> None:
    candidates, F, hits = made(0)
    rng = np.random.default_rng(0)
    assert fit_reranker(candidates, F, np.zeros_like(hits), kind="average", rng=rng) is None
    assert fit_reranker(candidates, F, np.ones_like(hits), kind="average", rng=rng) is None


def test_best_candidates_and_places_without_one() -> None:
    candidates = np.array([[3, 5, -1], [-1, -1, -1]], dtype=np.int32)
    S = np.array([[0.1, 0.7, -np.inf], [-np.inf] * 3], dtype=np.float32)
    labels, scores = best_candidates(candidates, S, 4)
    assert labels.tolist() == [[5, 3, -1, -1], [-1] * 4]
    assert_allclose(scores[0], [0.7, 0.1, -np.inf, -np.inf])


def test_saved_as_plain_arrays(stored) -> None:
    candidates, F, hits = made(0)
    model = fit_reranker(candidates, F, hits, kind="average", rng=np.random.default_rng(0))
    loaded = stored(model)
    assert isinstance(loaded, Reranker)
    assert_array_equal(loaded.log_odds(candidates, F), model.log_odds(candidates, F))


@pytest.mark.parametrize("kind", ["logistic", "boosted"])
def test_of_many_wrong_candidates_some_are_enough(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All that are true are learnt from; probabilities are those of all candidates."""
    candidates, F, hits = made(0)
    whole = fit_reranker(candidates, F, hits, kind=kind, rng=np.random.default_rng(0))
    listed = candidates >= 0
    n_true, n_wrong = hits.sum(), (~hits[listed]).sum()
    seen = []
    name = f"_{kind}_model"
    fit = getattr(rerank, name)
    monkeypatch.setattr(rerank, name, lambda *given: seen.append(given[1]) or fit(*given))
    monkeypatch.setattr(rerank, "_MOST_CANDIDATES", n_true + n_wrong // 3)
    some = fit_reranker(candidates, F, hits, kind=kind, rng=np.random.default_rng(0))
    assert seen[0].sum() == n_true
    assert (~seen[0]).sum() == n_wrong // 3
    candidates, F, hits = made(1)
    listed = candidates >= 0
    p, q = (as_probabilities(model.log_odds(candidates, F))[listed] for model in (some, whole))
    assert abs(p.mean() - hits[listed].mean()) < 0.02
    assert abs(p - q).mean() < 0.03
