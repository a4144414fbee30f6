"""Probability vectors from estimates."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from labelry.embeddings.moments.topics import project_to_simplex, to_distributions


def test_the_projection_is_the_nearest_probability_vector() -> None:
    rng = np.random.default_rng(0)
    V = rng.normal(0.05, 0.2, (20, 40)).astype(np.float32)
    P = project_to_simplex(V)
    assert (P >= 0).all()
    assert_allclose(P.sum(axis=0), 1, rtol=1e-5)
    others = rng.dirichlet(np.full(20, 0.3), size=500).T
    for v, p in zip(V.T, P.T, strict=True):
        assert ((v[:, None] - others) ** 2).sum(axis=0).min() >= ((v - p) ** 2).sum() - 1e-6
        # Optimality: what is positive was moved by the same amount, what is zero by no more.
        moved = v - p
        assert_allclose(moved[p > 0], moved[p > 0][0], atol=1e-6)
        assert (moved[p == 0] <= moved[p > 0][0] + 1e-6).all()


def test_a_probability_vector_stays_and_its_scale_does_not_matter() -> None:
    P = np.random.default_rng(1).dirichlet(np.ones(9), size=5).T.astype(np.float32)
    assert_allclose(project_to_simplex(P), P, atol=1e-6)
    assert_allclose(to_distributions(7 * P), P, atol=1e-6)


def test_noise_columns_become_probabilities_too() -> None:
    V = np.array([[1, -1, 0, 1], [-1, -2, 0, 1], [0.1, -3, 0, -1.9]], dtype=np.float32)
    P = to_distributions(V)
    assert_allclose(P.sum(axis=0), 1, rtol=1e-5)
    assert_allclose(P[:, 1], 1 / 3, rtol=1e-5)  # nothing positive
    assert_allclose(P[:, 2], 1 / 3, rtol=1e-5)
    assert_allclose(P[:, 3], [0.5, 0.5, 0], atol=1e-6)
