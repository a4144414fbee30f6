"""The measures of a report: those of `evaluate`, and what they are brute force."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

import labelry
from labelry.data.dataset import Dataset
from labelry.evaluation.evaluate import evaluate
from labelry.metrics import (
    expected_calibration_error,
    inverse_propensity,
    precision_at_k,
    psp_at_k,
    recall_at_k,
)
from labelry.metrics.matching import match
from labelry.report import measures
from labelry.report.measures import (
    CUTOFFS,
    LONGEST,
    by_threshold,
    intervals,
    label_spectrum,
    measure,
    rank,
    row_gains,
)


@pytest.fixture(scope="module")
def data() -> Dataset:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 12)).astype(np.float32)
    chance = 1 / (1 + np.exp(2.5 - 2 * X))
    return Dataset(csr_array((rng.random(chance.shape) < chance).astype(np.float32)), X=X)


@pytest.fixture(scope="module")
def model(data: Dataset) -> labelry.OneVsRest:
    return labelry.OneVsRest(loss="logistic", n_jobs=1).fit(data.X[:80], data.Y[:80])


def with_more_labels(data: Dataset) -> Dataset:
    """The same rows, some without labels, and two labels that a model of these never saw."""
    Y = np.hstack([data.Y.toarray(), np.eye(2)[np.arange(data.n_rows) % 2]])
    Y[::7] = 0
    return Dataset(csr_array(Y), X=data.X)


def test_they_are_those_of_evaluate(model: labelry.OneVsRest, data: Dataset) -> None:
    tested = with_more_labels(data)
    found = measure(model, rank(model, tested), np.random.default_rng(0))
    expected = evaluate(model, tested, by_frequency=True)
    bins = expected.pop("by_frequency")
    for name in expected.keys() - {"AUC", "AUC-excluded", "seconds"}:
        assert found.values[name] == pytest.approx(expected[name], abs=1e-4), name
    for name, values in bins.items():
        for key, value in values.items():
            assert found.by_frequency[name][key] == pytest.approx(value, abs=1e-4, nan_ok=True)


def test_the_curve_has_every_cutoff_up_to_the_number_of_labels(
    model: labelry.OneVsRest, data: Dataset
) -> None:
    ranked = rank(model, data)
    assert ranked.truth.labels.shape == (150, LONGEST)
    curve = measure(model, ranked, np.random.default_rng(0)).curve
    for name, function in (("P", precision_at_k), ("R", recall_at_k)):
        expected = [100 * function(data.Y, ranked.truth.labels, k) for k in range(1, 13)]
        assert_allclose(curve[name], expected)


def test_calibration_is_of_the_best_five(model: labelry.OneVsRest, data: Dataset) -> None:
    ranked = rank(model, data)
    found = measure(model, ranked, np.random.default_rng(0))
    assert found.calibration is not None
    count, probability, hits = found.calibration
    assert count.sum() == 5 * 150
    assert hits.sum() == ranked.truth.hits[:, :5].sum()
    error = expected_calibration_error(data.Y, ranked.truth.labels[:, :5], ranked.scores[:, :5])
    assert np.abs(probability - hits).sum() / count.sum() == pytest.approx(error)


def test_rows_add_up_to_the_measures() -> None:
    rng = np.random.default_rng(1)
    Y = csr_array((rng.random((60, 30)) < 0.1).astype(np.float32))
    labels = np.stack([rng.permutation(30)[:5] for _ in range(60)])
    weights = inverse_propensity(rng.integers(0, 40, 30), 500)
    P, above, below = row_gains(match(Y, labels), weights).sum(axis=1)
    for i, k in enumerate(CUTOFFS):
        assert P[i] / 60 == pytest.approx(precision_at_k(Y, labels, k))
        assert above[i] / below[i] == pytest.approx(psp_at_k(Y, labels, k, weights))


def test_intervals_are_percentiles_over_rows_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "RESAMPLES", 40)
    gains = np.random.default_rng(2).random((3, 25, len(CUTOFFS)))
    found = intervals(gains, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    P, PSP = [], []
    for _ in range(40):
        rows = rng.integers(25, size=25)
        P.append(gains[0, rows, 1].mean())
        PSP.append(gains[1, rows, 1].sum() / gains[2, rows, 1].sum())
    assert_allclose(found["P@3"], 100 * np.percentile(P, [2.5, 97.5]))
    assert_allclose(found["PSP@3"], 100 * np.percentile(PSP, [2.5, 97.5]))


def test_intervals_hold_the_true_value_about_as_often_as_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measures, "RESAMPLES", 300)
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(200):
        hits = (rng.random((1, 150, 1)) < 0.6) * np.ones((3, 1, len(CUTOFFS)))
        low, high = intervals(hits, rng)["P@1"]
        held += low <= 60 <= high
    assert 180 <= held <= 198  # 190 expected


def test_rows_without_labels_have_no_propensity_scored_precision(data: Dataset) -> None:
    model = labelry.OneVsRest(n_jobs=1).fit(data.X, data.Y)
    tested = Dataset(csr_array((5, 12), dtype=np.float32), X=data.X[:5])
    found = measure(model, rank(model, tested), np.random.default_rng(0))
    assert found.intervals == {f"P@{k}": (0.0, 0.0) for k in CUTOFFS}
    assert np.isnan(found.values["PSP@1"])
    assert found.calibration is None


def test_there_must_be_rows(model: labelry.OneVsRest, data: Dataset) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        rank(model, data.take([]))


def test_the_spectrum_is_what_training_kept_or_that_of_the_vectors(data: Dataset) -> None:
    kept = labelry.PLST(embedding_dim=4, n_jobs=1).fit(data.X, data.Y)
    values, what = label_spectrum(kept, kept.label_vectors())  # type: ignore[misc]
    assert_allclose(values, kept.spectrum_)
    assert what == "Eigenvalue"
    tree = labelry.LinearLabelTree(n_jobs=1).fit(data.X, data.Y)
    vectors = tree.label_vectors()
    values, what = label_spectrum(tree, vectors)  # type: ignore[misc]
    assert_allclose(values, np.linalg.svd(vectors, compute_uv=False)[: len(values)], atol=1e-4)
    assert what == "Singular value"
    assert label_spectrum(tree, None) is None


def test_the_spectrum_of_a_tagger_is_that_of_its_embedding(data: Dataset) -> None:
    tagger = labelry.Tagger(n_jobs=1).fit(data.X, data.Y)
    values, _ = label_spectrum(tagger, None)  # type: ignore[misc]
    assert_allclose(values, tagger.fitted_.retrievers.embedding.spectrum)


def test_always_the_most_frequent_labels(model: labelry.OneVsRest, data: Dataset) -> None:
    tested = with_more_labels(data)
    found = measure(model, rank(model, tested), np.random.default_rng(0))
    frequent = np.argsort(-model.label_counts_, kind="stable")[:5]
    always = np.tile(frequent, (tested.n_rows, 1))
    assert found.baseline["P@1"] == pytest.approx(100 * precision_at_k(tested.Y, always, 1))
    assert found.baseline["R@5"] == pytest.approx(100 * recall_at_k(tested.Y, always, 5))


def test_what_a_threshold_gives(model: labelry.OneVsRest, data: Dataset) -> None:
    ranked = rank(model, data)
    P = model.score_all(data.X)
    true = data.Y.toarray() > 0
    for threshold, precision, recall, covered in by_threshold(ranked, [0.2, 0.5, 1.1]).T / 100:
        taken = threshold <= P
        right = (taken & true).sum()
        if taken.any():
            assert precision == pytest.approx(right / taken.sum())
        else:
            assert np.isnan(precision)
        assert recall == pytest.approx(right / true.sum())
        assert covered == pytest.approx(taken.any(axis=1).mean())
