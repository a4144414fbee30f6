"""SLEEC's local embeddings: rows close to each other when their labels are.

Bhatia, Jain, Kar, Varma, Jain: Sparse local embeddings for extreme multi-label classification,
NIPS 2015. Here a row is a row: Z (n, k) is the transpose of the paper's, and so are X, Y and V.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg import eigh
from scipy.sparse import csr_array, eye_array

from labelry.arrays import F32, F64, Ints
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.parallel import balanced_spans, run
from labelry.linalg.rows import Rows
from labelry.linalg.sketch import orthonormalize
from labelry.linalg.solve import LinearMap, Ridge
from labelry.linalg.topk import topk

_BLOCK_BYTES = 32 << 20  # bytes of inner products that are held at a time; not tuned
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def neighbour_gram(Y: csr_array, n_neighbors: int, n_jobs: int = 1) -> csr_array:
    """Return P_Omega(Y Y') of equation 2, (n, n), symmetric, for label vectors of unit length.

    Omega holds for each row the `n_neighbors` rows (itself among them) that have the largest
    inner products with it, and the same pairs the other way round. Rows that share no label are
    not neighbours, so a row without labels has none.
    """
    n = Y.shape[0]
    U = scaled_rows(Y)
    V = csr_array(U.T)
    step = max(1, _BLOCK_BYTES // (4 * n))
    parts = []
    for start in range(0, n, step):
        near, inner = topk((U[start : start + step] @ V).toarray(), min(n_neighbors, n), n_jobs)
        rows, places = np.nonzero(inner > 0)
        parts.append((rows + start, near[rows, places], inner[rows, places]))
    rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    G = csr_array((values, (rows, columns)), shape=(n, n))
    G = csr_array(G.maximum(G.T))
    G.sort_indices()
    return G


def svp(
    G: csr_array,
    embedding_dim: int,
    *,
    max_steps: int = 10,
    tolerance: float = 1e-3,
    rng: np.random.Generator,
    n_jobs: int = 1,
) -> tuple[F32, F64]:
    """Return Z with Z Z' near G on the pairs that G stores, by singular value projection.

    With it come the objectives (4) at zero and after each step, relative to zero.

    Sub-routine 3 with step 1: M <- P_k(M + P_Omega(G - M)), equation 6. M = U diag(s) U' is never
    formed, only its entries in Omega. The projection is exact within the span of [U, R U], R the
    sparse residual, which is one step of block Krylov iteration from where the last one ended.
    U lies in that span, so the objective cannot grow.

    It stops when a step takes off no more than the `tolerance` times the objective at zero. Fewer
    columns come back where the rank is smaller. A step costs 8 flops per pair and dimension, and
    about 20 n k^2; memory is 3 n k floats besides G.
    """
    n = G.shape[0]
    U = orthonormalize(rng.standard_normal((n, min(embedding_dim, n)), dtype=np.float32))
    s = np.zeros(U.shape[1], dtype=np.float32)
    R = G.copy()  # line 1: M = 0
    errors = [_energy(R)]
    Z = U * s
    for _ in range(max_steps if errors[0] > 0 else 0):
        Q = orthonormalize(np.hstack([U, product(R, U, n_jobs)]))
        # Lines 3-4: the eigenvalues of Q'(M + R) Q.
        QU = Q.T @ U
        values, E = eigh((QU * s) @ QU.T + Q.T @ product(R, Q, n_jobs))
        keep = np.argsort(-values)[:embedding_dim]
        keep = keep[values[keep] > 0]  # line 5
        U, s = Q @ E[:, keep], values[keep]  # line 6
        Z = U * np.sqrt(s)
        given = (G.indptr, G.indices, G.data, np.ascontiguousarray(Z), R.data)
        tasks = [(*given, *span) for span in balanced_spans(G.indptr, n_jobs)]
        run(subtract_inner_products, tasks, n_jobs)  # R = P_Omega(G - Z Z')
        errors.append(_energy(R))
        if errors[-2] - errors[-1] <= tolerance * errors[0]:
            break
    return Z, np.array(errors) / max(errors[0], np.finfo(float).tiny)


def _energy(R: csr_array) -> float:
    return float(np.square(R.data, dtype=np.float64).sum())


@njit(nogil=True, cache=True, fastmath=_FAST)
def subtract_inner_products(
    indptr: Ints, indices: Ints, data: F32, Z: F32, out: F32, row0: int, row1: int
) -> None:
    """Set ``out[p] = data[p] - Z[i] @ Z[j]`` for the nonzeros p = (i, j) of a span of rows."""
    for i in range(row0, row1):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            total = np.float32(0.0)
            for c in range(Z.shape[1]):
                total += Z[i, c] * Z[j, c]
            out[p] = data[p] - total


def regress(
    X: Matrix, Z: F32, *, regularization: float, l1: float = 0.0, n_steps: int = 10, n_jobs: int = 1
) -> tuple[LinearMap, F32]:
    """Return V that predicts Z from X, and the embedding of the rows to store with it.

    Equation 5, halved, with an intercept that is not penalised:

        minimise  1/2 ||Z - X V||^2 + r/2 ||V||^2 + mu ||X V||_1

    Without `l1` it is a ridge regression and the embedding is X V. With it, ADMM (sub-routine 4,
    smoothing rho = 1) splits off the l1 term as alpha = X V, and alpha, which is sparse, is
    the embedding. `regularization` is r in units of the mean squared length of a row, tr(XX')/n;
    `l1` is mu in units of the root mean square of Z.
    """
    n, k = Z.shape
    rows = Rows(X, eye_array(n, dtype=np.float32, format="csr"), n_jobs=n_jobs)
    ridge = Ridge(rows, tolerance=1e-3)
    r = regularization * X.shape[1] / n  # as Ridge counts it, by features
    V = ridge.solve(Z, r)
    P = V(X, n_jobs)
    if l1 == 0 or k == 0:
        return V, P
    threshold = np.float32(l1 * np.sqrt(np.square(Z).mean()))
    alpha, beta = np.zeros_like(Z), np.zeros_like(Z)  # line 1
    for _ in range(n_steps):
        # Lines 3-4: with rho = 1, half the target and half the ridge give the paper's V.
        target: F32 = np.float32(0.5) * (Z + alpha - beta)
        V = ridge.solve(target, r / 2, start=V.coef)
        P = V(X, n_jobs)
        alpha = P + beta  # line 5
        alpha = np.sign(alpha) * np.maximum(np.abs(alpha) - threshold, 0)  # line 6
        beta += P - alpha  # line 7
    return V, alpha
