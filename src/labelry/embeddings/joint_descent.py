"""Stochastic gradient descent on rows and labels in one space.

    minimise over W, V   1/n sum_i xi_i,    xi_i = max over the violated pairs of row i (section 3)
    subject to           |V_j| <= 1

Weight decay keeps W small. A `Violations` object says which pairs are violated. So one descent
serves the joint embedding, WSABIE and the label embedding tree. With V fixed it solves the convex
problem of equation 6, for the sequential embedding.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.
Weston, Bengio, Usunier: WSABIE: scaling up to large vocabulary image annotation, 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array, hstack

from labelry.arrays import F32, Ints, Rng
from labelry.embeddings.rembrandt import rembrandt
from labelry.embeddings.violations import Violations, dot
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.rows import Rows
from labelry.linalg.solve import LinearMap, Ridge, usual_ridge
from labelry.progress import phase

# Not tuned, any of them.
_BATCH_ROWS = 128  # rows of a batch; fewer learn more from a pass, more make better use of BLAS
_PATIENCE = 5  # epochs without a better score, after which the descent stops
_CONSTANT = 0.3  # value of the constant feature, for rows of length one
_SPREAD = 4.0  # length of embedded rows at the start; with unit label vectors the margin is 1
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_SAMPLE = 2000  # rows from which the scales of X and of the start are estimated


class JointMap(NamedTuple):
    """A map of rows into the space (W and intercept), and vectors V (m, k) of labels or nodes."""

    regressor: LinearMap
    vectors: F32


Quality = Callable[[JointMap], float]


def random_start(n_features: int, n_vectors: int, dim: int, rng: Rng) -> JointMap:
    """Return Gaussian W and V, as in the paper, the vectors scaled to unit length."""
    W = rng.standard_normal((n_features, dim), dtype=np.float32)
    V = rng.standard_normal((n_vectors, dim), dtype=np.float32)
    return unit_start(JointMap(LinearMap(W, np.zeros(dim, dtype=np.float32)), V))


def rembrandt_start(rows: Rows, dim: int, rng: Rng) -> JointMap:
    """Return the label vectors of the randomized embedding, of unit length, and its regressor."""
    ridge = Ridge(rows)
    V = rembrandt(ridge, dim, rng=rng).vectors
    if not V.shape[1]:  # there are no labels at all, or no features
        V = np.zeros((rows.n_labels, 1), dtype=np.float32)
    with phase("learning to embed rows"):
        return unit_start(JointMap(ridge.solve(V, usual_ridge(ridge)), V))


def unit_start(start: JointMap) -> JointMap:
    """Return `start` with vectors of unit length, the largest allowed; zeros stay zeros."""
    return start._replace(vectors=scaled_rows(start.vectors))


def descend(
    X: Matrix,
    start: JointMap,
    violations: Violations,
    *,
    rows: Ints,
    quality: Quality | None = None,
    rate: float = 0.3,
    regularization: float = 0.1,
    max_epochs: int = 20,
    fixed_vectors: bool = False,
    rng: Rng,
    n_jobs: int = 1,
) -> JointMap:
    """Return W and V with a small loss of `violations`, by AdaGrad on batches of rows.

    Unless the vectors are fixed, the W of `start` is scaled so that embedded rows lie well outside
    of the unit ball, where a margin of 1 is possible. With fixed vectors the problem is convex.

    `rows` are the numbers of the training rows. `quality` compares epochs (larger is better): the
    result is the best epoch, and the descent stops early when no later one is better. `rate` is
    the length of the first steps relative to the rows of W and V, and falls to zero linearly; in
    an epoch W shrinks by `regularization` times the rate.

    An epoch costs O(k (nnz(X) + pairs looked at)). BLAS and threads score the batches. One thread
    takes the steps, row after row, so that they do not depend on the number of threads.
    """
    A, length = _features(X, rows)
    W, V = _weights(start, A, rows, length, rescale=not fixed_vectors)
    # Step sizes of W are in units of its rows; V has rows of unit length. Features that no row has
    # begin at zero and stay there: they must not make the steps of the others smaller.
    squares = np.einsum("ij,ij->i", W, W, dtype=np.float64)
    unit = float(np.sqrt(squares.sum() / max(np.count_nonzero(squares), 1))) or 1.0
    energies = np.zeros(len(W), dtype=np.float32), np.zeros(len(V), dtype=np.float32)
    best, best_score, best_epoch = None, -np.inf, 0
    with phase("learning the embedding", max_epochs * len(rows), "rows") as advance:
        for epoch in range(max_epochs):
            scale = 1.0
            order = rng.permutation(rows)
            for begin in range(0, len(order), _BATCH_ROWS):
                batch = order[begin : begin + _BATCH_ROWS]
                step = rate * (1 - (epoch + begin / len(order)) / max_epochs)
                B = A[batch]
                Z = scale * product(B, W, n_jobs)
                P = violations(batch, Z, V)
                G = product(P, V, n_jobs)  # gradient in Z
                if not fixed_vectors:
                    adagrad_rows(P.indptr, P.indices, P.data, Z, V, energies[1], step)
                    moved = np.unique(P.indices)  # projected on |V_j| <= 1
                    lengths = np.linalg.norm(V[moved], axis=1, keepdims=True)
                    V[moved] /= np.maximum(lengths, 1)
                # W is shrunk as a whole by one factor, which is multiplied in at the end.
                scale *= 1 - min(regularization * step * len(batch) / len(order), 0.5)
                adagrad_rows(B.indptr, B.indices, B.data, G, W, energies[0], step * unit / scale)
                advance(len(batch))
            W *= np.float32(scale)
            if quality is None:
                continue
            now = _map(W, V, length)
            score = quality(now)
            if score > best_score:
                best, best_score, best_epoch = now._replace(vectors=V.copy()), score, epoch
            elif epoch - best_epoch >= _PATIENCE:
                break
    return _map(W, V, length) if best is None else best


def _features(X: Matrix, rows: Ints) -> tuple[csr_array, float]:
    """Return rows of length about one with a constant feature, and the length before."""
    sample = csr_array(X[rows[:_SAMPLE]])
    energy = float(np.square(sample.data, dtype=np.float64).sum())
    length = float(np.sqrt(energy / max(sample.shape[0], 1))) or 1.0
    constant = np.full((X.shape[0], 1), _CONSTANT, dtype=np.float32)
    return csr_array(hstack([csr_array(X) / np.float32(length), constant], format="csr")), length


def _weights(
    start: JointMap, A: csr_array, rows: Ints, length: float, *, rescale: bool
) -> tuple[F32, F32]:
    """Return W for the rows of `_features`, and V, as copies that the descent may change."""
    coef, intercept = start.regressor
    W = np.vstack([coef * length, intercept / _CONSTANT]).astype(np.float32)
    if rescale:
        Z = product(A[rows[:_SAMPLE]], W)
        spread = float(np.sqrt(np.einsum("ij,ij->", Z, Z) / max(len(Z), 1)))
        W *= np.float32(_SPREAD / spread if spread > 0 else 1.0)
    return W, start.vectors.copy()


def _map(W: F32, V: F32, length: float) -> JointMap:
    """Return the map for rows as they were given; it shares V."""
    return JointMap(LinearMap(W[:-1] / np.float32(length), np.float32(_CONSTANT) * W[-1]), V)


@njit(nogil=True, cache=True, fastmath=_FAST)
def adagrad_rows(
    indptr: Ints, indices: Ints, data: F32, G: F32, M: F32, energy: F32, rate: float
) -> None:
    """Make AdaGrad steps along ``-A.T @ G``, A in CSR, with one step size for each row of M.

    For each nonzero a = A[i, j] in turn ``energy[j] += |a G[i]|^2`` and then
    ``M[j] -= rate * a * G[i] / sqrt(energy[j])``: a step is never longer than `rate`.
    """
    for i in range(indptr.size - 1):
        g = G[i]
        square = dot(g, g)
        for p in range(indptr[i], indptr[i + 1]):
            a = data[p]
            if a * a * square == 0.0:
                continue
            j = indices[p]
            energy[j] += a * a * square
            step = np.float32(rate) * a / np.sqrt(energy[j])
            m = M[j]
            for c in range(g.size):
                m[c] -= step * g[c]
