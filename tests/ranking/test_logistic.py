"""The logistic decoder against scikit-learn, its kernels against numpy, and odd data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from labelry.ranking import logistic, logistic_kernels
from labelry.ranking.logistic import fit_logistic
from labelry.ranking.random_features import make_random_features

# To the optimum: all rows, no penalty, many epochs.
TO_THE_END = {"held_out": 0.0, "regularization": 0.0, "max_epochs": 150}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def one_hot(y: np.ndarray, n_labels: int | None = None) -> csr_array:
    return csr_array(np.eye(n_labels or y.max() + 1, dtype=np.float32)[y])


def classes(n: int = 2000, k: int = 4, c: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes; correlated columns of small and different scale, far from zero."""
    draw = np.random.default_rng(1)
    centres = draw.standard_normal((c, k))
    y = draw.integers(0, c, n)
    Z = centres[y] + draw.standard_normal((n, k))
    mix = draw.standard_normal((k, k)) * 0.7 ** np.arange(k)
    return (0.01 * Z @ mix + 0.1).astype(np.float32), y


def labels(n: int = 2000, k: int = 4, c: int = 6) -> tuple[np.ndarray, csr_array]:
    draw = np.random.default_rng(2)
    Z = draw.standard_normal((n, k)).astype(np.float32)
    P = expit(Z @ draw.standard_normal((k, c)) - np.linspace(0, 3, c))
    return Z, csr_array((draw.random((n, c)) < P).astype(np.float32))


def clouds(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Three well separated clouds."""
    y = np.arange(n) % 3
    centres = np.array([[0, 9], [9, 0], [-9, -9]], dtype=np.float32)
    return centres[y] + rng().standard_normal((n, 2)).astype(np.float32), y


# Kernels


def exp_row(x: np.ndarray, shift: float = 0.0) -> np.ndarray:
    out = x.astype(np.float32)
    bits = np.empty(out.size, dtype=np.int32)
    logistic_kernels.exp_row(out, np.float32(shift), bits, bits.view(np.float32))
    return out


def test_exp_is_exact_to_float32() -> None:
    x = np.linspace(-44, 0, 100_001).astype(np.float32)
    assert_allclose(exp_row(x), np.exp(x.astype(np.float64)), rtol=5e-7)
    assert_allclose(exp_row(x + 100, 100.0), np.exp((x + 100).astype(np.float64) - 100), rtol=5e-7)


def test_exp_of_very_negative_is_zero_not_denormal() -> None:
    assert_array_equal(exp_row(np.array([-45, -87, -88, -104, -1e4, -3e38, -np.inf])), 0.0)
    values = exp_row(np.linspace(-50, -40, 10_000))
    assert (values[values > 0] > 1e-20).all()


def residuals(
    multiclass: bool, S: np.ndarray, Y: csr_array, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    out = S.astype(np.float32)
    losses = np.full(len(S), np.nan)
    bounds = np.arange(len(S) + 1) * S.shape[1]
    indptr, places = Y.indptr.astype(np.int64), Y.indices.astype(np.int64)
    args = (out.reshape(-1), bounds, indptr, places, weights, losses, multiclass)
    half = len(S) // 2
    logistic_kernels.residual_rows(*args, 0, half)
    logistic_kernels.residual_rows(*args, half, len(S))
    return out, losses


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("n_labels", [1, 7, 200])
def test_residual_kernels_equal_numpy(scale: float, n_labels: int) -> None:
    draw = rng()
    S = (draw.standard_normal((20, n_labels)) * scale).astype(np.float32)
    T = (draw.random(S.shape) < 0.2).astype(np.float32)
    T[3] = 0
    S64 = S.astype(np.float64)
    w = np.repeat([1, 0.5, 3, 0], 5).astype(np.float32)

    R, losses = residuals(False, S, csr_array(T), w)
    assert_allclose(R, w[:, None] * (expit(S64) - T), atol=3e-6)
    expected = w * (np.logaddexp(0, S64) - T * S64).sum(axis=1)
    assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)

    R, losses = residuals(True, S, csr_array(T), w)
    share = T / np.maximum(T.sum(axis=1, keepdims=True), 1)
    has_labels = T.any(axis=1)
    expected = (softmax(S64, axis=1) - share) * (has_labels * w)[:, None]
    assert_allclose(R, expected, atol=3e-6)
    expected = -w * (share * log_softmax(S64, axis=1)).sum(axis=1)
    assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)


# The optimum


def test_multiclass_equals_scikit_learn() -> None:
    Z, y = classes()
    U = (Z - Z.mean(axis=0)) / Z.std(axis=0)  # scikit-learn needs it
    expected = LogisticRegression(C=1e6, max_iter=1000).fit(U, y).predict_proba(U)
    ours = fit_logistic(Z, one_hot(y), multiclass=True, rng=rng(), **TO_THE_END)  # type: ignore[arg-type]
    assert (ours.coef.shape, ours.coef.dtype) == ((4, 5), np.float32)
    assert (ours.intercept.shape, ours.intercept.dtype) == ((5,), np.float32)
    assert_allclose(softmax(ours(Z), axis=1), expected, atol=0.02)
    assert np.abs(softmax(ours(Z), axis=1) - expected).mean() < 0.005


def test_multilabel_equals_scikit_learn() -> None:
    Z, Y = labels()
    ours = expit(fit_logistic(Z, Y, multiclass=False, rng=rng(), **TO_THE_END)(Z))  # type: ignore[arg-type]
    for j, y in enumerate(Y.toarray().T):
        expected = LogisticRegression(C=1e6).fit(Z, y).predict_proba(Z)[:, 1]
        assert_allclose(ours[:, j], expected, atol=0.02)
        assert np.abs(ours[:, j] - expected).mean() < 0.005


def test_penalty_equals_scikit_learn() -> None:
    Z, Y = labels(n=300)
    Z -= Z.mean(axis=0)
    basis = np.linalg.qr(Z)[0]
    Z = (basis * np.sqrt(len(Z))).astype(np.float32)  # white: ours are Z / 2
    settings = {**TO_THE_END, "regularization": 20.0}
    ours = expit(fit_logistic(Z, Y, multiclass=False, rng=rng(), **settings)(Z))  # type: ignore[arg-type]
    for j, y in enumerate(Y.toarray().T):
        model = LogisticRegression(C=1 / 80.0).fit(Z, y)
        assert_allclose(ours[:, j], model.predict_proba(Z)[:, 1], atol=0.02)


@pytest.mark.parametrize("multiclass", [True, False])
def test_weights_count_rows(multiclass: bool) -> None:
    Z, Y = labels(n=300, c=3)
    w = (np.arange(len(Z)) % 3).astype(np.float32)
    copies = np.repeat(np.arange(len(Z)), w.astype(int))
    weighted, repeated = (
        fit_logistic(A, T, multiclass=multiclass, weights=v, rng=rng(), **TO_THE_END)(Z)  # type: ignore[arg-type]
        for A, T, v in ((Z, Y, w), (Z[copies], Y[copies], None))
    )
    link = (lambda S: softmax(S, axis=1)) if multiclass else expit
    assert_allclose(link(weighted), link(repeated), atol=0.02)


@pytest.mark.parametrize("multiclass", [True, False])
def test_shortlist_of_all_labels_equals_exact(multiclass: bool) -> None:
    Z, Y = labels(n=500)
    settings = {**TO_THE_END, "max_epochs": 60}
    exact, shortlist = (
        fit_logistic(Z, Y, multiclass=multiclass, n_negatives=n, rng=rng(), **settings)  # type: ignore[arg-type]
        for n in (None, 8)  # six of them the best: that is all
    )
    link = (lambda S: softmax(S, axis=1)) if multiclass else expit
    assert_allclose(link(shortlist(Z)), link(exact(Z)), atol=0.02)


def test_shortlists_suffice() -> None:
    Z, y = classes(n=3000, k=12, c=60)
    Y = one_hot(y)
    exact = fit_logistic(Z, Y, multiclass=True, rng=rng())
    short = fit_logistic(Z, Y, multiclass=True, n_negatives=16, max_epochs=30, rng=rng())
    right = [(m(Z).argmax(axis=1) == y).mean() for m in (exact, short)]
    assert right[0] > 0.3
    assert right[1] > 0.9 * right[0]


def test_many_labels_use_shortlists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "_EXACT", 10)
    prepared = []
    prepare = logistic._ShortlistLoss.prepare

    def spy(self: logistic._ShortlistLoss, W: np.ndarray, rows: np.ndarray) -> None:
        prepare(self, W, rows)
        prepared.append((self.likely.copy(), rows))

    monkeypatch.setattr(logistic._ShortlistLoss, "prepare", spy)
    Z, y = classes(c=100)
    fit_logistic(Z, one_hot(y), multiclass=True, max_epochs=8, held_out=0.1, rng=rng())
    (first, rows), *_, (last, _) = prepared
    assert len(prepared) == 3
    assert first.shape == (len(Z), 48)
    judges = np.setdiff1d(np.arange(len(Z)), rows)
    assert_array_equal(first[judges], last[judges])  # their losses stay comparable
    assert (first[rows] != last[rows]).any()


def shortlist_loss(Z: np.ndarray, Y: csr_array, n_negatives: int) -> logistic._ShortlistLoss:
    """Untouched by whitening: the features are Z and a constant."""
    F = np.hstack([Z, np.ones((len(Z), 1), dtype=np.float32)])
    cells = logistic._cells(Z, 1, rng())
    ones = np.ones(len(Z), dtype=np.float32)
    return logistic._ShortlistLoss(
        lambda rows: F[rows], Y, ones, True, 1, n_negatives, cells, rng()
    )


def test_likely_labels_are_the_best_of_the_cell() -> None:
    Z, y = classes(n=1500, k=6, c=80)
    Y = one_hot(y)
    loss = shortlist_loss(Z, Y, 8)
    train = np.arange(1000)
    loss.prepare(np.zeros((80, 7), dtype=np.float32), train)
    W = np.random.default_rng(3).standard_normal((80, 7)).astype(np.float32)
    loss.prepare(W, train)
    assert len(loss.cells) > 1
    for cell in loss.cells:
        members = np.intersect1d(cell, train)
        present = np.unique(y[members])
        for row in members[:5]:
            scores = W[present] @ np.append(Z[row], np.float32(1))
            expected = present[np.argsort(-scores)][:6]
            assert set(loss.likely[row]) == set(expected)


def test_cells_partition_the_rows_and_keep_clouds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic, "_CELL_ROWS", 20)
    Z, y = clouds()
    cells = logistic._cells(Z, 1, rng())
    assert len(cells) == 30
    assert_array_equal(np.sort(np.concatenate(cells)), np.arange(len(Z)))
    assert all(len(set(y[cell])) <= 1 for cell in cells)


def test_shortlist_gradient_equals_numpy() -> None:
    Z, y = classes(n=300, k=4, c=50)
    loss = shortlist_loss(Z, one_hot(y), 8)
    rows = np.arange(0, 300, 3)
    W = np.random.default_rng(4).standard_normal((50, 5)).astype(np.float32)
    loss.prepare(W, rows)
    loss.rng = np.random.default_rng(9)
    labels_touched, G = loss.gradient(rows, W)
    pairs = loss._residuals(rows, loss.source(rows), W, np.random.default_rng(9))[1:3]
    chosen = np.zeros((len(rows), 50), dtype=bool)
    chosen[pairs] = True
    assert chosen[np.arange(len(rows)), y[rows]].all()
    F = loss.source(rows).astype(np.float64)
    P = softmax(np.where(chosen, F @ W.T, -np.inf), axis=1)
    expected = (P - one_hot(y)[rows].toarray()).T @ F
    assert_array_equal(labels_touched, np.flatnonzero(chosen.any(axis=0)))
    assert_allclose(G, expected[labels_touched], atol=1e-4)


# Whitening


def spread_out(n: int = 3000, m: int = 30, strong: int = 5) -> np.ndarray:
    """A few strong directions, the others alike; far from zero."""
    draw = np.random.default_rng(5)
    Q = np.linalg.qr(draw.standard_normal((m, m)))[0]
    deviation = np.where(np.arange(m) < strong, 10.0 - np.arange(m), 0.1)
    return ((draw.standard_normal((n, m)) * deviation) @ Q + 3.0).astype(np.float32)


@pytest.mark.parametrize("ridge", [0.1, 1.0])
def test_whitening_is_the_inverse_root_of_the_covariance(ridge: float) -> None:
    Z = spread_out()
    C = np.cov(Z.T, bias=True)
    values, P = np.linalg.eigh(C)
    root = (P / np.sqrt(values + ridge * values.mean())) @ P.T
    _, source = logistic._whiten(Z, None, np.arange(len(Z)), ridge, rng())
    assert_allclose(source(np.arange(50))[:, :-1], (Z[:50] - Z.mean(axis=0)) @ root, atol=0.02)
    assert_array_equal(source(np.arange(50))[:, -1], 1.0)


def test_leading_directions_suffice_for_whitening(monkeypatch: pytest.MonkeyPatch) -> None:
    Z = spread_out()
    rows = np.arange(len(Z))
    full = logistic._whiten(Z, None, rows, 0.01, rng())[1](rows)
    monkeypatch.setattr(logistic, "_WHITENED", 5)
    whitening, source = logistic._whiten(Z, lambda F: F, rows, 0.01, rng())
    assert whitening.basis.shape == (30, 5)
    assert_allclose(source(rows), full, atol=0.02)


def test_whitening_can_be_undone() -> None:
    Z = spread_out()
    W = np.random.default_rng(6).standard_normal((4, 31)).astype(np.float32)
    whitening, source = logistic._whiten(Z, None, np.arange(len(Z)), 1.0, rng())
    rows = np.arange(20)
    assert_allclose(whitening.undone(W)(Z[rows]), source(rows) @ W.T, atol=1e-3)


# Odd data


@pytest.mark.parametrize("multiclass", [True, False])
@pytest.mark.parametrize("n_negatives", [None, 1, 2])
def test_separable(multiclass: bool, n_negatives: int | None) -> None:
    Z, y = clouds()
    model = fit_logistic(
        Z, one_hot(y), multiclass=multiclass, n_negatives=n_negatives, max_epochs=20, rng=rng()
    )
    assert np.isfinite(model.coef).all()
    assert_array_equal(model(Z).argmax(axis=1), y)


@pytest.mark.parametrize("multiclass", [True, False])
def test_single_class(multiclass: bool) -> None:
    Z, _ = clouds()
    Y = csr_array(np.ones((len(Z), 1), dtype=np.float32))
    model = fit_logistic(Z, Y, multiclass=multiclass, rng=rng())
    assert np.isfinite(model(Z)).all()
    if not multiclass:
        assert (expit(model(Z)) > 0.98).all()


def test_two_classes_are_one_sigmoid() -> None:
    Z, Y = labels(n=500, c=1)
    y = Y.toarray().ravel().astype(int)
    S = fit_logistic(Z, one_hot(y), multiclass=True, rng=rng(), **TO_THE_END)(Z)  # type: ignore[arg-type]
    s = fit_logistic(Z, Y, multiclass=False, rng=rng(), **TO_THE_END)(Z)  # type: ignore[arg-type]
    assert_allclose(softmax(S, axis=1)[:, 1], expit(s)[:, 0], atol=0.02)


def test_labels_without_rows_are_unlikely() -> None:
    Z, y = clouds()
    Y = one_hot(y, n_labels=5)
    for multiclass in (True, False):
        S = fit_logistic(Z, Y, multiclass=multiclass, rng=rng())(Z)
        P = softmax(S, axis=1) if multiclass else expit(S)
        assert (P[:, 3:] < 0.05).all()


def test_rows_without_labels() -> None:
    Z, y = clouds()
    Y = one_hot(y).toarray()
    Y[y == 2] = 0
    # Classes: such rows do not count, so the third class is unknown.
    S = fit_logistic(Z, csr_array(Y), multiclass=True, rng=rng())(Z)
    assert_array_equal(S[y < 2].argmax(axis=1), y[y < 2])
    # Labels: such rows have none.
    P = expit(fit_logistic(Z, csr_array(Y), multiclass=False, rng=rng())(Z))
    assert_array_equal(P > 0.5, Y > 0)


def test_several_labels_share_a_row() -> None:
    Z, y = clouds()
    Y = one_hot(y, 4).toarray()
    Y[y == 2, 3] = 1.0
    P = softmax(fit_logistic(Z, csr_array(Y), multiclass=True, rng=rng())(Z), axis=1)
    assert_allclose(P[y == 2].mean(axis=0), [0, 0, 0.5, 0.5], atol=0.05)


def test_explicit_zeros_are_no_labels() -> None:
    Z, y = clouds()
    Y = one_hot(y)
    stored = csr_array(np.ones(Y.shape, dtype=np.float32))
    stored.data[:] = Y.toarray().ravel()
    assert stored.nnz > Y.nnz
    a, b = (fit_logistic(Z, A, multiclass=True, rng=rng()) for A in (Y, stored))
    assert_array_equal(a.coef, b.coef)


@pytest.mark.parametrize("multiclass", [True, False])
def test_constant_features_give_the_frequencies(multiclass: bool) -> None:
    y = np.repeat([0, 1], [300, 100])
    Z = np.full((400, 3), 5.0, dtype=np.float32)
    S = fit_logistic(Z, one_hot(y), multiclass=multiclass, held_out=0.0, rng=rng())(Z)
    P = softmax(S, axis=1) if multiclass else expit(S)
    assert_allclose(P[0], [0.75, 0.25], atol=0.02)


def test_a_handful_of_rows() -> None:
    Z = np.eye(3, dtype=np.float32)
    model = fit_logistic(Z, one_hot(np.arange(3)), multiclass=True, rng=rng())
    assert_array_equal(model(Z).argmax(axis=1), [0, 1, 2])


# Behaviour


@pytest.mark.parametrize("n_negatives", [None, 4])
def test_same_seed_same_bytes_and_threads_agree(n_negatives: int | None) -> None:
    Z, Y = labels(n=600)
    one, again, two = (
        fit_logistic(Z, Y, multiclass=True, n_negatives=n_negatives, n_jobs=j, rng=rng())
        for j in (1, 1, 2)
    )
    assert_array_equal(one.coef, again.coef)
    assert_allclose(one(Z), two(Z), atol=0.01)


def test_scale_of_the_features_does_not_matter() -> None:
    Z, y = classes()
    one, other = (fit_logistic(A, one_hot(y), multiclass=True, rng=rng())(A) for A in (Z, 1e-3 * Z))
    assert_allclose(one, other, atol=0.05)


def test_early_stopping_prevents_overfitting() -> None:
    draw = rng()
    Z = draw.standard_normal((400, 100)).astype(np.float32)
    Y = one_hot(draw.integers(0, 2, 400))
    Z_new, y_new = draw.standard_normal((2000, 100)).astype(np.float32), draw.integers(0, 2, 2000)
    stopped = fit_logistic(Z, Y, multiclass=True, held_out=0.2, rng=rng())
    overfitted = fit_logistic(Z, Y, multiclass=True, held_out=0.0, rng=rng())

    def loss(model: Callable[[np.ndarray], np.ndarray]) -> float:
        return float(-log_softmax(model(Z_new), axis=1)[np.arange(2000), y_new].mean())

    assert loss(stopped) < 0.75  # log 2 = 0.69 is all that noise allows
    assert loss(overfitted) > 0.85


@pytest.mark.parametrize("wide", [False, True])
def test_feature_map_makes_it_nonlinear(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if wide:  # more features than directions that are whitened
        monkeypatch.setattr(logistic, "_WHITENED", 50)
    Z = rng().standard_normal((2000, 2)).astype(np.float32)
    y = (np.abs(Z).sum(axis=1) > 1.5).astype(int)
    phi = make_random_features(Z, 200, rng=rng())
    model = fit_logistic(Z, one_hot(y), features=phi, multiclass=True, rng=rng())
    assert model.coef.shape == (200, 2)
    assert (model(phi(Z)).argmax(axis=1) == y).mean() > 0.95
    plain = fit_logistic(Z, one_hot(y), multiclass=True, rng=rng())
    assert (plain(Z).argmax(axis=1) == y).mean() < 0.8


def test_bad_arguments() -> None:
    Z, y = clouds()
    with pytest.raises(ValueError, match="same rows"):
        fit_logistic(Z[:-1], one_hot(y), multiclass=True, rng=rng())
    with pytest.raises(ValueError, match="no rows"):
        fit_logistic(Z[:0], one_hot(y)[:0], multiclass=True, rng=rng())
    with pytest.raises(ValueError, match="weights must be 600 numbers"):
        fit_logistic(Z, one_hot(y), multiclass=True, weights=-np.ones(600, np.float32), rng=rng())
