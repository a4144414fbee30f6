"""LEML: a low-rank linear map from features to labels, fitted to the loss itself.

Yu, Jain, Kar, Dhillon: Large-scale multi-label learning with missing labels, 2014. The objective
is minimised by turns in W (d, k) and H (c, k); see `labelry.embeddings.leml_objectives`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.sparse import csr_array

from labelry.arrays import F32, F64, Ints
from labelry.checks import refuse_masked
from labelry.embeddings.leml_objectives import LOSSES, Factors, KnownLabels, LossName, SquaredLoss
from labelry.linalg.matrices import Matrix, product, with_constant
from labelry.linalg.rows import Rows
from labelry.parameters import Between, OneOf, Settings, param, settings
from labelry.progress import phase
from labelry.ranking.linear import LinearDecoder, Link
from labelry.ranking.ranker import Ranker

_ROUGHLY = 0.01  # relative fall at which the first, cheap problem ends; not tuned


@settings
class LowRankSettings(Settings):
    """The rank, penalty and rounds of a low-rank map."""

    embedding_dim: int = param(
        default=100,
        least=1,
        help="Rank of the map. Larger is more accurate up to a point, and slower.",
        tune=Between(30, 200, log=True),
    )
    regularization: float = param(
        default=0.03,
        above=0,
        help="Weight of half the squared factors, in units of the root of the number of rows that "
        "a map is fitted to. Larger fits the training rows less closely.",
        tune=Between(0.001, 1.0, log=True),
    )
    n_rounds: int = param(
        default=10,
        least=1,
        help="Most turns of each factor. More come closer to the optimum; training stops before "
        "when the objective falls by less than a thousandth.",
        tune=Between(5, 20),
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")


@settings
class LEMLSettings(LowRankSettings):
    """How to fit one low-rank map from features to labels."""

    loss: LossName = param(
        default="squared",
        help='"squared" needs only passes over the nonzeros while all labels are known. The '
        "others, and unknown labels, cost time for each row and label.",
        tune=OneOf(("squared", "logistic", "squared_hinge")),
    )


@dataclass(frozen=True, eq=False)
class LowRankMap(Ranker):
    """A linear map of low rank from features to the scores of labels: x'W H'."""

    regressor: Annotated[F32, "n_features + 1", "embedding_dim"]  # W; last row: the intercept
    label_embedding: Annotated[F32, "n_labels", "embedding_dim"]  # H
    objective: Annotated[F64, "n_rounds + 1"]  # before the first round and after each
    loss: LossName  # that the map was fitted to; with "logistic" the scores are probabilities
    normalize: bool

    @property
    def threshold(self) -> float:
        return 0.0 if self.loss == "squared_hinge" else 0.5  # a margin, or about a probability

    @property
    def probabilities(self) -> bool:
        return self.loss == "logistic"

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        return self._decoder().topk(self.embed(X, n_jobs), k, n_jobs)

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        return self._decoder().scores(self.embed(X, n_jobs))

    def embed(self, X: Matrix, n_jobs: int = 1) -> F32:
        return product(with_constant(X, unit=self.normalize), self.regressor, n_jobs)

    def label_vectors(self) -> F32:
        return self.label_embedding

    def _decoder(self) -> LinearDecoder:
        H = self.label_embedding
        link: Link = "sigmoid" if self.probabilities else "identity"
        return LinearDecoder(H.T, np.zeros(len(H), dtype=np.float32), link)


def fit_leml(
    rows: Rows, settings: LEMLSettings, rng: np.random.Generator, known: Any = None
) -> LowRankMap:
    """Fit a low-rank map by turns in its two factors; `known` is nonzero where Y is known."""
    unit = settings.normalize
    rows = rows.mapped(
        lambda block: block._replace(X=with_constant(block.X, unit=unit)),
        n_features=rows.n_features + 1,
    )
    n, d, c = rows.n_rows, rows.n_features, rows.n_labels
    dim = min(settings.embedding_dim, n, c, d)
    W = rng.standard_normal((d, dim), dtype=np.float32) / np.sqrt(np.float32(dim))
    start = Factors(W, np.zeros((c, dim), dtype=np.float32))
    ridge = settings.regularization * float(np.sqrt(n))
    objective: SquaredLoss | KnownLabels = SquaredLoss(rows, ridge)
    if settings.loss != "squared" or known is not None:
        refuse_masked("known", known)
        mask = None if known is None else csr_array(known)
        if mask is not None and mask.shape != (n, c):
            raise ValueError(f"known must have the shape of the labels {(n, c)}, got {mask.shape}")
        # The squared loss with all labels known is cheap, and its factors are a good start.
        start, _ = leml(objective, start, n_rounds=settings.n_rounds, tolerance=_ROUGHLY)
        objective = KnownLabels(rows, LOSSES[settings.loss], ridge, mask)
    factors, values = leml(objective, start, n_rounds=settings.n_rounds)
    return LowRankMap(*factors, np.array(values), settings.loss, unit)


def leml(
    objective: SquaredLoss | KnownLabels,
    start: Factors,
    *,
    n_rounds: int = 10,
    tolerance: float = 1e-3,
) -> tuple[Factors, list[float]]:
    """Return factors of small loss, and the objective after each round; it only falls."""
    factors, values = start, [objective.value(start)]
    with phase("alternating minimisation", n_rounds, "rounds") as advance:
        for _ in range(n_rounds):
            factors = Factors(factors.W, objective.labels_turn(factors))
            factors = Factors(objective.features_turn(factors), factors.H)
            values.append(objective.value(factors))
            advance(1)
            if values[-2] - values[-1] <= tolerance * values[-1]:
                break
    return factors, values
