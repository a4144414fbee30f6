"""Find labels whose descriptions share features, such as words, with a row."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from scipy.sparse import csr_array, vstack

from labelry.arrays import F32, I32, Bools, Ints
from labelry.linalg.matrices import Matrix, as_matrix, scaled_rows
from labelry.ranking.evidence import inner_products
from labelry.ranking.shares import topk_of_product


class LabelNames(NamedTuple):
    """Descriptions of labels as rows of features, and for each feature the labels that have it."""

    features: Annotated[csr_array, "n_labels", "n_features"]  # of unit length, or zeros
    lists: Annotated[csr_array, "n_features", "n_labels"]  # the transpose

    def nearest(self, X: csr_array, k: int, n_jobs: int = 1) -> tuple[I32, F32]:
        """Return the k labels whose descriptions have the largest product with each row.

        Places are -1 and minus infinity if fewer products are positive. For each feature of a row,
        the cost is one operation for each description that has it.
        """
        return topk_of_product((X.indptr, X.indices, X.data), self.lists, k, n_jobs)

    def scores(self, candidates: Ints, X: csr_array, n_jobs: int = 1) -> F32:
        """Return the inner products of rows with the descriptions of their candidates (n, m)."""
        return inner_products(candidates, X, self.features, n_jobs)

    def given(self, candidates: Ints) -> Bools:
        """Return which candidates (n, m) have a description."""
        start = self.features.indptr
        return start[candidates + 1] > start[candidates]

    def followed_by(self, more: Matrix) -> LabelNames:
        """Return these with the descriptions of further labels after them."""
        return label_names(vstack([self.features, csr_array(more)], format="csr"))


def label_names(features: Matrix) -> LabelNames:
    """Scale descriptions (n_labels, n_features), and list the labels of each feature."""
    rows = scaled_rows(csr_array(as_matrix(features)))
    return LabelNames(rows, csr_array(rows.T))
