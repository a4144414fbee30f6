"""Calibration: probabilities come out right, the order stays, odd scores are taken."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from labelry.ranking.calibration import Calibration, fit_calibration


def drawn(truth: Calibration, n: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = rng.random((n, 2)).astype(np.float32)
    return scores, rng.random((n, 2)) < truth.probabilities(scores)


def of_best(curve: Calibration, scores: np.ndarray) -> np.ndarray:
    """Probabilities of scores each of which is the best of its row."""
    return curve.probabilities(scores[:, None])[:, 0]


def test_finds_the_curve_that_hits_were_drawn_from() -> None:
    truth = Calibration(1.3, 0.5, 0.4)
    found = fit_calibration(*drawn(truth))
    grid = np.linspace(0.01, 0.99, 50, dtype=np.float32)
    assert_allclose(of_best(found, grid), of_best(truth, grid), atol=0.03)
    s = 0.3
    expected = expit(1.3 * np.log(s) - 0.5 * np.log(1 - s) + 0.4)
    assert_allclose(of_best(truth, np.float32([s])), [expected], rtol=1e-5)


def test_finds_what_it_means_to_be_behind_another() -> None:
    truth = Calibration(0.5, 0.5, 0.4, share=1.5)
    found = fit_calibration(*drawn(truth))
    pairs = np.array([[s, s / 3] for s in np.linspace(0.1, 0.9, 9)], dtype=np.float32)
    assert_allclose(found.probabilities(pairs), truth.probabilities(pairs), atol=0.03)
    best = np.log(0.6) * 0.5 - np.log(0.4) * 0.5 + 0.4
    other = np.log(0.2) * 0.5 - np.log(0.8) * 0.5 + 0.4 + 1.5 * np.log(0.2 / 0.6)
    both = truth.probabilities(np.float32([[0.2, 0.6, -np.inf]]))
    assert_allclose(both, [[expit(other), expit(best), -np.inf]], rtol=1e-5)


def test_finds_what_the_rows_of_a_label_say() -> None:
    truth = Calibration(1.0, 0.5, 1.0, frequency=-0.4)
    rng = np.random.default_rng(0)
    scores = rng.random((20_000, 2)).astype(np.float32)
    n_rows = rng.integers(1, 100, scores.shape)
    hits = rng.random(scores.shape) < truth.probabilities(scores, n_rows)
    found = fit_calibration(scores, hits, n_rows)
    assert_allclose(found.frequency, -0.4, atol=0.05)
    some = np.array([[0.5] * 4, [0.9] * 4], dtype=np.float32)
    n_rows = np.array([[1, 5, 20, 90]] * 2)
    expected = truth.probabilities(some, n_rows)
    assert_allclose(found.probabilities(some, n_rows), expected, atol=0.03)
    assert_allclose(expected[0, 1], expit(0.5 * np.log(0.5) + 1 - 0.4 * np.log(6)), rtol=1e-5)
    assert fit_calibration(scores, hits).frequency == 0


@pytest.mark.parametrize("truth", [Calibration(-0.5, 1.0, 0.0), Calibration(-1.0, -1.0, 0.0)])
def test_the_order_of_scores_stays_whatever_the_hits(truth: Calibration) -> None:
    found = fit_calibration(*drawn(truth))
    assert found.low >= 0
    assert found.high >= 0
    assert found.share >= 0
    grid = np.linspace(0, 1, 100, dtype=np.float32)
    assert (np.diff(of_best(found, grid)) >= 0).all()
    assert (np.diff(found.probabilities(grid[None])) >= 0).all()  # all in one row


def test_bends_where_no_smooth_curve_fits() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((50_000, 1)).astype(np.float32)
    truth = np.where(scores < 0.5, 0.1, 0.3 + 0.4 * scores)  # a step, with a slope after it
    found = fit_calibration(scores, rng.random(scores.shape) < truth)
    grid = np.array([0.1, 0.3, 0.6, 0.75, 0.9], dtype=np.float32)
    assert_allclose(of_best(found, grid), [0.1, 0.1, 0.54, 0.6, 0.66], atol=0.03)
    fine = of_best(found, np.linspace(0.01, 0.99, 200, dtype=np.float32))
    assert (np.diff(fine) > 0).all()  # the order is strict


def test_places_without_a_label_are_left_out_and_stay() -> None:
    scores, hits = drawn(Calibration(1.0, 1.0, 0.0), 2000)
    wider = np.concatenate([scores, np.full_like(scores, -np.inf)], axis=1)
    found = fit_calibration(wider, np.concatenate([hits, np.zeros_like(hits)], axis=1))
    for ours, theirs in zip(found, fit_calibration(scores, hits), strict=True):
        assert_array_equal(ours, theirs)
    assert np.isneginf(found.probabilities(wider)[:, 2:]).all()
    assert found.probabilities(wider).dtype == np.float32


def test_nothing_to_learn_from() -> None:
    scores = np.array([[0.5, 0.9]], dtype=np.float32)
    assert fit_calibration(scores, np.array([[True, True]])) is None
    assert fit_calibration(scores, np.array([[False, False]])) is None
