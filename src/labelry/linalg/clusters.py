"""Rows in clusters: their unit centres, and the nearest centre of other rows, by cosine.

Centres of sparse rows are sparse: a centre has the features of its own rows only, so that a
million features times hundreds of clusters fits in memory and a row meets few of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import stream
from labelry.linalg.topk import topk

I32 = NDArray[np.int32]

_BLOCK_BYTES = 16 << 20  # cosines that a thread holds at a time


def unit_centres(X: Matrix, cluster: I32, n_clusters: int) -> Matrix:
    """Mean row of each cluster, scaled to unit length, as columns (n_features, n_clusters).

    A cluster without rows has a centre of zeros. CSR if X is: ready for ``X @ centres``.

    Examples
    --------
    >>> X = np.array([[3, 0], [0, 4]], dtype=np.float32)
    >>> unit_centres(X, np.array([0, 0]), 1).round(2).ravel()
    array([0.6, 0.8], dtype=float32)
    """
    return unit_columns(cluster_sums(X, cluster, n_clusters))


def cluster_sums(X: Matrix, cluster: I32, n_clusters: int) -> Matrix:
    """Sum of the rows of each cluster, (n_clusters, n_features)."""
    n = len(cluster)
    ones = np.ones(n, dtype=np.float32)
    members = csr_array((ones, (cluster, np.arange(n))), shape=(n_clusters, n))
    return members @ X


def unit_columns(sums: Matrix) -> Matrix:
    """The rows as columns of unit length; columns of zeros stay."""
    centres = scaled_rows(sums).T
    return csr_array(centres) if issparse(sums) else np.ascontiguousarray(centres)


def nearest_centre(X: Matrix, centres: Matrix, n_jobs: int = 1) -> I32:
    """The cluster whose centre has the largest cosine with each row; ties to the smaller.

    Rows without features go to the first cluster.
    """
    step = max(1, _BLOCK_BYTES // (4 * centres.shape[1]))

    def nearest(start: int) -> I32:
        S = X[start : start + step] @ centres
        return topk(S.toarray() if issparse(S) else S, 1)[0].ravel()

    starts = ((start,) for start in range(0, X.shape[0], step))
    parts = list(stream(nearest, starts, n_jobs))
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])
