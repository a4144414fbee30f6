"""Small made-up truth and predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array


class Predictions(NamedTuple):
    Y: csr_array  # (n, c)
    scores: NDArray[np.float32]  # (n, c)
    labels: NDArray[np.int64]  # (n, k), best first
    train_counts: NDArray[np.int64]  # (c,)

    @property
    def top_scores(self) -> NDArray[np.float32]:
        return np.take_along_axis(self.scores, np.maximum(self.labels, 0), axis=1)


def make(seed: int, n: int = 60, c: int = 40, k: int = 6) -> Predictions:
    """Rows of 0 to c // 3 labels, scores that know a little, some places without prediction."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, c)) < rng.uniform(0, 1 / 3, (n, 1))
    truth[0] = False
    scores = np.clip(0.4 * rng.random((n, c)) + 0.4 * truth, 0, 1).astype(np.float32)
    labels = np.argsort(-scores, axis=1)[:, :k]
    labels[1, 2:] = -1
    labels[2, :] = -1
    counts = rng.integers(0, 80, c)
    return Predictions(csr_array(truth.astype(np.float32)), scores, labels, counts)


@pytest.fixture(params=[0, 1])
def data(request: pytest.FixtureRequest) -> Predictions:
    return make(request.param)
