"""Rows are held out in whole groups."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, random_array

import labelry
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.ranking.hold_out import (
    drawn_groups,
    few_of_groups,
    folds,
    hold_out,
    lost_share,
    validation_split,
    without_lost_labels,
)
from labelry.ranking.near_duplicates import drawn_near_duplicates


def in_pairs(n: int, seed: int = 0) -> csr_array:
    """Rows i and n + i differ in small things only."""
    rng = np.random.default_rng(seed)
    X = random_array((n, 60), density=0.1, rng=rng, dtype=np.float32).toarray()
    noise = random_array((n, 60), density=0.05, rng=rng, dtype=np.float32).toarray()
    return scaled_rows(csr_array(np.vstack([X, X + 0.2 * noise])))


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


def test_a_validation_split_is_of_rows_or_of_whole_groups() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 30, 200)
    among = np.arange(0, 200, 2)
    for given in ({}, {"groups": groups}, {"among": among}, {"groups": groups, "among": among}):
        split = validation_split(200, 40, rng, **given)
        assert_array_equal(np.sort(np.concatenate(split)), np.arange(200))
        assert_array_equal(np.flatnonzero(split.is_held_out), np.sort(split.held_out))
        if "groups" in given:
            assert 30 <= len(split.held_out) <= 40
            assert not np.isin(groups[split.held_out], groups[split.training]).any()
        else:
            assert len(split.held_out) == 40
            assert np.isin(split.held_out, given.get("among", np.arange(200))).all()
    assert not validation_split(200, 0, rng, groups=groups).is_held_out.any()


def test_rows_to_train_on_are_in_random_order() -> None:
    for groups in (None, np.repeat(np.arange(50), 4)):
        training = validation_split(200, 40, np.random.default_rng(0), groups=groups).training
        assert (np.diff(training) < 0).sum() > 40  # the first of them are a sample of all


@pytest.mark.parametrize("grouped", [False, True])
def test_folds_hold_out_each_row_once(grouped: bool) -> None:
    groups = np.random.default_rng(1).integers(0, 9, 40) if grouped else None
    splits = folds(40, 4, np.random.default_rng(0), groups=groups)
    assert len(splits) == 4
    assert_array_equal(np.sort(np.concatenate([s.held_out for s in splits])), np.arange(40))
    for split in splits:
        assert_array_equal(np.sort(np.concatenate(split)), np.arange(40))
        if groups is not None:
            assert not np.isin(groups[split.held_out], groups[split.training]).any()
    assert len(folds(3, 5, np.random.default_rng(0))) == 3


def test_what_cannot_be_held_out_is_refused() -> None:
    one_group, rng = np.zeros(10, dtype=int), np.random.default_rng(0)
    with pytest.raises(ValueError, match="at most 5; the smallest group has 10"):
        validation_split(10, 1, rng, groups=one_group)
    with pytest.raises(ValueError, match="at least 2 groups of rows, got 1"):
        folds(10, 3, rng, groups=one_group)
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        folds(1, 3, rng)


@pytest.mark.parametrize(
    ("system", "parameters"),
    [
        ("LabelTree", {"max_epochs": 1}),
        ("LabelTree", {"tree": "confusion", "training": "siblings"}),
        ("SequentialEmbedding", {"max_epochs": 1}),
        ("WSABIE", {"max_epochs": 1}),
        ("Moments", {"n_topics": 2}),
        ("Rembrandt", {"embedding_dim": "auto"}),
        ("Rembrandt", {"decoder": "logistic", "max_epochs": 1}),
        ("Rembrandt", {"correction": True}),
    ],
)
def test_every_system_that_holds_rows_out_holds_out_groups(system: str, parameters: dict) -> None:
    X = np.eye(6, dtype=np.float32)[np.arange(900) % 6]
    with pytest.raises(ValueError, match=r"smallest group has 900|at least 2 groups"):
        getattr(labelry, system)(**parameters).fit(X, csr_array(X), groups=np.zeros(900))
