"""Sparse chunks: what goes in can be found again, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.state import pack, unpack
from labelry.trees import random_tree
from labelry.trees.sparse_weights import SparseWeights, find_slot, join_chunks, pack_chunk

TREE = random_tree(30, branching=4, rng=np.random.default_rng(0))


def random_weights(tree=TREE, n_features: int = 50, seed: int = 0) -> tuple[SparseWeights, dict]:
    """Weights, and the matrix (n_features, n_children) of each inner node; one has none."""
    rng = np.random.default_rng(seed)
    matrices, chunks = {}, {}
    for node in np.flatnonzero(tree.label < 0):
        n_children = int(tree.first_child[node + 1] - tree.first_child[node])
        W = random_array(
            (n_features, n_children), density=0.2 * (node != 2), random_state=rng, dtype=np.float32
        )
        shuffled = rng.permutation(W.nnz)
        feature, child = (W.coords[side][shuffled].astype(np.int32) for side in (0, 1))
        matrices[int(node)] = csr_array(W)
        chunks[int(node)] = pack_chunk(feature, child, W.data[shuffled], n_features)
    bias = rng.standard_normal(tree.n_nodes).astype(np.float32)
    return join_chunks(tree, chunks, bias), matrices


def test_chunks_hold_what_was_put_in() -> None:
    weights, matrices = random_weights()
    for node, W in matrices.items():
        assert_array_equal(weights.chunk(TREE, node, 50).toarray(), W.toarray())
    assert len(weights.weight) == len(weights.child) == weights.entry_start[-1]
    assert weights.child.dtype == np.uint16
    assert weights.entry_start.dtype == np.int32


def test_weights_by_node() -> None:
    weights, matrices = random_weights()
    nodes = weights.by_node(TREE, 50).toarray()
    for node, W in matrices.items():
        children = slice(TREE.first_child[node], TREE.first_child[node + 1])
        assert_array_equal(nodes[children], W.toarray().T)
    assert not nodes[0].any()


def test_features_are_found_and_others_are_not() -> None:
    weights, matrices = random_weights()
    for node, W in matrices.items():
        first, last = weights.slot_start[node : node + 2]
        used = np.diff(W.indptr) > 0
        for feature in range(50):
            slot = find_slot(weights.feature, first, last, feature)
            if used[feature]:
                assert first <= slot < last
                assert weights.feature[slot] == feature
            else:
                assert slot == -1


@pytest.mark.parametrize("features", [[], [0], [999_999], list(range(0, 4000, 7))])
def test_a_table_has_room_but_not_too_much(features: list[int]) -> None:
    feature = np.array(features, dtype=np.int32)
    zeros = np.zeros(len(feature), dtype=np.int32)
    chunk = pack_chunk(feature, zeros, zeros.astype(np.float32), 10**6)
    assert len(feature) <= len(chunk.feature) <= 1.5 * len(feature) + 1
    assert_array_equal(np.sort(chunk.feature[chunk.feature >= 0]), np.sort(feature))


def test_more_than_sixteen_bits_of_children() -> None:
    n = (1 << 16) + 1
    tree = random_tree(n, branching=n, depth=1, rng=np.random.default_rng(0))
    one = np.array([1], dtype=np.int32)
    chunk = pack_chunk(one, one * (n - 1), one.astype(np.float32), 3)
    weights = join_chunks(tree, {0: chunk}, np.zeros(tree.n_nodes, dtype=np.float32))
    assert weights.child.tolist() == [n - 1]


def test_can_be_saved() -> None:
    weights, _ = random_weights()
    arrays: dict[str, np.ndarray] = {}
    again = unpack(pack(weights, "weights", arrays), arrays)
    assert type(again) is SparseWeights
    for ours, theirs in zip(again, weights, strict=True):
        assert_array_equal(ours, theirs)
