"""Probability vectors from estimates that have negative entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

_COLUMNS = 16  # one cache line of a row: columns turned to rows at a time


def project_to_simplex(V: NDArray[np.floating]) -> F32:
    """The probability vector nearest to each column of V, in Euclidean distance.

    max(v - t, 0) with the t that makes the sum one. Entries that are not above the t of all
    entries are not above the final one either, so they are left out, again and again until t
    stands. Michelot: A finite algorithm for finding the projection of a point onto the
    canonical simplex, 1986.

    >>> project_to_simplex(np.array([[1.2], [0.2], [-0.3]], dtype=np.float32)).ravel().round(3)
    array([1., 0., 0.], dtype=float32)
    """
    out = np.empty(V.shape, dtype=np.float32)
    for start in range(0, V.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        part = np.array(V[:, columns].T, dtype=np.float64, order="C")
        for v in part:
            v -= _threshold(v)
        np.maximum(part, 0, out=part)
        out[:, columns] = part.T
    return out


def _threshold(v: NDArray[np.float64]) -> float:
    while True:
        t = (v.sum() - 1) / len(v)
        above = v[v > t]
        if len(above) == len(v):
            return float(t)
        v = above


def to_distributions(V: F32) -> F32:
    """Columns as probability vectors: scaled to sum to one, then projected on the simplex.

    A column whose negative part nearly cancels its positive part is noise, and to divide by
    its sum would leave a single entry; such a column is scaled by half its positive part.
    A column without a positive entry becomes uniform.
    """
    positive = np.maximum(V, 0).sum(axis=0, dtype=np.float64)
    scale = np.maximum(V.sum(axis=0, dtype=np.float64), positive / 2)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=positive > 0)
    return project_to_simplex(V * inverse.astype(np.float32))
