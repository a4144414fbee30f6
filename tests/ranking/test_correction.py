"""The sparse correction: its optimum, its choices, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.sparse import csr_array, random_array

from labelry.metrics import ndcg_at_k, precision_at_k
from labelry.ranking import correction
from labelry.ranking.correction import (
    Correction,
    CorrectionSettings,
    fit_correction,
    log_odds,
    out_of_fold,
)

N, D, LABELS, SHORTLIST = 120, 15, 12, 5


def make_problem(seed: int = 0) -> tuple[csr_array, csr_array, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = csr_array(random_array((N, D), density=0.3, rng=rng, dtype=np.float32))
    Y = csr_array((rng.random((N, LABELS)) < 0.25).astype(np.float32))
    candidates = np.array([rng.permutation(LABELS)[:SHORTLIST] for _ in range(N)], dtype=np.int32)
    candidates[rng.random((N, SHORTLIST)) < 0.1] = -1
    offsets = rng.normal(-1, 1, (N, SHORTLIST)).astype(np.float32)
    return X, Y, candidates, offsets


X, Y, CANDIDATES, OFFSETS = make_problem()
FIXED = {"regularization": 0.5, "add_missed": False}


def fit(n_jobs: int = 1, **options: object) -> Correction:
    settings = CorrectionSettings(**(FIXED | options))
    rng = np.random.default_rng(0)
    return fit_correction(X, Y, CANDIDATES, OFFSETS, settings, n_jobs=n_jobs, rng=rng)


def elastic_net(correction: Correction, label: int, sparsity: float) -> tuple[np.ndarray, float]:
    """Weights and intercept of one label from a general solver: w = p - q with p, q >= 0.

    The intercept is penalised as the distance from the shift that all labels share, which a
    label without positive rows shows.
    """
    shift = correction.intercept[-1]
    rows, places = np.nonzero(np.equal(CANDIDATES, label))
    A = X.toarray()[rows].astype(np.float64)
    y = np.where(Y.toarray()[rows, label] > 0, 1.0, -1.0)
    o = correction.scale * OFFSETS[rows, places].astype(np.float64) + shift

    def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        w, b = theta[:D] - theta[D : 2 * D], theta[-1]
        margin = y * (A @ w + b + o)
        r = -y / (1 + np.exp(margin))
        value = np.logaddexp(0, -margin).sum() + 0.25 * (w @ w + b * b)
        g = A.T @ r + 0.5 * w
        gradient = np.concatenate([g + sparsity, sparsity - g, [r.sum() + 0.5 * b]])
        return value + sparsity * theta[: 2 * D].sum(), gradient

    bounds = [(0, None)] * (2 * D) + [(None, None)]
    tight = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.zeros(2 * D + 1)
    theta = minimize(
        value_and_gradient, start, jac=True, bounds=bounds, method="L-BFGS-B", options=tight
    ).x
    return theta[:D] - theta[D : 2 * D], theta[-1] + shift


@pytest.fixture
def last_label_has_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = Y.toarray()
    dense[:, -1] = 0
    monkeypatch.setitem(globals(), "Y", csr_array(dense))


@pytest.mark.usefixtures("last_label_has_no_rows")
@pytest.mark.parametrize("sparsity", [0.0, 0.3])
def test_each_label_is_at_the_optimum_of_its_own_rows(sparsity: float) -> None:
    correction = fit(sparsity=sparsity, tolerance=1e-5, max_sweeps=2000)
    for label in range(LABELS - 1):
        weights, intercept = elastic_net(correction, label, sparsity)
        assert_allclose(correction.weights.toarray()[:, label], weights, atol=2e-3)
        assert_allclose(correction.intercept[label], intercept, atol=2e-3)


@pytest.mark.usefixtures("last_label_has_no_rows")
def test_a_label_without_positive_rows_is_left_alone() -> None:
    correction = fit()
    assert correction.weights[:, [LABELS - 1]].nnz == 0
    hits = np.take_along_axis(Y.toarray(), np.maximum(CANDIDATES, 0), axis=1)[CANDIDATES >= 0]
    odds = correction.scale * OFFSETS[CANDIDATES >= 0] + correction.intercept[-1]
    assert_allclose((1 / (1 + np.exp(-odds))).mean(), hits.mean(), atol=1e-3)  # calibrated


def test_more_sparsity_keeps_fewer_weights() -> None:
    counts = [fit(sparsity=sparsity).weights.nnz for sparsity in (0.0, 0.2, 1.0, 100.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[2]
    assert counts[-1] == 0


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_rescore_is_the_formula(n_jobs: int) -> None:
    correction = fit()
    scores = correction.rescore(X, CANDIDATES, OFFSETS, n_jobs)
    every = X.toarray() @ correction.weights.toarray() + correction.intercept
    listed = np.take_along_axis(every, np.maximum(CANDIDATES, 0), axis=1)
    expected = np.where(CANDIDATES >= 0, listed + correction.scale * OFFSETS, -np.inf)
    assert_allclose(scores, expected, atol=1e-5)
    assert_array_equal(scores, correction.rescore(X.toarray(), CANDIDATES, OFFSETS))


def test_rerank_sorts_the_candidates() -> None:
    correction = fit()
    scores = correction.rescore(X, CANDIDATES, OFFSETS)
    labels, probabilities = correction.rerank(X, CANDIDATES, OFFSETS, SHORTLIST)
    for i in range(N):
        order = [t for t in np.argsort(-scores[i], kind="stable") if CANDIDATES[i, t] >= 0]
        assert labels[i].tolist() == [*CANDIDATES[i, order], *[-1] * (SHORTLIST - len(order))]
        assert_allclose(
            probabilities[i, : len(order)], 1 / (1 + np.exp(-scores[i, order])), rtol=1e-4
        )
        assert (probabilities[i, len(order) :] == -np.inf).all()


def test_threads_do_not_change_the_result() -> None:
    one, three = fit(n_jobs=1), fit(n_jobs=3)
    assert_array_equal(one.weights.toarray(), three.weights.toarray())
    assert_array_equal(one.intercept, three.intercept)


def test_missed_labels_count_as_positive_rows_with_the_lowest_score() -> None:
    X = csr_array(np.eye(4, dtype=np.float32))
    Y = csr_array(np.array([[1, 0], [0, 1], [0, 1], [0, 1]], np.float32))
    candidates = np.array([[0], [0], [1], [-1]], dtype=np.int32)  # rows 1 and 3 miss label 1
    offsets = np.array([[1.0], [-2.0], [0.5], [0.0]], dtype=np.float32)
    without, added = (
        fit_correction(
            *(X, Y, candidates, offsets),
            CorrectionSettings(regularization=1.0, sparsity=0.0, add_missed=missed),
            rng=np.random.default_rng(0),
        )
        for missed in (False, True)
    )
    assert without.scale == added.scale  # what is added does not recalibrate the others
    assert np.flatnonzero(without.weights.toarray()[:, 1]).tolist() == [2]
    assert np.flatnonzero(added.weights.toarray()[:, 1]).tolist() == [1, 2]
    assert added.weights[1, 1] > added.weights[2, 1]  # a lower score leaves more to explain


def test_what_is_not_given_is_chosen() -> None:
    chosen = fit(regularization=None, add_missed=None)
    settings = [(r, m) for r in (3.0, 1.0, 0.3, 0.1) for m in (False, True)]
    fits = [fit(regularization=r, add_missed=m) for r, m in settings]
    same = [np.array_equal(f.weights.toarray(), chosen.weights.toarray()) for f in fits]
    assert sum(same) == 1
    partly = fit(regularization=3.0, add_missed=None)
    assert any(np.array_equal(partly.intercept, f.intercept) for f in fits[:2])


def decisive_words(n: int, rng: np.random.Generator) -> tuple[csr_array, csr_array]:
    """Twenty labels in pairs: one word says the pair, another says which."""
    label = rng.integers(0, 20, n)
    words = np.zeros((n, 60), dtype=np.float32)
    words[np.arange(n), label // 2] = 1
    words[np.arange(n), 10 + label] = 1
    words[np.arange(n), rng.integers(30, 60, n)] = 1
    return csr_array(words), csr_array(np.eye(20, dtype=np.float32)[label])


def pair_scores(X: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Scores of rank 10: they know the pair of labels, and nothing of which of the two."""
    pair = X.toarray()[:, :10].argmax(axis=1)
    candidates = np.stack([2 * pair, 2 * pair + 1, (2 * pair + 2) % 20], axis=1)
    scores = np.tile(np.array([0.51, 0.49, 0.05], np.float32), (X.shape[0], 1))
    return candidates.astype(np.int32), log_odds(scores)


def test_finds_the_words_that_low_rank_scores_cannot_see() -> None:
    rng = np.random.default_rng(0)
    X, Y = decisive_words(400, rng)
    X_test, Y_test = decisive_words(200, rng)
    correction = fit_correction(X, Y, *pair_scores(X), n_jobs=1, rng=rng)
    candidates, offsets = pair_scores(X_test)
    assert precision_at_k(Y_test, candidates, 1) < 0.7
    after, _ = correction.rerank(X_test, candidates, offsets, 2)
    assert precision_at_k(Y_test, after, 1) == 1.0
    weights = correction.weights.toarray().T
    assert (weights[:, 10:30].argmax(axis=1) == np.arange(20)).all()
    assert (weights[:, 30:] != 0).mean() < 0.2  # words that say nothing get hardly a weight


def test_out_of_fold_never_scores_a_row_that_was_seen() -> None:
    scored = []

    def fit_on(rows: np.ndarray) -> object:
        def shortlists(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            assert not np.intersect1d(rows, new).size
            assert len(rows) + len(new) == 11
            scored.extend(new)
            return np.stack([new, new + 1], axis=1), np.stack([new, -new], axis=1) / 2

        return shortlists

    labels, scores = out_of_fold(11, fit_on, n_folds=3, rng=np.random.default_rng(0))
    assert sorted(scored) == list(range(11))
    assert_array_equal(labels, np.arange(11)[:, None] + [0, 1])
    assert_array_equal(scores, np.arange(11)[:, None] * [0.5, -0.5])


def test_is_saved(stored) -> None:
    correction = fit()
    again = stored(correction)
    assert isinstance(again, Correction)
    assert_array_equal(
        again.rescore(X, CANDIDATES, OFFSETS), correction.rescore(X, CANDIDATES, OFFSETS)
    )


@pytest.mark.parametrize("n_rows", [1, 2, 6])
@pytest.mark.parametrize("case", ["no candidates", "no labels", "all labels", "no features"])
def test_odd_data(case: str, n_rows: int) -> None:
    X = csr_array(np.full((n_rows, 2), case != "no features", dtype=np.float32))
    Y = csr_array(np.full((n_rows, 3), case == "all labels", dtype=np.float32))
    candidates = np.full((n_rows, 2), -1, dtype=np.int32)
    if case != "no candidates":
        candidates[:] = [2, 0]
    offsets = np.zeros((n_rows, 2), dtype=np.float32)
    correction = fit_correction(X, Y, candidates, offsets, rng=np.random.default_rng(0))
    labels, scores = correction.rerank(X, candidates, offsets, 2)
    expected = [-1, -1] if case == "no candidates" else [0, 2]
    assert np.sort(labels, axis=1).tolist() == [expected] * n_rows
    assert not np.isnan(scores).any()


def test_extreme_scores_do_no_harm() -> None:
    offsets = np.where(OFFSETS > -1, 1e4, -1e4).astype(np.float32)
    settings = CorrectionSettings(add_missed=True, regularization=1e-3)
    rng = np.random.default_rng(0)
    correction = fit_correction(X * 100, Y, CANDIDATES, offsets, settings, rng=rng)
    assert np.isfinite(correction.weights.data).all()
    assert np.isfinite(correction.intercept).all()


def test_bad_shortlists() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="candidates and offsets must have the same shape"):
        fit_correction(X, Y, CANDIDATES, OFFSETS[:, 1:], rng=rng)
    with pytest.raises(ValueError, match="labels must be between -1 and 11; got 12"):
        fit_correction(X, Y, np.full_like(CANDIDATES, LABELS), OFFSETS, rng=rng)
    for n_rows, n_folds in ((1, 3), (5, 1)):
        with pytest.raises(ValueError, match="at least 2"):
            out_of_fold(n_rows, lambda rows: lambda new: (new, new), n_folds=n_folds, rng=rng)


@pytest.mark.parametrize(("size", "k"), [(7, 5), (5, 5), (3, 3)])
def test_choices_are_judged_by_five_labels(
    size: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[tuple[int, int]] = []

    def noting(Y: csr_array, best: np.ndarray, k: int) -> float:
        judged.append((k, best.shape[1]))
        return ndcg_at_k(Y, best, k)

    monkeypatch.setattr(correction, "ndcg_at_k", noting)
    rng = np.random.default_rng(0)
    candidates = np.array([rng.permutation(LABELS)[:size] for _ in range(N)], dtype=np.int32)
    offsets = rng.normal(-1, 1, (N, size)).astype(np.float32)
    fit_correction(X, Y, candidates, offsets, n_jobs=1, rng=rng)
    assert set(judged) == {(k, k)}
