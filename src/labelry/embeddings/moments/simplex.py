"""Probability vectors from estimates that have negative entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

_COLUMNS = 16  # sorted at a time


def project_to_simplex(V: NDArray[np.floating]) -> F32:
    """The probability vector nearest to each column of V, in Euclidean distance.

    max(v - t, 0) with the t that makes the sum one. Duchi et al.: Efficient projections onto
    the l1-ball for learning in high dimensions, 2008, Figure 1.

    >>> project_to_simplex(np.array([[1.2], [0.2], [-0.3]], dtype=np.float32)).ravel().round(3)
    array([1., 0., 0.], dtype=float32)
    """
    out = np.empty(V.shape, dtype=np.float32)
    for start in range(0, V.shape[1], _COLUMNS):
        part = V[:, start : start + _COLUMNS].astype(np.float64)
        descending = -np.sort(-part, axis=0)
        places = np.arange(1, len(V) + 1)[:, None]
        thresholds = (np.cumsum(descending, axis=0) - 1) / places
        n_positive = np.count_nonzero(descending > thresholds, axis=0)
        t = np.take_along_axis(thresholds, n_positive[None] - 1, axis=0)
        out[:, start : start + _COLUMNS] = np.maximum(part - t, 0)
    return out


def to_distributions(V: F32) -> F32:
    """Columns as probability vectors: scaled to sum to one, then projected on the simplex.

    A column whose negative part nearly cancels its positive part is noise, and to divide by
    its sum would leave a single entry; such a column is scaled by half its positive part.
    A column without a positive entry becomes uniform.
    """
    positive = np.maximum(V, 0).sum(axis=0, dtype=np.float64)
    scale = np.maximum(V.sum(axis=0, dtype=np.float64), positive / 2)
    return project_to_simplex(np.where(positive > 0, V, 0) / np.where(positive > 0, scale, 1))
