"""Laplacian eigenmaps: label vectors that are close where labels are confused."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from labelry.embeddings.embedding import Embedding
from labelry.linalg.sketch import randomized_eigh

F64 = NDArray[np.float64]

_DENSE = 1000  # labels up to which all eigenvectors are as cheap as a few


def laplacian_eigenmaps(
    A: csr_array, embedding_dim: int, *, weak: float = 1e-3, rng: np.random.Generator
) -> Embedding:
    """V that minimises ``sum_ij A_ij |V_i - V_j|^2`` subject to ``V'DV = I``, D the row sums of A.

    These are the eigenvectors of (D - A) v = lambda D v with the smallest lambda, without the
    constant one, which is trivial. With u = D^1/2 v they are those of D^-1/2 A D^-1/2 with the
    largest values 1 - lambda.

    Parameters
    ----------
    A : csr_array (n_labels, n_labels)
        Symmetric, not negative; for example a confusion matrix.
    embedding_dim : int
        Fewer come back where there are not so many labels.
    weak : float
        Affinity of each label to all labels together, in units of the mean degree. It gives a
        degree to labels that are confused with no other, and joins what would fall apart;
        larger gives such labels less room.

    Returns
    -------
    Embedding
        Vectors (n_labels, k) and values 1 - lambda, largest first.

    References
    ----------
    Belkin, Niyogi: Laplacian eigenmaps and spectral techniques for embedding and clustering, 2002.
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.1.
    """
    if embedding_dim < 1:
        raise ValueError(f"embedding_dim must be at least 1, got {embedding_dim}")
    n = A.shape[0]
    degree = A.sum(axis=1).astype(np.float64)
    common = (weak * degree.mean() or 1.0) / n  # added to each entry of A, never formed
    scale = 1.0 / np.sqrt(degree + n * common)
    S = csr_array(diags_array(scale) @ A.astype(np.float64) @ diags_array(scale))
    # One more than asked for: the first is the constant.
    values, U = _leading(S, np.sqrt(common) * scale, min(embedding_dim + 1, n), rng)
    V = scale[:, None] * U[:, 1:]
    return Embedding(V.astype(np.float32), values[1:].astype(np.float32))


def _leading(S: csr_array, u: F64, k: int, rng: np.random.Generator) -> tuple[F64, F64]:
    """The k largest eigenvalues of S + u u' and their vectors, largest first."""
    n = S.shape[0]
    if n <= max(_DENSE, 2 * k):
        values, U = eigh(S.toarray() + np.outer(u, u))
        return values[::-1][:k], U[:, ::-1][:, :k]
    operator = LinearOperator((n, n), matvec=lambda x: S @ x + u * (u @ x), dtype=np.float64)
    try:
        values, U = eigsh(operator, k, which="LA", v0=rng.standard_normal(n), tol=1e-5)
        order = np.argsort(-values)
        return values[order], U[:, order]
    except ArpackError:  # many equal values, for one: subspace iteration takes any of them
        # (S + 1) / 2 has the same vectors, and no negative value.
        pairs = randomized_eigh(
            lambda Q: ((S @ Q + np.outer(u, u @ Q) + Q) / 2).astype(np.float32),
            n,
            k,
            n_passes=20,
            rng=rng,
        )
        return 2.0 * pairs.values.astype(np.float64) - 1.0, pairs.vectors.astype(np.float64)
