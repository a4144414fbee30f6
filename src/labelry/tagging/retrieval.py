"""Candidate labels from several retrievers, and the scores that each gives to a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, dia_array, issparse, vstack

from labelry.arrays import F32, I32, Bools, Ints, Rng
from labelry.checks import StoredCheck, check_at_least
from labelry.data.labels import label_counts
from labelry.embeddings.label_embedding import (
    LabelEmbedding,
    LabelEmbeddingSettings,
    fit_label_embedding,
)
from labelry.linalg.matrices import Matrix, main_rows, scaled_rows
from labelry.linalg.rows import Rows
from labelry.linalg.sketch import leading_vectors
from labelry.parameters import Between, OneOf, Settings, param, settings
from labelry.progress import phase
from labelry.ranking.evidence import (
    PER_SCORER,
    evidence,
    inner_products,
    listed_scores,
    merged,
    shares_of_candidates,
)
from labelry.ranking.lexical import LabelNames
from labelry.ranking.neighbours import Neighbours, widened
from labelry.ranking.shares import topk_shares
from labelry.storage.values import Sizes
from labelry.trees import linear

# The order of the scores in `Retrievers.candidates`. A further scorer is one more name here and one
# more array there.
SCORERS = ("tree", "neighbours", "nearest neighbours", "low rank", "centroids")
NAMES = "names"  # the last scorer, if labels have descriptions

_BLOCK_ROWS = 1024  # rows whose candidates are held at a time; not tuned
_NEAREST = 10  # neighbours of the smaller neighbourhood; not tuned
_MANY_ROWS = 20_000  # most rows among which the search for neighbours is exact; not tuned
_VECTOR_DIM = 100  # most dimensions of label vectors; not tuned
# Tolerance of the regressions of the embedding. It is as accurate as a smaller one, in half the
# time, which no table shows.
_TOLERANCE = 1e-2
_LEAST_WEIGHT = 0.03  # least entry of a centroid of unit length that is kept; not tuned


@settings
class RetrieverSettings(Settings):
    """How many trees, dimensions and neighbours the retrievers have."""

    n_trees: int = param(
        default=3,
        least=1,
        help="Trees of the linear label tree. More are more accurate and slower.",
        tune=OneOf((1, 2, 3, 5)),
    )
    embedding_dim: int = param(
        default=100,
        least=1,
        help="Dimensions of the embedding. Larger is more accurate up to a point.",
        tune=Between(30, 200, log=True),
    )
    n_neighbors: int = param(
        default=100,
        least=1,
        help="Training rows whose labels count. More find more labels.",
        tune=Between(20, 200, log=True),
    )


@dataclass(frozen=True, eq=False)
class Retrievers:
    """Linear label trees, a label embedding with neighbours, centroids and label descriptions."""

    trees: Annotated[linear.LinearTrees, Sizes(n_labels=None)]  # of the labels when trained
    embedding: LabelEmbedding
    centroids: Annotated[Matrix, "n_labels", "n_features"]  # mean rows, scaled to unit length
    # Length of the sum of the rows of each label: with the centroid, it gives a running mean.
    lengths: Annotated[F32, "n_labels"]
    counts: Annotated[I32, "n_labels"]  # rows of each label
    taught: Annotated[Bools, "n_labels"]  # labels with rows when trees and embedding were fitted
    names: LabelNames | None = None  # descriptions of the labels

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless there are neighbours, and the trees have no further labels."""
        check_at_least("n_labels", len(self.counts), self.trees.tree.n_labels)
        check.kind("decoder", self.embedding.decoder, Neighbours)

    @property
    def scorers(self) -> tuple[str, ...]:
        return SCORERS if self.names is None else (*SCORERS, NAMES)

    @property
    def neighbours(self) -> Neighbours:
        return cast(Neighbours, self.embedding.decoder)

    def candidates(
        self, X: Matrix, n_candidates: int, n_jobs: int = 1
    ) -> Iterator[tuple[slice, Ints, F32]]:
        """Yield blocks of rows with their candidates (n, m), -1 for none, and their features.

        Trees, neighbours and descriptions propose `n_candidates` labels each. All scorers score all
        of them, and `labelry.ranking.evidence` makes features of the scores.
        """
        n_candidates = min(n_candidates, len(self.counts))
        for start in range(0, X.shape[0], _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            yield rows, *self._of_block(X[rows], n_candidates, n_jobs)

    def _of_block(self, X: Matrix, n_candidates: int, n_jobs: int) -> tuple[Ints, F32]:
        """Return the candidates (n, m) of some rows, and their features."""
        by_tree, tree_scores = self.trees.topk(X, n_candidates, n_jobs)
        Z = self.embedding.embed(X, n_jobs)
        blocks = (found[1:] for found in self.neighbours.nearest(Z, n_jobs))
        near, weights = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        Y = self.neighbours.labels
        by_neighbours = topk_shares(near, weights, Y, by_tree.shape[1], n_jobs)[0]
        proposed = [by_tree, by_neighbours]
        if self.names is not None:
            proposed.append(self.names.nearest(csr_array(X), n_candidates, n_jobs)[0])
        labels = merged(proposed)
        shares = shares_of_candidates(labels, near, weights, Y, near.shape[1], n_jobs)
        taught = self.taught[labels]  # a label that came later has the score of the neighbours
        by_centroid = inner_products(labels, X, self.centroids, n_jobs)
        low_rank = inner_products(labels, Z, self.embedding.label_embedding, n_jobs)  # z V'
        scores = [
            np.where(taught, listed_scores(labels, by_tree, tree_scores, n_jobs), shares),
            shares,
            shares_of_candidates(labels, near, weights, Y, _NEAREST, n_jobs),
            np.where(taught, low_rank, shares),
            by_centroid,
        ]
        if self.names is not None:  # a label without a description has the score of its centroid
            by_name = self.names.scores(labels, csr_array(X), n_jobs)
            scores.append(np.where(self.names.given(labels), by_name, by_centroid))
        return labels, evidence(labels, scores, np.log1p(self.counts[labels]), n_jobs)

    def scores_of(self, features: F32, scorer: str) -> F32:
        """Return the scores of one scorer, of features (..., n_features) of candidates."""
        return features[..., PER_SCORER * self.scorers.index(scorer)]

    def label_vectors(self) -> F32:
        """Return centroids in at most 100 dimensions (n_labels, k); descriptions if no rows."""
        A = self.centroids
        if self.names is not None:
            empty = (self.counts == 0).astype(np.float32)
            by_name = dia_array((empty[None], 0), shape=(len(empty),) * 2) @ self.names.features
            A = A + by_name
        return leading_vectors(A, _VECTOR_DIM)

    def with_labels(self, n_more: int, features: Matrix | None = None) -> Retrievers:
        """Return these with further labels that have no rows; `features` of their descriptions."""
        n_features = self.centroids.shape[1]
        empty = csr_array((n_more, n_features), dtype=np.float32)
        names = self.names
        if names is not None:
            names = names.followed_by(empty if features is None else features)
        Y = self.neighbours.labels
        neighbours = replace(self.neighbours, labels=widened(Y, Y.shape[1] + n_more))
        V = _padded(self.embedding.label_embedding, n_more)
        return replace(
            self,
            embedding=replace(self.embedding, label_embedding=V, decoder=neighbours),
            centroids=(
                vstack([self.centroids, empty], format="csr")
                if issparse(self.centroids)
                else _padded(self.centroids, n_more)
            ),
            lengths=_padded(self.lengths, n_more),
            counts=_padded(self.counts, n_more),
            taught=_padded(self.taught, n_more),
            names=names,
        )

    def with_rows(self, X: Matrix, Y: csr_array, n_jobs: int = 1) -> Retrievers:
        """Return these with further rows of unit length, among neighbours, centroids and counts."""
        Z = self.embedding.embed(X, n_jobs)
        neighbours = self.neighbours.with_rows(Z, Y, n_jobs)
        sparse = issparse(self.centroids)
        X = csr_array(X) if sparse else X.toarray() if issparse(X) else X
        factor = dia_array((self.lengths[None], 0), shape=(len(self.lengths),) * 2)
        centroids, lengths = label_centroids(factor @ self.centroids + csr_array(Y.T) @ X)
        return replace(
            self,
            embedding=replace(self.embedding, decoder=neighbours),
            centroids=centroids,
            lengths=lengths,
            counts=self.counts + label_counts(Y),
        )


def fit_retrievers(
    rows: Rows,
    settings: RetrieverSettings,
    names: LabelNames | None,
    rng: Rng,
    *,
    further: Matrix | None = None,
    before: Retrievers | None = None,
) -> Retrievers:
    """Fit all retrievers to rows of unit length; `names` are the descriptions of the labels.

    `further` are centroids of labels that these rows do not have (`lost_centroids`). If most of the
    rows are those of `before`, the regression of the embedding starts from theirs, and the trees
    have the same structure.
    """
    options = linear.single_tree_options(rows.n_labels) if settings.n_trees == 1 else {}
    tree_settings = linear.LinearTreeSettings(n_trees=settings.n_trees, normalize=False, **options)
    in_lists = rows.n_rows > _MANY_ROWS if before is None else before.neighbours.lists is not None
    embedding_settings = LabelEmbeddingSettings(
        embedding_dim=settings.embedding_dim,
        regularization=None,
        n_neighbors=settings.n_neighbors,
        index="approximate" if in_lists else "exact",
        normalize=False,
    )
    if before is None:
        trees, former = linear.fit_linear_trees(rows, tree_settings, rng, further), None
    else:
        trees, former = before.trees, before.embedding
        trees = linear.train_linear_trees(rows, tree_settings, trees.tree, trees.roots, rng)
    embedding = fit_label_embedding(
        rows, embedding_settings, rng, tolerance=_TOLERANCE, before=former
    )
    X, Y = rows.gathered("X", "Y")
    with phase("averaging the rows of each label"):
        centroids, lengths = label_centroids(csr_array(Y.T) @ X)
    counts = label_counts(Y)
    plain = cast(LabelEmbedding, embedding)  # without a correction
    return Retrievers(trees, plain, centroids, lengths, counts, counts > 0, names)


def lost_centroids(rows: Rows, seen: Bools) -> Matrix:
    """Return the centroids (n_labels, n_features) of labels all of whose rows are held out.

    `seen` (n_rows,) are the rows that are not held out. A tree of these rows cannot learn the other
    labels. But the tree is later trained again with all rows, and then each label should be near
    similar ones.
    """
    X, Y = rows.gathered("X", "Y")
    kept = label_counts(Y[np.flatnonzero(seen)])
    mine = np.flatnonzero(~seen)
    lost = dia_array(((kept == 0).astype(np.float32)[None], 0), shape=(len(kept),) * 2)
    return csr_array((Y[mine] @ lost).T) @ X[mine]


def label_centroids(sums: Matrix) -> tuple[Matrix, F32]:
    """Return sums of rows scaled to unit length, and their lengths.

    Small entries of sparse sums are dropped.
    """
    if not issparse(sums):
        return scaled_rows(sums), np.sqrt(np.einsum("ij,ij->i", sums, sums))
    sums = csr_array(sums)
    lengths = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).ravel())
    return main_rows(sums, _LEAST_WEIGHT), lengths.astype(np.float32)


def _padded(A: NDArray, n_more: int) -> NDArray:
    """Return A with further rows (or entries) of zeros."""
    return np.concatenate([A, np.zeros((n_more, *A.shape[1:]), dtype=A.dtype)])
