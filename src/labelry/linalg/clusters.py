"""Unit centres of clusters of rows, and the nearest centre of a row by cosine.

Centres of sparse rows are sparse: a centre has the features of its own rows only. So hundreds of
centres with a million features fit in memory, and a row shares features with few of them.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, issparse

from labelry.arrays import I32
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import stream
from labelry.linalg.topk import topk

_BLOCK_BYTES = 16 << 20  # bytes of cosines that a thread holds at a time; not tuned


def unit_centres(X: Matrix, cluster: I32, n_clusters: int) -> Matrix:
    """Return the mean row of each cluster, scaled to unit length, as a column.

    The result (n_features, n_clusters) is CSR if X is; zeros for a cluster without rows.

    >>> X = np.array([[3, 0], [0, 4]], dtype=np.float32)
    >>> unit_centres(X, np.array([0, 0]), 1).round(2).ravel()
    array([0.6, 0.8], dtype=float32)
    """
    return unit_columns(cluster_sums(X, cluster, n_clusters))


def cluster_sums(X: Matrix, cluster: I32, n_clusters: int) -> Matrix:
    """Return the sum of the rows of each cluster, (n_clusters, n_features)."""
    n = len(cluster)
    members = csr_array((np.ones(n, np.float32), (cluster, np.arange(n))), shape=(n_clusters, n))
    return members @ X


def unit_columns(sums: Matrix) -> Matrix:
    """Return the rows as columns of unit length; a row of zeros stays zero."""
    centres = scaled_rows(sums).T
    return csr_array(centres) if issparse(sums) else np.ascontiguousarray(centres)


def nearest_centre(X: Matrix, centres: Matrix, n_jobs: int = 1) -> I32:
    """Return the cluster whose centre has the largest cosine with each row; ties: the first."""
    step = max(1, _BLOCK_BYTES // (4 * centres.shape[1]))

    def nearest(start: int) -> I32:
        S = X[start : start + step] @ centres
        return topk(S.toarray() if issparse(S) else S, 1)[0].ravel()

    starts = ((start,) for start in range(0, X.shape[0], step))
    parts = list(stream(nearest, starts, n_jobs))
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])
