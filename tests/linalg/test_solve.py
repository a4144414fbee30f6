"""Ridge regression against the dense normal equations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, random_array

from labelry.linalg import solve
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge, usual_ridge

METHODS = ["cholesky", "dual", "cg"]


def problem(n: int, d: int) -> tuple[csr_array, csr_array, np.ndarray, np.ndarray]:
    X = random_array(
        (n, d), density=0.2, random_state=np.random.default_rng(0), format="csr", dtype=np.float32
    )
    Y = random_array(
        (n, 12), density=0.2, random_state=np.random.default_rng(1), format="csr", dtype=np.float32
    )
    rng = np.random.default_rng(2)
    return X, Y, rng.standard_normal((12, 5)).astype(np.float32), rng.random(n) + 0.1


def dense_ridge(X, T, weights, regularization):
    """The textbook, in double precision."""
    X, w = X.astype(np.float64), weights[:, None]
    r = regularization * (X**2 * w).sum() / X.shape[1]
    m = (w * X).sum(axis=0) / w.sum()
    t = (w * T).sum(axis=0) / w.sum()
    Xc = X - m
    Z = np.linalg.solve(Xc.T @ (w * Xc) + r * np.eye(X.shape[1]), Xc.T @ (w * (T - t)))
    return Z, t - m @ Z


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(300, 40), (60, 150)], ids=["tall", "wide"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dense", [True, False])
def test_matches_the_dense_solution(method, shape, weighted, dense) -> None:
    X, Y, Q, weights = problem(*shape)
    rows = Rows(X.toarray() if dense else X, Y, weights=weights if weighted else None)
    ridge = Ridge(rows, method=method, tolerance=1e-6)
    w = weights if weighted else np.ones(shape[0])
    Z, b = dense_ridge(X.toarray(), Y.toarray() @ Q, w, 0.5)
    coef, bias = ridge.solve(Q, 0.5)
    assert_allclose(coef, Z, atol=2e-5 * np.abs(Z).max())
    assert_allclose(bias, b, atol=1e-5)
    assert coef.dtype == np.float32


@pytest.mark.parametrize("method", ["cholesky", "dual"])
@pytest.mark.parametrize(
    ("regularization", "tolerance", "single"),
    [(0.5, 1e-2, True), (0.5, 1e-6, False), (1e-4, 1e-2, False)],
)
def test_single_precision_where_it_is_exact_enough(
    method: str, regularization: float, tolerance: float, single: bool
) -> None:
    X, Y, Q, _ = problem(300, 40)
    ridge = Ridge(Rows(X, Y), method=method, tolerance=tolerance)
    coef, _ = ridge.solve(Q, regularization)
    factor, _ = ridge._factor[1]
    assert factor.dtype == (np.float32 if single else np.float64)
    Z, _ = dense_ridge(X.toarray(), Y.toarray() @ Q, np.ones(300), regularization)
    assert np.linalg.norm(coef - Z) < 1e-3 * np.linalg.norm(Z)


@pytest.mark.parametrize("method", METHODS)
def test_one_block_equals_many(method: str) -> None:
    X, Y, Q, _ = problem(300, 40)
    whole = Ridge(Rows(X, Y), method=method).solve(Q, 0.1)
    parts = Ridge(Rows(X, Y, block_rows=30), method=method).solve(Q, 0.1)
    assert_allclose(whole.coef, parts.coef, atol=1e-4)


def test_chunks_of_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y, Q, _ = problem(300, 40)
    whole = Ridge(Rows(X, Y), method="cg").solve(Q, 0.1)
    two_columns = 2 * 4 * 40 * (4 + Rows(X).n_jobs)
    monkeypatch.setattr(solve, "_ROOM", two_columns)
    parts = Ridge(Rows(X, Y), method="cg").solve(Q, 0.1)
    assert_allclose(whole.coef, parts.coef, atol=1e-5)


def test_warm_start_at_the_solution_takes_no_iteration() -> None:
    X, Y, Q, _ = problem(300, 40)
    exact = Ridge(Rows(X, Y), method="cholesky").solve(Q, 0.1)
    ridge = Ridge(Rows(X, Y), method="cg", tolerance=1e-3)
    again = ridge.solve(Q, 0.1, start=exact.coef)
    assert ridge.n_iterations == 0
    assert_allclose(again.coef, exact.coef)
    ridge.solve(Q, 0.1)
    assert ridge.n_iterations > 3


def test_choice_of_method() -> None:
    wide = csr_array((30, 5000), dtype=np.float32)
    tall = csr_array((5000, 5000), dtype=np.float32)
    assert Ridge(Rows(wide[:, :10], wide[:, :2])).method == "cholesky"
    assert Ridge(Rows(wide, wide[:, :2])).method == "dual"
    assert Ridge(Rows(tall, tall[:, :2])).method == "cg"


@pytest.mark.parametrize("method", METHODS)
def test_odd_data_gives_finite_numbers(method: str) -> None:
    zeros = np.zeros((6, 4), dtype=np.float32)
    Y = np.eye(6, 3, dtype=np.float32)
    out = Ridge(Rows(zeros, Y), method=method).solve(np.eye(3, dtype=np.float32), 1.0)
    assert_allclose(out.coef, 0)
    assert_allclose(out.intercept, Y.mean(axis=0))  # nothing to go by: the mean
    same = np.ones((6, 4), dtype=np.float32)  # constant and repeated columns, no ridge
    out = Ridge(Rows(same, Y), method=method).solve(np.eye(3, dtype=np.float32), 0.0)
    assert_allclose(out(same), np.tile(Y.mean(axis=0), (6, 1)), atol=1e-5)


def test_errors_name_what_is_wrong() -> None:
    X, Y, Q, _ = problem(30, 4)
    with pytest.raises(ValueError, match="at least one row"):
        Ridge(Rows(X[:0], Y[:0]))
    with pytest.raises(ValueError, match="method must be auto, cholesky, dual or cg, got 'qr'"):
        Ridge(Rows(X, Y), method="qr")
    with pytest.raises(ValueError, match="Q must have 12 rows"):
        Ridge(Rows(X, Y)).solve(Q[:3], 1.0)
    with pytest.raises(ValueError, match="regularization must be at least 0, got -1"):
        Ridge(Rows(X, Y)).solve(Q, -1)
    with pytest.raises(ValueError, match="sum of the row weights must be positive"):
        Ridge(Rows(X, Y, weights=np.zeros(30)))


@pytest.mark.parametrize("method", ["cholesky", "dual", "cg"])
def test_columns_that_no_row_has_change_nothing(method: str) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.random((40, 6)).astype(np.float32), rng.random((40, 3)).astype(np.float32)
    wide = np.hstack([X, np.zeros((40, 50), dtype=np.float32)])
    ridge, widened = (Ridge(Rows(A, Y), method=method, tolerance=1e-6) for A in (X, wide))
    Q = np.eye(3, dtype=np.float32)
    assert usual_ridge(ridge) == usual_ridge(widened) == 0.5
    assert_allclose(widened.solve(Q, 0.5).coef[:6], ridge.solve(Q, 0.5).coef, atol=1e-5)
    assert_allclose(widened.solve(Q, 0.5).coef[6:], 0, atol=1e-7)


def test_without_features_the_mean_is_predicted() -> None:
    Y = np.array([[1, 0], [1, 0], [0, 1], [1, 1]], dtype=np.float32)
    ridge = Ridge(Rows(np.zeros((4, 0), dtype=np.float32), Y), method="cholesky")
    found = ridge.solve(np.eye(2, dtype=np.float32), 1.0)
    assert found.coef.shape == (0, 2)
    assert_allclose(found.intercept, [0.75, 0.5], rtol=1e-6)
