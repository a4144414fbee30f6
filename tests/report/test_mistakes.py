"""Confused labels, and counts of each label, against plain loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.metrics.matching import Matched, match
from labelry.report.mistakes import confusions, first_r, label_counts

N_KNOWN = 8  # of 10 labels


@pytest.fixture(params=[0, 1, 2])
def truth(request: pytest.FixtureRequest) -> Matched:
    rng = np.random.default_rng(request.param)
    Y = (rng.random((120, 10)) < 0.15).astype(np.float32)
    labels = np.stack([rng.permutation(N_KNOWN)[:5] for _ in range(120)])
    labels[rng.random(labels.shape) < 0.1] = -1
    return match(csr_array(Y), labels)


def best_of(truth: Matched, row: int) -> list[int]:
    n_true = int(truth.Y[[row]].nnz)
    return [j for j in truth.labels[row, :n_true].tolist() if j >= 0]


def test_confusions(truth: Matched) -> None:
    counts: Counter[tuple[int, int]] = Counter()
    for row in range(truth.n_rows):
        true, best = truth.Y[[row]].indices.tolist(), best_of(truth, row)
        wrong = [j for j in best if j not in true]
        for label in true:
            if label not in best and label < N_KNOWN and wrong:
                counts[label, wrong[0]] += 1
    found = confusions(truth, N_KNOWN, 1000)
    assert {(f.true, f.predicted): f.rows for f in found} == counts
    n_true = np.bincount(truth.Y.indices, minlength=10)
    assert all(f.of == n_true[f.true] for f in found)
    assert all(f.back == counts[f.predicted, f.true] for f in found)
    order = [(-f.rows, -f.rows / f.of) for f in found]
    assert order == sorted(order)
    assert confusions(truth, N_KNOWN, 3) == found[:3]


def test_label_counts(truth: Matched) -> None:
    counts = label_counts(truth)
    for label in range(truth.n_labels):
        rows = {r for r in range(truth.n_rows) if label in truth.Y[[r]].indices}
        said = {r for r in range(truth.n_rows) if label in best_of(truth, r)}
        found = [int(values[label]) for values in (counts.true, counts.predicted, counts.both)]
        assert found == [len(rows), len(said), len(rows & said)]


def test_nothing_is_confused_where_all_is_right_or_nothing_is_said() -> None:
    Y = csr_array(np.eye(3, dtype=np.float32))
    assert confusions(match(Y, [[0], [1], [2]]), 3, 5) == []
    assert confusions(match(Y, [[-1], [-1], [-1]]), 3, 5) == []


def test_as_many_are_judged_as_are_true() -> None:
    found = first_r(match(csr_array([[1, 1, 0], [0, 0, 1], [0, 0, 0]]), [[2, 0], [2, 1], [0, 1]]))
    assert found.labels.tolist() == [[2, 0], [2, -1], [-1, -1]]
    assert found.hits.tolist() == [[False, True], [True, False], [False, False]]
