"""Labels by their names: the kernel against numpy, and names that follow later."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.ranking.lexical import LabelNames, label_names

N, D, C = 23, 12, 17


def plain(X: np.ndarray, names: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The twin: all inner products, sorted."""
    S = X @ names.T
    S[S <= 0] = -np.inf
    order = np.argsort(-S, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(S, order, axis=1)
    return np.where(np.isneginf(scores), -1, order), scores


@pytest.fixture
def rows() -> csr_array:
    rng = np.random.default_rng(0)
    X = random_array((N, D), density=0.3, rng=rng, dtype=np.float32).tolil()
    X[4] = 0
    return csr_array(X)


@pytest.fixture
def names() -> LabelNames:
    features = random_array(
        (C, D), density=0.25, rng=np.random.default_rng(1), dtype=np.float32
    ).toarray()
    features[3] = 0  # a label without a name
    features[6] = features[5]  # two of one name
    return label_names(csr_array(features))


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("k", [1, 4, C])
def test_nearest_names_are_those_of_all_products(
    rows: csr_array, names: LabelNames, k: int, n_jobs: int
) -> None:
    labels, scores = names.nearest(rows, k, n_jobs)
    expected, products = plain(rows.toarray(), names.features.toarray(), k)
    assert_array_equal(labels, expected)
    assert_allclose(scores, products, rtol=1e-5)
    assert (labels[4] == -1).all()
    assert not (labels == 3).any()


def test_products_that_cancel_are_no_match() -> None:
    names = label_names(np.array([[1, 1, 0], [1, -1, 0], [1, -1, 1]], dtype=np.float32))
    row = csr_array(np.array([[1, 1, 0.5]], dtype=np.float32))
    assert names.nearest(row, 3)[0].tolist() == [[0, 2, -1]]


def test_names_have_unit_length_and_the_lists_are_their_transpose(names: LabelNames) -> None:
    lengths = np.linalg.norm(names.features.toarray(), axis=1)
    assert_allclose(lengths[np.arange(C) != 3], 1, rtol=1e-6)
    assert lengths[3] == 0
    assert_array_equal(names.lists.toarray(), names.features.toarray().T)


def test_scores_of_candidates_and_who_has_a_name(rows: csr_array, names: LabelNames) -> None:
    candidates = np.array([[0, 3, 16, -1]] * N, dtype=np.int32)
    every = rows.toarray() @ names.features.toarray().T
    assert_allclose(names.scores(candidates, rows)[:, :3], every[:, [0, 3, 16]], atol=1e-6)
    present = names.features.toarray().any(axis=1)
    assert_array_equal(names.given(candidates)[0, :3], present[[0, 3, 16]])
    assert not present[3]


def test_further_names_follow(names: LabelNames) -> None:
    more = np.array([[3.0] + [0.0] * (D - 1)], dtype=np.float32)
    longer = names.followed_by(more)
    assert longer.features.shape == (C + 1, D)
    assert_allclose(longer.features.toarray()[:C], names.features.toarray(), rtol=1e-6)
    assert longer.features.toarray()[C].tolist() == [1.0] + [0.0] * (D - 1)
    assert longer.nearest(csr_array(more), 1)[0].tolist() == [[C]]
