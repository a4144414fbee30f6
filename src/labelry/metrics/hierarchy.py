"""Measure whether an embedding puts siblings next to each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

_BLOCK_ENTRIES = 1 << 24  # similarities that are held at a time: 64 MB of float32; not tuned


def sibling_fraction(hierarchy: Any, nearest: ArrayLike) -> float:
    """Return the share of labels whose nearest neighbour in an embedding is a sibling.

    Siblings are two different labels with a common parent. All labels count, so those
    without parent, without siblings, or without neighbour lower the fraction.

    Parameters
    ----------
    hierarchy : sparse (c, n_parents), or integer (m, 2)
        Not zero where a label has the parent; or the pairs (child, parent) of the DAG, whose
        parents have any numbers. A child of c or more is an inner node, and no label.
    nearest : integer (c,), or V (c, k)
        The neighbour of each label, -1 for none; or the embedding, for `nearest_labels`.

    References
    ----------
    Mineiro, Karampatziakis (2015), Fast label embeddings for extremely large output spaces,
    section 4.3 and Table 4.

    Examples
    --------
    >>> round(sibling_fraction([(0, 7), (1, 7), (2, 8)], nearest=[1, 2, 0]), 3)
    0.333
    """
    nearest = np.asarray(nearest)
    if nearest.ndim == 2:
        nearest = nearest_labels(nearest)
    n_labels = len(nearest)
    if nearest.ndim != 1 or not np.issubdtype(nearest.dtype, np.integer):
        got = f"{nearest.dtype} of shape {nearest.shape}"
        raise ValueError(f"nearest must be integers (c,) or an embedding (c, k); got {got}")
    if n_labels == 0:
        return float("nan")
    low, high = nearest.min(), nearest.max()
    if low < -1 or high >= n_labels:
        raise ValueError(f"nearest must be between -1 and {n_labels - 1}; got {low} to {high}")
    parents = _parents(hierarchy, n_labels)
    known = (nearest >= 0) & (nearest != np.arange(n_labels))
    common = parents[known].multiply(parents[nearest[known]]).sum(axis=1)
    return float(np.count_nonzero(common) / n_labels)


def nearest_labels(V: ArrayLike) -> NDArray[np.int64]:
    """Find for each label the one whose row of `V` (c, k) is most similar, by cosine.

    A label at the origin has no direction: it gets -1, and is no neighbour of others. Of equally
    near labels the first is taken. Takes O(c^2 k) time, in row blocks of bounded memory.

    >>> nearest_labels([[1.0, 0.0], [0.9, 0.1], [0.0, 2.0], [0.0, 0.0]])
    array([ 1,  0,  1, -1])
    """
    V = np.asarray(V)
    if V.ndim != 2:
        raise ValueError(f"V must have two dimensions, labels x embedding; got shape {V.shape}")
    norms = np.linalg.norm(V, axis=1)
    nearest = np.full(len(V), -1, dtype=np.int64)
    placed = np.flatnonzero(norms)
    if len(placed) < 2:
        return nearest
    directions = V[placed] / norms[placed, None]
    step = max(1, _BLOCK_ENTRIES // len(placed))
    for start in range(0, len(placed), step):
        rows = np.arange(start, min(start + step, len(placed)))
        similarity = directions[rows] @ directions.T  # (rows, labels)
        similarity[np.arange(len(rows)), rows] = -np.inf
        nearest[placed[rows]] = placed[similarity.argmax(axis=1)]
    return nearest


def _parents(hierarchy: Any, n_labels: int) -> csr_array:
    """Return the indicator (c, n_parents) of a sparse matrix or of pairs (child, parent)."""
    if issparse(hierarchy):
        if (n := hierarchy.shape[0]) != n_labels:
            raise ValueError(f"hierarchy must have {n_labels} rows, one for each label; got {n}")
        return (csr_array(hierarchy) != 0).astype(np.int32)
    pairs = np.asarray(hierarchy)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        rule = "sparse, or integer pairs (child, parent) of shape (m, 2)"
        raise ValueError(f"hierarchy must be {rule}; got {pairs.dtype} of shape {pairs.shape}")
    if (pairs < 0).any():
        raise ValueError(f"hierarchy must have numbers of 0 or more; got {pairs.min()}")
    child, parent = pairs[pairs[:, 0] < n_labels].T
    names, column = np.unique(parent, return_inverse=True)
    ones = np.ones(len(child), dtype=np.int32)
    return csr_array((ones, (child, column)), shape=(n_labels, len(names)))
