"""Weights of labels and thresholds, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from labelry.metrics import inverse_propensity, keep_above, micro_f1_at_k
from labelry.ranking.objectives import f1_threshold, label_weights, weighted


def test_only_propensities_weigh_labels() -> None:
    counts = np.array([0, 1, 100])
    assert label_weights("precision", counts, 1000) is None
    assert label_weights("f1", counts, 1000) is None
    weights = label_weights("propensity", counts, 1000)
    assert_allclose(weights, inverse_propensity(counts, 1000), rtol=1e-6)
    assert weights[0] > weights[1] > weights[2] > 1


def test_scores_that_are_not_positive_keep_their_place() -> None:
    candidates = np.array([[0, 1, 2, -1]])
    S = np.array([[0.5, -0.5, 0.0, -np.inf]], dtype=np.float32)
    weights = np.array([4.0, 8.0, 2.0], dtype=np.float32)
    assert weighted(candidates, S, weights).tolist() == [[2.0, -0.5, 0.0, -np.inf]]
    assert weighted(candidates, S, None) is S


@pytest.mark.parametrize("decimals", [1, 6])  # with many equal scores, and with none
def test_no_other_threshold_has_a_larger_f1(decimals: int) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((50, 8)).round(decimals).astype(np.float32)
    candidates = np.tile(np.arange(8), (50, 1))
    hits = rng.random((50, 8)) < scores**2
    missed = rng.random((50, 2)) < 0.5  # true labels that are no candidates
    Y = csr_array(np.hstack([hits, missed]).astype(np.float32))
    scores[:, 7] = -np.inf
    candidates[:, 7] = -1

    def quality(threshold: float) -> float:
        return micro_f1_at_k(Y, keep_above(candidates, scores, threshold), 8)

    best = f1_threshold(scores, hits, Y.nnz)
    every = np.unique(scores[:, :7])
    assert quality(best) == max(quality(t) for t in every.tolist())
