"""The joint embedding of rows and labels, and WSABIE.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.1.
Weston, Bengio, Usunier: WSABIE: scaling up to large vocabulary image annotation, 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from labelry.arrays import F32, Ints
from labelry.embeddings.joint_descent import JointMap, random_start, rembrandt_start
from labelry.embeddings.ranked_space import JointSettings, RankedSpace, learn_space, rows_to_learn
from labelry.embeddings.violations import LabelViolations, Negatives
from labelry.linalg.matrices import Matrix
from labelry.linalg.rows import Rows
from labelry.linalg.topk import topk_blocks
from labelry.parameters import param, settings

_ONE_LABEL = 1.5  # mean labels of a row below which "auto" takes the hardest negative; not tuned


@settings
class JointEmbeddingSettings(JointSettings):
    """How to learn a joint embedding of rows and labels."""

    negatives: Literal["auto", "hardest", "sampled"] = param(
        default="auto",
        help="The wrong label that each true label is compared with: the best-scored one (the "
        'paper\'s slack), or the first in random order that comes too close. "auto" takes the '
        "hardest if rows have one label each. With many labels per row the best-scored wrong one "
        "is often only missing.",
    )


@settings
class WSABIESettings(JointSettings):
    """How to learn a joint embedding by the WARP loss, which weighs the top of the ranking most."""

    negatives: ClassVar[Negatives] = "warp"


@dataclass(frozen=True, eq=False)
class JointSpace(RankedSpace):
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
    rows: Rows, settings: JointEmbeddingSettings | WSABIESettings, rng: np.random.Generator
) -> JointSpace:
    """Learn W and V together, so that each true label y beats each wrong label j by a margin."""
    rows, _, Y = rows_to_learn(rows, settings, "a joint embedding")
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

    return learn_space(rows, start, violations, settings, space, rng)
