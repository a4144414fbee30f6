"""Neighbour votes against a plain computation."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.decoders import fit_neighbours, unit_rows

Z = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
Y = random_array((60, 25), density=0.1, rng=1, format="csr", dtype=np.float32)
Y.data[:] = 1
QUERIES = np.random.default_rng(2).standard_normal((9, 6)).astype(np.float32)


def plain_votes(n_neighbors: int, sharpness: float) -> np.ndarray:
    """The definition, densely and in double precision."""
    scale = (Z.astype(np.float64) ** 2).mean(axis=0) ** -0.25
    A, B = Z * scale, QUERIES * scale
    A, B = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (A, B))
    cosine = B @ A.T
    votes = np.zeros((len(B), Y.shape[1]))
    for i, row in enumerate(cosine):
        near = np.argsort(-row)[:n_neighbors]
        weights = np.exp(sharpness * (row[near] - 1))
        votes[i] = weights / weights.sum() @ Y.toarray()[near]
    return votes


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(("n_neighbors", "sharpness"), [(1, 5.0), (10, 0.0), (60, 15.0)])
def test_votes(n_jobs: int, n_neighbors: int, sharpness: float) -> None:
    votes = plain_votes(n_neighbors, sharpness)
    decoder = fit_neighbours(Z, Y, n_neighbors, sharpness)
    assert_allclose(decoder.scores(QUERIES), votes, atol=1e-5)
    labels, scores = decoder.topk(QUERIES, 4, n_jobs)
    for i in range(len(QUERIES)):
        found = labels[i] >= 0
        assert found.sum() == min(4, (votes[i] > 0).sum())
        assert_allclose(scores[i][found], np.sort(votes[i])[::-1][: found.sum()], atol=1e-5)
        assert_allclose(votes[i][labels[i][found]], scores[i][found], atol=1e-5)


def test_ties_go_to_the_smaller_label_and_empty_places_stay_empty() -> None:
    labels, scores = fit_neighbours(
        np.ones((2, 1), np.float32),
        csr_array(np.array([[0, 1, 1, 0], [0, 1, 1, 0]], np.float32)),
        2,
    ).topk(np.ones((1, 1), np.float32), 3)
    assert labels.tolist() == [[1, 2, -1]]
    assert scores.tolist() == [[1.0, 1.0, -np.inf]]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = fit_neighbours(Z, Y, 5)
    whole = decoder.topk(QUERIES, 3)
    monkeypatch.setattr("labelry.decoders.neighbours._BLOCK_BYTES", 4 * 60 * 2)
    for a, b in zip(whole, decoder.topk(QUERIES, 3), strict=True):
        assert_array_equal(a, b)


def test_rows_of_zeros_and_more_neighbours_than_rows() -> None:
    labels, scores = fit_neighbours(np.zeros_like(Z), Y, 1000).topk(np.zeros_like(QUERIES), 2)
    assert (labels >= 0).all()
    assert_allclose(scores[:, 0], Y.toarray().mean(axis=0).max(), rtol=1e-5)  # all weigh the same
    assert_array_equal(unit_rows(np.zeros((1, 3), np.float32)), np.zeros((1, 3)))
