"""Labels of the nearest training rows, in an embedding or as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.checks import StoredCheck, check_at_least
from labelry.decoders.vector_lists import VectorLists, make_lists
from labelry.linalg.kernels import keep_best
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import balanced_spans, run, spans
from labelry.linalg.topk import topk
from labelry.progress import phase
from labelry.state import storable

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_BLOCK_BYTES = 32 << 20  # similarities held at a time
_LEAST_EXPONENT = -80  # whose exponential float32 still has


@storable
class Neighbours(NamedTuple):
    """Votes of the most similar training rows, by cosine.

    The score of a label is its weighted share of the neighbours, between 0 and 1. A neighbour
    with cosine s weighs exp(sharpness (s - 1)). In an embedding each dimension is divided by the
    square root of its standard deviation first, halfway to whitening: as they are, the few
    strongest directions (of the most frequent labels) drown the others; fully whitened, noise does.

    Attributes
    ----------
    points : array (n_rows, k), or csr_array (k, n_rows)
        Training rows, scaled and of unit length; of sparse rows, for each feature the rows that
        have it.
    scale : array (k,), optional
        Factor for each dimension of a query.
    labels : csr_array (n_rows, n_labels)
    n_neighbors : int
        More neighbours find more labels; the sharpness keeps the far ones from mattering.
    sharpness : float
        Larger listens to the nearest only.
    weights : array (n_rows,), optional
        Factor on the vote of each training row.
    lists : VectorLists, optional
        Where to look for neighbours; everywhere if None.
    """

    points: Matrix
    scale: F32 | None
    labels: csr_array
    n_neighbors: int = 100
    sharpness: float = 15.0
    weights: F32 | None = None
    lists: VectorLists | None = None

    def check_stored(self, check: StoredCheck, dim: int, n_labels: int) -> None:
        """A ValueError unless it takes rows (n, dim), and has labels for each of its points."""
        check.kind("labels", self.labels, csr_array)
        n = self.labels.shape[0]
        check.sparse("labels", self.labels, n, n_labels)
        check_at_least("points", n, 1)
        if issparse(self.points):
            check.sparse("points", self.points, dim, n)
        else:
            check.array("points", self.points, n, dim)
        for name, size in (("scale", dim), ("weights", n)):
            if getattr(self, name) is not None:
                check.array(name, getattr(self, name), size)
        check.whole("n_neighbors", self.n_neighbors, 1)
        check.number("sharpness", self.sharpness)
        check.kind("lists", self.lists, VectorLists, None)
        if self.lists is not None:
            check.array("points", self.points, n, dim)
            self.lists.check_stored(check, dim, n)

    def topk(self, Z: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """The k labels with the most votes for each row, and their scores.

        Without lists 2 k flops for each pair of a query and a training row, or 2 for each feature
        that both have.
        """
        labels = np.empty((Z.shape[0], k), dtype=np.int32)
        scores = np.empty((Z.shape[0], k), dtype=np.float32)
        for rows, near, weights in self.nearest(Z, n_jobs):
            vote(near, weights, self.labels, labels[rows], scores[rows], n_jobs)
        return labels, scores

    def scores(self, Z: Matrix) -> F32:
        """Votes for all labels (n_rows, n_labels)."""
        out = np.empty((Z.shape[0], self.labels.shape[1]), dtype=np.float32)
        for rows, near, weights in self.nearest(Z, 1):
            out[rows] = all_votes(near, weights, self.labels)
        return out

    def nearest(self, Z: Matrix, n_jobs: int) -> Iterator[tuple[slice, Ints, F32]]:
        """Blocks of rows with their neighbours and the neighbours' weights, which add up to one."""
        step = max(1, _BLOCK_BYTES // (4 * self._n_points()))
        for start in range(0, Z.shape[0], step):
            rows = slice(start, start + step)
            near, cosine = self._search(Z[rows], n_jobs)
            exponent = np.float32(self.sharpness) * (cosine - 1)
            # The nearest keeps some weight however sharp the votes: the shares are not 0/0.
            exponent -= np.minimum(exponent[:, :1] - _LEAST_EXPONENT, 0)
            weights = np.exp(exponent)
            if self.weights is not None:
                weights *= self.weights[near]
            weights /= weights.sum(axis=1, keepdims=True)
            yield rows, near, weights

    def approximate(self, rng: np.random.Generator, n_jobs: int = 1) -> Neighbours:
        """The same points in lists, of which a query looks into a few: faster if there are many.

        It finds about 99 of the 100 nearest of 40,000 points.
        """
        if issparse(self.points):
            raise ValueError("index must be exact for sparse rows and texts, got approximate")
        with phase("lists of neighbours"):
            lists, order = make_lists(self.points, rng=rng, n_jobs=n_jobs)
        return self._replace(
            points=self.points[order],
            labels=self.labels[order],
            weights=None if self.weights is None else self.weights[order],
            lists=lists,
        )

    def _search(self, Z: Matrix, n_jobs: int) -> tuple[Ints, F32]:
        """The most similar points of each row, and their cosines."""
        n_neighbors = min(self.n_neighbors, self._n_points())
        if issparse(self.points):
            cosines = sparse_product(scaled_rows(csr_array(Z)), self.points, n_jobs)
            near, cosine = topk(cosines, n_neighbors, n_jobs)
        else:
            Z = Z.toarray() if issparse(Z) else Z
            Z = scaled_rows(Z if self.scale is None else Z * self.scale)
            if self.lists is None:
                near, cosine = topk(Z @ self.points.T, n_neighbors, n_jobs)
            else:
                near, cosine = self.lists.search(Z, self.points, n_neighbors, n_jobs)
        return np.maximum(near, 0), cosine  # what was not found weighs exp(-inf)

    def _n_points(self) -> int:
        return int(self.points.shape[1] if issparse(self.points) else len(self.points))


def fit_neighbours(
    Z: F32,
    Y: csr_array,
    n_neighbors: int = 100,
    sharpness: float = 15.0,
    weights: F32 | None = None,
) -> Neighbours:
    """Keep embedded training rows and their labels for voting."""
    scale = half_whitening(Z, weights)
    return Neighbours(scaled_rows(Z * scale), scale, Y, n_neighbors, sharpness, weights)


def half_whitening(Z: F32, weights: F32 | None = None) -> F32:
    """For each dimension, one over the root of its root mean square; 0 where that is 0."""
    w = np.ones(len(Z), dtype=np.float32) if weights is None else weights
    total = max(float(w.sum(dtype=np.float64)), np.finfo(np.float32).tiny)
    rms = np.sqrt(np.einsum("i,ij,ij->j", w, Z, Z, dtype=np.float64) / total)
    return np.where(rms > 0, 1 / np.sqrt(np.where(rms > 0, rms, 1)), 0).astype(np.float32)


def plain_neighbours(
    X: Matrix, Y: csr_array, n_neighbors: int = 100, sharpness: float = 15.0
) -> Neighbours:
    """Keep training rows with their own features, sparse or dense, and their labels for voting."""
    points = csr_array(scaled_rows(X).T) if issparse(X) else scaled_rows(X)
    return Neighbours(points, None, Y, n_neighbors, sharpness)


def sparse_product(A: csr_array, B: csr_array, n_jobs: int = 1) -> F32:
    """``A @ B`` as a dense array: 2 to 4 times as fast as by way of a sparse result."""
    out = np.zeros((A.shape[0], B.shape[1]), dtype=np.float32)
    arguments = (A.indptr, A.indices, A.data, B.indptr, B.indices, B.data, out)
    tasks = [(*arguments, *span) for span in balanced_spans(A.indptr, n_jobs)]
    run(_add_products, tasks, n_jobs)
    return out


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


@njit(nogil=True, cache=True)
def _add_products(
    a_indptr: Ints,
    a_indices: Ints,
    a_data: F32,
    b_indptr: Ints,
    b_indices: Ints,
    b_data: F32,
    out: F32,
    row0: int,
    row1: int,
) -> None:
    """``out[row0:row1] += A[row0:row1] @ B``, both CSR."""
    for i in range(row0, row1):
        row = out[i]
        for p in range(a_indptr[i], a_indptr[i + 1]):
            v = a_data[p]
            for q in range(b_indptr[a_indices[p]], b_indptr[a_indices[p] + 1]):
                row[b_indices[q]] += v * b_data[q]


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
    for i in range(row0, row1):
        n_touched = 0
        for t in range(near.shape[1]):
            if weights[i, t] == 0.0:  # its labels would look untouched again and again
                continue
            row = near[i, t]
            for p in range(indptr[row], indptr[row + 1]):
                # Never more than there are labels: votes that cancel look untouched again.
                if votes[indices[p]] == 0.0 and n_touched < n_labels:
                    touched[n_touched] = indices[p]
                    n_touched += 1
                votes[indices[p]] += weights[i, t] * data[p]
        best, ids = scores[i], labels[i]
        best[:] = -np.inf
        ids[:] = -1
        for u in range(n_touched):
            label = touched[u]
            keep_best(best, ids, votes[label], label)
            votes[label] = 0.0
