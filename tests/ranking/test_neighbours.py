"""Labels of neighbours against a plain computation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.linalg.matrices import scaled_rows
from labelry.ranking.neighbours import fit_neighbours, plain_neighbours

Z = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
Y = random_array((60, 25), density=0.1, rng=1, format="csr", dtype=np.float32)
Y.data[:] = 1
QUERIES = np.random.default_rng(2).standard_normal((9, 6)).astype(np.float32)


def plain_shares(n_neighbors: int, sharpness: float) -> np.ndarray:
    """The definition, densely and in double precision."""
    scale = (Z.astype(np.float64) ** 2).mean(axis=0) ** -0.25
    A, B = Z * scale, QUERIES * scale
    A, B = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (A, B))
    cosine = B @ A.T
    shares = np.zeros((len(B), Y.shape[1]))
    for i, row in enumerate(cosine):
        near = np.argsort(-row)[:n_neighbors]
        weights = np.exp(sharpness * (row[near] - 1))
        shares[i] = weights / weights.sum() @ Y.toarray()[near]
    return shares


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(("n_neighbors", "sharpness"), [(1, 5.0), (10, 0.0), (60, 15.0)])
def test_votes(n_jobs: int, n_neighbors: int, sharpness: float) -> None:
    shares = plain_shares(n_neighbors, sharpness)
    decoder = fit_neighbours(Z, Y, n_neighbors, sharpness)
    assert_allclose(decoder.scores(QUERIES), shares, atol=1e-5)
    labels, scores = decoder.topk(QUERIES, 4, n_jobs)
    for i in range(len(QUERIES)):
        found = labels[i] >= 0
        assert found.sum() == min(4, (shares[i] > 0).sum())
        assert_allclose(scores[i][found], np.sort(shares[i])[::-1][: found.sum()], atol=1e-5)
        assert_allclose(shares[i][labels[i][found]], scores[i][found], atol=1e-5)


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
    monkeypatch.setattr("labelry.ranking.neighbours._BLOCK_BYTES", 4 * 60 * 2)
    labels, scores = decoder.topk(QUERIES, 3)
    assert_array_equal(labels, whole[0])
    assert_allclose(scores, whole[1], rtol=1e-5)  # on some processors BLAS rounds by block size


def test_rows_of_zeros_and_more_neighbours_than_rows() -> None:
    labels, scores = fit_neighbours(np.zeros_like(Z), Y, 1000).topk(np.zeros_like(QUERIES), 2)
    assert (labels >= 0).all()
    assert_allclose(scores[:, 0], Y.toarray().mean(axis=0).max(), rtol=1e-5)  # all weigh the same
    assert_array_equal(scaled_rows(np.zeros((1, 3), np.float32)), np.zeros((1, 3)))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_sparse_rows_find_what_dense_rows_find(n_jobs: int) -> None:
    rng = np.random.default_rng(3)
    X = random_array((80, 30), density=0.2, rng=rng, format="csr", dtype=np.float32)
    Y = csr_array(random_array((80, 12), density=0.2, rng=rng, format="csr") > 0, dtype=np.float32)
    queries = random_array((17, 30), density=0.2, rng=rng, format="csr", dtype=np.float32)
    sparse, dense = plain_neighbours(csr_array(X), Y, 9), plain_neighbours(X.toarray(), Y, 9)
    expected = dense.scores(queries.toarray())
    cosines = scaled_rows(queries.toarray()) @ scaled_rows(X.toarray()).T
    near = np.argsort(-cosines, axis=1, kind="stable")[:, :9]
    weights = np.exp(15 * (np.take_along_axis(cosines, near, axis=1) - 1))
    weights /= weights.sum(axis=1, keepdims=True)
    assert_allclose(expected, np.einsum("ij,ijl->il", weights, Y.toarray()[near]), atol=1e-5)
    for decoder in (sparse, dense):
        for Q in (csr_array(queries), queries.toarray()):
            labels, scores = decoder.topk(Q, 3, n_jobs)
            found = labels >= 0
            taken = np.take_along_axis(expected, np.maximum(labels, 0), axis=1)
            assert_allclose(scores[found], taken[found], atol=1e-5)
            assert_allclose(scores[:, 0], expected.max(axis=1), atol=1e-5)


def test_an_approximate_search_of_all_lists_finds_what_the_exact_one_does() -> None:
    weights = np.random.default_rng(6).random(60).astype(np.float32) + 0.5
    exact = fit_neighbours(Z, Y, 10, 5.0, weights)
    lists = exact.approximate(np.random.default_rng(0))
    assert lists.lists is not None
    assert len(np.unique(lists.points, axis=0)) == 60
    assert_allclose(lists.scores(QUERIES), exact.scores(QUERIES), atol=1e-5)
    few = replace(lists, lists=lists.lists._replace(n_probes=1), n_neighbors=60)
    scores = few.scores(QUERIES)  # one list holds fewer than are asked for
    assert_allclose(scores, scores.clip(0, 1), atol=1e-6)
    labels, best = few.topk(QUERIES, 2)
    assert_allclose(
        best[labels >= 0], np.take_along_axis(scores, labels, 1)[labels >= 0], atol=1e-6
    )


def test_an_approximate_index_of_sparse_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="index must be exact for sparse rows"):
        plain_neighbours(Y, Y).approximate(np.random.default_rng(0))


def test_a_sharpness_beyond_float32_listens_to_the_nearest_alone() -> None:
    far = np.array([[-1, 0.01], [-1, 0.02], [-1, 0.5]], np.float32)
    labels = csr_array(np.array([[1, 0], [1, 0], [0, 1]], np.float32))
    decoder = plain_neighbours(far, labels, 3, 1e4)
    ids, scores = decoder.topk(np.array([[1, 0]], np.float32), 2)
    assert ids.tolist() == [[1, -1]]
    assert_allclose(scores[0, 0], 1)
