"""Learn a space of rows and labels by ranking true labels above wrong ones: the shared parts.

Each method has its own start, violations and way to rank. This module has the settings, the choice
of the best epoch on held-out rows, the score threshold and the prediction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Annotated, Literal, TypeVar

import numpy as np
from scipy.sparse import csr_array

from labelry.arrays import F32, Ints, Rng
from labelry.embeddings.joint_descent import JointMap, descend
from labelry.embeddings.violations import Violations
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.rows import Rows, in_memory
from labelry.linalg.solve import LinearMap
from labelry.metrics import ndcg_at_k
from labelry.parameters import Between, Settings, param, settings
from labelry.ranking.hold_out import validation_split
from labelry.ranking.ranker import Ranker
from labelry.storage.values import Sizes

# Not tuned, any of them.
_HELD_OUT_PART = 20  # one row in so many is held out to find the best epoch
_MOST_HELD_OUT = 2000
_FEWEST_HELD_OUT = 30  # held-out rows; with fewer, all rows train and all epochs are made
_TOP = 5  # labels of a held-out row that count for nDCG
_MOST_RANKED = 100  # labels of a held-out row that count for the threshold


@settings
class SpaceSettings(Settings):
    """How to learn a space by ranking."""

    embedding_dim: int = param(
        default=100,
        least=1,
        help="Dimensions of the space. Larger is more accurate up to a point, and slower.",
        tune=Between(30, 200, log=True),
    )
    rate: float = param(
        default=0.3,
        above=0,
        help="Length of the first steps relative to the map of rows and the label vectors. Larger "
        "learns faster and less finely.",
        tune=Between(0.05, 1.0, log=True),
    )
    regularization: float = param(
        default=0.1,
        least=0,
        help="Shrinking of the map of rows. Larger fits the training rows less closely.",
        tune=Between(0.001, 1.0, log=True),
    )
    max_epochs: int = param(
        default=20,
        least=1,
        help="Most passes over the rows. Held-out rows tell which of them was best, and that one "
        "is kept. Larger takes longer.",
        tune=Between(10, 40),
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")


@settings
class JointSettings(SpaceSettings):
    """How to learn the map of rows and the vectors together."""

    start: Literal["rembrandt", "random"] = param(
        default="rembrandt",
        help="Where to begin: from the randomized embedding, or from random vectors as in the "
        "paper.",
    )


@dataclass(frozen=True, eq=False)
class RankedSpace(Ranker):
    """A map of rows into a space, where `ranked` finds their labels.

    At `score_threshold` there are as many predictions as labels. `topk` subtracts it, so a score
    above zero is a yes.
    """

    regressor: Annotated[LinearMap, Sizes(n_outputs="embedding_dim")]
    score_threshold: float
    normalize: bool

    @property
    def threshold(self) -> float:
        return 0.0

    @abstractmethod
    def ranked(self, Z: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k best labels of embedded rows, and their scores before the threshold."""

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        labels, scores = self.ranked(self.embed(X, n_jobs), k, n_jobs)
        return labels, scores - np.float32(self.score_threshold)

    def embed(self, X: Matrix, n_jobs: int = 1) -> F32:
        """Return rows in the space of the labels, (n_rows, embedding_dim)."""
        return self.regressor(scaled_rows(X) if self.normalize else X, n_jobs)


S = TypeVar("S", bound=RankedSpace)


def rows_to_learn(rows: Rows, settings: SpaceSettings, who: str) -> tuple[Rows, Matrix, csr_array]:
    """Return the rows in memory, scaled if the settings say so, and their X and Y."""
    X, Y = in_memory(rows.unit() if settings.normalize else rows, who)
    return Rows(X, Y, n_jobs=rows.n_jobs, known=rows.known), X, Y


def learn_space(
    rows: Rows,
    start: JointMap,
    violations: Violations,
    settings: SpaceSettings,
    spaces: Callable[[JointMap], Sequence[S]],
    rng: Rng,
    *,
    fixed_vectors: bool = False,
) -> S:
    """Descend on most rows; the others choose the epoch, the space and the threshold.

    The rows are in memory, as `rows_to_learn` returns them. `spaces` returns the fitted values to
    choose from for a map and vectors; their `score_threshold` is set here.
    """
    X, Y = rows.gathered("X", "Y")
    n, n_jobs = rows.n_rows, rows.n_jobs
    n_held_out = min(n // _HELD_OUT_PART, _MOST_HELD_OUT)
    n_held_out = n_held_out if n_held_out >= _FEWEST_HELD_OUT else 0
    training, held_out = validation_split(n, n_held_out, rng, groups=rows.known.groups)
    if not n_held_out:
        held_out = training[:_MOST_HELD_OUT]
    X_held, Y_held = X[held_out], Y[held_out]
    k = min(_TOP, rows.n_labels)

    def best(found: JointMap) -> tuple[float, S]:
        """Return the nDCG of the best space, and that space; the first of equals."""
        Z = found.regressor(X_held, n_jobs)
        scored = (
            (ndcg_at_k(Y_held, each.ranked(Z, k, n_jobs)[0], k), each) for each in spaces(found)
        )
        return max(scored, key=itemgetter(0))

    found = descend(
        X,
        start,
        violations,
        rows=training,
        quality=(lambda now: best(now)[0]) if len(training) < n else None,
        rate=settings.rate,
        regularization=settings.regularization,
        max_epochs=settings.max_epochs,
        fixed_vectors=fixed_vectors,
        rng=rng,
        n_jobs=n_jobs,
    )
    space = best(found)[1]
    Z = found.regressor(X_held, n_jobs)
    scores = space.ranked(Z, min(_MOST_RANKED, rows.n_labels), n_jobs)[1]
    return replace(space, score_threshold=_threshold(scores, Y_held.nnz))


def _threshold(scores: F32, n_labels: int) -> float:
    """Return the score that `n_labels` of the scores reach."""
    scores = -np.sort(-scores[np.isfinite(scores)])  # largest first
    if not len(scores):
        return 0.0
    padded = np.concatenate([[scores[0] + 1], scores, [scores[-1] - 1]])
    n = min(n_labels, len(scores))
    return float(padded[n] + padded[n + 1]) / 2
