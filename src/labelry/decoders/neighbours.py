"""Labels of the nearest training rows in the embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.linalg.parallel import run, spans
from labelry.linalg.topk import topk
from labelry.state import storable

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_BLOCK_BYTES = 32 << 20  # similarities held at a time


@storable
class Neighbours(NamedTuple):
    """Votes of the most similar training rows, by cosine.

    The score of a label is its weighted share of the neighbours, between 0 and 1. A neighbour
    with cosine s weighs exp(sharpness (s - 1)). Each dimension is divided by the square root of
    its standard deviation first, halfway to whitening: as they are, the few strongest
    directions (of the most frequent labels) drown the others; fully whitened, noise does.

    Attributes
    ----------
    points : array (n_rows, k)
        Embedded training rows, scaled and of unit length.
    scale : array (k,)
        Factor for each dimension of a query.
    labels : csr_array (n_rows, n_labels)
    n_neighbors : int
        More neighbours find more labels; the sharpness keeps the far ones from mattering.
    sharpness : float
        Larger listens to the nearest only.
    weights : array (n_rows,), optional
        Factor on the vote of each training row.
    """

    points: F32
    scale: F32
    labels: csr_array
    n_neighbors: int = 100
    sharpness: float = 15.0
    weights: F32 | None = None

    def topk(self, Z: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """The k labels with the most votes for each embedded row, and their scores.

        Exact: 2 k flops for each pair of a query and a training row.
        """
        labels = np.empty((len(Z), k), dtype=np.int32)
        scores = np.empty((len(Z), k), dtype=np.float32)
        for rows, near, weights in self.nearest(Z, n_jobs):
            vote(near, weights, self.labels, labels[rows], scores[rows], n_jobs)
        return labels, scores

    def scores(self, Z: F32) -> F32:
        """Votes for all labels (n_rows, n_labels)."""
        out = np.empty((len(Z), self.labels.shape[1]), dtype=np.float32)
        for rows, near, weights in self.nearest(Z, 1):
            out[rows] = all_votes(near, weights, self.labels)
        return out

    def nearest(self, Z: F32, n_jobs: int) -> Iterator[tuple[slice, Ints, F32]]:
        """Blocks of rows with their neighbours and the neighbours' weights, which add up to one."""
        step = max(1, _BLOCK_BYTES // (4 * len(self.points)))
        for start in range(0, len(Z), step):
            rows = slice(start, start + step)
            cosines = unit_rows(Z[rows] * self.scale) @ self.points.T
            near, cosine = topk(cosines, min(self.n_neighbors, len(self.points)), n_jobs)
            weights = np.exp(np.float32(self.sharpness) * (cosine - 1))
            if self.weights is not None:
                weights *= self.weights[near]
            weights /= weights.sum(axis=1, keepdims=True)
            yield rows, near, weights


def fit_neighbours(
    Z: F32,
    Y: csr_array,
    n_neighbors: int = 100,
    sharpness: float = 15.0,
    weights: F32 | None = None,
) -> Neighbours:
    """Keep embedded training rows and their labels for voting."""
    w = np.ones(len(Z), dtype=np.float32) if weights is None else weights
    total = max(float(w.sum(dtype=np.float64)), np.finfo(np.float32).tiny)
    rms = np.sqrt(np.einsum("i,ij,ij->j", w, Z, Z, dtype=np.float64) / total)
    scale = np.where(rms > 0, 1 / np.sqrt(np.where(rms > 0, rms, 1)), 0).astype(np.float32)
    return Neighbours(unit_rows(Z * scale), scale, Y, n_neighbors, sharpness, weights)


def vote(
    near: Ints, weights: F32, Y: csr_array, labels: Ints, scores: F32, n_jobs: int = 1
) -> None:
    """Fill in the best labels, and their scores, of ``weights[i] @ Y[near[i]]`` for each row i."""
    csr = (Y.indptr, Y.indices, Y.data, Y.shape[1])
    tasks = [(near, weights, *csr, labels, scores, *span) for span in spans(len(near), n_jobs)]
    run(_vote_rows, tasks, n_jobs)


def all_votes(near: Ints, weights: F32, Y: csr_array) -> F32:
    """``weights[i] @ Y[near[i]]`` for each row i, over all labels."""
    indptr = np.arange(0, near.size + 1, near.shape[1])
    shape = (len(near), Y.shape[0])
    votes = csr_array((weights.ravel(), near.ravel(), indptr), shape=shape)
    return (votes @ Y).toarray()


def unit_rows(Z: F32) -> F32:
    """Rows scaled to unit length; rows of zeros stay."""
    norms = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(norms > 0, norms, 1), dtype=np.float32)


@njit(nogil=True, cache=True)
def _vote_rows(
    near: Ints,
    weights: F32,
    indptr: Ints,
    indices: Ints,
    data: F32,
    n_labels: int,
    labels: Ints,
    scores: F32,
    row0: int,
    row1: int,
) -> None:
    """Top k of ``weights[i] @ Y[near[i]]`` for each row; ties go to the smaller label.

    Touches only labels that some neighbour has; places that no label fills get -1.
    """
    votes = np.zeros(n_labels, dtype=np.float32)
    touched = np.empty(n_labels, dtype=np.int32)
    k = labels.shape[1]
    for i in range(row0, row1):
        n_touched = 0
        for t in range(near.shape[1]):
            row = near[i, t]
            for p in range(indptr[row], indptr[row + 1]):
                if votes[indices[p]] == 0.0:
                    touched[n_touched] = indices[p]
                    n_touched += 1
                votes[indices[p]] += weights[i, t] * data[p]
        best, ids = scores[i], labels[i]
        best[:] = -np.inf
        ids[:] = -1
        for u in range(n_touched):
            label = touched[u]
            v = votes[label]
            votes[label] = 0.0
            t = k
            while t > 0 and (v > best[t - 1] or (v == best[t - 1] and label < ids[t - 1])):
                if t < k:
                    best[t] = best[t - 1]
                    ids[t] = ids[t - 1]
                t -= 1
            if t < k:
                best[t] = v
                ids[t] = label
