"""Neighbours, SVP and regressors of SLEEC against plain dense computations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.sparse import csr_array, random_array

from labelry.embeddings.sleec import neighbour_gram, regress, subtract_inner_products, svp


def random_labels(n: int = 80, c: int = 40, seed: int = 0) -> csr_array:
    Y = random_array((n, c), density=0.08, rng=seed, format="csr", dtype=np.float32)
    Y.data[:] = 1
    return Y


Y = random_labels()
DENSE = Y.toarray() / np.maximum(np.linalg.norm(Y.toarray(), axis=1, keepdims=True), 1)


@pytest.mark.parametrize("n_neighbors", [1, 5, 1000])
def test_neighbour_gram(n_neighbors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelry.embeddings.sleec._BLOCK_BYTES", 4 * 80 * 9)  # 9 rows a block
    G = neighbour_gram(Y, n_neighbors)
    S = DENSE @ DENSE.T
    pairs = np.zeros(S.shape, dtype=bool)
    nearest = np.argsort(-S, axis=1, kind="stable")[:, :n_neighbors]
    np.put_along_axis(pairs, nearest, True, axis=1)
    if n_neighbors == 1:  # ties: a row may have a twin before it
        assert (np.diff(G.indptr) >= (np.diff(Y.indptr) > 0)).all()
    else:
        float_ties = np.abs(G.toarray() - np.where((pairs | pairs.T), S, 0)) > 1e-5
        # Where rounding breaks ties differently the numbers of pairs still agree.
        assert float_ties.mean() < 0.02
    stored = G.toarray() != 0
    assert_array_equal(stored, stored.T)
    assert_allclose(G.toarray()[stored], S[stored], atol=1e-6)


def test_all_pairs_that_share_a_label_when_there_are_enough_neighbours() -> None:
    G = neighbour_gram(Y, 80)
    assert_allclose(G.toarray(), DENSE @ DENSE.T, atol=1e-6)


def test_rows_without_labels_have_no_neighbours() -> None:
    G = neighbour_gram(csr_array(np.array([[1, 0], [0, 0], [1, 1]], np.float32)), 5)
    assert_array_equal(np.diff(G.indptr), [2, 0, 2])


def test_subtract_inner_products() -> None:
    G = neighbour_gram(Y, 7)
    Z = np.random.default_rng(0).standard_normal((80, 5)).astype(np.float32)
    out = np.empty_like(G.data)
    subtract_inner_products(G.indptr, G.indices, G.data, Z, out, 0, 30)
    subtract_inner_products(G.indptr, G.indices, G.data, Z, out, 30, 80)
    rows, columns = G.nonzero()
    assert_allclose(out, G.data - (Z @ Z.T)[rows, columns], atol=1e-5)


def dense_svp(G: np.ndarray, pairs: np.ndarray, k: int, n_steps: int) -> list[float]:
    """Sub-routine 3 to the letter; the objective after each step, relative to zero."""
    M = np.zeros_like(G)
    objective = []
    for _ in range(n_steps):
        values, U = np.linalg.eigh(M + np.where(pairs, G - M, 0))
        values, U = np.maximum(values[-k:], 0), U[:, -k:]
        M = (U * values) @ U.T
        objective.append((np.where(pairs, G - M, 0) ** 2).sum() / (G**2).sum())
    return objective


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_svp_is_the_dense_algorithm_where_the_subspace_is_everything(n_jobs: int) -> None:
    G = neighbour_gram(Y, 10)
    expected = dense_svp(G.toarray().astype(float), G.toarray() != 0, 40, 8)
    rng = np.random.default_rng(0)
    # [U, R U] has 2 k = n columns: the projection is exact.
    Z, errors = svp(G, 40, max_steps=8, tolerance=0, rng=rng, n_jobs=n_jobs)
    assert_allclose(errors[1:], expected, atol=1e-5)
    residual = np.where(G.toarray() != 0, G.toarray() - Z @ Z.T, 0)
    assert_allclose((residual**2).sum() / (G.data**2).sum(), errors[-1], rtol=1e-4)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_svp_objective_falls_at_each_step_to_that_of_the_dense_algorithm(k: int) -> None:
    G = neighbour_gram(Y, 10)
    Z, errors = svp(G, k, max_steps=200, tolerance=0, rng=np.random.default_rng(0))
    assert Z.shape[1] <= k
    assert (np.diff(errors) <= 1e-6).all()
    expected = dense_svp(G.toarray().astype(float), G.toarray() != 0, k, 200)
    assert errors[-1] <= 1.05 * expected[-1] + 1e-4


def test_svp_recovers_a_gram_matrix_of_low_rank() -> None:
    Z = np.random.default_rng(1).standard_normal((50, 3)).astype(np.float32)
    found, _ = svp(csr_array(Z @ Z.T), 3, max_steps=50, tolerance=0, rng=np.random.default_rng(0))
    assert_allclose(found @ found.T, Z @ Z.T, atol=1e-3)


@pytest.mark.parametrize("n", [1, 3])
def test_svp_of_nothing_and_of_one(n: int) -> None:
    Z, errors = svp(csr_array((n, n), dtype=np.float32), 5, rng=np.random.default_rng(0))
    assert not Z.any()
    assert errors.tolist() == [0.0]
    Z, _ = svp(csr_array(np.eye(n, dtype=np.float32)), 5, rng=np.random.default_rng(0))
    assert_allclose(Z @ Z.T, np.eye(n), atol=1e-5)


def test_regress_without_l1_is_ridge_in_units_of_a_row() -> None:
    rng = np.random.default_rng(0)
    X, Z = (rng.standard_normal((30, m)).astype(np.float32) for m in (6, 2))
    V, P = regress(X, Z, regularization=0.5)
    r = 0.5 * (X**2).sum() / 30
    A, B = X - X.mean(axis=0), Z - Z.mean(axis=0)
    expected = np.linalg.solve(A.T @ A + r * np.eye(6), A.T @ B)
    assert_allclose(V.coef, expected, atol=1e-4)
    assert_allclose(P, A @ expected + Z.mean(axis=0), atol=1e-4)


def test_admm_minimises_equation_5() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 4)).astype(np.float32)
    Z = rng.standard_normal((12, 1)).astype(np.float32)
    r, mu = 0.1 * (X**2).sum() / 12, 0.3 * np.sqrt((Z**2).mean())

    def objective(parameters: np.ndarray, smooth: float = 1e-10) -> float:
        P = X @ parameters[:4] + parameters[4]
        fit = ((Z[:, 0] - P) ** 2).sum() / 2 + r / 2 * (parameters[:4] ** 2).sum()
        return float(fit + mu * np.sqrt(P**2 + smooth).sum())

    V, alpha = regress(X, Z, regularization=0.1, l1=0.3, n_steps=500)
    found = objective(np.append(V.coef[:, 0], V.intercept))
    best = minimize(objective, np.zeros(5), method="Powell", options={"xtol": 1e-8, "ftol": 1e-12})
    assert found == pytest.approx(best.fun, rel=1e-3)
    assert_allclose(alpha, V(X), atol=1e-2)  # the constraint holds in the end


def test_more_l1_leaves_fewer_entries() -> None:
    rng = np.random.default_rng(0)
    X, Z = (rng.standard_normal((40, m)).astype(np.float32) for m in (8, 5))
    densities = [
        np.mean(regress(X, Z, regularization=0.1, l1=l1)[1] != 0) for l1 in (0.0, 0.2, 0.5, 100.0)
    ]
    assert densities[0] == 1.0
    assert densities[3] == 0.0
    assert densities == sorted(densities, reverse=True)
