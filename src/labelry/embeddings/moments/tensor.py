"""Eigenpairs of a symmetric tensor by the robust power method.

Anandkumar, Ge, Hsu, Kakade, Telgarsky: Tensor decompositions for learning latent variable
models, JMLR 2014, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from labelry.arrays import F32, Rng
from labelry.progress import phase

# Not tuned, any of them.
_STEPS = 5  # power steps of all starts before the best start is chosen
_MAX_STEPS = 30  # most further power steps of the chosen start
_TOLERANCE = 1e-4  # change of a unit vector at which it has converged
_SAME = 0.9  # cosine from which a start has found a pair that is already known


def symmetrize(T: F32) -> F32:
    """Fill a tensor of which only entries with the smallest index first are set, in place."""
    for j in range(len(T)):
        T[j:, j, j:] = T[j, j:, j:]
        T[j:, j:, j] = T[j, j:, j:]
    return T


def transform(T: F32, R: F32) -> F32:
    """Return T(R, R, R) for a symmetric tensor T (m, m, m) and R (m, k)."""
    T = np.einsum("abc,ax,by,cz->xyz", T, R, R, R, optimize=True)
    return np.ascontiguousarray(T)


def tensor_eigenpairs(T: F32, n_pairs: int, *, n_restarts: int = 20, rng: Rng) -> tuple[F32, F32]:
    """Return values (n_pairs,) and unit vectors (k, n_pairs) of a symmetric tensor T (k, k, k).

    The pairs are found one after the other. Many starts make power steps v <- T(I, v, v). The
    start with the largest T(v, v, v) goes on until it converges, and its pair is deflated. Starts
    that were on their way to another pair go on for the next one; the others begin again at random.
    A step costs k^3 n_restarts flops, in one matrix product.
    """
    k = len(T)
    # T is symmetric: of the unfolded k x k^2 matrix the half with a <= b will do.
    a, b = np.triu_indices(k)
    unfolded = T[:, a, b] * np.where(a == b, np.float32(1), np.float32(2))
    values = np.zeros(n_pairs, dtype=np.float32)
    U = np.zeros((k, n_pairs), dtype=np.float32)

    def apply(V: F32, found: int) -> F32:
        """Return T(I, v, v) less the pairs found; T itself does not change."""
        known = U[:, :found]
        # T(I, v, v) is the unfolded T times the Khatri-Rao product of V with itself.
        return unfolded @ (V[a] * V[b]) - known @ (values[:found, None] * (known.T @ V) ** 2)

    def refined(v: F32, found: int) -> F32:
        """Return v after power steps until it converges."""
        for _ in range(_MAX_STEPS):
            last, v = v, _unit(apply(v, found))
            if np.linalg.norm(v - last) < _TOLERANCE:
                break
        return v

    V = _unit(rng.standard_normal((k, n_restarts), dtype=np.float32))
    with phase("tensor eigenpairs", n_pairs, "pairs") as advance:
        for found in range(n_pairs):
            for _ in range(_STEPS):
                V = _unit(apply(V, found))
            best = int(np.argmax(np.einsum("kl,kl->l", V, apply(V, found))))
            v = refined(V[:, [best]], found)
            value = float(np.vdot(v, apply(v, found)))
            # T(-v, -v, -v) = -T(v, v, v): the sign that makes the value positive.
            values[found], U[:, found] = abs(value), v[:, 0] * np.sign(value or 1.0)
            known = np.abs(U[:, : found + 1].T @ V).max(axis=0) > _SAME
            V[:, known] = _unit(rng.standard_normal((k, int(known.sum())), dtype=np.float32))
            advance(1)
    return values, U


def _unit(V: F32) -> F32:
    return V / np.maximum(np.linalg.norm(V, axis=0), np.finfo(np.float32).tiny)
