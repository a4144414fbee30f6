"""Theorem 1 as a tool."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose

from labelry.embeddings.moments.bounds import MomentStatistics, convergence_bound

STATISTICS = MomentStatistics(np.array([0.5, 0.2, 0.1], dtype=np.float32), 9.0, 30.0, 12.0, 1000)
PI = np.array([0.5, 0.3, 0.2], dtype=np.float32)


def test_the_formulas_of_the_paper() -> None:
    bound = convergence_bound(STATISTICS, PI, 10_000, 0.1)
    s1, s3, d2, d3, dl = 0.5, 0.1, 9.0, 30.0, 12.0
    e1, e2 = 1 + sqrt(log(10) / 2), 1 + sqrt(log(20) / 2)
    words = (
        160 * sqrt(s1) / (d2 * s3**2.5)
        + 32 * sqrt(2 * s1) / (d3 * s3**1.5)
        + 4 * sqrt(s1) / (d2 * s3)
    )
    labels = 160 / (d2 * s3**3.5) + 32 * sqrt(2) / (d3 * s3**2.5) + (2 + 2 * sqrt(2)) / (d2 * s3**2)
    assert_allclose(bound.words, words * e1 / 100, rtol=1e-5)
    assert_allclose(bound.labels, labels * 2 * e1 / 100 + 8 * e2 / (dl * s3 * 100), rtol=1e-5)
    pi = (200 / s3**2.5 + 40 * sqrt(2) / s3**1.5) * e1 / (d3 * 100)
    assert_allclose(bound.proportions, pi, rtol=1e-5)
    n3 = 9 * (10 / (d2 * s3**2.5) + 2 * sqrt(2) / (d3 * s3**1.5)) ** 2 * e1**2
    assert_allclose(bound.n_required, n3, rtol=1e-5)


def test_four_times_the_documents_halve_the_bounds() -> None:
    few = convergence_bound(STATISTICS, PI, 1000, 0.05)
    many = convergence_bound(STATISTICS, PI, 4000, 0.05)
    assert_allclose(np.array(few[:3]) / np.array(many[:3]), 2)
    assert few.n_required == many.n_required
    assert convergence_bound(STATISTICS, PI, 1000, 0.01).words > few.words


@pytest.mark.parametrize(("n", "delta", "message"), [(0, 0.1, "N must"), (5, 1.0, "delta must")])
def test_errors(n: int, delta: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convergence_bound(STATISTICS, PI, n, delta)
