"""Rank labels by weighted sums of the labels of some points, such as the nearest training rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelry.arrays import CSR, F32, I32, Ints
from labelry.linalg.kernels import keep_best
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import balanced_spans, run
from labelry.ranking.ranker import Ranker


class SharesRanker(Ranker):
    """Base of the rankers that find points for a row, which add their labels with a weight.

    The weights of a row add up to one, so the score of a label is its share of the points.
    """

    labels: csr_array  # (n_points, n_labels)

    @abstractmethod
    def nearest(self, X: Matrix, n_jobs: int) -> Iterator[tuple[slice, Ints, F32]]:
        """Yield blocks of rows, their points (n, m), and the weights of these."""

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        for rows, near, weights in self.nearest(X, n_jobs):
            labels[rows], scores[rows] = topk_shares(near, weights, self.labels, k, n_jobs)
        return labels, scores

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        out = np.empty((X.shape[0], self.labels.shape[1]), dtype=np.float32)
        for rows, near, weights in self.nearest(X, n_jobs):
            indptr, indices, data = _as_csr(near, weights)
            A = csr_array((data, indices, indptr), shape=(len(near), self.labels.shape[0]))
            out[rows] = (A @ self.labels).toarray()
        return out


def topk_shares(near: Ints, weights: F32, Y: csr_array, k: int, n_jobs: int = 1) -> tuple[I32, F32]:
    """Return the best labels of ``weights[i] @ Y[near[i]]`` for each row i, and their scores."""
    return topk_of_product(_as_csr(near, weights), Y, k, n_jobs)


def topk_of_product(A: CSR, B: csr_array, k: int, n_jobs: int = 1) -> tuple[I32, F32]:
    """Return the columns of the k largest positive entries of each row of ``A @ B``, and these.

    Places are -1 and minus infinity if fewer entries are positive.
    """
    labels = np.empty((len(A[0]) - 1, k), dtype=np.int32)
    scores = np.empty((len(A[0]) - 1, k), dtype=np.float32)
    task = (A, (B.indptr, B.indices, B.data), B.shape[1], labels, scores)
    run(_fill_rows, [(*task, *span) for span in balanced_spans(A[0], n_jobs)], n_jobs)
    return labels, scores


def _as_csr(near: Ints, weights: F32) -> CSR:
    """Return the sparse matrix that has these weights in these columns; SciPy checks too much."""
    return np.arange(0, near.size + 1, near.shape[1]), near.ravel(), weights.ravel()


@njit(nogil=True, cache=True)
def _fill_rows(
    A: CSR, B: CSR, n_labels: int, labels: Ints, scores: F32, row0: int, row1: int
) -> None:
    """Find the top k above zero of ``A[i] @ B`` for each row; ties go to the smaller label.

    Touches only labels that some entry of the row has; places that no label fills get -1.
    """
    a_indptr, a_indices, a_data = A
    b_indptr, b_indices, b_data = B
    total = np.zeros(n_labels, dtype=np.float32)
    stamp = np.zeros(n_labels, dtype=np.int32)  # one more than the last row that met the label
    met = np.empty(n_labels, dtype=np.int32)
    for i in range(row0, row1):
        n_met = 0
        for p in range(a_indptr[i], a_indptr[i + 1]):
            a = a_data[p]
            for q in range(b_indptr[a_indices[p]], b_indptr[a_indices[p] + 1]):
                label = b_indices[q]
                if stamp[label] != i + 1:
                    stamp[label] = i + 1
                    total[label] = 0.0
                    met[n_met] = label
                    n_met += 1
                total[label] += a * b_data[q]
        best, ids = scores[i], labels[i]
        best[:] = -np.inf
        ids[:] = -1
        for u in range(n_met):
            if total[met[u]] > 0.0:
                keep_best(best, ids, total[met[u]], met[u])
