"""The joint embedding of rows and labels, WSABIE, and the sequential embedding.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.1.
Weston, Bengio, Usunier: WSABIE: scaling up to large vocabulary image annotation, 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from scipy.sparse import csr_array

from labelry.arrays import F32, Ints, Rng
from labelry.embeddings import ranked_space
from labelry.embeddings.joint_descent import JointMap, random_start, rembrandt_start
from labelry.embeddings.rembrandt import Embedding
from labelry.embeddings.violations import LabelViolations, Negatives
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge, usual_ridge
from labelry.linalg.spectral import affinity_eigenpairs
from labelry.linalg.topk import topk_blocks
from labelry.parameters import Between, param, settings
from labelry.progress import phase
from labelry.ranking.confusion import surrogate_confusion

# Not tuned, any of them.
_LENGTH = 4.0  # of label vectors, so that a margin of 1 is possible
_N_CONFUSED = 10  # best labels of a row that count as confused with its true ones
# Affinity of each label to all labels together, in units of the mean degree. It gives a degree to
# labels that are confused with no other, and connects parts that would be separate.
_WEAK = 1e-3
_ONE_LABEL = 1.5  # mean labels of a row below which "auto" takes the hardest negative


@settings
class JointEmbeddingSettings(ranked_space.JointSettings):
    """How to learn a joint embedding of rows and labels."""

    negatives: Literal["auto", "hardest", "sampled"] = param(
        default="auto",
        help="The wrong label that each true label is compared with: the best-scored one (the "
        'paper\'s slack), or the first in random order that comes too close. "auto" takes the '
        "hardest if rows have one label each. With many labels per row the best-scored wrong one "
        "is often only missing.",
    )


@settings
class WSABIESettings(ranked_space.JointSettings):
    """How to learn a joint embedding by the WARP loss, which weighs the top of the ranking most."""

    negatives: ClassVar[Negatives] = "warp"


@dataclass(frozen=True, eq=False)
class JointSpace(ranked_space.RankedSpace):
    """A vector for each label in the space of the rows; a score is an inner product."""

    label_embedding: Annotated[F32, "n_labels", "embedding_dim"]  # within the unit ball

    def ranked(self, Z: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k labels with the largest inner products, and these."""
        n_labels = len(self.label_embedding)
        return topk_blocks(lambda rows: self.inner(Z[rows]), len(Z), n_labels, k, n_jobs)

    def inner(self, Z: F32) -> F32:
        """Return what embedded rows rank all labels by, (n_rows, n_labels)."""
        return Z @ self.label_embedding.T

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        return self.inner(self.embed(X, n_jobs)) - np.float32(self.score_threshold)

    def label_vectors(self) -> F32:
        return self.label_embedding


def fit_joint_embedding(
    rows: Rows, settings: JointEmbeddingSettings | WSABIESettings, rng: Rng
) -> JointSpace:
    """Learn W and V together, so that each true label y beats each wrong label j by a margin."""
    rows, _, Y = ranked_space.rows_to_learn(rows, settings, "a joint embedding")
    dim, negatives = settings.embedding_dim, settings.negatives
    if settings.start == "rembrandt":
        start = rembrandt_start(rows, dim, rng)
    else:
        start = random_start(rows.n_features, rows.n_labels, dim, rng)
    if negatives == "auto":
        negatives = "hardest" if np.diff(Y.indptr).mean() < _ONE_LABEL else "sampled"
    violations = LabelViolations(Y, negatives, rng=rng, n_jobs=rows.n_jobs)

    def space(found: JointMap) -> list[JointSpace]:
        return [JointSpace(found.regressor, 0.0, settings.normalize, found.vectors)]

    return ranked_space.learn_space(rows, start, violations, settings, space, rng)


def laplacian_eigenmaps(A: csr_array, embedding_dim: int, *, rng: Rng) -> Embedding:
    """Return V that minimises ``sum_ij A_ij |V_i - V_j|^2`` subject to ``V'DV = I``.

    A (n_labels, n_labels) is symmetric and not negative, for example a confusion matrix. D has its
    row sums. The columns of V are the eigenvectors of (D - A) v = lambda D v with
    the smallest lambda, without the constant one, which is trivial. With u = D^1/2 v they are those
    of D^-1/2 A D^-1/2 with the largest values 1 - lambda.

    Belkin, Niyogi: Laplacian eigenmaps and spectral techniques for embedding and clustering, 2002.
    """
    if embedding_dim < 1:
        raise ValueError(f"embedding_dim must be at least 1, got {embedding_dim}")
    # One more than asked for, because the first is the constant.
    k = min(embedding_dim + 1, A.shape[0])
    values, U, scale = affinity_eigenpairs(A, k, weak=_WEAK, rng=rng)
    V = scale[:, None] * U[:, 1:]
    return Embedding(V.astype(np.float32), values[1:].astype(np.float32))


@settings
class SequentialEmbeddingSettings(ranked_space.SpaceSettings):
    """How to learn a map of rows to label vectors that are found first."""

    regularization: float = param(
        default=0.0,
        least=0,
        help="Shrinking of the map of rows. Larger fits the training rows less closely.",
        tune=Between(0.001, 1.0, log=True),
    )


@dataclass(frozen=True, eq=False)
class SequentialSpace(JointSpace):
    """A vector for each label in the space of the rows; a score is a distance, negated.

    |z - V_j|^2 = |z|^2 - 2 (z'V_j - |V_j|^2 / 2): the nearest label is that of the largest inner
    product with an offset. The vectors have one length. The offset is minus infinity for a label
    without rows: it is confused with none, and its vector of zeros would be the nearest to every
    row that is near no label.
    """

    offset: Annotated[F32, "n_labels"]  # -|V_j|^2 / 2

    def ranked(self, Z: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        labels, inner = super().ranked(Z, k, n_jobs)
        return labels, _minus_distance(Z, inner)

    def inner(self, Z: F32) -> F32:
        return super().inner(Z) + self.offset

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        Z = self.embed(X, n_jobs)
        return _minus_distance(Z, self.inner(Z)) - np.float32(self.score_threshold)


def fit_sequential_embedding(
    rows: Rows, settings: SequentialEmbeddingSettings, rng: Rng
) -> SequentialSpace:
    """Solve convex problems in sequence: classifiers, label vectors, and a max-margin W."""
    rows, _, Y = ranked_space.rows_to_learn(rows, settings, "sequential-embedding")
    A = surrogate_confusion(rows, _N_CONFUSED, rng)
    with phase("learning label vectors"):
        V = laplacian_eigenmaps(A, settings.embedding_dim, rng=rng).vectors
    # V'DV = I makes the vectors of rarely confused labels very long: only directions matter.
    # Constraint 6 asks for a margin of 1, which only long enough vectors can have.
    V = np.float32(_LENGTH) * scaled_rows(V)
    ridge = Ridge(rows)
    start = JointMap(ridge.solve(V, usual_ridge(ridge)), V)
    offset = -0.5 * np.einsum("ij,ij->i", V, V)
    counts = rows.label_counts()
    if counts.any():
        offset[counts == 0] = -np.inf
    violations = LabelViolations(Y, "hardest", offset=offset, rng=rng, n_jobs=rows.n_jobs)

    def space(found: JointMap) -> list[SequentialSpace]:
        return [SequentialSpace(found.regressor, 0.0, settings.normalize, V, offset)]

    return ranked_space.learn_space(
        rows, start, violations, settings, space, rng, fixed_vectors=True
    )


def _minus_distance(Z: F32, inner: F32) -> F32:
    """Return -|z - V_j| from z'V_j - |V_j|^2 / 2."""
    squares = np.einsum("ij,ij->i", Z, Z)[:, None] - 2 * inner
    return -np.sqrt(np.maximum(squares, 0))
