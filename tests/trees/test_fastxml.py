"""FastXML: nDCG and its alternation, trees, leaves, odd data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.estimators.trees import FastXML
from labelry.linalg.kernels import local_columns
from labelry.metrics import ndcg_at_k
from labelry.trees.fastxml import (
    choose_sides,
    grow_row_tree,
    label_shares,
    rank_sides,
    split_node,
    training_rows,
)

# Nine blocks on the diagonal: label j is on the rows that have features 3j, 3j+1, 3j+2.
CHECKERBOARD_X = csr_array(np.kron(np.eye(9), np.ones((12, 3))), dtype=np.float32)
CHECKERBOARD_Y = csr_array(np.kron(np.eye(9), np.ones((12, 1))), dtype=np.float32)


def noisy(n: int = 200, d: int = 20, c: int = 15) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(0)
    X = random_array((n, d), density=0.4, rng=rng, format="csr", dtype=np.float32)
    W = rng.standard_normal((d, c))
    return X, csr_array((X @ W + 0.3 * rng.standard_normal((n, c)) > 1.2).astype(np.float32))


def ideals(Y: csr_array) -> np.ndarray:
    sizes = np.maximum(np.diff(Y.indptr), 1)  # without labels there is nothing to scale
    return np.array([1 / sum(1 / np.log(2 + r) for r in range(n)) for n in sizes])


def plain_gains(Y: np.ndarray, ideal: np.ndarray, side: np.ndarray) -> np.ndarray:
    """The plain twin of `rank_sides`."""
    gain = np.zeros((2, Y.shape[1]))
    for s in range(2):
        weight = (Y * ideal[:, None])[side == s].sum(axis=0)
        for r, label in enumerate(np.argsort(-weight, kind="stable")):
            gain[s, label] = 1 / np.log(2 + r)
    return gain


def total_ndcg(Y: csr_array, side: np.ndarray) -> float:
    """The sum over rows of nDCG of the ranking of their side."""
    dense, ideal = Y.toarray(), ideals(Y)
    gain = plain_gains(dense, ideal, side)
    return sum(ideal[i] * gain[side[i]] @ dense[i] for i in range(len(side)))


def test_rankings_of_the_sides() -> None:
    _, Y = noisy()
    side = np.random.default_rng(1).integers(0, 2, Y.shape[0], dtype=np.int8)
    gain = np.empty((2, Y.shape[1]))
    rank_sides(Y.indptr, Y.indices, ideals(Y), side, gain)
    assert_allclose(gain, plain_gains(Y.toarray(), ideals(Y), side))
    assert_allclose(training_rows(Y, Y).ideal, ideals(Y))


def test_the_gains_are_those_of_ndcg() -> None:
    """With all rows on one side, the objective is nDCG of one ranking for everyone."""
    _, Y = noisy()
    Y = csr_array(Y[np.diff(Y.indptr) > 0])
    side = np.zeros(Y.shape[0], dtype=np.int8)
    weight = Y.T @ ideals(Y)
    ranking = np.tile(np.argsort(-weight, kind="stable"), (Y.shape[0], 1))
    expected = ndcg_at_k(Y, ranking, Y.shape[1]) * Y.shape[0]
    assert_allclose(total_ndcg(Y, side), expected)


def test_alternation_raises_ndcg_until_no_row_would_change() -> None:
    _, Y = noisy()
    dense, ideal = Y.toarray(), ideals(Y)
    side = np.random.default_rng(1).integers(0, 2, Y.shape[0], dtype=np.int8)
    ours, values = side.copy(), [total_ndcg(Y, side)]
    while True:  # the plain twin of `choose_sides`
        gain = plain_gains(dense, ideal, side)
        better = dense @ (gain[1] - gain[0])
        after = np.where(np.abs(better) < 1e-12, side, better > 0).astype(np.int8)
        if (after == side).all():
            break
        side = after
        values.append(total_ndcg(Y, side))
    assert len(values) > 2
    assert (np.diff(values) >= -1e-9).all()
    rounds = choose_sides(Y.indptr, Y.indices, Y.shape[1], ideal, ours)
    assert_array_equal(ours, side)
    assert rounds == len(values)


def test_columns_of_some_rows() -> None:
    X, _ = noisy()
    rows, slot = np.array([7, 3, 11], dtype=np.int32), np.full(X.shape[1], -1, dtype=np.int32)
    ptr, local, columns = local_columns(X.indptr, X.indices, rows, slot)
    assert_array_equal(ptr, np.cumsum([0, *np.diff(X.indptr)[rows]]))
    assert_array_equal(columns[local], X[rows].indices)
    assert len(set(columns.tolist())) == len(columns)
    assert (slot == -1).all()


def test_a_split_is_what_the_separator_says() -> None:
    X, Y = noisy()
    data = training_rows(X, Y)
    rows = np.arange(50, 150, dtype=np.int32)
    side = np.random.default_rng(2).integers(0, 2, 100, dtype=np.int8)
    slots = (np.full(20, -1, dtype=np.int32), np.full(15, -1, dtype=np.int32))
    n_left, features, weights, bias = split_node(data, 1.0, rows, side, *slots)
    assert 0 < n_left < 100
    assert sorted(rows.tolist()) == list(range(50, 150))
    score = X.toarray()[rows][:, features] @ weights + bias
    assert (score[:n_left] <= 1e-5).all()
    assert (score[n_left:] > -1e-5).all()
    learnt = np.zeros(200, dtype=bool)
    learnt[rows[n_left:]] = True
    assert (learnt[50:150] == side).mean() > 0.8  # the sides can be learnt from the features
    assert (weights != 0).all()


def test_leaves_hold_all_rows_and_no_more_than_allowed() -> None:
    X, Y = noisy()
    data = training_rows(X, Y)
    tree, members = grow_row_tree(data, 10, 10.0, np.random.default_rng(0))
    held = np.diff(members.indptr)
    assert_array_equal(np.sort(members.indices), np.arange(200))
    assert (held[tree.left >= 0] == 0).all()
    assert (held[tree.left < 0] > 0).all()
    assert held.max() <= 10
    leaf = np.empty(200, dtype=int)
    leaf[members.indices] = np.repeat(np.arange(len(held)), held)
    assert (tree.leaves(X).ravel() == leaf).mean() > 0.98  # but for rounding on a boundary


def test_rows_with_equal_labels_stay_together() -> None:
    X, _ = noisy()
    same = csr_array(np.tile([[1.0, 0, 1]], (200, 1)).astype(np.float32))
    assert len(grow_row_tree(training_rows(X, same), 5, 1.0, np.random.default_rng(0))[0].left) == 1


def test_shares_of_labels() -> None:
    Y = csr_array(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 1.0]]))
    members = csr_array(np.array([[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1.0]]))
    expected = np.array([[2 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0, 0], [0, 0, 1, 1]])
    assert_allclose(label_shares(members, Y, 9).toarray(), expected, rtol=1e-6)
    expected[0, 2] = 0  # of equal shares the smaller number stays
    assert_allclose(label_shares(members, Y, 2).toarray(), expected, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_checkerboard(sparse: bool) -> None:
    X = CHECKERBOARD_X if sparse else CHECKERBOARD_X.toarray()
    model = FastXML(n_trees=10, max_leaf_size=12).fit(X, CHECKERBOARD_Y)
    labels, scores = model.predict_topk(X, k=2)
    assert_array_equal(labels[:, 0], np.repeat(np.arange(9), 12))
    assert scores[:, 0].min() > 0.5
    assert scores[:, 0].max() < 1 + 1e-5


def test_scores_are_means_over_trees() -> None:
    X, Y = noisy()
    model = FastXML(n_trees=7).fit(X, Y)
    expected = model.labels_.toarray()[model.forest_.leaves(X)].mean(axis=1)
    assert_allclose(model.score_all(X), expected, rtol=1e-5)
    labels, scores = model.predict_topk(X, k=3)
    found = labels >= 0
    rows = np.nonzero(found)[0]
    assert_allclose(scores[found], expected[rows, labels[found]], rtol=1e-5)
    assert_allclose(scores[:, 0], expected.max(axis=1), rtol=1e-5)


def test_more_trees_are_better() -> None:
    X, Y = noisy(600)
    few, many = (FastXML(n_trees=n).fit(X[:400], Y[:400]) for n in (1, 30))
    assert many.score(X[400:], Y[400:]) > few.score(X[400:], Y[400:])
    frequent = Y[400:].toarray().mean(axis=0).max()
    assert many.score(X[400:], Y[400:]) > frequent + 0.1


def test_threads_and_seed() -> None:
    X, Y = noisy()
    one, two, other = (
        FastXML(n_trees=5, n_jobs=n_jobs, random_state=seed).fit(X, Y)
        for n_jobs, seed in ((1, 0), (2, 0), (2, 1))
    )
    for a, b in zip(one.forest_, two.forest_, strict=True):
        a, b = (v.toarray() if v.ndim == 2 else v for v in (a, b))
        assert_array_equal(a, b)
    assert_array_equal(one.predict_topk(X)[1], two.predict_topk(X)[1])
    assert (one.predict_topk(X)[1] != other.predict_topk(X)[1]).any()


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        (np.ones((40, 2)), np.ones((40, 3))),  # every label on every row
        (np.zeros((40, 2)), np.eye(40, 3)),  # rows without features; rows without labels
        (np.ones((30, 2)), np.eye(30, 50)),  # labels without rows; duplicate rows
        (np.ones((1, 1)), np.ones((1, 1))),  # one of everything
        (np.eye(40, 5), np.zeros((40, 2))),  # no label anywhere
        (1e6 * np.eye(40, 5), np.eye(40, 5)),
    ],
)
def test_odd_data(X: np.ndarray, Y: np.ndarray) -> None:
    model = FastXML(n_trees=3).fit(X, csr_array(Y))
    labels, scores = model.predict_topk(X, k=10)
    assert labels.shape == (X.shape[0], min(10, Y.shape[1]))
    assert np.isfinite(scores[labels >= 0]).all()
    assert (scores[labels < 0] == -np.inf).all()
    assert ((labels >= 0).any() == Y.any()) or X.shape[0] == 1


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"C must be positive, got 0"):
        FastXML(C=0).fit(np.eye(2), [0, 1])
    for name in ("n_trees", "max_leaf_size", "max_leaf_labels"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            FastXML(**{name: 0}).fit(np.eye(2), [0, 1])
