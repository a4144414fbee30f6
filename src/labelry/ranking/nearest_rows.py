"""The nearest training rows, by their own features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from labelry.arrays import F32, Ints
from labelry.linalg.matrices import Matrix
from labelry.linalg.rows import Rows, in_memory
from labelry.parameters import Between, Settings, param, settings
from labelry.ranking.neighbours import Neighbours, plain_neighbours
from labelry.ranking.ranker import Ranker


@settings
class NearestNeighboursSettings(Settings):
    """How to search for the nearest training rows, and how much each weighs."""

    n_neighbors: int = param(
        default=50,
        least=1,
        help="Training rows that add their labels. More find more labels, and take longer.",
        tune=Between(10, 300, log=True),
    )
    sharpness: float = param(
        default=5.0,
        least=0,
        help="How much more a nearer neighbour weighs: exp(sharpness x cosine). Larger gives more "
        "weight to the nearest.",
        tune=Between(2.0, 50.0, log=True),
    )
    index: Literal["exact", "approximate"] = param(
        default="exact",
        help='"approximate" looks at a part of the rows only. It is for dense features and many '
        "rows: of 500,000 a query then meets about 11,000.",
    )


@dataclass(frozen=True, eq=False)
class NearestRows(Ranker):
    """The training rows and their labels.

    Scores are shares of the weights of the neighbours, between 0 and 1.

    Attributes
    ----------
    neighbours : Neighbours
    """

    neighbours: Neighbours

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k labels of the largest shares."""
        return self.neighbours.topk(X, k, n_jobs)

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        """Return the shares of all labels, (n_rows, n_labels)."""
        return self.neighbours.scores(X)


def fit_nearest_neighbours(
    rows: Rows, settings: NearestNeighboursSettings, rng: np.random.Generator
) -> NearestRows:
    """Keep the training rows and their labels, in an index if it is asked for."""
    X, Y = in_memory(rows, "knn")
    neighbours = plain_neighbours(X, Y, settings.n_neighbors, settings.sharpness)
    if settings.index == "approximate":
        neighbours = neighbours.approximate(rng, rows.n_jobs)
    return NearestRows(neighbours)
