"""Randomized decompositions of operators that are only ever applied to thin matrices.

Halko, Martinsson, Tropp: Finding structure with randomness, SIAM Review 2011.
Mineiro, Karampatziakis: Fast label embeddings via randomized linear algebra, 2015, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular

from labelry.arrays import F32, F64, Rng
from labelry.linalg.matrices import Matrix

Operator = Callable[[F32], F32]

_GRAM_ROWS = 65_536  # rows converted to float64 at a time; not tuned


class Eigenpairs(NamedTuple):
    """Orthonormal vectors (n, k) and the values (k,) that belong to them, largest first."""

    vectors: F32
    values: F32


def gram(A: F32) -> F64:
    """Return A'A in double precision, because the condition number of A is squared."""
    total = np.zeros((A.shape[1], A.shape[1]))
    for start in range(0, A.shape[0], _GRAM_ROWS):
        part = A[start : start + _GRAM_ROWS].astype(np.float64)
        total += part.T @ part
    return total


def _principal(A: F32, rank: int | None, tolerance: float) -> Eigenpairs:
    """Return left singular vectors A U S^+ and values S of a tall A, from A'A = U S^2 U'.

    Directions whose value is below `tolerance` times the largest are left out.
    """
    values, U = eigh(gram(A))
    values, U = values[::-1], U[:, ::-1]  # largest first
    sigma = np.sqrt(np.maximum(values, 0.0))
    keep = sigma > tolerance * sigma[0] if sigma.size and sigma[0] > 0 else np.zeros(0, dtype=bool)
    r = int(keep.sum()) if rank is None else min(rank, int(keep.sum()))
    return Eigenpairs(A @ (U[:, :r] / sigma[:r]).astype(np.float32), sigma[:r].astype(np.float32))


def orthonormalize(A: F32, *, tolerance: float = 1e-5) -> F32:
    """Return an orthonormal basis (n, r) of the range of A, where r is its numerical rank.

    The small Gram matrix reveals the rank without a tall QR. The second of two rounds removes the
    error that the squared condition number caused in the first.
    """
    return _principal(_principal(A, None, tolerance).vectors, None, tolerance).vectors


def range_finder(apply: Operator, size: int, n_columns: int, *, n_passes: int = 1, rng: Rng) -> F32:
    """Return an orthonormal basis for the range of an operator on R^size: subspace iteration.

    Each of the `n_passes` turns it towards the leading directions. It may have fewer columns.
    """
    Q = rng.standard_normal((size, n_columns), dtype=np.float32)
    for _ in range(n_passes):
        Q = orthonormalize(apply(Q))  # Alg. 1, lines 5-6
    return Q


def randomized_eigh(
    apply: Operator, size: int, rank: int, *, n_oversamples: int = 20, n_passes: int = 1, rng: Rng
) -> Eigenpairs:
    """Return the leading eigenpairs of a positive semidefinite operator (Algorithm 1).

    `apply` maps arrays (size, m) and is called `n_passes` + 1 times. There are fewer than `rank`
    pairs if the numerical rank is smaller. `n_oversamples` and `n_passes` are the paper's p and q.
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1, got {rank}")
    n_columns = min(rank + n_oversamples, size)
    Q = range_finder(apply, size, n_columns, n_passes=n_passes, rng=rng)
    return principal_directions(apply, Q, rank)


def principal_directions(apply: Operator, Q: F32, rank: int | None = None) -> Eigenpairs:
    """Return the eigenpairs of an operator within the span of Q (Algorithm 1, lines 8-10)."""
    if Q.shape[1] == 0:
        return Eigenpairs(Q, np.zeros(0, dtype=np.float32))
    V, values = _principal(apply(Q), Q.shape[1] if rank is None else rank, 1e-5)
    # V R^-1 with R'R = V'V: each column less its part along the columns before it. `_principal`
    # divides by singular values, so directions with small values have larger errors. They come
    # last, and this order keeps their errors out of the strong directions before them.
    R = cholesky(gram(V))
    vectors = V @ solve_triangular(R, np.eye(len(R))).astype(np.float32)
    return Eigenpairs(vectors * column_signs(vectors), values)


def estimated_trace(apply: Operator, size: int, *, n_probes: int = 32, rng: Rng) -> float:
    """Return an estimate of the trace of an operator on R^size, by one application.

    It is applied to vectors of random signs q (Hutchinson): E q'Aq = tr A. The relative error falls
    with the square root of the number of probes.
    """
    signs = rng.integers(0, 2, (size, min(n_probes, size))).astype(np.float32) * 2 - 1
    if signs.shape[1] == size:  # a probe for each direction gives the exact trace
        signs = np.sqrt(np.float32(size)) * np.eye(size, dtype=np.float32)
    return float(np.einsum("ij,ij->", signs, apply(signs), dtype=np.float64) / signs.shape[1])


def column_signs(V: F32) -> F32:
    """Return +1 or -1 for each column: the sign that makes its largest entry positive."""
    largest = np.take_along_axis(V, np.abs(V).argmax(axis=0)[None], axis=0)[0]
    return np.where(largest < 0, np.float32(-1), np.float32(1))


def leading_vectors(A: Matrix, rank: int, n_passes: int = 3) -> F32:
    """Return the rows of A (n, d) in `rank` dimensions that keep their inner products best.

    These are left singular vectors times singular values; fewer columns if A has a smaller rank.
    """
    n, rank, rng = A.shape[0], min(rank, *A.shape), np.random.default_rng(0)
    pairs = randomized_eigh(lambda Q: A @ (A.T @ Q), n, rank, n_passes=n_passes, rng=rng)
    return pairs.vectors * np.sqrt(np.maximum(pairs.values, 0))
