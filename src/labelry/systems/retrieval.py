"""Candidate labels from several systems, and what each judge says about them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, dia_array, issparse, vstack

from labelry.checks import StoredCheck, check_at_least
from labelry.data.labels import label_counts
from labelry.decoders.evidence import (
    evidence,
    inner_products,
    listed_scores,
    merged,
    sparse_inner_products,
    votes,
)
from labelry.decoders.growth import widened, with_rows
from labelry.decoders.lexical import LabelNames
from labelry.decoders.neighbours import Neighbours, vote
from labelry.linalg.matrices import Matrix, main_rows, scaled_rows
from labelry.linalg.rows import Rows
from labelry.linalg.sketch import leading_vectors
from labelry.progress import phase
from labelry.state import storable
from labelry.systems.label_embedding import Rembrandt
from labelry.systems.linear_tree import LinearLabelTree, single_tree_options

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

# The order of the scores that `Retrievers.judged` gives. A further judge is one more name here
# and one more array there.
JUDGES = ("tree", "neighbours", "nearest neighbours", "low rank", "centroids")
NAMES = "names"  # the last judge, where labels have names

_BLOCK_ROWS = 1024
_NEAREST = 10  # neighbours of the smaller neighbourhood
_MANY_ROWS = 20_000  # from which neighbours are looked for in lists
_VECTOR_DIM = 100  # of label vectors
_TOLERANCE = 1e-2  # of the regressions of the embedding: neighbours are as good, in half the time
_LEAST_WEIGHT = 0.03  # of a feature in a centroid of unit length; the smaller ones are dropped

storable(LinearLabelTree)
storable(Rembrandt)


@storable
class Retrievers(NamedTuple):
    """A linear label tree, a label embedding with neighbours, centroids and names of the labels.

    Attributes
    ----------
    tree : LinearLabelTree
    embedding : Rembrandt
    centroids : csr_array or array (n_labels, n_features)
        Mean of the rows of each label, scaled to unit length.
    lengths : array (n_labels,)
        Of the sum of the rows of each label: with the centroid, what a running mean needs.
    counts : array (n_labels,)
        Rows of each label.
    taught : bool array (n_labels,)
        Labels that had rows when tree and embedding were fitted.
    names : LabelNames or None
    """

    tree: LinearLabelTree
    embedding: Rembrandt
    centroids: Matrix
    lengths: F32
    counts: NDArray[np.int32]
    taught: NDArray[np.bool_]
    names: LabelNames | None = None

    def check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        """A ValueError unless all judges are there, of so many features and labels."""
        check.kind("tree", self.tree, LinearLabelTree)
        known = self.tree.tree_.n_labels  # labels that came later are not in it
        check_at_least("labels", n_labels, known)
        self.tree._check_stored(check, n_features, known)
        check.kind("embedding", self.embedding, Rembrandt)
        self.embedding._check_stored(check, n_features, n_labels)
        check.kind("decoder_", self.neighbours, Neighbours)
        check.matrix("centroids", self.centroids, n_labels, n_features)
        check.array("lengths", self.lengths, n_labels)
        check.array("counts", self.counts, n_labels, dtype="int32")
        check.array("taught", self.taught, n_labels, dtype="bool")
        check.kind("names", self.names, LabelNames, None)
        if self.names is not None:
            self.names.check_stored(check, n_features, n_labels)

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges, in the order of their scores."""
        return JUDGES if self.names is None else (*JUDGES, NAMES)

    @property
    def neighbours(self) -> Neighbours:
        """The rows that vote."""
        return self.embedding.decoder_  # type: ignore[return-value]

    def judged(
        self, X: Matrix, n_candidates: int, n_jobs: int
    ) -> Iterator[tuple[slice, Ints, F32]]:
        """Blocks of rows with their candidates (n, m), -1 for none, and these ones' features.

        Tree, neighbours and names propose `n_candidates` labels each; all judges score all of
        them, and `labelry.decoders.evidence` makes features of the scores.
        """
        n_candidates = min(n_candidates, len(self.counts))
        self.tree.n_jobs = self.embedding.n_jobs = n_jobs  # of this call, not of the training
        for start in range(0, X.shape[0], _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            yield rows, *self._judge(X[rows], n_candidates, n_jobs)

    def _judge(self, X: Matrix, n_candidates: int, n_jobs: int) -> tuple[Ints, F32]:
        by_tree, tree_scores = self.tree._topk(X, n_candidates)
        Z = self.embedding._embed(X)
        near, weights = self._nearest(Z, n_jobs)
        Y = self.neighbours.labels
        by_votes = np.empty_like(by_tree)
        vote(near, weights, Y, by_votes, np.empty_like(tree_scores), n_jobs)
        proposed = [by_tree, by_votes]
        if self.names is not None:
            proposed.append(self.names.nearest(csr_array(X), n_candidates, n_jobs)[0])
        labels = merged(proposed)
        voted = votes(labels, near, weights, Y, near.shape[1], n_jobs)
        taught = self.taught[labels]  # of labels that came later, the votes stand in
        by_centroid = self._centroid_scores(X, labels, n_jobs)
        scores = [
            np.where(taught, listed_scores(labels, by_tree, tree_scores, n_jobs), voted),
            voted,
            votes(labels, near, weights, Y, _NEAREST, n_jobs),
            np.where(taught, self._low_rank_scores(Z, labels, n_jobs), voted),
            by_centroid,
        ]
        if self.names is not None:  # of labels without a name, the centroid stands in
            by_name = self.names.scores(labels, csr_array(X), n_jobs)
            scores.append(np.where(self.names.given(labels), by_name, by_centroid))
        return labels, evidence(labels, scores, np.log1p(self.counts[labels]), n_jobs)

    def _nearest(self, Z: F32, n_jobs: int) -> tuple[Ints, F32]:
        blocks = self.neighbours.nearest(Z, n_jobs)
        near, weights = zip(*((near, weights) for _, near, weights in blocks), strict=True)
        return np.concatenate(near), np.concatenate(weights)

    def _low_rank_scores(self, Z: F32, labels: Ints, n_jobs: int) -> F32:
        return inner_products(labels, Z, self.embedding.label_embedding_, n_jobs)  # z V'

    def _centroid_scores(self, X: Matrix, labels: Ints, n_jobs: int) -> F32:
        if issparse(self.centroids):
            return sparse_inner_products(labels, csr_array(X), self.centroids, n_jobs)
        dense = X.toarray() if issparse(X) else X
        return inner_products(labels, dense, self.centroids, n_jobs)

    def label_vectors(self) -> F32:
        """Centroids, or names of labels without rows, in at most 100 dimensions (n_labels, k)."""
        A = self.centroids
        if self.names is not None:
            empty = (self.counts == 0).astype(np.float32)
            by_name = dia_array((empty[None], 0), shape=(len(empty),) * 2) @ self.names.features
            A = A + by_name
        return leading_vectors(A, _VECTOR_DIM)

    def with_labels(self, n_more: int, features: Matrix | None = None) -> Retrievers:
        """With further labels that have no rows; `features` of their names, or None."""
        n_features = self.centroids.shape[1]
        empty = csr_array((n_more, n_features), dtype=np.float32)
        names = self.names
        if names is not None:
            names = names.followed_by(empty if features is None else features)
        embedding = copy(self.embedding)
        embedding.label_embedding_ = _padded(embedding.label_embedding_, n_more)
        Y = self.neighbours.labels
        labels = widened(Y, Y.shape[1] + n_more)
        embedding.decoder_ = self.neighbours._replace(labels=labels)
        sparse = issparse(self.centroids)
        return self._replace(
            embedding=embedding,
            centroids=(
                vstack([self.centroids, empty], format="csr")
                if sparse
                else _padded(self.centroids, n_more)
            ),
            lengths=_padded(self.lengths, n_more),
            counts=_padded(self.counts, n_more),
            taught=_padded(self.taught, n_more),
            names=names,
        )

    def with_rows(self, X: Matrix, Y: csr_array, n_jobs: int = 1) -> Retrievers:
        """With further rows of unit length: they vote, and count in centroids and frequencies."""
        embedding = copy(self.embedding)
        embedding.decoder_ = with_rows(self.neighbours, embedding._embed(X), Y, n_jobs)
        sparse = issparse(self.centroids)
        X = csr_array(X) if sparse else X.toarray() if issparse(X) else X
        factor = dia_array((self.lengths[None], 0), shape=(len(self.lengths),) * 2)
        centroids, lengths = label_centroids(factor @ self.centroids + csr_array(Y.T) @ X)
        return self._replace(
            embedding=embedding,
            centroids=centroids,
            lengths=lengths,
            counts=self.counts + label_counts(Y),
        )


def fit_retrievers(
    X: Matrix,
    Y: csr_array,
    *,
    n_trees: int,
    embedding_dim: int,
    n_neighbors: int,
    names: LabelNames | None = None,
    further: Matrix | None = None,
    before: Retrievers | None = None,
    rng: np.random.Generator,
    n_jobs: int | None,
) -> Retrievers:
    """Fit all of them to rows of unit length.

    `further` are centroids of labels that these rows have not, as `lost_centroids` gives them.
    `before` are retrievers of most of these rows: the embedding begins with theirs, and the tree
    has the same structure.
    """
    if before is None:
        options = single_tree_options(Y.shape[1]) if n_trees == 1 else {}
        tree = LinearLabelTree(n_trees=n_trees, normalize=False, n_jobs=n_jobs, **options)
        tree._fit_rows(Rows(X, Y, n_jobs=n_jobs), rng, further)
        embedding = Rembrandt(
            embedding_dim=embedding_dim,
            regularization=None,
            n_neighbors=n_neighbors,
            index="approximate" if X.shape[0] > _MANY_ROWS else "exact",
            normalize=False,
            n_jobs=n_jobs,
        )
        embedding._tolerance = _TOLERANCE
        embedding._fit(X, Y, rng)
    else:
        tree = before.tree._fit_again(X, Y, rng)
        embedding = before.embedding._fit_again(X, Y, rng)
    with phase("label centroids"):
        centroids, lengths = label_centroids(csr_array(Y.T) @ X)
    counts = label_counts(Y)
    return Retrievers(tree, embedding, centroids, lengths, counts, counts > 0, names)


def lost_centroids(X: Matrix, Y: csr_array, held_out: NDArray[np.bool_]) -> Matrix:
    """Centroids (n_labels, n_features) of the labels of which all rows are held out.

    A model of the other rows can tell nothing of these labels, wherever they are in its tree; but
    where the tree is trained again, with all rows, they should be in their place.
    """
    kept = label_counts(Y[np.flatnonzero(~held_out)])
    mine = np.flatnonzero(held_out)
    lost = dia_array(((kept == 0).astype(np.float32)[None], 0), shape=(len(kept),) * 2)
    return csr_array((Y[mine] @ lost).T) @ X[mine]


def label_centroids(sums: Matrix) -> tuple[Matrix, F32]:
    """Sums of rows scaled to unit length, sparse ones without small entries; and their lengths."""
    if not issparse(sums):
        return scaled_rows(sums), np.sqrt(np.einsum("ij,ij->i", sums, sums))
    sums = csr_array(sums)
    lengths = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).ravel())
    return main_rows(sums, _LEAST_WEIGHT), lengths.astype(np.float32)


def _padded(A: NDArray, n_more: int) -> NDArray:
    """With further rows (or entries) of zeros."""
    return np.concatenate([A, np.zeros((n_more, *A.shape[1:]), dtype=A.dtype)])
