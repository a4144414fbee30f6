"""Near-duplicates are found and held out together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.ranking import hold_out as module
from labelry.ranking.hold_out import (
    drawn_groups,
    drawn_near_duplicates,
    few_of_groups,
    hold_out,
    lost_share,
    near_duplicates,
    without_lost_labels,
)


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


def test_few_rows_of_each_group() -> None:
    rng = np.random.default_rng(0)
    groups = np.full(40, -1)
    for group, size in ((3, 7), (10, 1), (20, 1)):
        groups[rng.choice(np.flatnonzero(groups < 0), size, replace=False)] = group
    for most in (1, 3, 5, 9):  # on average they have three
        expected = [np.flatnonzero(groups == g)[: max(most, 3)] for g in (3, 10, 20)]
        assert_array_equal(few_of_groups(groups, most), np.sort(np.concatenate(expected)))
    assert few_of_groups(np.full(3, -1)).size == 0


def test_groups_that_are_given_are_held_out_whole() -> None:
    rng = np.random.default_rng(0)
    given = rng.integers(0, 60, 400)
    times = np.zeros(60)
    for seed in range(200):
        found = drawn_groups(given, 50, 100, np.random.default_rng(seed))
        out = np.unique(given[found >= 0])
        assert_array_equal(np.isin(given, out), found >= 0)
        assert 45 <= (found >= 0).sum() <= 50
        assert_array_equal(given[found[found >= 0]], given[found >= 0])  # named by a row of theirs
        times[out] += 1
    assert times.min() > 0  # all are drawn now and then
    large = np.repeat([5, 7, 9], [60, 90, 100])
    assert_array_equal(drawn_groups(large, 50, 100, rng) >= 0, large == 5)  # more than was wanted
    assert not (drawn_groups(large, 0, 0, rng) >= 0).any()
    with pytest.raises(ValueError, match="at most 50; the smallest group has 60"):
        drawn_groups(large, 50, 50, rng)


def test_rows_of_lost_labels_are_held_out_unless_they_are_most() -> None:
    Y = csr_array(np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0]])
    groups = np.array([0, -1, 2, 3, 4, 4])  # the last two are near-duplicates, with labels 3 and 0
    sample, some_list = np.array([3, 1, 2, 1]), np.array([3, 1, 1, 1])
    assert lost_share(Y, sample) == 0.4
    assert_array_equal(without_lost_labels(groups, Y, sample), groups)
    assert lost_share(Y, some_list) == 0.6
    fewer = without_lost_labels(groups, Y, some_list)
    assert_array_equal(fewer, [0, -1, -1, -1, -1, -1])  # the group of a lost label stays whole
    assert (without_lost_labels(groups, Y, np.array([2, 1, 1, 1])) < 0).all()
    nothing, no_rows = np.full(3, -1), csr_array((0, 4))
    assert lost_share(no_rows, sample) == 0
    assert_array_equal(without_lost_labels(nothing, no_rows, sample), nothing)


@pytest.mark.parametrize("given", [False, True])
def test_one_result_says_all_of_rows_that_are_held_out(given: bool) -> None:
    X = in_pairs(100)
    Y = csr_array(np.eye(200, 4, dtype=np.float32)[np.arange(200) % 100])  # two rows a label
    groups = np.arange(200) % 100 if given else None
    rows = Rows(X, Y).knowing(groups=groups)
    held = hold_out(rows, 50, 100, 0.8, np.random.default_rng(0), of_group=1, keep_labels=False)
    drawn = drawn_groups(groups, 50, 100, np.random.default_rng(0)) if given else None
    if drawn is None:
        drawn = drawn_near_duplicates(rows, 0.8, 50, np.random.default_rng(0))
    assert_array_equal(held.groups, drawn)
    assert_array_equal(held.seen, drawn < 0)
    few = few_of_groups(drawn)
    unseen_X, unseen_Y = held.unseen.gathered("X", "Y")
    assert_array_equal(unseen_X.toarray(), X[few].toarray())
    assert_array_equal(unseen_Y.toarray(), Y[few].toarray())
    assert_array_equal(held.chosen, few)
    assert_array_equal(held.counts, Y[np.flatnonzero(drawn >= 0)].sum(axis=0))
    assert held.lost == lost_share(Y[np.flatnonzero(drawn >= 0)], rows.label_counts())


def test_rows_of_a_list_of_labels_are_kept_unless_labels_are_known_otherwise() -> None:
    rows = Rows(scaled_rows(np.eye(20, dtype=np.float32)), csr_array(np.eye(20)))
    for keep_labels, expected in ((True, 0), (False, 5)):
        rng = np.random.default_rng(0)
        held = hold_out(rows, 5, 5, 0.8, rng, keep_labels=keep_labels)
        assert (held.groups >= 0).sum() == held.unseen.n_rows == held.counts.sum() == expected
        assert held.lost == 1.0
