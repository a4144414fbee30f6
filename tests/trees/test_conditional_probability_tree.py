"""Conditional probability trees: how the tree grows, probabilities, odd data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from labelry.estimators.trees import ConditionalProbabilityTree
from labelry.trees.conditional_probability_tree import grow_label_tree


def indicator(y: np.ndarray) -> csr_array:
    return csr_array(np.eye(y.max() + 1, dtype=np.float32)[y])


def test_balance_of_one_grows_a_flat_tree() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((640, 5)).astype(np.float32)
    tree = grow_label_tree(X, indicator(np.repeat(np.arange(64), 10)), 1.0, rng)
    assert tree.summary().depth == 6  # log2(64): every insertion goes to the lighter side
    assert (np.diff(tree.first_child)[tree.label < 0] == 2).all()


def test_a_small_balance_keeps_similar_labels_together() -> None:
    """Two kinds of rows: the regressor of the root sends new labels to their kind."""
    y = np.repeat(np.arange(16), 40)
    X = np.where((y < 8)[:, None], [1.0, 0.0], [0.0, 1.0]).astype(np.float32)
    mixed = {}
    for balance in (0.05, 1.0):
        tree = grow_label_tree(X, indicator(y), balance, np.random.default_rng(1))
        sets = tree.label_sets.toarray()
        first = sets[tree.first_child[0] : tree.first_child[1], :8].sum(axis=1)
        mixed[balance] = min(first)
    assert mixed[0.05] < mixed[1.0]


def test_probabilities_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 6)), rng.integers(0, 9, 200)
    model = ConditionalProbabilityTree(beam_width=20).fit(X, y)
    _, scores = model.predict_topk(X, k=9)
    assert_allclose(scores.sum(axis=1), 1.0, atol=0.02)


@pytest.mark.parametrize("sparse", [False, True])
def test_separable_classes(sparse: bool) -> None:
    X = np.kron(np.eye(21), np.ones((4, 3)))
    y = np.repeat(np.arange(21), 4)
    model = ConditionalProbabilityTree().fit(csr_array(X) if sparse else X, y)
    assert model.score(X, y) == 1.0


def test_errors() -> None:
    for balance in (0, 1.5):
        with pytest.raises(
            ValueError, match=f"balance must be above 0 and at most 1, got {balance}"
        ):
            ConditionalProbabilityTree(balance=balance).fit(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="C must be positive, got -1"):
        ConditionalProbabilityTree(C=-1).fit(np.eye(2), [0, 1])
