"""Chunks of node weights: what is stored, and how children are scored."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.checks import StoredCheck
from labelry.errors import MemoryBudgetError
from labelry.storage.values import pack, unpack
from labelry.trees import random_tree
from labelry.trees.train import reach
from labelry.trees.weights import NodeWeights, as_csr, chunk_features, empty_weights, score_children


def problem(n: int = 60, d: int = 200, c: int = 12) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng(0)
    X = random_array((n, d), density=0.04, random_state=rng, format="csr", dtype=np.float32)
    Y = csr_array(np.eye(c, dtype=np.float32)[rng.integers(0, c, n)])
    return csr_array(X), Y


def test_a_chunk_has_the_features_of_the_rows_that_reach_it() -> None:
    X, Y = problem()
    tree = random_tree(12, branching=4, rng=np.random.default_rng(1))
    features = chunk_features(X, reach(tree, Y))
    for node in range(tree.n_nodes):
        labels = tree.label_sets[[node]].indices
        rows = np.flatnonzero(Y[:, labels].sum(axis=1))
        assert_array_equal(features[[node]].indices, np.unique(X[rows].indices))


@pytest.mark.parametrize("dense", [False, True])
def test_scores_equal_a_product_with_the_blocks(dense: bool) -> None:
    X, Y = problem()
    rows = X.toarray() if dense else X
    tree = random_tree(12, branching=4, rng=np.random.default_rng(1))
    features = chunk_features(rows, reach(tree, Y))
    weights = empty_weights(tree, features)
    weights.data[:] = np.random.default_rng(2).standard_normal(len(weights.data))
    csr = as_csr(rows)
    for node in np.flatnonzero(tree.label < 0):
        block = weights.block(tree, node)
        W = np.zeros((X.shape[1], block.shape[1]), dtype=np.float32)
        known = features[[node]].indices if len(block) - 1 < X.shape[1] else np.arange(X.shape[1])
        W[known] = block[:-1]
        for i in range(X.shape[0]):
            scores = np.empty(block.shape[1], dtype=np.float32)
            score_children(csr, i, weights, node, scores)
            assert_allclose(scores, X[[i]].toarray()[0] @ W + block[-1], atol=1e-4)
    assert (len(weights.slot_feature) == 0) == dense


def test_memory_is_asked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = problem()
    tree = random_tree(12, branching=4, rng=np.random.default_rng(1))
    monkeypatch.setattr("labelry.memory.available", lambda: 10)
    with pytest.raises(MemoryBudgetError, match="200 features needs about"):
        empty_weights(tree, chunk_features(X, reach(tree, Y)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("slot_ptr", lambda a: a[::-1].copy()),
        ("slot_ptr", lambda a: a[1:]),
        ("slot_feature", lambda a: a + 1),  # no slot is free
        ("slot_feature", lambda a: np.where(a < 0, a, 200).astype(np.int32)),
        ("slot_row", lambda a: a + 200),
        ("block_ptr", lambda a: np.where(a == a[-1], a, 0)),
        ("data", lambda a: a.astype(np.float64)),
    ],
)
def test_damage_is_found(name: str, change) -> None:
    X, Y = problem()
    tree = random_tree(12, branching=4, rng=np.random.default_rng(1))
    weights = empty_weights(tree, chunk_features(X, reach(tree, Y)))

    def read(weights: NodeWeights) -> None:
        arrays: dict[str, np.ndarray] = {}
        packed = pack(weights, "weights", arrays)
        sizes = {"n_features": X.shape[1]}
        found = unpack(NodeWeights, packed, "weights", arrays, sizes, StoredCheck())
        found.check_fits(StoredCheck(), tree, X.shape[1])

    read(weights)
    with pytest.raises(ValueError, match=f"{name}|weights"):
        read(weights._replace(**{name: change(getattr(weights, name))}))
