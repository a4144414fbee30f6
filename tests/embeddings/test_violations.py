"""Violated pairs against plain numpy, and the gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.embeddings import violations
from labelry.embeddings.violations import LabelViolations, Paths, TreeViolations, warp_weights

N, C, K = 40, 9, 4


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def labels(rng: np.random.Generator, n: int = N, c: int = C, share: float = 0.25) -> csr_array:
    Y = csr_array((rng.random((n, c)) < share).astype(np.float32))
    Y.indices = Y.indices.astype(np.int32)
    return Y


def spaces(rng: np.random.Generator, n: int = N, m: int = C) -> tuple[np.ndarray, np.ndarray]:
    return (
        2 * rng.standard_normal((n, K), dtype=np.float32),
        rng.standard_normal((m, K), dtype=np.float32),
    )


def worst_wrong(S: np.ndarray, Y: csr_array) -> np.ndarray:
    return np.where(Y.toarray() > 0, -np.inf, S)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_the_hardest_negative_is_the_best_wrong_label(
    rng: np.random.Generator, n_jobs: int
) -> None:
    Y, (Z, V) = labels(rng), spaces(rng)
    offset = rng.standard_normal(C).astype(np.float32)
    find = LabelViolations(Y, "hardest", offset=offset, rng=rng, n_jobs=n_jobs)
    P = find(np.arange(N), Z, V).toarray()
    S = Z @ V.T + offset
    wrong = worst_wrong(S, Y)
    expected = np.zeros_like(P)
    for i, y in zip(*Y.nonzero(), strict=True):
        j = wrong[i].argmax()
        if 1 + wrong[i, j] - S[i, y] > 0:
            expected[i, j] += 1
            expected[i, y] -= 1
    assert_array_equal(P, expected)


def test_a_row_with_all_labels_violates_nothing(rng: np.random.Generator) -> None:
    Z, V = spaces(rng, 2, 3)
    Y = csr_array(np.ones((2, 3), dtype=np.float32))
    for negatives in ("hardest", "sampled", "warp"):
        P = LabelViolations(Y, negatives, rng=rng)(np.arange(2), Z, V)
        assert not P.data.any()


def test_sampled_negatives_violate_and_all_are_drawn(rng: np.random.Generator) -> None:
    Y, (Z, V) = labels(rng), spaces(rng)
    find = LabelViolations(Y, "sampled", rng=rng)
    S = Z @ V.T
    wrong = worst_wrong(S, Y)
    total = np.zeros((N, C))
    for _ in range(200):
        P = find(np.arange(N), Z, V).toarray()
        total += np.maximum(P, 0)
    for i in range(N):
        true = S[i, Y[[i]].indices]
        if len(true):
            assert_array_equal(total[i] > 0, 1 + wrong[i] - true.min() > 0)


def test_warp_weights_are_harmonic_sums_of_the_estimated_rank() -> None:
    weights = warp_weights(11)
    assert len(weights) == 11
    for draw in range(1, 11):
        rank = 10 // draw
        assert weights[draw] == pytest.approx(sum(1 / i for i in range(1, rank + 1)))
    assert warp_weights(1).tolist() == [0.0]


def test_warp_estimates_the_rank(rng: np.random.Generator) -> None:
    """With v violators among c labels a draw succeeds with probability v / c."""
    c, v = 101, 10
    S = np.zeros((4000, c), dtype=np.float32)
    S[:, :v] = 5.0  # violate
    S[:, -1] = 3.0  # the true label
    draws = np.arange(c, dtype=np.float32)  # weight = number of draws
    found, weights = np.empty(4000, dtype=np.int32), np.empty(4000, dtype=np.float32)
    ptr = np.arange(4001, dtype=np.int32)
    true = np.full(4000, c - 1, dtype=np.int32)
    violations.sampled_negatives(S, ptr, true, draws, 7, found, weights, 0, 4000)
    assert (found[weights > 0] < v).all()
    assert weights.mean() == pytest.approx(c / v, rel=0.06)
    assert_allclose(np.bincount(found, minlength=v) / 4000, 1 / v, atol=0.02)


def test_threads_draw_the_same(rng: np.random.Generator) -> None:
    Y, (Z, V) = labels(rng), spaces(rng)
    P, Q = (
        LabelViolations(Y, "warp", rng=np.random.default_rng(3), n_jobs=n)(np.arange(N), Z, V)
        for n in (1, 3)
    )
    assert_array_equal(P.indices, Q.indices)
    assert_array_equal(P.data, Q.data)


@pytest.mark.parametrize("negatives", ["hardest", "sampled", "warp"])
def test_of_very_many_labels_a_choice_is_scored(
    negatives: violations.Negatives, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(violations, "_MOST_SCORED", 20)
    Y, (Z, V) = labels(rng, c=300, share=0.01), spaces(rng, m=300)
    offset = np.zeros(300, dtype=np.float32)
    P = LabelViolations(Y, negatives, offset=offset, rng=rng)(np.arange(N), Z, V)
    S, wrong = Z @ V.T, worst_wrong(Z @ V.T, Y)
    for i in range(N):
        pairs = slice(P.indptr[i], P.indptr[i + 1])
        found, weight = P.indices[pairs].reshape(-1, 2), P.data[pairs].reshape(-1, 2)
        assert_array_equal(found[:, 1], Y[[i]].indices)
        for (j, y), (w, _) in zip(found, weight, strict=True):
            assert w == 0 or 1 + wrong[i, j] - S[i, y] > 0


def small_tree() -> Paths:
    """Root 0 with children 1, 2, 3; 1 has 4, 5, 6; 2 has 7, 8; 3 is a leaf.

    Leaves 3, 4, 5, 6, 7, 8 hold the labels 0, 1, 2, 3, 4, 3: label 3 has two.
    """
    first_child = np.array([1, 4, 7, 9, 9, 9, 9, 9, 9, 9], dtype=np.int32)
    parent = np.array([-1, 0, 0, 0, 1, 1, 1, 2, 2], dtype=np.int32)
    leaf_ptr = np.array([0, 1, 2, 3, 5, 6], dtype=np.int32)
    path_ptr = np.array([0, 1, 3, 5, 7, 9, 11], dtype=np.int32)
    path_nodes = np.array([3, 1, 4, 1, 5, 1, 6, 2, 8, 2, 7], dtype=np.int32)
    return Paths(first_child, parent, leaf_ptr, path_ptr, path_nodes)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_largest_violation_of_a_path_counts(rng: np.random.Generator, n_jobs: int) -> None:
    tree = small_tree()
    Y, (Z, V) = labels(rng, c=5, share=0.4), spaces(rng, m=9)
    P = TreeViolations(Y, tree, n_jobs=n_jobs)(np.arange(N), Z, V).toarray()
    F = Z @ V.T
    paths = np.split(tree.path_nodes, tree.path_ptr[1:-1])
    expected = np.zeros_like(P)
    for i in range(N):
        mine = Y[[i]].indices
        leaves = [range(tree.leaf_ptr[y], tree.leaf_ptr[y + 1]) for y in mine]
        true = {int(node) for group in leaves for leaf in group for node in paths[leaf]}
        for group in leaves:
            slacks = []
            for leaf in group:
                pairs = [
                    (1 + F[i, s] - F[i, r], r, s)
                    for r in paths[leaf]
                    for s in range(9)
                    if tree.parent[s] == tree.parent[r] and s not in true
                ]
                slacks.append(max(pairs, default=(-np.inf, 0, 0)))
            slack, r, s = min(slacks)
            if slack > 0:
                expected[i, s] += 1
                expected[i, r] -= 1
    assert_array_equal(P, expected)


def test_gradients_are_those_of_the_hinge_loss(rng: np.random.Generator) -> None:
    """P V in Z and P'Z in V, against central differences."""
    Y, (Z, V) = labels(rng), spaces(rng)
    Z, V = Z.astype(np.float64), V.astype(np.float64)

    def loss(Z: np.ndarray, V: np.ndarray) -> float:
        S = Z @ V.T
        worst = worst_wrong(S, Y).max(axis=1)
        return sum(max(0.0, 1 + worst[i] - S[i, y]) for i, y in zip(*Y.nonzero(), strict=True))

    find = LabelViolations(Y, "hardest", rng=rng)
    P = find(np.arange(N), Z.astype(np.float32), V.astype(np.float32))
    for M, gradient in ((Z, P @ V), (V, P.T @ Z)):
        numeric = np.empty_like(M)
        for at in np.ndindex(*M.shape):
            kept = M[at]
            M[at] = kept + 1e-6
            above = loss(Z, V)
            M[at] = kept - 1e-6
            numeric[at] = (above - loss(Z, V)) / 2e-6
            M[at] = kept
        assert_allclose(gradient, numeric, atol=1e-4)
