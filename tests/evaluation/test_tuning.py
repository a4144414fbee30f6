"""Successive halving: who goes on, on which rows, and what the defaults are good for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.data.dataset import Dataset
from labelry.errors import LabelryError
from labelry.estimators import SYSTEMS, system_class
from labelry.estimators.baselines import NearestNeighbours
from labelry.evaluation import tuning
from labelry.evaluation.tuning import Trial, _promoted, ranges_of, tune
from labelry.parameters import Between, OneOf, parameters_of


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Classes that are hard to tell apart for few neighbours."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=240)
    X = np.eye(4)[labels] + rng.normal(0, 0.8, (240, 4))
    return Dataset(csr_array(np.eye(4)[labels]), X)


def test_rungs_have_fewer_configurations_and_more_rows(data: Dataset) -> None:
    seen = []
    found = tune("knn", data, n_jobs=1, told=lambda n_rows, trial: seen.append((n_rows, trial)))
    assert found.n_held_out == 48
    assert [(rung.n_rows, len(rung.trials)) for rung in found.rungs] == [
        (21, 27),
        (64, 9),
        (192, 3),
    ]
    assert len(seen) == 39
    assert seen[0][1].parameters == {}  # the defaults, and then again at every rung
    for before, after in zip(found.rungs, found.rungs[1:], strict=False):
        tried = [trial.parameters for trial in after.trials]
        assert {} in tried
        best = [trial.parameters for trial in before.trials[: len(tried) - 1]]
        assert all(parameters in tried for parameters in best)
    last = found.rungs[-1].trials
    assert found.best == last[0]
    assert [t.score for t in last] == sorted((t.score for t in last), reverse=True)
    assert found.default in last
    assert found.best.score >= found.default.score


def test_the_score_is_that_of_the_winner_on_the_held_out_rows(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []
    original = NearestNeighbours.topk_ids

    def spy(self, X, k=5):  # type: ignore[no-untyped-def]
        found = original(self, X, k)
        judged.append((self.n_rows_, self.n_neighbors, self.sharpness, np.asarray(X), found[0]))
        return found

    monkeypatch.setattr(NearestNeighbours, "topk_ids", spy)
    found = tune("knn", data, n_trials=6, measure="R@2", fixed={"sharpness": 3.0}, n_jobs=1)
    assert {sharpness for _, _, sharpness, _, _ in judged} == {3.0}
    first = judged[0][3]
    assert all(np.array_equal(first, X) for *_, X, _ in judged)  # the same rows for all
    rows = [int(np.flatnonzero((x == data.X).all(axis=1))[0]) for x in first]
    truth = data.Y[rows].indices
    n_neighbors = found.best.parameters.get("n_neighbors", NearestNeighbours().n_neighbors)
    (ids,) = [ids for n, k, _, _, ids in judged if n == 192 and k == n_neighbors]
    assert found.best.score == pytest.approx(100 * (ids == truth[:, None]).any(axis=1).mean())


def test_same_seed_same_search(data: Dataset) -> None:
    def searched(seed: int) -> list[list[tuple]]:
        found = tune("knn", data, n_trials=9, random_state=seed, n_jobs=1)
        return [[(t.score, t.parameters) for t in rung.trials] for rung in found.rungs]

    assert searched(3) == searched(3)
    assert searched(3) != searched(4)


def test_near_duplicates_stay_on_one_side() -> None:
    rng = np.random.default_rng(0)
    words = csr_array((rng.random((40, 50)) < 0.2).astype(np.float32))
    twice = np.repeat(np.arange(40), 2)
    Y = csr_array(np.eye(2)[rng.integers(2, size=40)[twice]])
    found = tune("knn", Dataset(Y, words[twice]), n_trials=1, n_jobs=1)
    assert found.n_held_out == 16
    alike = Dataset(csr_array(np.ones((10, 1))), csr_array(np.ones((10, 1))))
    assert tune("knn", alike, n_trials=1, n_jobs=1).n_held_out == 2


def test_texts_and_hardly_any_rows() -> None:
    texts = ["sore knee", "broken arm", "knee pain", "an arm"]
    Y = csr_array(np.eye(2)[[0, 1, 0, 1]])
    found = tune("knn", Dataset(Y, texts=texts), n_trials=3, n_jobs=1)
    assert [rung.n_rows for rung in found.rungs] == [1, 3]
    with pytest.raises(
        ValueError, match="at least 2 rows, one to train on and one to measure on; got 1"
    ):
        tune("knn", Dataset(Y[:1], texts=texts[:1]))


def test_a_configuration_that_fails_is_dropped(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "ranges_of", lambda _: {"n_neighbors": OneOf((-1, 5))})
    found = tune("knn", data, n_jobs=1)
    assert len(found.rungs[0].trials) == 3  # there are no more
    failed = found.rungs[0].trials[-1]
    assert failed.parameters == {"n_neighbors": -1}
    assert "n_neighbors must be" in (failed.error or "")
    assert math.isnan(failed.score)
    assert len(found.rungs[1].trials) == 2
    monkeypatch.setattr(tuning, "ranges_of", lambda _: {"sharpness": OneOf((1.0,))})
    with pytest.raises(LabelryError, match="no configuration of knn could be trained; the first: "):
        tune("knn", data, fixed={"n_neighbors": -1}, n_jobs=1)


def test_promotion_keeps_a_third_and_the_defaults() -> None:
    def trials(*scores: float, default: int) -> list[Trial]:
        return [Trial({} if i == default else {"C": i}, s, 1.0) for i, s in enumerate(scores)]

    kept = _promoted(trials(9, 8, 7, 6, 5, 4, 3, 2, 1, default=7))
    assert [t.score for t in kept] == [9, 8, 2]
    assert [t.score for t in _promoted(trials(9, 8, 7, default=2))] == [9, 7]
    assert [t.score for t in _promoted(trials(9, 8, 7, default=0))] == [9, 8]


def test_a_budget_ends_the_search_with_what_there_is(data: Dataset) -> None:
    found = tune("knn", data, budget="0.000001s", n_jobs=1)
    assert [(rung.n_rows, len(rung.trials)) for rung in found.rungs] == [(21, 1)]
    assert found.best.parameters == {}


def test_bad_arguments_are_named(data: Dataset) -> None:
    with pytest.raises(ValueError, match=r"measure must be one of P@k, .* got 'F1'"):
        tune("knn", data, measure="F1")
    with pytest.raises(ValueError, match="n_trials must be at least 1, got 0"):
        tune("knn", data, n_trials=0)
    with pytest.raises(ValueError, match="no ranges to tune 'tagger'; there are for: one-vs-rest"):
        tune("tagger", data)


@pytest.mark.parametrize("system", SYSTEMS)
def test_ranges_are_of_parameters_and_hold_what_they_say(system: str) -> None:
    parameters = parameters_of(system_class(system))
    rng = np.random.default_rng(0)
    assert ranges_of(system)
    for name, values in ranges_of(system).items():
        drawn = [values.draw(rng) for _ in range(50)]
        if isinstance(values, Between):
            assert values.low <= min(drawn) < max(drawn) <= values.high
            assert {type(value) for value in drawn} == {type(values.low)}
        else:
            assert set(drawn) == set(values.values)
        for value in drawn:
            parameters[name].check(value)


def test_logarithmic_ranges_have_as_many_small_as_large_values() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([Between(0.01, 100.0, log=True).draw(rng) for _ in range(2_000)])
    assert abs((drawn < 1).mean() - 0.5) < 0.05
