"""One-vs-rest: the optimum, the forms of input, odd data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.sparse import csr_array, issparse, random_array

from labelry.estimators.baselines import OneVsRest

# Nine blocks on the diagonal: label j is on the rows that have features 3j, 3j+1, 3j+2.
CHECKERBOARD_X = csr_array(np.kron(np.eye(9), np.ones((4, 3))), dtype=np.float32)
CHECKERBOARD_Y = csr_array(np.kron(np.eye(9), np.ones((4, 1))), dtype=np.float32)


def noisy(n: int = 120, d: int = 15, c: int = 20) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(0)
    X = random_array((n, d), density=0.4, rng=rng, format="csr", dtype=np.float32)
    W = rng.standard_normal((d, c))
    Y = csr_array((X @ W + rng.standard_normal((n, c)) > 1.5).astype(np.float32))
    return X, Y


def objective(loss: str, C: float, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    margin = y * (X @ w)
    value = np.maximum(0, 1 - margin) ** 2 if loss == "squared_hinge" else np.logaddexp(0, -margin)
    return 0.5 * w @ w + C * value.sum()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("C", [0.1, 3.0])
def test_reaches_the_optimum_of_each_label(loss: str, C: float) -> None:
    X, Y = noisy()
    model = OneVsRest(loss=loss, C=C, normalize=False, tolerance=1e-4, max_sweeps=2000).fit(X, Y)
    A = np.hstack([X.toarray(), np.ones((X.shape[0], 1))]).astype(np.float64)
    for label in (0, 7, 19):
        y = 2 * Y.toarray()[:, label] - 1
        best = minimize(lambda w: objective(loss, C, A, y, w), np.zeros(A.shape[1]))  # noqa: B023
        ours = np.append(model.coef_[:, label], model.intercept_[label])
        assert objective(loss, C, A, y, ours) <= best.fun * (1 + 1e-4)
        assert_allclose(ours, best.x, atol=5e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("prune", [0.0, 1e-3])
def test_checkerboard(loss: str, dense: bool, prune: float) -> None:
    X = CHECKERBOARD_X.toarray() if dense else CHECKERBOARD_X
    model = OneVsRest(loss=loss, prune=prune).fit(X, CHECKERBOARD_Y)
    labels, scores = model.predict_topk(X, k=2)
    assert_array_equal(labels[:, 0], np.repeat(np.arange(9), 4))
    assert (scores[:, 0] > scores[:, 1]).all()
    assert model.score(X, CHECKERBOARD_Y) == 1.0
    assert issparse(model.coef_) == (prune > 0)


def test_threads_and_seed() -> None:
    X, Y = noisy(c=40)
    one, two, other = (
        OneVsRest(n_jobs=n_jobs, random_state=seed).fit(X, Y)
        for n_jobs, seed in ((1, 0), (2, 0), (2, 1))
    )
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert one.coef_.tobytes() != other.coef_.tobytes()
    assert_allclose(one.coef_, other.coef_, atol=0.05)


def test_pruned_weights_are_the_large_ones() -> None:
    X, Y = noisy()
    whole, pruned = OneVsRest().fit(X, Y), OneVsRest(prune=0.2).fit(X, Y)
    expected = np.where(np.abs(whole.coef_) > 0.2, whole.coef_, 0)
    assert_array_equal(pruned.coef_.toarray(), expected)
    assert_array_equal(pruned.intercept_, whole.intercept_)


def test_logistic_scores_are_probabilities() -> None:
    X, Y = noisy()
    model = OneVsRest(loss="logistic").fit(X, Y)
    S = model.score_all(X)
    assert S.min() > 0
    assert S.max() < 1
    assert_allclose(S.mean(axis=0), Y.toarray().mean(axis=0), atol=0.12)


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        (np.ones((4, 2)), np.ones((4, 3))),  # every label on every row
        (np.zeros((4, 2)), np.eye(4, 3)),  # rows without features; a row without labels
        (np.ones((3, 2)), np.eye(3, 5)),  # labels without rows; duplicate rows
        (np.ones((1, 1)), np.ones((1, 1, 1))[0]),  # one of everything
    ],
)
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_odd_data(X: np.ndarray, Y: np.ndarray, loss: str) -> None:
    model = OneVsRest(loss=loss).fit(X, csr_array(Y))
    labels, scores = model.predict_topk(X, k=10)
    assert labels.shape == (X.shape[0], Y.shape[1])
    assert np.isfinite(scores).all()


def test_errors_name_the_parameter() -> None:
    X, Y = noisy()
    with pytest.raises(ValueError, match="loss must be one of squared_hinge, logistic; got 'l1'"):
        OneVsRest(loss="l1").fit(X, Y)
    with pytest.raises(ValueError, match="C must be positive, got -1"):
        OneVsRest(C=-1).fit(X, Y)
    with pytest.raises(ValueError, match="prune must be at least 0"):
        OneVsRest(prune=-0.1).fit(X, Y)
    with pytest.raises(ValueError, match="max_sweeps must be at least 1, got 0"):
        OneVsRest(max_sweeps=0).fit(X, Y)
