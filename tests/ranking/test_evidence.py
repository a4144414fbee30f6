"""Each kernel against numpy; the features that scores become."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.ranking.evidence import (
    evidence,
    inner_products,
    known_of_labels,
    listed_scores,
    merged,
    n_features,
    of_candidates,
    shares_of_candidates,
)

N, C, D = 7, 12, 9


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def candidates(rng: np.random.Generator) -> np.ndarray:
    lists = [np.stack([rng.permutation(C)[:3] for _ in range(N)]) for _ in range(2)]
    lists[0][2] = -1
    lists[1][2:4] = -1
    return merged(lists)


def test_merged_lists_hold_each_label_once(rng: np.random.Generator) -> None:
    a, b = rng.integers(-1, 6, size=(2, 50, 4))
    for row, x, y in zip(merged([a, b]), a, b, strict=True):
        labels = sorted((set(x) | set(y)) - {-1})
        assert row.tolist() == labels + [-1] * (8 - len(labels))


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_listed_scores(candidates: np.ndarray, rng: np.random.Generator, n_jobs: int) -> None:
    labels = np.stack([rng.permutation(C)[:5] for _ in range(N)]).astype(np.int32)
    labels[1, 3:] = -1
    scores = rng.random((N, 5), dtype=np.float32)
    found = listed_scores(candidates, labels, scores, n_jobs)
    for i in range(N):
        known = dict(zip(labels[i].tolist(), scores[i].tolist(), strict=True)) | {-1: 0.0}
        assert found[i].tolist() == [known.get(c, 0.0) for c in candidates[i].tolist()]


@pytest.mark.parametrize("n_near", [2, 100])
def test_votes_are_the_product_with_the_labels_of_neighbours(
    candidates: np.ndarray, rng: np.random.Generator, n_near: int
) -> None:
    Y = csr_array((rng.random((20, C)) < 0.3).astype(np.float32))
    near = rng.integers(0, 20, size=(N, 4)).astype(np.int32)
    weights = rng.random((N, 4), dtype=np.float32)
    dense = Y.toarray()
    every = np.einsum("it,itc->ic", weights[:, :n_near], dense[near[:, :n_near]])
    assert_allclose(
        shares_of_candidates(candidates, near, weights, Y, n_near, 2), _of(candidates, every), 1e-5
    )


def test_inner_products_dense_and_sparse(candidates: np.ndarray, rng: np.random.Generator) -> None:
    Z = rng.normal(size=(N, D)).astype(np.float32)
    V = rng.normal(size=(C, D)).astype(np.float32)
    expected = _of(candidates, Z @ V.T)
    assert_allclose(inner_products(candidates, Z, V, 2), expected, rtol=1e-4, atol=1e-6)
    X = csr_array(random_array((N, D), density=0.5, rng=rng, dtype=np.float32))
    K = csr_array(random_array((C, D), density=0.4, rng=rng, dtype=np.float32))
    expected = _of(candidates, (X @ K.T).toarray())
    assert_allclose(inner_products(candidates, X, K, 2), expected, rtol=1e-4, atol=1e-6)


def test_evidence_is_score_share_rank_what_is_known_of_the_label_and_best_of_row() -> None:
    candidates = np.array([[0, 2, 3, -1], [1, -1, -1, -1]], dtype=np.int32)
    first = np.array([[0.2, 0.8, 0.2, 9.0], [0.5, 9.0, 9.0, 9.0]], dtype=np.float32)
    second = np.array([[-1.0, -2.0, -4.0, 9.0], [0.0, 9.0, 9.0, 9.0]], dtype=np.float32)
    known = np.array([[5.0, 7.0, 8.0, 9.0], [6.0, 9.0, 9.0, 9.0]], dtype=np.float32)
    F = evidence(candidates, [first, second], known)
    assert_allclose(
        F[0],
        [
            [0.2, 0.25, 1, -1, 0, 0, 5, 0.8, 0],
            [0.8, 1.0, 0, -2, 0, 1, 7, 0.8, 0],
            [0.2, 0.25, 1, -4, 0, 2, 8, 0.8, 0],
            np.zeros(9),
        ],
    )
    assert_allclose(F[1], [[0.5, 1, 0, 0, 0, 0, 6, 0.5, 0], *np.zeros((3, 9))])
    assert F.shape[-1] == n_features(2)
    assert_array_equal(of_candidates(F), F[..., :7])
    assert_array_equal(known_of_labels(F), F[..., 6])
    assert_array_equal(F, evidence(candidates, [first, second], known, n_jobs=2))


def _of(candidates: np.ndarray, every: np.ndarray) -> np.ndarray:
    """Of scores of all labels, those of the candidates."""
    return np.where(candidates >= 0, np.take_along_axis(every, candidates.clip(0), axis=1), 0)
