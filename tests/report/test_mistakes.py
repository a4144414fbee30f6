"""Confused labels, best and worst ones, against plain loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.metrics.matching import Matched, match
from labelry.report.mistakes import FEWEST_ROWS, confusions, extremes, first_r

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


def test_extremes(truth: Matched) -> None:
    best, worst, of = extremes(truth, N_KNOWN, 3)
    expected = {}
    for label in range(N_KNOWN):
        rows = [r for r in range(truth.n_rows) if label in truth.Y[[r]].indices]
        said = [r for r in range(truth.n_rows) if label in best_of(truth, r)]
        both = len(set(rows) & set(said))
        if len(rows) >= FEWEST_ROWS:
            expected[label] = (len(rows), both / len(said), both / len(rows))
    assert of == len(expected)
    f1 = {j: 2 * p * r / (p + r) if p + r else 0.0 for j, (_, p, r) in expected.items()}
    for score in (*best, *worst):
        assert (score.rows, score.precision, score.recall) == expected[score.label]
        assert score.f1 == pytest.approx(f1[score.label])
    ordered = sorted(f1.values())
    assert [s.f1 for s in worst] == pytest.approx(ordered[:3])
    assert [s.f1 for s in best] == pytest.approx(ordered[:-4:-1])


def test_labels_that_are_all_alike_are_in_one_list_only() -> None:
    Y = csr_array(np.repeat(np.eye(4, dtype=np.float32), 6, axis=0))
    best, worst, of = extremes(match(Y, Y.indices[:, None]), 4, 10)
    assert of == 4
    assert sorted(s.label for s in (*best, *worst)) == [0, 1, 2, 3]
    assert {s.f1 for s in (*best, *worst)} == {1.0}


def test_rare_labels_are_neither_best_nor_worst() -> None:
    Y = csr_array(np.eye(4, dtype=np.float32))
    assert extremes(match(Y, Y.indices[:, None]), 4, 10) == ([], [], 0)


def test_nothing_is_confused_where_all_is_right_or_nothing_is_said() -> None:
    Y = csr_array(np.eye(3, dtype=np.float32))
    assert confusions(match(Y, [[0], [1], [2]]), 3, 5) == []
    assert confusions(match(Y, [[-1], [-1], [-1]]), 3, 5) == []


def test_as_many_are_judged_as_are_true() -> None:
    found = first_r(match(csr_array([[1, 1, 0], [0, 0, 1], [0, 0, 0]]), [[2, 0], [2, 1], [0, 1]]))
    assert found.labels.tolist() == [[2, 0], [2, -1], [-1, -1]]
    assert found.hits.tolist() == [[False, True], [True, False], [False, False]]
