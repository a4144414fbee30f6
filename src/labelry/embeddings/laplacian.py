"""Laplacian eigenmaps: label vectors that are close where labels are confused."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from labelry.embeddings.embedding import Embedding
from labelry.linalg.spectral import affinity_eigenpairs


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
    # One more than asked for: the first is the constant.
    k = min(embedding_dim + 1, A.shape[0])
    values, U, scale = affinity_eigenpairs(A, k, weak=weak, rng=rng)
    V = scale[:, None] * U[:, 1:]
    return Embedding(V.astype(np.float32), values[1:].astype(np.float32))
