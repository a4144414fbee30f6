"""Joint embeddings: the step against numpy, and what learning keeps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.embeddings.joint_descent import (
    JointMap,
    adagrad_rows,
    descend,
    random_start,
    unit_start,
)
from labelry.embeddings.violations import LabelViolations, Negatives
from labelry.linalg.solve import LinearMap

N, D, K = 40, 12, 4


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def worst_wrong(S: np.ndarray, Y: csr_array) -> np.ndarray:
    return np.where(Y.toarray() > 0, -np.inf, S)


def test_adagrad_takes_a_step_for_each_nonzero(rng: np.random.Generator) -> None:
    A = csr_array(((rng.random((N, D)) < 0.3) * rng.standard_normal((N, D))).astype(np.float32))
    A.data[::7] = 0.0
    G = rng.standard_normal((N, K), dtype=np.float32)
    G[3] = 0.0
    M, energy = np.ones((D, K), dtype=np.float32), np.zeros(D, dtype=np.float32)
    adagrad_rows(A.indptr, A.indices, A.data, G, M, energy, 0.3)
    expected, squares = np.ones((D, K)), np.zeros(D)
    for i, j in zip(*A.nonzero(), strict=True):
        step = A[i, j] * G[i]
        if (step != 0).any():
            squares[j] += step @ step
            expected[j] -= 0.3 * step / np.sqrt(squares[j])
    assert_allclose(M, expected, atol=1e-4)
    assert_allclose(energy, squares, rtol=1e-4)


def planted(rng: np.random.Generator, n: int = 300, c: int = 20) -> tuple[csr_array, csr_array]:
    """Rows near one of c directions, each with the label of that direction."""
    y = rng.integers(c, size=n)
    X = rng.standard_normal((c, D))[y] + 0.3 * rng.standard_normal((n, D))
    return csr_array(X.astype(np.float32)), csr_array(np.eye(c, dtype=np.float32)[y])


def hinge(found: JointMap, X: csr_array, Y: csr_array) -> float:
    S = found.regressor(X) @ found.vectors.T
    true = np.where(Y.toarray() > 0, S, -np.inf).max(axis=1)
    return float(np.maximum(0, 1 + worst_wrong(S, Y).max(axis=1) - true).mean())


@pytest.mark.parametrize("negatives", ["hardest", "sampled", "warp"])
def test_learning_lowers_the_loss_within_the_unit_ball(
    negatives: Negatives, rng: np.random.Generator
) -> None:
    X, Y = planted(rng)
    start = random_start(D, Y.shape[1], 6, rng)
    losses = [hinge(start, X, Y)]
    for epochs in (1, 5, 20):
        find = LabelViolations(Y, negatives, rng=np.random.default_rng(0))
        found = descend(
            X,
            start,
            find,
            rows=np.arange(X.shape[0]),
            max_epochs=epochs,
            regularization=0.0,
            rng=np.random.default_rng(0),
        )
        losses.append(hinge(found, X, Y))
        assert np.linalg.norm(found.vectors, axis=1).max() <= 1 + 1e-5
    assert losses[3] < losses[2] < losses[0]
    assert losses[3] < 0.25 * losses[0]


def test_fixed_vectors_stay(rng: np.random.Generator) -> None:
    X, Y = planted(rng)
    start = random_start(D, Y.shape[1], 15, rng)
    find = LabelViolations(Y, "hardest", rng=rng)
    rows = np.arange(X.shape[0])
    found = descend(X, start, find, rows=rows, fixed_vectors=True, rng=rng)
    assert_array_equal(found.vectors, start.vectors)
    assert hinge(found, X, Y) < 0.5 * hinge(start, X, Y)


def test_the_best_epoch_is_returned(rng: np.random.Generator) -> None:
    X, Y = planted(rng)
    seen: list[JointMap] = []

    def quality(now: JointMap) -> float:
        seen.append(JointMap(now.regressor, now.vectors.copy()))
        return -abs(len(seen) - 3)  # the third is best

    find = LabelViolations(Y, "hardest", rng=rng)
    start = random_start(D, Y.shape[1], 6, rng)
    rows = np.arange(X.shape[0])
    best = descend(X, start, find, rows=rows, quality=quality, max_epochs=20, rng=rng)
    assert len(seen) == 8  # stopped when five epochs were no better
    assert_array_equal(best.vectors, seen[2].vectors)
    assert_array_equal(best.regressor.coef, seen[2].regressor.coef)


def test_only_the_given_rows_are_learnt_from(rng: np.random.Generator) -> None:
    X, Y = planted(rng)
    rows = np.arange(100, 300)
    other = X.copy()
    other.data[: other.indptr[100]] = 99.0
    found = [
        descend(
            A,
            random_start(D, Y.shape[1], 5, np.random.default_rng(0)),
            LabelViolations(Y, "hardest", rng=rng),
            rows=rows,
            max_epochs=2,
            rng=np.random.default_rng(0),
        )
        for A in (X, other)
    ]
    assert_array_equal(found[0].vectors, found[1].vectors)


@pytest.mark.parametrize("dense", [False, True])
def test_scale_of_the_features_does_not_matter(rng: np.random.Generator, dense: bool) -> None:
    X, Y = planted(rng)
    Z = []
    for factor in (1.0, 1024.0):
        A = csr_array(X * np.float32(factor))
        found = descend(
            A.toarray() if dense else A,
            JointMap(
                LinearMap(
                    np.ones((D, 3), dtype=np.float32) / np.float32(factor), np.zeros(3, np.float32)
                ),
                np.eye(20, 3, dtype=np.float32),
            ),
            LabelViolations(Y, "hardest", rng=rng),
            rows=np.arange(300),
            max_epochs=3,
            rng=np.random.default_rng(0),
        )
        Z.append(found.regressor(A))
    assert_allclose(Z[0], Z[1], rtol=1e-3, atol=1e-3)


def test_starting_vectors_have_unit_length(rng: np.random.Generator) -> None:
    V = rng.standard_normal((5, 3)).astype(np.float32)
    V[2] = 0.0
    start = JointMap(LinearMap(np.ones((2, 3), np.float32), np.zeros(3, np.float32)), V)
    lengths = np.linalg.norm(unit_start(start).vectors, axis=1)
    assert_allclose(lengths, [1, 1, 0, 1, 1], atol=1e-6)
