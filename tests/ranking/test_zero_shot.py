"""Labels of which only the name is known are not buried under the others."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from labelry.ranking.evidence import as_probabilities, evidence, known_of_labels
from labelry.ranking.rerank import Reranker, fit_reranker, mean_reranker
from labelry.ranking.zero_shot import ZeroShotReranker, fit_with_zero_shot, mean_with_zero_shot

N, M = 2000, 10


def made(seed: int, strange: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A scorer and the names decide together; of the first labels only the names are known."""
    rng = np.random.default_rng(seed)
    candidates = np.tile(np.arange(M, dtype=np.int32), (N, 1))
    candidates[:, -1] = np.where(rng.random(N) < 0.5, -1, M - 1)
    scorer, names = rng.random((2, N, M), dtype=np.float32)
    hits = (rng.random((N, M)) < expit(8 * (scorer + names) - 11)) & (candidates >= 0)
    frequency = np.tile(np.arange(M, dtype=np.float32) + 1 - strange, (N, 1)).clip(0)
    scorer[:, :strange] = 0
    return candidates, evidence(candidates, [scorer, names], frequency), hits


@pytest.mark.parametrize("taught", [0, 2])
def test_zero_shot_labels_are_calibrated_whether_or_not_any_were_held_out(taught: int) -> None:
    """Without any, the rarest labels stand in for zero-shot labels."""
    model = fit_with_zero_shot(*made(0, taught), kind="logistic", rng=np.random.default_rng(0))
    assert isinstance(model, ZeroShotReranker)
    candidates, F, hits = made(1, strange=3)
    p = as_probabilities(model.log_odds(candidates, F))[:, :3]
    for inside in (p <= 0.2, p > 0.2):
        assert inside.sum() > 100
        assert abs(p[inside].mean() - hits[:, :3][inside].mean()) < 0.06
    plain = fit_reranker(*made(0, 0), kind="logistic", rng=np.random.default_rng(0))
    assert as_probabilities(plain.log_odds(candidates, F))[:, :3].mean() < p.mean() / 5


def test_labels_with_rows_are_ranked_as_without_zero_shot_labels() -> None:
    candidates, F, hits = made(0, strange=2)
    model = fit_with_zero_shot(candidates, F, hits, kind="logistic", rng=np.random.default_rng(0))
    listed = np.where(known_of_labels(F) > 0, candidates, -1)
    known = fit_reranker(listed, F, hits, kind="logistic", rng=np.random.default_rng(0))
    S = model.log_odds(candidates, F, n_jobs=2)
    assert_array_equal(S[:, 2:], known.log_odds(listed, F)[:, 2:])
    assert np.isneginf(S[candidates < 0]).all()
    assert np.isfinite(S[candidates >= 0]).all()


def test_in_a_mean_zero_shot_labels_are_ranked_by_those_that_have_a_model_of_them() -> None:
    both = [
        fit_with_zero_shot(*made(seed, 2), kind="logistic", rng=np.random.default_rng(0))
        for seed in (0, 1)
    ]
    plain = fit_reranker(*made(2, 0), kind="logistic", rng=np.random.default_rng(0))
    candidates, F, _ = made(3, strange=2)
    known = [model.known for model in both]
    assert mean_with_zero_shot([plain, plain]).models == mean_reranker([plain, plain]).models
    mean = mean_with_zero_shot(both)
    expected = mean_reranker(known).log_odds(candidates, F)
    assert_allclose(mean.log_odds(candidates, F)[:, 2:], expected[:, 2:], rtol=1e-5)
    mixed = mean_with_zero_shot([both[0], plain])
    assert mixed.zero_shot.models == both[0].zero_shot.models
    assert len(mixed.known.models) == 2


def test_nothing_to_tell_apart() -> None:
    candidates, F, hits = made(0, strange=2)
    rng = np.random.default_rng(0)
    fit = {"kind": "logistic", "rng": rng}
    assert fit_with_zero_shot(candidates, F, np.zeros_like(hits), **fit) is None
    only = np.zeros_like(hits)
    only[:, :2] = hits[:, :2]  # no label with rows is ever true
    assert isinstance(fit_with_zero_shot(candidates, F, only, **fit), Reranker)
    every = np.ones_like(hits)
    every[:, 2:] = hits[:, 2:]  # every zero-shot label is true
    model = fit_with_zero_shot(candidates, F, every & (candidates >= 0), **fit)
    assert np.isfinite(model.log_odds(candidates, F)[candidates >= 0]).all()


def test_saved_as_plain_arrays(stored) -> None:
    candidates, F, hits = made(0, strange=2)
    model = fit_with_zero_shot(candidates, F, hits, kind="logistic", rng=np.random.default_rng(0))
    loaded = stored(model)
    assert isinstance(loaded, ZeroShotReranker)
    assert_array_equal(loaded.log_odds(candidates, F), model.log_odds(candidates, F))
