"""Randomized decompositions against dense ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from labelry.linalg.sketch import estimated_trace, leading_vectors, orthonormalize, randomized_eigh


def decaying(n: int, d: int, seed: int = 0) -> np.ndarray:
    """A matrix with singular values 1, 1/2, 1/4, ..."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((m, min(n, d))))[0] for m in (n, d))
    return ((U * 0.5 ** np.arange(min(n, d))) @ V.T).astype(np.float32)


def assert_orthonormal(V: np.ndarray) -> None:
    assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=2e-5)


def test_orthonormalize_spans_the_range() -> None:
    A = np.random.default_rng(0).standard_normal((200, 10)).astype(np.float32)
    Q = orthonormalize(A)
    assert_orthonormal(Q)
    assert_allclose(Q @ (Q.T @ A), A, atol=1e-4)


def test_orthonormalize_survives_bad_conditioning() -> None:
    A = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)
    A *= 10.0 ** -np.arange(0, 4, 0.5, dtype=np.float32)  # condition 3e3: squared, past float32
    Q = orthonormalize(A)
    assert Q.shape == (500, 8)
    assert_orthonormal(Q)


@pytest.mark.parametrize(
    ("columns", "rank"), [([0, 1, 1, 0], 2), ([0, 0, 0, 0], 1), ([0, 1, 2, 3], 4)]
)
def test_orthonormalize_reveals_the_rank(columns: list[int], rank: int) -> None:
    A = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)[:, columns]
    Q = orthonormalize(A)
    assert Q.shape == (50, rank)
    assert_orthonormal(Q)


def test_orthonormalize_of_nothing_is_nothing() -> None:
    assert orthonormalize(np.zeros((9, 3), dtype=np.float32)).shape == (9, 0)


def test_randomized_eigh_finds_the_leading_pairs() -> None:
    A = decaying(80, 60)
    S = A.T @ A
    V, values = randomized_eigh(lambda Q: S @ Q, 60, 5, rng=np.random.default_rng(1))
    assert_allclose(values, 0.25 ** np.arange(5), rtol=1e-3)
    assert_orthonormal(V)
    exact = np.linalg.eigh(S)[1][:, ::-1][:, :5]
    assert_allclose(np.abs(np.sum(V * exact, axis=0)), 1, atol=1e-4)


def test_weak_directions_take_nothing_from_strong_ones() -> None:
    """Float32 leaves errors of 1e-6 in the last vectors here; the first must not share them."""
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 30)))[0]
    S = (U * 10.0 ** -np.linspace(0, 3, 30)) @ U.T
    V, _ = randomized_eigh(
        lambda Q: (S @ Q).astype(np.float32), 30, 30, rng=np.random.default_rng(1)
    )
    assert_orthonormal(V)
    signs = np.sign(np.sum(V * U, axis=0))
    assert np.abs(V * signs - U)[:, :5].max() < 5e-7


def test_more_passes_capture_more_energy() -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((300, 300)))[0]
    S = ((U * (1 + np.arange(300.0)) ** -0.5) @ U.T).astype(np.float32)  # a slow decay
    energies = []
    for q in range(4):
        V, _ = randomized_eigh(
            lambda Q: S @ Q, 300, 10, n_oversamples=2, n_passes=q, rng=np.random.default_rng(1)
        )
        energies.append(np.trace(V.T @ S @ V))
    assert all(a < b for a, b in pairwise(energies))


@pytest.mark.parametrize("rank", [1, 3, 10])
def test_rank_deficiency_gives_fewer_pairs_not_nan(rank: int) -> None:
    B = np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)
    S = B @ B.T  # rank 2, size 7 < rank + oversamples
    V, values = randomized_eigh(lambda Q: S @ Q, 7, rank, rng=np.random.default_rng(0))
    assert V.shape == (7, min(rank, 2))
    assert_allclose(values, np.linalg.eigvalsh(S)[::-1][: min(rank, 2)], rtol=1e-4)
    assert_orthonormal(V)


def test_zero_operator_has_no_pairs() -> None:
    V, values = randomized_eigh(np.zeros_like, 5, 2, rng=np.random.default_rng(0))
    assert V.shape == (5, 0)
    assert values.shape == (0,)


def test_same_seed_same_bytes() -> None:
    S = decaying(30, 30) @ decaying(30, 30).T
    first, second = (
        randomized_eigh(lambda Q: S @ Q, 30, 4, rng=np.random.default_rng(5)) for _ in range(2)
    )
    assert first.vectors.tobytes() == second.vectors.tobytes()


def test_rank_must_be_positive() -> None:
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        randomized_eigh(lambda Q: Q, 5, 0, rng=np.random.default_rng(0))


def test_estimated_trace() -> None:
    S = decaying(30, 30) @ decaying(30, 30).T
    exact = estimated_trace(lambda Q: S @ Q, 30, n_probes=50, rng=np.random.default_rng(0))
    assert exact == pytest.approx(np.trace(S), rel=1e-5)
    A = np.diag(np.linspace(0, 1, 400, dtype=np.float32)) + 0.01
    near = estimated_trace(lambda Q: A @ Q, 400, rng=np.random.default_rng(0))
    assert near == pytest.approx(np.trace(A), rel=0.05)
    assert near != pytest.approx(np.trace(A), rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_leading_vectors_keep_inner_products(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    A = (rng.standard_normal((60, 5)) @ rng.standard_normal((5, 40))).astype(np.float32)
    V = leading_vectors(csr_array(A) if sparse else A, 8)
    assert V.shape == (60, 5)  # its rank
    assert_allclose(V @ V.T, A @ A.T, rtol=1e-2, atol=0.05)
    assert leading_vectors(A[:3], 8).shape == (3, 3)
