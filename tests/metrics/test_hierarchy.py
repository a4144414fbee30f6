"""Sibling fraction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.metrics import hierarchy, nearest_labels, sibling_fraction

# Parents: 0 and 1 have 10; 1 and 2 have 11; 3 has 12; 4 has none.
PAIRS = np.array([(0, 10), (1, 10), (1, 11), (2, 11), (3, 12)])
MATRIX = csr_array(np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]))


@pytest.mark.parametrize("tree", [PAIRS, PAIRS.tolist(), MATRIX])
def test_sibling_fraction_by_hand(tree):
    # Siblings: 0-1 and 1-2. Nearest is a sibling for 0 and 2, not for 1 (itself), 3 and 4.
    assert sibling_fraction(tree, np.array([1, 1, 1, 2, -1])) == pytest.approx(2 / 5)


def test_most_fraternal_constant_predictor():
    # Label 1 has the most siblings, two; it is not its own.
    assert sibling_fraction(PAIRS, np.full(5, 1)) == pytest.approx(2 / 5)


def test_inner_nodes_of_the_dag_and_repeated_pairs_change_nothing():
    more = np.vstack([PAIRS, PAIRS[:2], [(10, 13), (11, 13)]])
    assert sibling_fraction(more, np.array([1, 0, 0, 2, 3])) == pytest.approx(2 / 5)


def test_embedding_with_families_in_directions_of_their_own():
    rng = np.random.default_rng(0)
    family = np.repeat(np.arange(8), 5)
    V = np.eye(8)[family] + 0.1 * rng.standard_normal((40, 8))
    V *= rng.uniform(0.1, 9, (40, 1))  # the cosine does not see lengths
    pairs = np.column_stack([np.arange(40), family])
    assert sibling_fraction(pairs, V) == 1
    assert sibling_fraction(pairs[rng.permutation(40)], V) == 1
    strangers = np.column_stack([np.arange(40), np.arange(40)])
    assert sibling_fraction(strangers, V) == 0


@pytest.mark.parametrize("entries", [1, 100, 1 << 24])
def test_nearest_labels_in_blocks_agree_with_the_whole(monkeypatch, entries):
    monkeypatch.setattr(hierarchy, "_BLOCK_ENTRIES", entries)
    V = np.random.default_rng(1).standard_normal((30, 4)).astype(np.float32)
    V[7] = 0
    length = np.linalg.norm(V, axis=1)
    with np.errstate(invalid="ignore"):
        cosine = (V @ V.T) / np.outer(length, length)
    np.fill_diagonal(cosine, -np.inf)
    expected = np.where(np.isnan(cosine), -np.inf, cosine).argmax(axis=1)
    expected[7] = -1
    np.testing.assert_array_equal(nearest_labels(V), expected)


def test_a_label_at_the_origin_is_nobodys_neighbour():
    # 0 and 1 point apart (cosine -1), which is less than the 0 that the origin would give.
    np.testing.assert_array_equal(nearest_labels([[1.0], [-1.0], [0.0]]), [1, 0, -1])
    np.testing.assert_array_equal(nearest_labels([[1.0], [0.0]]), [-1, -1])


def test_no_labels_is_nan():
    assert math.isnan(sibling_fraction(PAIRS, np.zeros(0, dtype=int)))
    assert sibling_fraction(np.zeros((0, 2), dtype=int), np.array([1, 0])) == 0


@pytest.mark.parametrize(
    ("tree", "nearest", "message"),
    [
        (MATRIX, np.array([0, 1]), "hierarchy must have 2 rows, .*; got 5"),
        (PAIRS[:, :1], np.array([0, 1]), r"pairs .*; got int64 of shape \(5, 1\)"),
        (-PAIRS, np.array([0, 1]), "0 or more; got -12"),
        (PAIRS, np.array([0, 2]), "nearest must be between -1 and 1; got 0 to 2"),
        (PAIRS, np.array([0.0, 1.0]), r"integers \(c,\) or an embedding .*; got float64"),
    ],
)
def test_bad_arguments_are_refused(tree, nearest, message):
    with pytest.raises(ValueError, match=message):
        sibling_fraction(tree, nearest)
    with pytest.raises(ValueError, match=r"labels x embedding; got shape \(3,\)"):
        nearest_labels(np.ones(3))
