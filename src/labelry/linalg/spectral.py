"""Leading eigenvectors of a normalised affinity, for spectral clustering and eigenmaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from labelry.arrays import F32, F64, Rng
from labelry.linalg.sketch import randomized_eigh

_DENSE = 500  # nodes up to which all eigenvectors cost about as much as a few; not tuned
_TOLERANCE = 1e-5  # of the eigenvalues that ARPACK finds; not tuned
_N_PASSES = 20  # passes of the subspace iteration, if ARPACK fails; not tuned


class AffinityPairs(NamedTuple):
    """Eigenpairs of ``D^-1/2 A D^-1/2``, largest first, and ``D^-1/2``."""

    values: F64
    vectors: F64
    scale: F64


def affinity_eigenpairs(A: csr_array, k: int, *, weak: float = 1e-3, rng: Rng) -> AffinityPairs:
    """Return the k leading eigenpairs of ``D^-1/2 A D^-1/2``, where D has the row sums of A.

    A is symmetric and has no negative entries. A weak affinity is added to all pairs of nodes
    first; for each node it sums to `weak` times the mean degree. It gives a degree to nodes without
    affinities and connects components. With a larger one such nodes take less room.
    """
    n = A.shape[0]
    degree = A.sum(axis=1).astype(np.float64)
    common = (weak * degree.mean() or 1.0) / n  # added to each entry of A, never formed
    scale = 1.0 / np.sqrt(degree + n * common)
    S = csr_array(diags_array(scale) @ A.astype(np.float64) @ diags_array(scale))
    values, U = _leading(S, np.sqrt(common) * scale, k, rng)
    return AffinityPairs(values, U, scale)


def _leading(S: csr_array, u: F64, k: int, rng: Rng) -> tuple[F64, F64]:
    """Return the k largest eigenvalues of S + u u' and their vectors, largest first."""
    n = S.shape[0]
    if n <= max(_DENSE, 2 * k):
        values, U = eigh(S.toarray() + np.outer(u, u))
        return values[::-1][:k], U[:, ::-1][:, :k]
    operator = LinearOperator((n, n), matvec=lambda x: S @ x + u * (u @ x), dtype=np.float64)
    try:
        start = rng.standard_normal(n)
        values, U = eigsh(operator, k, which="LA", v0=start, tol=_TOLERANCE, maxiter=300)
        order = np.argsort(-values)
        return values[order], U[:, order]
    except ArpackError:  # for example with many equal values, of which any will do
        # (S + 1) / 2 has the same vectors, and no negative value.
        def apply(Q: F32) -> F32:
            return ((S @ Q + np.outer(u, u @ Q) + Q) / 2).astype(np.float32)

        pairs = randomized_eigh(apply, n, k, n_passes=_N_PASSES, rng=rng)
        return 2.0 * pairs.values.astype(np.float64) - 1.0, pairs.vectors.astype(np.float64)
