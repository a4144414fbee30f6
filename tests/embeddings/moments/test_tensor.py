"""Eigenpairs of symmetric tensors."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from labelry.embeddings.moments.tensor import symmetrize, tensor_eigenpairs, transform


def orthogonal_tensor(values: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    U = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    return U, np.einsum("k,ak,bk,ck->abc", values, U, U, U).astype(np.float32)


def test_pairs_of_an_orthogonal_tensor_are_found_with_their_signs() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0])
    U, T = orthogonal_tensor(truth, rng)
    values, V = tensor_eigenpairs(T, 7, rng=rng)
    order = np.argsort(-values)
    assert_allclose(values[order], truth, rtol=1e-4)
    assert_allclose(V[:, order], U, atol=1e-3)


def test_noise_moves_the_pairs_by_no_more_than_itself() -> None:
    rng = np.random.default_rng(1)
    U, T = orthogonal_tensor(np.linspace(2, 1, 10), rng)
    E = np.zeros_like(T)
    noise = 0.01 * rng.standard_normal(T.shape).astype(np.float32)
    for axes in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        E += noise.transpose(axes) / 6
    values, V = tensor_eigenpairs(T + E, 10, rng=rng)
    match = np.abs(U.T @ V)
    assert sorted(match.argmax(axis=0)) == list(range(10))
    # Lemma 2: distances of at most 8 eps / lambda, with eps the norm of the noise.
    eps = np.sqrt((E**2).sum())
    assert (np.linalg.norm(U[:, match.argmax(axis=0)] - V, axis=0) < 8 * eps / values).all()


def test_a_tensor_of_smaller_rank_gives_values_of_zero_and_no_nan() -> None:
    rng = np.random.default_rng(2)
    _, T = orthogonal_tensor(np.array([3.0, 2.0, 0.0, 0.0]), rng)
    values, V = tensor_eigenpairs(T, 4, rng=rng)
    assert np.isfinite(V).all()
    assert_allclose(values, [3, 2, 0, 0], atol=1e-4)
    values, V = tensor_eigenpairs(np.zeros((3, 3, 3), dtype=np.float32), 3, rng=rng)
    assert np.isfinite(V).all()
    assert_allclose(values, 0)


def test_transform_and_symmetrize() -> None:
    rng = np.random.default_rng(3)
    H = rng.standard_normal((30, 5)).astype(np.float32)
    full = np.einsum("ia,ib,ic->abc", H, H, H)
    part = full.copy()
    for j in range(5):
        part[j + 1 :, j, :] = np.nan
        part[j + 1 :, :, j] = np.nan
    assert np.isnan(part).any()
    assert_allclose(symmetrize(part), full, atol=1e-4)
    R = rng.standard_normal((5, 3)).astype(np.float32)
    assert_allclose(
        transform(full, R), np.einsum("abc,ax,by,cz->xyz", full, R, R, R), rtol=1e-3, atol=1e-3
    )
