"""What the binary trees have in common: odd data, threads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry import ConditionalProbabilityTree, FilterTree

System = type[FilterTree | ConditionalProbabilityTree]


@pytest.mark.parametrize("system", [FilterTree, ConditionalProbabilityTree])
@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (1, 1)])
def test_odd_data(system: System, shape: tuple[int, int]) -> None:
    for X in (np.zeros((shape[0], 2)), np.ones((shape[0], 2))):
        model = system(beam_width=10).fit(X, csr_array(np.eye(*shape)))
        labels, scores = model.predict_topk(X, k=10)
        assert_array_equal(np.sort(labels, axis=1), np.tile(np.arange(shape[1]), (shape[0], 1)))
        assert np.isfinite(scores).all()


@pytest.mark.parametrize("system", [FilterTree, ConditionalProbabilityTree])
def test_threads_change_nothing(system: System) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 6)), rng.integers(0, 12, 120)
    one, two = (system(n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    assert one.weights_.data.tobytes() == two.weights_.data.tobytes()
