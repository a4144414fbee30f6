"""All measures at once, in blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry import metrics
from labelry.metrics import Evaluation


def evaluate(data, spans, **options):
    evaluation = Evaluation(
        train_counts=data.train_counts, n_train=1000, threshold=0.45, probabilities=True, **options
    )
    for start, stop in spans:
        rows = slice(start, stop)
        evaluation.update(data.Y[rows], data.labels[rows], data.top_scores[rows], data.scores[rows])
    return evaluation


def test_one_block_equals_many(data):
    whole = evaluate(data, [(0, 60)])
    cut = evaluate(data, [(0, 1), (1, 7), (7, 7), (7, 60)])
    assert cut.result() == pytest.approx(whole.result(), rel=1e-12)
    for name, values in whole.by_frequency().items():
        assert cut.by_frequency()[name] == pytest.approx(values, rel=1e-12)


def test_every_measure_equals_its_function(data):
    weights = metrics.inverse_propensity(data.train_counts, 1000)
    Y, labels = data.Y, data.labels
    kept = metrics.keep_above(labels, data.top_scores, 0.45)
    expected = {
        "error": metrics.error_rate(Y, labels),
        "AUC": metrics.auc(Y, data.scores),
        "ECE": metrics.expected_calibration_error(Y, labels, data.top_scores),
        "micro-F1@t=0.45": metrics.micro_f1_at_k(Y, kept, 6),
        "macro-F1@t=0.45": metrics.macro_f1_at_k(Y, kept, 6),
        "coverage@t=0.45": metrics.coverage_at_k(Y, kept, 6),
    }
    for k in (1, 3, 5):
        expected |= {
            f"P@{k}": metrics.precision_at_k(Y, labels, k),
            f"nDCG@{k}": metrics.ndcg_at_k(Y, labels, k),
            f"R@{k}": metrics.recall_at_k(Y, labels, k),
            f"PSP@{k}": metrics.psp_at_k(Y, labels, k, weights),
            f"PSnDCG@{k}": metrics.psndcg_at_k(Y, labels, k, weights),
            f"micro-F1@{k}": metrics.micro_f1_at_k(Y, labels, k),
            f"macro-F1@{k}": metrics.macro_f1_at_k(Y, labels, k),
            f"coverage@{k}": metrics.coverage_at_k(Y, labels, k),
        }
    result = evaluate(data, [(0, 60)]).result()
    n_true = np.diff(Y.indptr)
    assert result.pop("rows") == 60
    assert result.pop("AUC-excluded") == np.count_nonzero((n_true == 0) | (n_true == 40)) > 0
    assert result == pytest.approx({name: 100 * value for name, value in expected.items()})


def test_without_options_there_are_the_plain_measures_only():
    evaluation = Evaluation(ks=(2, 1, 2))
    evaluation.update(csr_array([[1, 0, 1]]), [[2, 1]])
    names = ("P", "nDCG", "R")
    sets = [f"{name}@{k}" for k in (1, 2) for name in ("micro-F1", "macro-F1", "coverage")]
    expected = [f"{name}@{k}" for name in names for k in (1, 2)] + sets + ["error", "rows"]
    assert list(evaluation.result()) == expected


def test_bins_add_up_to_the_whole(data):
    evaluation = evaluate(data, [(0, 30), (30, 60)], bins=(20, 55))
    result, by_bin = evaluation.result(), evaluation.by_frequency()
    assert list(by_bin) == ["tail", "torso", "head"]
    for measure in ("P", "nDCG", "PSP", "PSnDCG"):
        for k in (1, 3, 5):
            parts = [values[f"{measure}@{k}"] for values in by_bin.values()]
            assert min(parts) > 0
            assert sum(parts) == pytest.approx(result[f"{measure}@{k}"])


def test_bins_by_hand():
    # Training counts 1, 10, 99 and, for the last label, which training did not know, 0.
    # Bins: tail 0 and 3, torso 1, head 2. True: {0, 1, 2, 3}, {0}. Predicted: 2, 0 and 1, 2.
    evaluation = Evaluation(ks=(2,), train_counts=[1, 10, 99], n_train=100)
    evaluation.update(csr_array([[1, 1, 1, 1], [1, 0, 0, 0]]), [[2, 0], [1, 2]])
    tail, torso, head = evaluation.by_frequency().values()
    # One hit each in tail and head, over 2 rows x 2 places.
    assert (tail["P@2"], torso["P@2"], head["P@2"]) == pytest.approx((25, 0, 25))
    # Tail: 1 of 2 in row 0 and 0 of 1 in row 1. Torso: 0 of 1, head: 1 of 1, both row 0 only.
    assert (tail["R@2"], torso["R@2"], head["R@2"]) == pytest.approx((25, 0, 100))
    # Best gains: row 0 its labels 3 and 0, row 1 its label 0.
    w = metrics.inverse_propensity([1, 10, 99, 0], 100)
    best = w[3] + w[0] + w[0]
    assert tail["PSP@2"] == pytest.approx(100 * w[0] / best)
    assert head["PSP@2"] == pytest.approx(100 * w[2] / best)


def test_blocks_without_rows_give_nan():
    evaluation = Evaluation(ks=(1,), train_counts=[1, 2], n_train=3, probabilities=True)
    none = np.zeros((0, 1))
    evaluation.update(csr_array((0, 2)), none.astype(int), none, np.zeros((0, 2)))
    result = evaluation.result()
    assert result.pop("rows") == 0
    assert result.pop("AUC-excluded") == 0
    assert result.pop("macro-F1@1") == 0
    assert all(math.isnan(value) for value in result.values())


def test_a_refused_block_leaves_no_trace(data):
    evaluation = evaluate(data, [(0, 60)])
    before = evaluation.result()
    with pytest.raises(ValueError, match="probabilities"):
        evaluation.update(data.Y, data.labels, data.top_scores + 1, data.scores)
    with pytest.raises(ValueError, match="nan"):
        evaluation.update(data.Y, data.labels, data.top_scores, np.full((60, 40), np.nan))
    assert evaluation.result() == before


def test_blocks_must_agree(data):
    evaluation = Evaluation()
    evaluation.update(data.Y, data.labels)
    with pytest.raises(ValueError, match="Y must have 40 columns, as before; got 50"):
        evaluation.update(csr_array((60, 50)), data.labels)
    with pytest.raises(ValueError, match="with all blocks or with none"):
        evaluation.update(data.Y, data.labels, dense_scores=data.scores)


def test_bad_use_is_refused(data):
    with pytest.raises(ValueError, match=r"ks must be .* at least 1; got \(0, 1\)"):
        Evaluation(ks=(0, 1))
    with pytest.raises(ValueError, match="given together"):
        Evaluation(train_counts=[1, 2])
    with pytest.raises(ValueError, match=r"k must be between 1 and 6, .*; got 7"):
        Evaluation(ks=(1, 7)).update(data.Y, data.labels)
    with pytest.raises(ValueError, match="scores must be given"):
        Evaluation(threshold=0.5).update(data.Y, data.labels)
    with pytest.raises(ValueError, match="at most 40 entries"):
        Evaluation(train_counts=np.ones(41), n_train=9).update(data.Y, data.labels)
    with pytest.raises(ValueError, match="before the first update"):
        Evaluation().result()
    with pytest.raises(ValueError, match="before the first update"):
        Evaluation(train_counts=[1], n_train=9).by_frequency()
    with pytest.raises(ValueError, match="by_frequency needs train_counts"):
        Evaluation().by_frequency()
