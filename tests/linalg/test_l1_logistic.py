"""L1-regularised logistic regression: the optimum, a twin, odd data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, random_array
from scipy.special import expit

from labelry.linalg.kernels import Csr
from labelry.linalg.l1_logistic import Problem, l1_logistic, subgradient


def problem(seed: int = 0) -> tuple[csc_array, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = random_array((150, 25), density=0.3, random_state=rng, format="csc", dtype=np.float32)
    truth = np.where(np.arange(25) < 5, 3.0 * rng.standard_normal(25), 0.0)
    signs = np.where(X @ truth + 0.3 * rng.standard_normal(150) > 0, 1, -1).astype(np.int8)
    return X, signs, rng.uniform(0.5, 2.0, 150)


def solve(X: csc_array, signs: np.ndarray, costs: np.ndarray, tolerance: float, steps: int):
    w, margins = np.zeros(X.shape[1]), np.zeros(X.shape[0])
    given = Problem(Csr(X.indptr, X.indices, X.data), signs, costs)
    made = l1_logistic(given, w, margins, tolerance, steps, 50)
    return w, margins, made


def objective(X: np.ndarray, signs: np.ndarray, costs: np.ndarray, w: np.ndarray) -> float:
    return np.abs(w).sum() + costs @ np.logaddexp(0, -signs * (X @ w))


def proximal_descent(X: np.ndarray, signs: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """The plain twin: many small gradient steps, each with a soft threshold."""
    w = np.zeros(X.shape[1])
    step = 4.0 / (costs.max() * np.linalg.norm(X, 2) ** 2)
    for _ in range(5000):
        gradient = -X.T @ (costs * signs * expit(-signs * (X @ w)))
        w = w - step * gradient
        w = np.sign(w) * np.maximum(np.abs(w) - step, 0)
    return w


@pytest.mark.parametrize("C", [0.3, 1.0, 10.0])
def test_reaches_the_optimum(C: float) -> None:
    X, signs, costs = problem()
    w, margins, _ = solve(X, signs, C * costs, 1e-8, 200)
    assert_allclose(margins, X @ w, atol=1e-6)
    gradient = -X.T @ (C * costs * signs * expit(-signs * margins))
    assert_allclose(gradient[w != 0], -np.sign(w[w != 0]), atol=1e-5)
    assert (np.abs(gradient[w == 0]) <= 1 + 1e-5).all()
    dense = X.toarray().astype(float)
    twin = proximal_descent(dense, signs, C * costs)
    ours, theirs = (objective(dense, signs, C * costs, v) for v in (w, twin))
    assert_allclose(ours, theirs, rtol=1e-2)
    assert ours <= theirs + 1e-6


def test_strong_penalty_leaves_few_weights() -> None:
    X, signs, costs = problem()
    counts = [np.count_nonzero(solve(X, signs, C * costs, 1e-6, 100)[0]) for C in (0.01, 0.3, 10)]
    assert counts[0] == 0
    assert counts[0] < counts[1] < counts[2]


def test_each_step_lowers_the_objective() -> None:
    X, signs, costs = problem(1)
    dense = X.toarray().astype(float)
    values = [
        objective(dense, signs, costs, solve(X, signs, costs, 0.0, steps)[0]) for steps in range(8)
    ]
    assert (np.diff(values) <= 1e-9).all()
    assert values[-1] < 0.9 * values[0]


def test_tolerance_stops_early() -> None:
    X, signs, costs = problem()
    assert solve(X, signs, costs, 0.5, 100)[2] < solve(X, signs, costs, 1e-8, 100)[2] < 100


def test_smallest_subgradient() -> None:
    assert subgradient(-0.4, 0.0) == 0.0
    assert subgradient(-1.5, 0.0) == 0.5
    assert subgradient(-1.0, 2.0) == 0.0
    assert subgradient(0.25, -1.0) == 0.75


def test_odd_data() -> None:
    nothing = csc_array((3, 2), dtype=np.float32)
    ones = np.ones(3, dtype=np.int8)
    assert_array_equal(solve(nothing, ones, np.ones(3), 0.01, 10)[0], 0)
    # One class only, on a constant feature: the loss has no minimum but the penalty bounds it.
    constant = csc_array(np.ones((3, 1), dtype=np.float32))
    w = solve(constant, ones, np.ones(3), 1e-8, 100)[0]
    assert_allclose(3 * expit(-w[0]), 1.0, rtol=1e-5)
    huge = csc_array(np.array([[1e6], [-1e6], [2e6]], dtype=np.float32))
    w, margins, _ = solve(huge, np.array([1, -1, 1], dtype=np.int8), np.ones(3), 0.01, 50)
    assert np.isfinite(w).all()
    assert_array_equal(margins > 0, [True, False, True])
