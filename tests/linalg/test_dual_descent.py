"""Dual coordinate descent by blocks, against a plain computation and against one block."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.linalg import dual_descent
from labelry.linalg.dual_descent import (
    LaneProblem,
    block_bounds,
    go_on,
    new_sweeps,
    shuffle,
    sweep_block,
)
from labelry.linalg.lanes import LANES

C, TOLERANCE = 0.7, 1.0


def problem(n: int = 60, d: int = 12) -> tuple[csr_array, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = csr_array(random_array((n, d), density=0.3, random_state=rng, dtype=np.float32))
    score = X @ rng.standard_normal((d, LANES)) + 0.3 * rng.standard_normal((n, LANES))
    signs = np.where(score > 0.2, 1, -1).astype(np.int8)
    energy = dual_descent.row_energies(X.indptr, X.data)
    assert_allclose(energy, X.multiply(X).sum(axis=1) + 1.0, rtol=1e-6)
    return X, signs, energy


def plain_sweep(X, signs, energy, alpha, order, W, n_active: int, state) -> tuple[int, int]:
    """One sweep of Algorithm 1 of Hsieh et al. with D_ii = 1 / (2 C); rows that rest go last."""
    A = np.hstack([X.toarray(), np.ones((X.shape[0], 1))])
    state = shuffle(order[:n_active], np.uint64(state))
    at = 0
    while at < n_active:
        i = order[at]
        G = signs[i] * (A[i] @ W) - 1 + alpha[i] / (2 * C)
        projected = np.where(alpha[i] == 0, np.minimum(G, 0), G)
        new = np.maximum(alpha[i] - G / (energy[i] + 1 / (2 * C)), 0)
        W += np.outer(A[i], (new - alpha[i]) * signs[i])
        alpha[i] = new
        if np.abs(projected).max() <= TOLERANCE / 2:
            n_active -= 1
            order[[at, n_active]] = order[[n_active, at]]
        else:
            at += 1
    return n_active, state


def test_the_kernel_is_the_plain_sweep() -> None:
    X, signs, energy = problem()
    rows = np.arange(10, 50, dtype=np.int32)  # a block of them
    alpha = np.zeros((60, LANES), dtype=np.float32)
    W = np.zeros((13, LANES), dtype=np.float32)
    theirs = alpha.astype(np.float64), rows.copy(), W.astype(np.float64)
    sweeps, order = new_sweeps(np.array([40]), 0, 7, dual_descent.NO_END), rows.copy()
    for _ in range(6):
        expected = plain_sweep(X, signs, energy, *theirs, sweeps.n_active[0], sweeps.state[0])
        given = LaneProblem(X.indptr, X.indices, X.data, signs, energy, C, TOLERANCE)
        sweeps.counts[2] = sweeps.counts[1] + 1  # one sweep
        sweep_block(sweeps, 0, True, given, alpha, order, W)
        assert (sweeps.n_active[0], sweeps.state[0]) == expected
        assert_array_equal(order, theirs[1])
        assert_allclose(alpha, theirs[0], atol=1e-4)
        assert_allclose(W, theirs[2], atol=1e-4)
    assert 0 < sweeps.n_active[0] < 40
    assert not alpha[:10].any()


def test_where_blocks_begin() -> None:
    indptr = np.array([0, 2, 2, 2, 9, 10, 11])  # rows begin at 0, 3, 4, 5, 13, 15
    assert block_bounds(indptr, 0, dual_descent.BLOCK).tolist() == [0, 6]
    assert block_bounds(indptr, 0, 4).tolist() == [0, 2, 4, 6]
    assert block_bounds(indptr, 1, 4).tolist() == [0, 1, 4, 5, 6]
    assert block_bounds(np.zeros(1, dtype=np.int32), 0, 4).tolist() == [0, 0]


@pytest.mark.parametrize("loss", get_args(dual_descent.MarginLoss))
def test_blocks_lead_to_the_same_optimum(loss, monkeypatch: pytest.MonkeyPatch) -> None:
    X, signs, energy = problem()
    found = []
    for size in (1 << 22, 100):
        monkeypatch.setattr(dual_descent, "BLOCK", size)
        W = np.zeros((13, LANES), dtype=np.float32)
        csr = (X.indptr, X.indices, X.data)
        given = LaneProblem(*csr, signs, energy, C, 1e-3)
        sweeps = dual_descent.train_lanes(loss, given, 5000, 7, W)
        assert 1 < sweeps < 5000
        found.append(W)
    assert len(block_bounds(X.indptr, 0, 100)) > 3
    assert_allclose(found[1], found[0], atol=5e-3)
    assert not np.array_equal(found[1], found[0])  # another order of visits


def test_all_rows_are_visited_once_more_before_the_end() -> None:
    X, signs, energy = problem()
    sweeps = new_sweeps(np.array([40, 20]), 100, 1, dual_descent.NO_END)
    alpha, W = np.zeros((60, LANES), np.float32), np.zeros((13, LANES), np.float32)
    parts = np.arange(40, dtype=np.int32), np.arange(40, 60, dtype=np.int32)
    given = LaneProblem(X.indptr, X.indices, X.data, signs, energy, C, TOLERANCE)
    active, more = [], True
    while more:
        active.append(sweeps.n_active.tolist())
        for block in np.flatnonzero(sweeps.n_active):
            sweep_block(sweeps, block, True, given, alpha, parts[block], W)
        more = go_on(sweeps)
    assert active[0] == active[-1] == [40, 20]
    assert min(map(sum, active)) < 60
    assert len(active) < 100
    assert not go_on(new_sweeps(np.array([3]), 0, 1, dual_descent.NO_END))
    assert not go_on(new_sweeps(np.array([0]), 9, 1, dual_descent.NO_END))


def test_more_rounds_are_nearer_to_the_optimum() -> None:
    X, signs, energy = problem()
    found, sweeps = [], []
    for rounds, tolerance in ((1, 0.2), (2, 0.2), (0, 0.2), (0, 1e-3)):
        W = np.zeros((13, LANES), dtype=np.float32)
        csr = (X.indptr, X.indices, X.data)
        given = LaneProblem(*csr, signs, energy, C, tolerance)
        made = dual_descent.train_lanes("squared_hinge", given, 5000, 7, W, rounds)
        sweeps.append(made)
        found.append(W)
    errors = [np.linalg.norm(W - found[-1]) for W in found[:-1]]
    assert sweeps == sorted(sweeps)
    assert errors == sorted(errors, reverse=True)
    assert sweeps[0] < sweeps[2]
    assert errors[1] < 0.7 * errors[0]
