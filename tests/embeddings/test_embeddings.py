"""Embeddings against dense decompositions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import eigh, subspace_angles
from scipy.sparse import csr_array, random_array

from labelry.embeddings import comparisons
from labelry.embeddings.comparisons import (
    CCASettings,
    PLSTSettings,
    cca,
    compressed_sensing,
    principal_components,
)
from labelry.embeddings.rembrandt import rembrandt, updated_rembrandt
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge

N, D, C, K = 200, 30, 18, 5
RIDGE = 0.7


def data(seed: int = 0) -> tuple[csr_array, csr_array]:
    """Features, and labels that depend on them through a few directions of different strength."""
    rng = np.random.default_rng(seed)
    X = random_array((N, D), density=0.4, rng=rng, format="csr", dtype=np.float32)
    W = rng.standard_normal((D, 8)) * 0.6 ** np.arange(8) @ rng.standard_normal((8, C))
    Y = (X @ W + 0.3 * rng.standard_normal((N, C)) > 0.8).astype(np.float32)
    return X, csr_array(Y)


X, Y = data()
ROWS = Rows(X, Y)


def hat_covariance(regularization: float, weights: np.ndarray | None = None, center=False):
    """Y'HY in double precision: the Gram matrix of predictions stacked on sqrt(r) Z*."""
    w = np.ones(N) if weights is None else weights
    A, B = X.toarray().astype(np.float64), Y.toarray().astype(np.float64)
    r = regularization * (w[:, None] * A**2).sum() / D
    mean, target = w @ A / w.sum(), w @ B / w.sum()
    Ac, Bc = np.sqrt(w)[:, None] * (A - mean), np.sqrt(w)[:, None] * (B - target)
    Z = np.linalg.solve(Ac.T @ Ac + r * np.eye(D), Ac.T @ Bc)
    stacked = np.vstack([Ac @ Z, np.sqrt(r) * Z])
    S = stacked.T @ stacked
    return S if center else S + w.sum() * np.outer(target, target)


def assert_same_pairs(found, S: np.ndarray) -> None:
    values, vectors = eigh(S)
    values, vectors = values[::-1], vectors[:, ::-1]
    k = len(found.values)
    assert_allclose(found.values, values[:k], rtol=1e-4)
    assert_allclose(np.abs(np.sum(found.vectors * vectors[:, :k], axis=0)), 1, atol=1e-3)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(k), atol=1e-4)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("method", ["cholesky", "dual", "cg"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_rembrandt_equals_the_dense_decomposition(center, method, dense, weighted) -> None:
    weights = np.random.default_rng(1).random(N) + 0.2 if weighted else None
    rows = Rows(X.toarray() if dense else X, Y, weights=weights)
    ridge = Ridge(rows, method=method, tolerance=1e-6)
    found = rembrandt(
        ridge, K, regularization=RIDGE, n_passes=3, center=center, rng=np.random.default_rng(0)
    )
    assert_same_pairs(found, hat_covariance(RIDGE, weights, center))


def test_without_ridge_it_is_the_svd_of_the_least_squares_predictions() -> None:
    A = np.hstack([X.toarray(), np.ones((N, 1))]).astype(np.float64)
    predictions = A @ np.linalg.lstsq(A, Y.toarray().astype(np.float64), rcond=None)[0]
    _, s, Vt = np.linalg.svd(predictions, full_matrices=False)
    found = rembrandt(Ridge(ROWS), K, regularization=0.0, n_passes=3, rng=np.random.default_rng(0))
    assert_allclose(found.values, s[:K] ** 2, rtol=1e-3)
    assert np.rad2deg(subspace_angles(found.vectors, Vt[:K].T).max()) < 0.5


def test_blocks_change_nothing() -> None:
    whole, parts = (
        rembrandt(Ridge(Rows(X, Y, block_rows=b)), K, rng=np.random.default_rng(0))
        for b in (None, 17)
    )
    assert_allclose(whole.values, parts.values, rtol=1e-4)
    assert_allclose(whole.vectors, parts.vectors, atol=1e-3)


def test_captured_energy_grows_with_passes() -> None:
    S = hat_covariance(RIDGE)
    energy = []
    for q in range(4):
        V = rembrandt(
            Ridge(ROWS),
            K,
            regularization=RIDGE,
            n_oversamples=0,
            n_passes=q,
            rng=np.random.default_rng(3),
        ).vectors
        energy.append(np.trace(V.T @ S @ V))
    assert all(a <= b * (1 + 1e-6) for a, b in pairwise(energy))
    assert energy[0] < 0.999 * energy[-1]


def test_by_product_is_the_regression_on_the_embedding() -> None:
    ridge = Ridge(ROWS)
    found = rembrandt(ridge, K, regularization=RIDGE, n_passes=3, rng=np.random.default_rng(3))
    exact = ridge.solve(found.vectors, RIDGE).coef
    assert_allclose(found.start, exact, atol=1e-3 * np.abs(exact).max())
    first = found.first(2)
    assert_allclose(first.start, found.start[:, :2])
    assert first.vectors.shape[1] == len(first.values) == 2


@pytest.mark.parametrize("method", ["cholesky", "cg"])
def test_an_update_brings_an_embedding_of_most_rows_closer_to_that_of_all(method) -> None:
    some = Rows(X[: N * 4 // 5], Y[: N * 4 // 5])
    before = rembrandt(
        Ridge(some), K, regularization=RIDGE, n_passes=3, rng=np.random.default_rng(0)
    )
    after = updated_rembrandt(Ridge(ROWS, method=method), before, regularization=RIDGE)
    S = hat_covariance(RIDGE)
    best = np.sort(np.linalg.eigvalsh(S))[-K:].sum()
    missed = [best - np.trace(V.T @ S @ V) for V in (before.vectors, after.vectors)]
    assert missed[1] < 0.2 * missed[0]
    assert_allclose(after.values.sum(), best, rtol=0.02)
    exact = Ridge(ROWS).solve(after.vectors, RIDGE).coef
    gap = [np.linalg.norm(W - exact) for W in (before.start, after.start)]
    assert gap[1] < 0.5 * gap[0]


@pytest.mark.parametrize(
    ("A", "B", "rank"),
    [
        (X, csr_array(np.ones((N, 3), np.float32)), 1),  # constant and repeated labels
        (X, csr_array(np.ones((N, 1), np.float32)), 1),  # a single class
        (X, Y[:, [0, 0, 1, 1]], 2),
        (csr_array((N, D), dtype=np.float32), Y, 1),  # rows without features: only the mean
        (X, csr_array((N, 4), dtype=np.float32), 0),  # no label anywhere
    ],
)
def test_low_rank_gives_fewer_dimensions_not_nan(A, B, rank: int) -> None:
    found = rembrandt(Ridge(Rows(A, B)), K, rng=np.random.default_rng(0))
    assert found.vectors.shape == (B.shape[1], rank)
    assert np.isfinite(found.vectors).all()
    again = updated_rembrandt(Ridge(Rows(A, B)), found)
    assert again.vectors.shape == (B.shape[1], rank)
    assert np.isfinite(again.vectors).all()


def test_plst_and_pca_are_principal_components() -> None:
    for side, A in (("Y", Y), ("X", X)):
        centred = A.toarray().astype(np.float64) - A.toarray().mean(axis=0)
        how, rng = PLSTSettings(n_passes=20), np.random.default_rng(0)
        found = principal_components(Ridge(ROWS), K, how, rng, side=side)
        assert_same_pairs(found, centred.T @ centred)


def test_cca_finds_the_canonical_correlations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "_LABEL_RIDGE", 0.0)
    how = CCASettings(regularization=0.0, n_passes=20)
    found = cca(Ridge(ROWS), K, how, np.random.default_rng(0))
    A, B = (M.toarray().astype(np.float64) for M in (X, Y))
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    U, V = (np.linalg.qr(M)[0] for M in (A, B))
    rho = np.linalg.svd(U.T @ V)[1]
    assert_allclose(found.values, rho[:K] ** 2, rtol=1e-3)


def test_compressed_sensing_keeps_lengths_on_average() -> None:
    ridge = Ridge(Rows(np.eye(300), np.eye(300)))
    V, values, _ = compressed_sensing(ridge, 50, PLSTSettings(), np.random.default_rng(0))
    assert V.shape == (300, 50)
    assert np.sum(V**2, axis=1).mean() == pytest.approx(1.0, abs=0.05)
    assert values.tolist() == [1.0] * 50


def test_dimension_must_be_positive() -> None:
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        rembrandt(Ridge(ROWS), 0, rng=np.random.default_rng(0))
