"""Rows and labels in one space, learnt together by stochastic gradient descent.

    minimise over W, V   1/n sum_i xi_i,    xi_i = max over the violated pairs of row i (section 3)
    subject to           |V_j| <= 1

with W kept small by weight decay. What counts as a violation is given (`violations`), so that one
learner serves the flat embedding, WSABIE and the label embedding tree, and, with V fixed, the
convex problem of equation 6.

References
----------
Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.
Weston, Bengio, Usunier: WSABIE: scaling up to large vocabulary image annotation, 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from labelry.embeddings.joint_kernels import adagrad_rows
from labelry.embeddings.violations import Violations
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.solve import LinearMap
from labelry.progress import phase

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_BATCH_ROWS = 128  # fewer learn more from a pass; more make better use of BLAS
_PATIENCE = 5  # epochs without a better score after which to stop
_CONSTANT = 0.3  # the constant feature, for rows of length one
_SPREAD = 4.0  # length of embedded rows at the start; with unit label vectors the margin is 1
_SAMPLE = 2000  # rows that tell the scale of X and of the start


class JointMap(NamedTuple):
    """Rows into the space (W and intercept), and the vectors V (m, k) of labels or nodes there."""

    regressor: LinearMap
    vectors: F32


Judge = Callable[[JointMap], float]


def random_start(n_features: int, n_vectors: int, dim: int, rng: np.random.Generator) -> JointMap:
    """Gaussian W and V, as in the paper."""
    W = rng.standard_normal((n_features, dim), dtype=np.float32)
    V = rng.standard_normal((n_vectors, dim), dtype=np.float32)
    return unit_start(JointMap(LinearMap(W, np.zeros(dim, dtype=np.float32)), V))


def unit_start(start: JointMap) -> JointMap:
    """`start` with vectors of unit length, the largest that is allowed; zeros stay."""
    return start._replace(vectors=scaled_rows(start.vectors))


def fit_joint(
    X: Matrix,
    start: JointMap,
    violations: Violations,
    *,
    rows: Ints,
    judge: Judge | None = None,
    rate: float = 0.3,
    regularization: float = 0.1,
    max_epochs: int = 20,
    fixed_vectors: bool = False,
    rng: np.random.Generator,
    n_jobs: int = 1,
) -> JointMap:
    """W and V that leave little to `violations`, by AdaGrad on batches of rows.

    Parameters
    ----------
    X : CSR or dense
    start : JointMap
        Where to begin; unless the vectors are fixed, W is scaled so that rows are embedded well
        outside of the unit ball, where a margin of 1 can be had.
    rows : array
        Numbers of the rows to learn from.
    judge : function from JointMap to float, optional
        Larger is better; the best epoch is returned, and learning stops when it has passed.
    rate : float
        Length of the first steps, relative to the rows of W and V; it falls to zero linearly.
    regularization : float
        W shrinks by this times the rate in an epoch.
    fixed_vectors : bool
        Learn W alone: a convex problem.

    Notes
    -----
    An epoch costs O(k (nnz(X) + pairs looked at)); batches are scored by BLAS and on threads, and
    the steps are taken by one thread, row after row, so that they do not depend on the threads.
    """
    A, length = _features(X, rows)
    W, V = _weights(start, A, rows, length, rescale=not fixed_vectors)
    # Step sizes of W count in units of its rows; V has rows of unit length. Features that no row
    # has begin at zero and stay there: they must not make the steps of the others smaller.
    squares = np.einsum("ij,ij->i", W, W, dtype=np.float64)
    unit = float(np.sqrt(squares.sum() / max(np.count_nonzero(squares), 1))) or 1.0
    energies = np.zeros(len(W), dtype=np.float32), np.zeros(len(V), dtype=np.float32)
    best, best_score, best_epoch = None, -np.inf, 0
    with phase("learning the embedding", max_epochs * len(rows), "rows") as advance:
        for epoch in range(max_epochs):
            scale = 1.0  # of W: shrinking all of it is one multiplication
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
                    _project(V, P)
                scale *= 1 - min(regularization * step * len(batch) / len(order), 0.5)
                adagrad_rows(B.indptr, B.indices, B.data, G, W, energies[0], step * unit / scale)
                advance(len(batch))
            W *= np.float32(scale)
            if judge is None:
                continue
            now = _map(W, V, length)
            score = judge(now)
            if score > best_score:
                best, best_score, best_epoch = now._replace(vectors=V.copy()), score, epoch
            elif epoch - best_epoch >= _PATIENCE:
                break
    return _map(W, V, length) if best is None else best


def _project(V: F32, P: csr_array) -> None:
    """|V_j| <= 1 for the vectors that P moved."""
    moved = np.unique(P.indices)
    lengths = np.linalg.norm(V[moved], axis=1, keepdims=True)
    V[moved] /= np.maximum(lengths, 1)


def _features(X: Matrix, rows: Ints) -> tuple[csr_array, float]:
    """Rows of length about one with a constant feature, and the length that they had."""
    sample = csr_array(X[rows[:_SAMPLE]])
    energy = float(np.square(sample.data, dtype=np.float64).sum())
    length = float(np.sqrt(energy / max(sample.shape[0], 1))) or 1.0
    constant = np.full((X.shape[0], 1), _CONSTANT, dtype=np.float32)
    return csr_array(hstack([csr_array(X) / np.float32(length), constant], format="csr")), length


def _weights(
    start: JointMap, A: csr_array, rows: Ints, length: float, *, rescale: bool
) -> tuple[F32, F32]:
    """W for the rows of `_features`, and V: copies that may be written to."""
    coef, intercept = start.regressor
    W = np.vstack([coef * length, intercept / _CONSTANT]).astype(np.float32)
    if rescale:
        Z = product(A[rows[:_SAMPLE]], W)
        spread = float(np.sqrt(np.einsum("ij,ij->", Z, Z) / max(len(Z), 1)))
        W *= np.float32(_SPREAD / spread if spread > 0 else 1.0)
    return W, start.vectors.copy()


def _map(W: F32, V: F32, length: float) -> JointMap:
    return JointMap(LinearMap(W[:-1] / np.float32(length), np.float32(_CONSTANT) * W[-1]), V)
