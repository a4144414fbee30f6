"""The logistic decoder against scikit-learn, its kernels against numpy, and odd data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import expit, log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from labelry.decoders import logistic, logistic_kernels
from labelry.decoders.logistic import fit_logistic
from labelry.decoders.random_features import make_random_features

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
    kernel: Callable[..., None], S: np.ndarray, Y: csr_array
) -> tuple[np.ndarray, np.ndarray]:
    out = S.astype(np.float32)
    losses = np.full(len(S), np.nan)
    bounds = np.arange(len(S) + 1) * S.shape[1]
    indptr, places = Y.indptr.astype(np.int64), Y.indices.astype(np.int64)
    kernel(out.reshape(-1), bounds, indptr, places, losses, 0, len(S))
    return out, losses


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("n_labels", [1, 7, 200])
def test_residual_kernels_equal_numpy(scale: float, n_labels: int) -> None:
    draw = rng()
    S = (draw.standard_normal((20, n_labels)) * scale).astype(np.float32)
    T = (draw.random(S.shape) < 0.2).astype(np.float32)
    T[3] = 0
    S64 = S.astype(np.float64)

    R, losses = residuals(logistic_kernels.sigmoid_rows, S, csr_array(T))
    assert_allclose(R, expit(S64) - T, atol=1e-6)
    expected = (np.logaddexp(0, S64) - T * S64).sum(axis=1)
    assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)

    R, losses = residuals(logistic_kernels.softmax_rows, S, csr_array(T))
    share = T / np.maximum(T.sum(axis=1, keepdims=True), 1)
    has_labels = T.any(axis=1)
    expected = (softmax(S64, axis=1) - share) * has_labels[:, None]
    assert_allclose(R, expected, atol=1e-6)
    assert_allclose(losses, -(share * log_softmax(S64, axis=1)).sum(1), rtol=1e-5, atol=1e-5)


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
def test_shortlist_of_all_labels_equals_exact(multiclass: bool) -> None:
    Z, Y = labels(n=500)
    exact, shortlist = (
        fit_logistic(Z, Y, multiclass=multiclass, n_negatives=n, rng=rng(), **TO_THE_END)  # type: ignore[arg-type]
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
        prepared.append(self.hard)

    monkeypatch.setattr(logistic._ShortlistLoss, "prepare", spy)
    Z, y = classes(c=100)
    fit_logistic(Z, one_hot(y), multiclass=True, max_epochs=8, held_out=0.0, rng=rng())
    assert len(prepared) == 3
    assert prepared[0].shape == (len(Z), 48)


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
    Z, Y = labels(c=1)
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
    if wide:  # scaled only
        monkeypatch.setattr(logistic, "_DECORRELATE", 50)
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
    with pytest.raises(ValueError, match="held_out must be"):
        fit_logistic(Z, one_hot(y), multiclass=True, held_out=1.0, rng=rng())
    with pytest.raises(ValueError, match="n_negatives must be"):
        fit_logistic(Z, one_hot(y), multiclass=True, n_negatives=0, rng=rng())
