"""Candidate labels from several systems, and what each judge says about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.decoders.evidence import (
    evidence,
    inner_products,
    listed_scores,
    merged,
    sparse_inner_products,
    votes,
)
from labelry.decoders.neighbours import vote
from labelry.linalg.rows import Matrix, scaled_rows
from labelry.progress import phase
from labelry.state import storable
from labelry.systems.label_embedding import Rembrandt
from labelry.systems.linear_tree import LinearLabelTree

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

# The order of the scores that `Retrievers.judged` gives. A further judge, such as the match of a
# text with the name of a label, is one more name here and one more array there.
JUDGES = ("tree", "neighbours", "nearest neighbours", "low rank", "centroids")

_BLOCK_ROWS = 1024
_NEAREST = 10  # neighbours of the smaller neighbourhood
_MANY_ROWS = 20_000  # from which neighbours are looked for in lists
_LEAST_WEIGHT = 0.03  # of a feature in a centroid of unit length; the smaller ones are dropped

storable(LinearLabelTree)
storable(Rembrandt)


@storable
class Retrievers(NamedTuple):
    """A linear label tree, a label embedding with neighbours, and the centroids of the labels.

    Attributes
    ----------
    tree : LinearLabelTree
    embedding : Rembrandt
    centroids : csr_array or array (n_labels, n_features)
        Mean of the rows of each label, scaled to unit length.
    log_counts : array (n_labels,)
        log(1 + rows of the label).
    """

    tree: LinearLabelTree
    embedding: Rembrandt
    centroids: Matrix
    log_counts: F32

    def judged(
        self, X: Matrix, n_candidates: int, n_jobs: int
    ) -> Iterator[tuple[slice, Ints, F32]]:
        """Blocks of rows with their candidates (n, m), -1 for none, and these ones' features.

        Tree and neighbours propose `n_candidates` labels each; all judges score all of them, and
        `labelry.decoders.evidence` makes features of the scores.
        """
        n_candidates = min(n_candidates, len(self.log_counts))
        for start in range(0, X.shape[0], _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            yield rows, *self._judge(X[rows], n_candidates, n_jobs)

    def _judge(self, X: Matrix, n_candidates: int, n_jobs: int) -> tuple[Ints, F32]:
        by_tree, tree_scores = self.tree._topk(X, n_candidates)
        Z = self.embedding._embed(X)
        near, weights = self._neighbours(Z, n_jobs)
        by_votes = np.empty_like(by_tree)
        Y = self.embedding.decoder_.labels  # type: ignore[union-attr]
        vote(near, weights, Y, by_votes, np.empty_like(tree_scores), n_jobs)
        labels = merged([by_tree, by_votes])
        scores = [
            listed_scores(labels, by_tree, tree_scores, n_jobs),
            votes(labels, near, weights, Y, near.shape[1], n_jobs),
            votes(labels, near, weights, Y, _NEAREST, n_jobs),
            inner_products(labels, Z, self.embedding.label_embedding_, n_jobs),  # z V'
            self._centroid_scores(X, labels, n_jobs),
        ]
        return labels, evidence(labels, scores, self.log_counts, n_jobs)

    def _neighbours(self, Z: F32, n_jobs: int) -> tuple[Ints, F32]:
        blocks = self.embedding.decoder_.nearest(Z, n_jobs)  # type: ignore[union-attr]
        near, weights = zip(*((near, weights) for _, near, weights in blocks), strict=True)
        return np.concatenate(near), np.concatenate(weights)

    def _centroid_scores(self, X: Matrix, labels: Ints, n_jobs: int) -> F32:
        if issparse(self.centroids):
            return sparse_inner_products(labels, csr_array(X), self.centroids, n_jobs)
        dense = X.toarray() if issparse(X) else X
        return inner_products(labels, dense, self.centroids, n_jobs)


def fit_retrievers(
    X: Matrix,
    Y: csr_array,
    *,
    n_trees: int,
    embedding_dim: int,
    n_neighbors: int,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> Retrievers:
    """Fit all of them to rows of unit length."""
    tree = LinearLabelTree(n_trees=n_trees, normalize=False, n_jobs=n_jobs)
    embedding = Rembrandt(
        embedding_dim=embedding_dim,
        n_neighbors=n_neighbors,
        index="approximate" if X.shape[0] > _MANY_ROWS else "exact",
        normalize=False,
        n_jobs=n_jobs,
    )
    tree._fit(X, Y, rng)
    embedding._fit(X, Y, rng)
    with phase("label centroids"):
        centroids = label_centroids(X, Y)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    return Retrievers(tree, embedding, centroids, np.log1p(counts).astype(np.float32))


def label_centroids(X: Matrix, Y: csr_array) -> Matrix:
    """Mean row of each label, of unit length; of sparse rows without its small entries."""
    centroids = scaled_rows(csr_array(Y.T) @ X)
    if issparse(centroids):
        centroids.data[np.abs(centroids.data) < _LEAST_WEIGHT] = 0
        centroids.eliminate_zeros()
    return centroids
