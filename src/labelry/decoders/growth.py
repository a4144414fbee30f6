"""Neighbours that take in rows and labels after they were fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from labelry.decoders.neighbours import Neighbours
from labelry.linalg.clusters import nearest_centre
from labelry.linalg.matrices import scaled_rows

F32 = NDArray[np.float32]


def widened(Y: csr_array, n_labels: int) -> csr_array:
    """The same labels with further columns, which no row has, up to `n_labels`."""
    return csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))


def with_rows(neighbours: Neighbours, Z: F32, Y: csr_array, n_jobs: int = 1) -> Neighbours:
    """Also let these embedded rows vote; Y may have more labels than the rows so far.

    The scale of the dimensions stays as it is. Where there are lists, each row joins that of the
    nearest centre; the centres stay too. Costs a copy of all points.
    """
    scaled = Z if neighbours.scale is None else Z * neighbours.scale
    new = scaled_rows(scaled)
    points = np.concatenate([neighbours.points, new])
    labels = vstack([widened(neighbours.labels, Y.shape[1]), Y], format="csr")
    weights = neighbours.weights
    if weights is not None:
        weights = np.concatenate([weights, np.ones(len(new), dtype=np.float32)])
    lists = neighbours.lists
    if lists is not None:
        n_lists = lists.centres.shape[1]
        old = np.repeat(np.arange(n_lists), np.diff(lists.bounds))
        where = np.concatenate([old, nearest_centre(new, lists.centres, n_jobs)])
        order = np.argsort(where, kind="stable")
        bounds = np.cumsum([0, *np.bincount(where, minlength=n_lists)])
        points, labels, lists = points[order], labels[order], lists._replace(bounds=bounds)
        weights = None if weights is None else weights[order]
    return neighbours._replace(points=points, labels=labels, weights=weights, lists=lists)
