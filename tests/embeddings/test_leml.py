"""LEML: turns that only improve, against dense solutions on small data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, random_array

from labelry.embeddings.leml import (
    LOSSES,
    Factors,
    KnownLabels,
    SquaredLoss,
    conjugate_gradients,
    leml,
)
from labelry.linalg.rows import Rows

RIDGE = 0.5
X = random_array((80, 12), density=0.5, rng=0, format="csr", dtype=np.float32)
Y = csr_array((random_array((80, 9), density=0.3, rng=1) != 0).astype(np.float32))
KNOWN = csr_array((random_array((80, 9), density=0.6, rng=2) != 0).astype(np.float32))


def start(dim: int = 4) -> Factors:
    rng = np.random.default_rng(3)
    W, H = (rng.standard_normal((n, dim)).astype(np.float32) for n in (12, 9))
    return Factors(W, H)


def dense_value(factors: Factors, loss: str, known: csr_array | None) -> float:
    S = X.toarray() @ factors.W @ factors.H.T
    terms = LOSSES[loss].value(S, Y.toarray())
    if known is not None:
        terms = terms * (known.toarray() != 0)
    return float(terms.sum() + RIDGE / 2 * sum((M**2).sum() for M in factors))


def objective(loss: str, known: csr_array | None):
    if loss == "passes":
        return SquaredLoss(Rows(X, Y, block_rows=13), RIDGE)
    return KnownLabels(Rows(X, Y), LOSSES[loss], RIDGE, known)


CASES = [
    ("passes", None),
    ("squared", None),
    ("squared", KNOWN),
    ("logistic", None),
    ("logistic", KNOWN),
    ("squared_hinge", KNOWN),
]


@pytest.mark.parametrize(("loss", "known"), CASES)
def test_value_is_the_objective_written_out(loss: str, known: csr_array | None) -> None:
    expected = dense_value(start(), "squared" if loss == "passes" else loss, known)
    assert objective(loss, known).value(start()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("loss", "known"), CASES)
def test_each_round_lowers_the_objective(loss: str, known: csr_array | None) -> None:
    _, values = leml(objective(loss, known), start(), n_rounds=6, tolerance=0.0)
    assert len(values) >= 4
    assert all(a >= b - 1e-4 * a for a, b in pairwise(values))
    assert values[-1] < 0.7 * values[0]


@pytest.mark.parametrize("loss", list(LOSSES))
def test_slope_and_curvature_belong_to_the_value(loss: str) -> None:
    value, slope, curvature = LOSSES[loss]
    s = np.array([-2.0, -0.3, 0.4, 1.7])
    step = 1e-4
    for y in (np.zeros(4), np.ones(4)):
        rise = (value(s + step, y) - value(s - step, y)) / (2 * step)
        assert_allclose(slope(s, y), rise, atol=1e-4)
        bend = (slope(s + step, y) - slope(s - step, y)) / (2 * step)
        assert_allclose(curvature(s, y), bend, atol=1e-3)


@pytest.mark.parametrize("passes", [True, False])
def test_turns_solve_the_normal_equations(passes: bool) -> None:
    """Squared loss: each turn is a ridge regression that can be written out."""
    problem = objective("passes" if passes else "squared", None)
    W, H = start()
    A, T = X.toarray().astype(float) @ W, Y.toarray().astype(float)
    exact = np.linalg.solve(A.T @ A + RIDGE * np.eye(4), A.T @ T).T
    assert_allclose(problem.labels_turn(Factors(W, H)), exact, atol=0.01)
    # vec(X'X W H'H + ridge W) = vec(X'Y H)
    D = X.toarray().astype(float)
    K = np.kron(D.T @ D, H.T @ H) + RIDGE * np.eye(48)
    exact = np.linalg.solve(K, (D.T @ T @ H).ravel()).reshape(12, 4)
    turn = W
    for _ in range(5):
        turn = problem.features_turn(Factors(turn, H))
    assert_allclose(turn, exact, atol=0.02)


def test_unknown_labels_play_no_part() -> None:
    flipped = csr_array(np.where(KNOWN.toarray() != 0, Y.toarray(), 1 - Y.toarray()))
    one = KnownLabels(Rows(X, Y), LOSSES["logistic"], RIDGE, KNOWN)
    other = KnownLabels(Rows(X, flipped), LOSSES["logistic"], RIDGE, KNOWN)
    assert_allclose(one.labels_turn(start()), other.labels_turn(start()), atol=1e-5)
    assert_allclose(one.features_turn(start()), other.features_turn(start()), atol=1e-5)


def test_conjugate_gradients_solve_a_small_system() -> None:
    A = np.diag(np.arange(1.0, 7.0)).astype(np.float32)
    right = np.ones((6, 2), dtype=np.float32)
    found = conjugate_gradients(lambda P: A @ P, right, tolerance=1e-6)
    assert_allclose(found, np.linalg.solve(A, right), rtol=1e-4)
    assert not conjugate_gradients(lambda P: A @ P, 0 * right).any()
