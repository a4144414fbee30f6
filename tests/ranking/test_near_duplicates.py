"""Near-duplicates are found as by comparing all pairs of rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.ranking import near_duplicates as module
from labelry.ranking.near_duplicates import drawn_near_duplicates, near_duplicates


def in_pairs(n: int, seed: int = 0) -> csr_array:
    """Rows i and n + i differ in small things only."""
    rng = np.random.default_rng(seed)
    X = random_array((n, 60), density=0.1, rng=rng, dtype=np.float32).toarray()
    noise = random_array((n, 60), density=0.05, rng=rng, dtype=np.float32).toarray()
    return scaled_rows(csr_array(np.vstack([X, X + 0.2 * noise])))


def plain_groups(X: csr_array, similarity: float) -> np.ndarray:
    """Each row that is in no group yet begins one, of the later rows that are close to it."""
    S = (X @ X.T).toarray()
    group = np.full(len(S), -1)
    for i in range(len(S)):
        if group[i] < 0:
            group[i] = i
            group[(group < 0) & (S[i] >= similarity) & (np.arange(len(S)) > i)] = i
    return group


@pytest.mark.parametrize("similarity", [0.5, 0.8, 0.95])
def test_the_same_groups_as_by_all_pairs(similarity: float) -> None:
    X = in_pairs(150)
    kept = X.copy()
    groups = near_duplicates(X, similarity)
    assert_array_equal(groups, plain_groups(X, similarity))
    assert len(np.unique(groups)) < 290
    for part in ("data", "indices", "indptr"):  # what was given is as it was
        assert_array_equal(getattr(X, part), getattr(kept, part))


def test_a_window_bounds_the_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    X = csr_array(np.ones((5, 1), dtype=np.float32))
    assert near_duplicates(X).tolist() == [0] * 5
    monkeypatch.setattr(module, "_WINDOW", 1)
    assert near_duplicates(X).tolist() == [0, 0, 2, 2, 4]


def test_odd_rows_are_groups_of_their_own() -> None:
    X = in_pairs(3)
    assert near_duplicates(X, similarity=1.1).tolist() == list(range(6))
    assert near_duplicates(X.toarray()).tolist() == list(range(6))
    assert near_duplicates(csr_array((3, 4), dtype=np.float32)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_drawn_rows_are_whole(seed: int) -> None:
    X = in_pairs(150)
    S = (X @ X.T).toarray()
    found = drawn_near_duplicates(Rows(X), 0.8, 100, np.random.default_rng(seed))
    assert 90 <= (found >= 0).sum() <= 100
    leaders = np.unique(found[found >= 0])
    assert_array_equal(found[leaders], leaders)
    assert (S[leaders][:, found < 0] < 0.8 + 1e-5).all()
    for leader in leaders:
        assert (S[leader, found == leader] >= 0.8 - 1e-5).all()
        assert (found[S[leader] >= 0.8 + 1e-5] >= 0).all()  # none is left outside


def test_drawn_rows_of_a_large_group_stay() -> None:
    X = csr_array(np.vstack([np.tile(np.eye(1, 11), (50, 1)), np.eye(11)[1:]]), dtype=np.float32)
    for seed in range(5):
        found = drawn_near_duplicates(Rows(X), 0.8, 6, np.random.default_rng(seed))
        assert (found[:50] == -1).all()
        assert (found >= 0).sum() == 6
    dense = drawn_near_duplicates(Rows(X.toarray()), 0.8, 6, np.random.default_rng(0))
    assert (dense >= 0).sum() == 6
    assert not (drawn_near_duplicates(Rows(X), 0.8, 0, np.random.default_rng(0)) >= 0).any()
