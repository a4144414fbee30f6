"""LPSR: naive Bayes, the choice of labels, ranking them alone, odd data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from scipy.sparse import csr_array, random_array
from sklearn.naive_bayes import MultinomialNB

from labelry.errors import MemoryBudgetError
from labelry.estimators.baselines import OneVsRest
from labelry.estimators.trees import LPSR
from labelry.trees.lpsr import choose_labels, naive_bayes, relaxed_precision


def noisy(n: int = 300, d: int = 25, c: int = 40) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(0)
    X = random_array((n, d), density=0.4, rng=rng, format="csr", dtype=np.float32)
    W = rng.standard_normal((d, c))
    return X, csr_array((X @ W + 0.3 * rng.standard_normal((n, c)) > 1.5).astype(np.float32))


@pytest.mark.parametrize("base", ["linear", "naive-bayes"])
@pytest.mark.parametrize("sparse", [False, True])
def test_ranks_the_labels_of_the_leaf_as_the_base_does(base: str, sparse: bool) -> None:
    X, Y = noisy()
    given = X if sparse else X.toarray()
    model = LPSR(base=base, max_leaf_size=60, max_leaf_labels=8).fit(given, Y)
    labels, scores = model.predict_topk(given, k=5)
    rows = X.toarray()
    if base == "linear":
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    S = rows @ model.coef_ + model.intercept_
    leaf = model.partition_.leaves(csr_array(rows)).ravel()
    listed = model.leaf_labels_.toarray()[leaf] > 0
    assert listed.sum(axis=1).max() <= 8
    S = np.where(listed, S, -np.inf)  # brute force: no other label can be found
    assert_allclose(scores, -np.sort(-S, axis=1)[:, :5], rtol=1e-4, atol=1e-4)
    assert listed[np.arange(300)[:, None], labels][labels >= 0].all()


def test_without_limits_it_is_the_base() -> None:
    X, Y = noisy()
    base = OneVsRest().fit(X, Y)
    model = LPSR(max_leaf_size=1000, max_leaf_labels=40).fit(X, Y)
    assert len(model.partition_.left) == 1
    assert_allclose(model.coef_, base.coef_, atol=1e-6)
    missing = model.leaf_labels_.toarray()[0] == 0
    S = np.where(missing, -np.inf, base.score_all(X))
    assert_allclose(model.predict_topk(X, k=3)[1], -np.sort(-S, axis=1)[:, :3], atol=1e-4)


def test_naive_bayes_of_each_label() -> None:
    X, Y = noisy()
    X = csr_array(np.ceil(3 * X.toarray()).astype(np.float32))
    coef, intercept = naive_bayes(X, Y)
    smoothing = X.data.mean()
    for label in (0, 7, 39):
        y = Y.toarray()[:, label].astype(int)
        theirs = MultinomialNB(alpha=smoothing).fit(X, y).feature_log_prob_
        assert_allclose(coef[:, label], theirs[1] - theirs[0], rtol=1e-3, atol=1e-4)
        assert_allclose(intercept[label], np.log((y.sum() + 1) / (301 - y.sum())), rtol=1e-5)
    dense, _ = naive_bayes(X.toarray(), Y)
    assert_allclose(dense, coef, rtol=1e-4, atol=1e-5)


def ranked_rows(n: int = 60, c: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    ranked = np.array([rng.permutation(c) for _ in range(n)])
    return ranked, rng.random((n, c)) < 0.2


def test_gradient_of_the_relaxed_precision() -> None:
    place, right = ranked_rows()
    alpha = np.random.default_rng(0).random(12)
    value, gradient = relaxed_precision(alpha, place, right, 2)
    expected = sum(
        alpha[y] / (1 + np.exp(alpha[place[t, :r]].sum() - 1.5))
        for t in range(60)
        for r, y in enumerate(place[t])
        if right[t, r]
    )
    assert_allclose(value, expected)
    numeric = approx_fprime(alpha, lambda a: relaxed_precision(a, place, right, 2)[0], 1e-6)
    assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3)


def hits(chosen: np.ndarray, ranked: np.ndarray, right: np.ndarray, k: int) -> int:
    """True labels among the first k that are in the set."""
    inside = np.isin(ranked, chosen)
    return int((right & inside & (np.cumsum(inside, axis=1) <= k)).sum())


@pytest.mark.parametrize("most", [4, 6, 12])
def test_chosen_labels_beat_the_most_frequent(most: int) -> None:
    """A label that is often right, but more often in the way, does harm."""
    rng = np.random.default_rng(0)
    n, c, k = 400, 12, 1
    # Label 0 is first everywhere, and right on a tenth of the rows; then comes one of 1, 2, 3.
    ranked = np.array([[0, 1 + t % 3, *(4 + rng.permutation(c - 4))] for t in range(n)])
    right = np.zeros(ranked.shape, dtype=bool)
    right[:40, 0] = True
    right[40:, 1] = True
    counts = np.bincount(ranked[right], minlength=c)
    frequent = np.argsort(-counts, kind="stable")[:most]
    chosen = choose_labels(ranked, right, k, most)
    assert len(chosen) <= most
    assert 0 in frequent
    assert_array_equal(chosen, [1, 2, 3])
    assert hits(frequent, ranked, right, k) == 40
    assert hits(chosen, ranked, right, k) == 360


def test_with_room_for_all_every_useful_label_is_chosen() -> None:
    ranked, right = ranked_rows()
    right[ranked == 5] = False
    assert_array_equal(choose_labels(ranked, right, 12, 12), np.setdiff1d(np.arange(12), 5))
    assert len(choose_labels(ranked[:0], right[:0], 5, 12)) == 0


@pytest.mark.parametrize("base", ["linear", "naive-bayes"])
def test_clusters_with_labels_of_their_own(base: str) -> None:
    X = np.kron(np.eye(16), np.ones((6, 3)))
    y = np.repeat(np.arange(16), 6)
    model = LPSR(base=base, max_leaf_size=12, max_leaf_labels=4).fit(X, y)
    assert model.score(X, y) == 1.0
    listed = np.diff(model.leaf_labels_.indptr)
    assert listed[model.partition_.left < 0].max() <= 4
    assert (listed[model.partition_.left >= 0] == 0).all()
    assert_array_equal(model.predict(X), y)


def test_threads_and_seed() -> None:
    X, Y = noisy()
    options = {"max_leaf_size": 40, "max_leaf_labels": 5}
    one, two, other = (
        LPSR(**options, n_jobs=n_jobs, random_state=seed).fit(X, Y)
        for n_jobs, seed in ((1, 0), (2, 0), (2, 1))
    )
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert_array_equal(one.leaf_labels_.toarray(), two.leaf_labels_.toarray())
    assert_array_equal(one.predict_topk(X)[0], two.predict_topk(X)[0])
    assert (one.predict_topk(X)[0] != other.predict_topk(X)[0]).any()


@pytest.mark.parametrize("base", ["linear", "naive-bayes"])
@pytest.mark.parametrize(
    ("X", "Y"),
    [
        (np.ones((20, 2)), np.ones((20, 3))),  # every label on every row
        (np.zeros((20, 2)), np.eye(20, 3)),  # rows without features; rows without labels
        (np.ones((9, 2)), np.eye(9, 12)),  # labels without rows; duplicate rows
        (np.ones((1, 1)), np.ones((1, 1))),  # one of everything
        (np.eye(20, 5), np.zeros((20, 2))),  # no label anywhere
    ],
)
def test_odd_data(base: str, X: np.ndarray, Y: np.ndarray) -> None:
    model = LPSR(base=base, max_leaf_size=4).fit(X, csr_array(Y))
    labels, scores = model.predict_topk(X, k=10)
    assert labels.shape == (X.shape[0], min(10, Y.shape[1]))
    assert (labels[:, 0] >= 0).all()
    assert np.isfinite(scores[labels >= 0]).all()
    assert (scores[labels < 0] == -np.inf).all()


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = np.eye(2), [0, 1]
    with pytest.raises(ValueError, match=r"base must be one of linear, naive-bayes; got 'oak'"):
        LPSR(base="oak").fit(X, y)
    with pytest.raises(ValueError, match=r"needs features of at least 0, got -1\.0"):
        LPSR(base="naive-bayes").fit(-X, y)
    with pytest.raises(ValueError, match=r"C must be positive, got 0"):
        LPSR(C=0).fit(X, y)
    for name in ("max_leaf_size", "max_leaf_labels", "top_k"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            LPSR(**{name: 0}).fit(X, y)
    monkeypatch.setattr("labelry.memory.available", lambda: 10_000)
    with pytest.raises(MemoryBudgetError, match=r"a base ranker with 100 features and 100 labels"):
        LPSR().fit(np.eye(100), np.arange(100))
