"""Sparse chunks: what goes in can be found again, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.checks import StoredCheck
from labelry.trees import random_tree
from labelry.trees.linear import LinearTrees
from labelry.trees.sparse_weights import (
    LEVELS,
    PackedWeights,
    bucket_of,
    feature_bits,
    find_entries,
    join_chunks,
    mixed_number,
    pack_chunk,
)

TREE = random_tree(30, branching=4, rng=np.random.default_rng(0))


def random_weights(
    tree=TREE, n_features: int = 50, seed: int = 0, exact: bool = True
) -> tuple[PackedWeights, dict]:
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
    return join_chunks(tree, chunks, bias, n_features, exact=exact), matrices


@pytest.mark.parametrize("n_features", [1, 2, 50, 64, 3000, 200_000])
def test_chunks_hold_what_was_put_in(n_features: int) -> None:
    weights, matrices = random_weights(n_features=n_features)
    for node, W in matrices.items():
        assert_array_equal(weights.chunk(TREE, node, n_features).toarray(), W.toarray())
    assert len(weights.weight) == len(weights.child) == weights.bucket[-1, 1]
    assert weights.child.dtype == weights.more.dtype == np.uint8
    assert weights.bucket.dtype == np.int32
    weights.check_fits(StoredCheck(values=True), TREE, n_features)


def test_weights_of_one_byte() -> None:
    weights, matrices = random_weights(exact=False)
    assert weights.weight.dtype == np.int8
    for node, W in matrices.items():
        found = weights.chunk(TREE, node, 50)
        largest = W.data.max(initial=0)
        assert_allclose(found.toarray(), W.toarray(), atol=0.51 * largest / LEVELS)
        if W.nnz:
            assert_allclose(found.max(), largest, rtol=1e-6)
    weights.check_fits(StoredCheck(values=True), TREE, 50)


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
        if not W.nnz:
            assert weights.first_bucket[node] == weights.first_bucket[node + 1]
            continue
        counts = np.diff(W.indptr)
        for feature in range(50):
            mixed = mixed_number(feature, weights.bits)
            key = mixed & ((1 << int(weights.shift[node])) - 1)
            start, end = find_entries(weights, bucket_of(weights, node, mixed), key)
            assert end - start == counts[feature]
            children = weights.child[start:end]
            assert_array_equal(np.sort(children), np.sort(W[[feature]].indices))


@pytest.mark.parametrize("bits", [0, 1, 5, 16, 20, 31])
def test_mixed_numbers_are_all_different(bits: int) -> None:
    numbers = np.arange(min(1 << bits, 4000))
    mixed = {int(mixed_number(n, bits)) for n in numbers}
    assert len(mixed) == len(numbers)
    assert 0 <= min(mixed) <= max(mixed) < 1 << bits


@pytest.mark.parametrize("features", [[], [0], [999_999], list(range(0, 4000, 7))])
def test_buckets_have_few_features_each(features: list[int]) -> None:
    feature = np.array(features, dtype=np.int32)
    zeros = np.zeros(len(feature), dtype=np.int32)
    chunk = pack_chunk(feature, zeros, zeros.astype(np.float32), 10**6)
    n_buckets = len(chunk.bucket) - 1
    assert n_buckets <= max(16, len(feature) // 4)  # 16: a key has no more than 16 of 20 bits
    assert chunk.bucket[-1].tolist() == [len(feature)] * 2
    assert len(features) == 0 or np.diff(chunk.bucket[:, 0]).max() <= 24


def test_more_than_sixteen_bits_of_children() -> None:
    n = (1 << 16) + 1
    tree = random_tree(n, branching=n, depth=1, rng=np.random.default_rng(0))
    one = np.array([1], dtype=np.int32)
    chunk = pack_chunk(one, one * (n - 1), one.astype(np.float32), 3)
    weights = join_chunks(tree, {0: chunk}, np.zeros(tree.n_nodes, dtype=np.float32), 3)
    assert weights.child.tolist() == [n - 1]


def test_can_be_saved(stored) -> None:
    weights, _ = random_weights()
    again = stored(weights)
    assert type(again) is PackedWeights
    for ours, theirs in zip(again, weights, strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("shift", lambda a: a + 1),
        ("first_bucket", lambda a: a[::-1].copy()),
        ("bucket", lambda a: a - 1),
        ("more", lambda a: a + 1),
        ("child", lambda a: a + 200),
        ("key", lambda a: a[1:]),
        ("weight", lambda a: a.astype(np.float64)),
        ("bits", lambda a: a + 1),
    ],
)
def test_damage_is_found(stored, name: str, change) -> None:
    weights, _ = random_weights()
    damaged = weights._replace(**{name: change(getattr(weights, name))})
    with pytest.raises(ValueError, match=f"{name}|shift|pointers|more"):
        stored(LinearTrees(TREE, np.zeros(1, dtype=np.int32), damaged, 50, 10, True))


def test_bits_of_features() -> None:
    assert [feature_bits(n) for n in (1, 2, 65_536, 65_537)] == [0, 1, 16, 17]
