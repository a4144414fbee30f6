"""Labels whose names share features, such as words, with a row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from labelry.checks import StoredCheck
from labelry.decoders.evidence import sparse_inner_products
from labelry.linalg.kernels import keep_best
from labelry.linalg.matrices import Matrix, as_matrix, scaled_rows
from labelry.linalg.parallel import balanced_spans, run
from labelry.state import storable

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]


@storable
class LabelNames(NamedTuple):
    """Names of labels in the space of the features, and where each feature occurs.

    Attributes
    ----------
    features : csr_array (n_labels, n_features)
        Of unit length; zeros where a label has no name.
    lists : csr_array (n_features, n_labels)
        For each feature the labels whose names have it: the transpose.
    """

    features: csr_array
    lists: csr_array

    def check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        """A ValueError unless it has names of so many labels."""
        check.sparse("features", self.features, n_labels, n_features)
        check.sparse("lists", self.lists, n_features, n_labels)

    def nearest(self, X: csr_array, k: int, n_jobs: int = 1) -> tuple[I32, F32]:
        """The k labels whose names have the largest inner product with each row, best first.

        -1 and minus infinity where fewer names have a positive one. Costs as many operations as
        there are names with a feature of the row, for each such feature; no other label is met.
        """
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        rows = (X.indptr, X.indices, X.data)
        lists = (self.lists.indptr, self.lists.indices, self.lists.data, self.lists.shape[1])
        tasks = [
            (*rows, *lists, labels, scores, *span) for span in balanced_spans(X.indptr, n_jobs)
        ]
        run(_nearest_names, tasks, n_jobs)
        return labels, scores

    def scores(self, candidates: Ints, X: csr_array, n_jobs: int = 1) -> F32:
        """Inner products of rows with the names of their candidates (n, m)."""
        return sparse_inner_products(candidates, X, self.features, n_jobs)

    def given(self, candidates: Ints) -> NDArray[np.bool_]:
        """Which candidates (n, m) have a name."""
        start = self.features.indptr
        return start[candidates + 1] > start[candidates]

    def followed_by(self, more: Matrix) -> LabelNames:
        """With the names of further labels after these."""
        return label_names(vstack([self.features, csr_array(more)], format="csr"))


def label_names(features: Matrix) -> LabelNames:
    """Scale the features (n_labels, n_features) of names, and list the labels of each feature."""
    rows = scaled_rows(csr_array(as_matrix(features)))
    return LabelNames(rows, csr_array(rows.T))


@njit(nogil=True, cache=True)
def _nearest_names(
    x_indptr: Ints,
    x_indices: Ints,
    x_data: F32,
    indptr: Ints,
    indices: Ints,
    data: F32,
    n_labels: int,
    labels: I32,
    scores: F32,
    row0: int,
    row1: int,
) -> None:
    """Top k of ``X[i] @ lists`` above zero for each row; ties go to the smaller label."""
    total = np.zeros(n_labels, dtype=np.float32)
    stamp = np.zeros(n_labels, dtype=np.int32)  # one more than the last row that met the label
    met = np.empty(n_labels, dtype=np.int32)
    for i in range(row0, row1):
        n_met = 0
        for p in range(x_indptr[i], x_indptr[i + 1]):
            x = x_data[p]
            for q in range(indptr[x_indices[p]], indptr[x_indices[p] + 1]):
                label = indices[q]
                if stamp[label] != i + 1:
                    stamp[label] = i + 1
                    total[label] = 0.0
                    met[n_met] = label
                    n_met += 1
                total[label] += x * data[q]
        best, ids = scores[i], labels[i]
        best[:] = -np.inf
        ids[:] = -1
        for u in range(n_met):
            if total[met[u]] > 0.0:
                keep_best(best, ids, total[met[u]], met[u])
