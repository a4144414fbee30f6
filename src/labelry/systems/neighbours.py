"""The nearest training rows, by their own features."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck, check_at_least, check_one_of
from labelry.decoders.neighbours import Neighbours, plain_neighbours
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import resolve_jobs

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]


class NearestNeighbours(LabelRanker):
    """Votes of the training rows with the most similar features.

    Nothing is learnt. Similarity is the cosine of the features as they are, so they should be
    weighted (tf-idf) already. Choose it to compare with, or for features that are an embedding.

    Scores are shares of the votes, between 0 and 1.

    Parameters
    ----------
    n_neighbors : int
        Training rows that vote; more find more labels.
    sharpness : float
        How much more a nearer neighbour weighs: exp(sharpness x cosine).
    index : {"exact", "approximate"}
        "approximate" looks at a part of the rows only. For dense features and many rows: of 500,000
        a query then meets about 11,000.
    random_state : int, optional
        Seed of the approximate index.
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    decoder_ : Neighbours
        The training rows and their labels.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> NearestNeighbours().fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "knn"

    def __init__(
        self,
        *,
        n_neighbors: int = 50,
        sharpness: float = 5.0,
        index: Literal["exact", "approximate"] = "exact",
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.sharpness = sharpness
        self.index = index
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        self.decoder_ = plain_neighbours(X, Y, self.n_neighbors, self.sharpness)
        if self.index == "approximate":
            self.decoder_ = self.decoder_.approximate(rng, resolve_jobs(self.n_jobs))

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        return self.decoder_.topk(X, k, resolve_jobs(self.n_jobs))

    def _scores(self, X: Matrix) -> F32:
        return self.decoder_.scores(X)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.kind("decoder_", self.decoder_, Neighbours)
        self.decoder_.check_stored(check, n_features, n_labels)

    def _check_parameters(self) -> None:
        check_at_least("n_neighbors", self.n_neighbors, 1)
        check_at_least("sharpness", self.sharpness, 0)
        check_one_of("index", self.index, ("exact", "approximate"))
