"""The calibrated tree: rows that are held out, and that no label is lost."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.data.labels import label_counts
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.metrics import expected_calibration_error
from labelry.systems import calibrated_tree as module
from labelry.systems.calibrated_tree import CalibratedTree, _without_lost_labels
from labelry.systems.linear_tree import LinearLabelTree


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, csr_array]:
    """Rows whose label is that of their first feature in two of three cases."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 10, n)
    labels = np.where(rng.random(n) < 2 / 3, words, rng.integers(0, 10, n))
    X = np.concatenate([np.eye(10)[words], rng.normal(size=(n, 5)) / 4], axis=1)
    return X.astype(np.float32), csr_array(np.eye(10, dtype=np.float32)[labels])


@pytest.mark.parametrize("many", [200, 20_000])
def test_scores_are_probabilities(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MANY_ROWS", many)
    X, Y = rows(2000)
    model = CalibratedTree(n_jobs=1).fit(X, Y)
    new_X, new_Y = rows(4000, seed=1)
    labels, scores = model.topk_ids(new_X, 5)
    assert model.probabilities
    error = expected_calibration_error(new_Y, labels, scores)
    raw = expected_calibration_error(new_Y, *model.tree_._topk(scaled_rows(new_X), 5))
    assert error < min(0.03, 0.7 * raw)


def test_few_rows_are_all_learnt_from_and_many_spare_some(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    train = LinearLabelTree._train
    monkeypatch.setattr(
        LinearLabelTree,
        "_train",
        lambda self, rows, rng: (sizes.append(rows.n_rows), train(self, rows, rng)),
    )
    X = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    y = np.arange(400) % 4
    CalibratedTree(n_jobs=1).fit(X, y)
    assert sizes == [300, 400]
    monkeypatch.setattr(module, "_MANY_ROWS", 400)
    monkeypatch.setattr(module, "_SPARED", (30, 60))
    sizes.clear()
    CalibratedTree(n_jobs=1).fit(X, y)
    assert sizes == [370]
    sizes.clear()
    few = CalibratedTree(n_jobs=1).fit(X[:50], y[:50])
    assert sizes == [50]
    assert few.calibration_ is None
    assert not few.probabilities


def test_rows_of_labels_that_would_be_lost() -> None:
    Y = csr_array(np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=np.float32))
    held_out = np.array([False, True, True, True])
    few, counts = Rows(Y, Y), label_counts(Y)
    kept = _without_lost_labels(few, held_out, counts)
    assert kept.tolist() == [False, False, False, True]  # the others have all rows of label 1
    one = np.array([False, True, False, False])
    assert _without_lost_labels(few, one, counts).tolist() == one.tolist()
