"""Calibrated trees: their probabilities, rows that are held out, and that no label is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.estimators.tagging import CalibratedTree
from labelry.linalg.matrices import scaled_rows
from labelry.metrics import expected_calibration_error
from labelry.ranking import hold_out
from labelry.ranking.calibration import Calibration
from labelry.tagging import calibrated_trees as module
from labelry.trees import linear


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, csr_array]:
    """Rows whose label is that of their first feature in two of three cases."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 10, n)
    labels = np.where(rng.random(n) < 2 / 3, words, rng.integers(0, 10, n))
    X = np.concatenate([np.eye(10)[words], rng.normal(size=(n, 5)) / 4], axis=1)
    return X.astype(np.float32), csr_array(np.eye(10, dtype=np.float32)[labels])


@pytest.mark.parametrize("held_out", [(100, 5000), (1000, 5000)])
def test_scores_are_probabilities(
    held_out: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HELD_OUT", held_out)
    X, Y = rows(2000)
    model = CalibratedTree(n_jobs=1).fit(X, Y)
    new_X, new_Y = rows(4000, seed=1)
    labels, scores = model.topk_ids(new_X, 5)
    assert model.probabilities
    error = expected_calibration_error(new_Y, labels, scores)
    raw = expected_calibration_error(new_Y, *model.trees_.topk(scaled_rows(new_X), 5))
    assert error < min(0.03, 0.7 * raw)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """The rows that trees are trained on, and the nodes that are trained again."""
    trained = []
    train, again = linear.train_linear_trees, linear.retrain_nodes

    def noted(rows, *rest):
        trained.append((rows.n_rows, None))
        return train(rows, *rest)

    def noted_again(before, rows, settings, nodes, rng):
        trained.append((rows.n_rows, int(nodes.sum())))
        return again(before, rows, settings, nodes, rng)

    monkeypatch.setattr(linear, "train_linear_trees", noted)
    monkeypatch.setattr(linear, "retrain_nodes", noted_again)
    return trained


def test_classifiers_that_missed_many_rows_are_trained_again(
    trained: list[tuple[int, int | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HELD_OUT", (60, 60))
    y = np.append(np.arange(1160) % 4, np.arange(4, 44))  # forty labels have one row
    X = np.eye(44, dtype=np.float32)[y] + np.float32(0.01)
    model = CalibratedTree(n_jobs=1).fit(X, y)
    (first, none), (then, chosen) = trained
    assert (first, none, then) == (1140, None, 1200)
    assert 0 < chosen < 10  # rare labels only, those with a row that was held out
    assert (model.predict(X) == y).all()  # none is lost
    trained.clear()
    CalibratedTree(n_jobs=1).fit(X[:200], y[:200])
    assert trained == [(150, None), (200, 5)]  # a quarter of each label, and of all
    trained.clear()
    few = CalibratedTree(n_jobs=1).fit(X[:50], y[:50])
    assert trained == [(50, None)]
    assert few.fitted_.calibration is None
    assert not few.probabilities


def test_a_list_of_labels_is_calibrated_on_labels_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    y = np.append(np.repeat(np.arange(60), 3), np.arange(60, 300))  # most have one row
    words = np.hstack([np.eye(60)[y % 60], np.eye(300)[y]])  # five labels share a word
    X, new = (words + rng.random(words.shape) / 9 for _ in range(2))

    def too_modest() -> float:
        labels, scores = CalibratedTree(n_jobs=1).fit(X, y).predict_topk(new, 1)
        return float((labels[:, 0] == y).mean() - scores.mean())

    assert abs(too_modest()) < 0.1
    monkeypatch.setattr(hold_out, "without_lost_labels", lambda groups, Y, counts: groups)
    assert too_modest() > 0.3


def test_of_a_list_of_labels_no_label_is_held_out(trained: list[tuple[int, int | None]]) -> None:
    y = np.arange(200)
    model = CalibratedTree(n_jobs=1).fit(np.eye(200, dtype=np.float32), y)
    assert trained == [(200, None)]  # there is nothing to calibrate on
    assert not model.probabilities
    y = np.append(y, np.repeat(np.arange(200, 220), 5))
    X = np.hstack([np.eye(220)[y], np.eye(len(y))]).astype(np.float32)
    model = CalibratedTree(n_jobs=1).fit(X, y)
    (first, _), (then, _) = trained[1:]
    assert 265 < first < then == 300  # of 75 rows those whose labels have several
    assert model.probabilities
    assert model.calibration_.frequency == 0


def test_how_frequent_labels_are_counts_where_few_are_lost() -> None:
    rng = np.random.default_rng(0)
    frequent = rng.integers(0, 20, 900)
    for n_alone, expected in ((0, True), (30, True), (600, False)):
        y = np.append(frequent[: 900 - n_alone], np.arange(20, 20 + n_alone))
        X = np.hstack([np.eye(20)[y % 20], rng.random((900, 5))]).astype(np.float32)
        model = CalibratedTree(n_jobs=1).fit(X, y)
        assert (model.calibration_.frequency != 0) == expected


def test_ranks_by_what_the_rows_of_a_label_say() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((400, 5)), np.minimum(rng.geometric(0.5, 400), 4)
    fitted = CalibratedTree(n_jobs=1).fit(X, y).fitted_
    model = replace(fitted, calibration=Calibration(0.0, 0.0, 0.0, frequency=-1.0))
    X = X.astype(np.float32)
    labels, scores = model.topk(X, 4)
    assert (np.diff(model.label_counts[labels], axis=1) > 0).all()  # the rarest first
    assert (np.diff(scores, axis=1) <= 0).all()
    one, _ = model.topk(X, 1)
    assert (one == labels[:, :1]).all()
