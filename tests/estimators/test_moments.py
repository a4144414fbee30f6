"""The system "moments" as a user meets it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.embeddings.moments.bounds import SampleSizeWarning
from labelry.estimators import load
from labelry.estimators.moments import Moments

ANIMALS = ["the cat and its mat", "cat and kitten", "kitten on the mat", "cat with kitten"]
SHIPS = ["ship at sea", "boat at sea under sail", "sail the boat", "ship with boat"]
TEXTS = (ANIMALS + SHIPS) * 4
LABELS = [["pets"]] * 3 + [["pets", "home"]] + [["boats"]] * 3 + [["boats", "sea"]]


@pytest.fixture(scope="module")
def model() -> Moments:
    return Moments(n_topics=2).fit(TEXTS, LABELS * 4)


def planted(n: int, seed: int = 0) -> tuple[csr_array, csr_array, np.ndarray]:
    """Documents about one of five topics, of ten words each and two labels each."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 5, n)
    X = rng.random((n, 50)) < 0.05
    Y = np.zeros((n, 10))
    for i, k in enumerate(topics):
        X[i, 10 * k : 10 * k + 10] |= rng.random(10) < 0.4
        Y[i, 2 * k + (rng.random() < 0.3)] = 1
    return csr_array(X.astype(np.float32)), csr_array(Y), topics


def test_topics_are_found_and_predict(model: Moments) -> None:
    labels, scores = model.predict_topk(["kitten", "boat", "xyzzy"], k=4)
    assert labels[:2, 0].tolist() == ["pets", "boats"]
    assert_allclose(scores[:2].sum(axis=1), 1, rtol=1e-4)  # all four labels
    assert np.isneginf(scores[2]).all()  # no known word
    # A row without features has the overall shares.
    nothing = model.text_features_.transform(["xyzzy"])
    assert_allclose(model.fitted_.topk(nothing, 2)[1], [[0.4, 0.4]], atol=0.05)
    assert model.predict(["the cat and the kitten"]) == [["pets"]]


def test_topics_can_be_read(model: Moments) -> None:
    words, chances = model.topic_words(3)
    assert words.shape == chances.shape == (2, 3)
    tops = [set(row) for row in words]
    assert any("cat" in top for top in tops)
    assert any(top & {"sail", "boat", "sea", "ship"} for top in tops)
    labels, chances = model.topic_labels(2)
    assert {frozenset(row) for row in labels} == {
        frozenset(["pets", "home"]),
        frozenset(["boats", "sea"]),
    }
    assert (np.diff(chances, axis=1) <= 0).all()
    assert_allclose(model.topic_proportions_, 0.5, atol=0.1)
    assert_allclose(model.topic_posteriors(TEXTS).sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        model.topic_words(0)


def test_a_saved_model_is_the_same(model: Moments, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, Moments)
    assert_array_equal(model.score_all(TEXTS), loaded.score_all(TEXTS))
    assert_array_equal(model.topic_words()[0], loaded.topic_words()[0])
    assert model.convergence_bound() == loaded.convergence_bound()
    assert model.threshold == loaded.threshold


def test_only_presence_counts() -> None:
    X, Y, _ = planted(300)
    rng = np.random.default_rng(0)
    scaled = X.copy()
    scaled.data = rng.uniform(0.1, 9, X.nnz).astype(np.float32)
    one, two = (Moments(n_topics=5).fit(A, Y).score_all(A) for A in (X, scaled))
    assert_array_equal(one, two)


@pytest.mark.parametrize("diagonal", ["kept", "removed"])
@pytest.mark.parametrize("normalize", [True, False])
def test_planted_topics_rank_the_right_labels(diagonal: str, normalize: bool) -> None:
    X, Y, _ = planted(1200)
    model = Moments(n_topics=5, diagonal=diagonal, normalize=normalize).fit(X[:1000], Y[:1000])
    best = model.topk_ids(X[1000:], 2)[0]
    truth = Y[1000:].toarray()
    assert np.take_along_axis(truth, best, axis=1).sum(axis=1).mean() > 0.9


def test_topk_is_that_of_all_scores() -> None:
    X, Y, _ = planted(400)
    model = Moments(n_topics=5).fit(X, Y)
    S = model.score_all(X)
    labels, scores = model.predict_topk(X, 3)
    assert_allclose(scores, -np.sort(-S, axis=1)[:, :3], rtol=1e-5)
    assert_allclose(np.take_along_axis(S, labels, axis=1), scores, rtol=1e-5)


def test_temperature_is_fitted_on_rows_that_are_held_out() -> None:
    X, Y, _ = planted(400)
    fitted = Moments(n_topics=5).fit(X, Y)
    assert fitted.temperature_ >= 1
    assert fitted.statistics_.n_rows == 380
    fixed = Moments(n_topics=5, temperature=4.0, smoothing=0.2).fit(X, Y)
    assert fixed.temperature_ == 4.0
    assert fixed.statistics_.n_rows == 400
    hot = Moments(n_topics=5, temperature=1e6).fit(X, Y).topic_posteriors(X)
    assert_allclose(hot, hot[:1].repeat(400, axis=0), atol=1e-3)


def test_convergence_bound_falls_with_the_documents() -> None:
    X, Y, _ = planted(400)
    model = Moments(n_topics=5, temperature=1.0, smoothing=0.2).fit(X, Y)
    here, more = model.convergence_bound(), model.convergence_bound(N=40_000, delta=0.05)
    assert_allclose(here.words / more.words, 10)
    assert here.n_required > 0
    with pytest.raises(ValueError, match="delta must be above 0"):
        model.convergence_bound(delta=0)


def test_too_many_topics() -> None:
    X, Y, _ = planted(100)
    with pytest.warns(SampleSizeWarning, match="largest n_topics for these is 9"):
        Moments(n_topics=10).fit(X, Y)
    assert len(Moments().fit(X, Y).topic_proportions_) == 9
    with (
        pytest.warns(SampleSizeWarning),
        pytest.raises(ValueError, match=r"n_topics must be at most 50, the numerical rank"),
    ):
        Moments(n_topics=60).fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_topics": 0}, "n_topics must be at least 1 or 'auto', got 0"),
        ({"diagonal": "half"}, "diagonal must be one of kept, removed; got 'half'"),
        ({"temperature": 0}, "temperature must be positive or 'auto', got 0"),
        ({"smoothing": 1.0}, r"smoothing must be at least 0 and below 1 or 'auto', got 1\.0"),
        ({"n_restarts": 0}, "n_restarts must be at least 1, got 0"),
        ({"n_refinements": -1}, "n_refinements must be at least 0, got -1"),
        ({"n_power_passes": -1}, "n_power_passes must be at least 0, got -1"),
    ],
)
def test_errors_name_what_is_allowed(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Moments(**parameters).fit(TEXTS, LABELS * 4)


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        ([[1.0, 2.0]], [[1, 0]]),  # one row
        ([[1.0], [1.0], [0.0]], [[1], [1], [0]]),  # one word, one label
        ([[1.0, 0], [0, 1], [1, 1]], [[0, 0], [0, 0], [0, 0]]),  # no labels at all
        ([[1.0, 1, 0, 0]] * 6, [[1, 1]] * 6),  # rows, words and labels all the same
    ],
)
def test_odd_data(X: list, Y: list) -> None:
    model = Moments().fit(csr_array(np.array(X)), csr_array(np.array(Y)))
    S = model.score_all(np.array(X))
    assert np.isfinite(S).all()
    assert_allclose(S.sum(axis=1), 1, rtol=1e-3)
