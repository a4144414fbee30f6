"""Laplacian eigenmaps against the dense generalized eigenproblem."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import eigh
from scipy.sparse import csr_array

from labelry.embeddings.joint_embedding import laplacian_eigenmaps
from labelry.linalg import spectral


def affinity(n: int, density: float, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    A = rng.poisson(1.0, (n, n)) * (rng.random((n, n)) < density)
    A = A + A.T
    np.fill_diagonal(A, 0)
    return csr_array(A.astype(np.float32))


def joined(A: csr_array, weak: float = 1e-3) -> np.ndarray:
    """A with the weak affinity of all pairs, written out."""
    dense = A.toarray().astype(np.float64)
    return dense + weak * dense.sum(axis=1).mean() / len(dense)


@pytest.mark.parametrize("dense_up_to", [0, 1000])
def test_it_solves_the_generalized_eigenproblem(
    dense_up_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spectral, "_DENSE", dense_up_to)
    A = affinity(60, 0.1)
    V, values, _ = laplacian_eigenmaps(A, 5, rng=np.random.default_rng(0))
    B = joined(A)
    D = np.diag(B.sum(axis=1))
    wanted, U = eigh(D - B, D)
    assert_allclose(1 - values, wanted[1:6], atol=1e-5)
    assert_allclose(V.T @ D @ V, np.eye(5), atol=1e-4)
    assert_allclose(np.abs(V.T @ D @ U[:, 1:6]), np.eye(5), atol=1e-3)  # the same up to signs
    assert_allclose(V.T @ D @ np.ones(60), 0, atol=1e-3)  # the constant is not among them


def test_confused_labels_are_close() -> None:
    blocks = np.kron(np.eye(4), np.ones((5, 5)))
    np.fill_diagonal(blocks, 0)
    V = laplacian_eigenmaps(csr_array(blocks), 3, rng=np.random.default_rng(0)).vectors
    distance = np.linalg.norm(V[:, None] - V[None], axis=2)
    same = np.kron(np.eye(4), np.ones((5, 5))) > 0
    assert distance[same].max() < 0.01 * distance[~same].min()


def test_labels_that_are_never_confused_have_a_place() -> None:
    A = affinity(30, 0.2).toarray()
    A[:4] = A[:, :4] = 0
    V, values, _ = laplacian_eigenmaps(csr_array(A), 29, rng=np.random.default_rng(0))
    assert np.isfinite(V).all()
    assert V.shape == (30, 29)
    assert (np.diff(values) <= 1e-6).all()
    assert len(np.unique(V[:4].round(4), axis=0)) == 4


@pytest.mark.parametrize(("n", "columns"), [(1, 0), (2, 1), (3, 2)])
def test_without_any_confusion(n: int, columns: int) -> None:
    V = laplacian_eigenmaps(csr_array((n, n)), 10, rng=np.random.default_rng(0)).vectors
    assert V.shape == (n, columns)
    assert np.isfinite(V).all()


def test_many_equal_values_do_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise spectral.ArpackError(-9999)

    monkeypatch.setattr(spectral, "_DENSE", 0)
    monkeypatch.setattr(spectral, "eigsh", fail)
    A = affinity(50, 0.3)
    values = laplacian_eigenmaps(A, 2, rng=np.random.default_rng(0)).values
    monkeypatch.undo()
    exact = laplacian_eigenmaps(A, 2, rng=np.random.default_rng(0)).values
    assert_allclose(values, exact, atol=1e-3)


def test_the_dimension_must_be_positive() -> None:
    with pytest.raises(ValueError, match="embedding_dim must be at least 1, got 0"):
        laplacian_eigenmaps(csr_array((3, 3)), 0, rng=np.random.default_rng(0))
