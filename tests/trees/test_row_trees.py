"""Trees over rows: descent against a plain loop, joining, trees of clusters."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.checks import StoredCheck
from labelry.storage.values import pack, unpack
from labelry.trees.row_trees import RowForest, cluster_tree, join_trees

# Node 0 asks for feature 0, its right child (2) for feature 1 above one half.
TREE = RowForest(
    np.zeros(1, dtype=np.int32),
    np.array([1, -1, 3, -1, -1], dtype=np.int32),
    csr_array(np.array([[1.0, 0], [0, 0], [0, 1], [0, 0], [0, 0]], dtype=np.float32)),
    np.array([0, 0, -0.5, 0, 0], dtype=np.float32),
)
STUMP = RowForest(
    np.zeros(1, dtype=np.int32),
    np.full(1, -1, dtype=np.int32),
    csr_array((1, 2), dtype=np.float32),
    np.zeros(1, dtype=np.float32),
)
X = np.array([[0, 1], [1, 0.4], [1, 0.6], [0, 0], [-1, 0]], dtype=np.float32)


def descend(forest: RowForest, tree: int, x: np.ndarray) -> int:
    """The plain twin of `find_leaves`."""
    node = int(forest.root[tree])
    while forest.left[node] >= 0:
        score = forest.weights.toarray()[node] @ x + forest.bias[node]
        node = int(forest.left[node]) + int(score > 0)
    return node


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_leaves(sparse: bool, n_jobs: int) -> None:
    rows = csr_array(X) if sparse else X
    assert_array_equal(TREE.leaves(rows, n_jobs).ravel(), [1, 3, 4, 1, 1])
    assert TREE.leaves(rows[:0], n_jobs).shape == (0, 1)


def test_joined_trees_keep_their_leaves() -> None:
    forest = join_trees([TREE, STUMP, TREE])
    assert_array_equal(forest.root, [0, 5, 6])
    found = forest.leaves(X)
    assert_array_equal(found, np.hstack([TREE.leaves(X), STUMP.leaves(X) + 5, TREE.leaves(X) + 6]))
    assert_array_equal(found, [[descend(forest, t, x) for t in range(3)] for x in X])


def clusters(n: int = 240, d: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = np.kron(np.eye(4), np.ones(d // 4))
    return (centres[np.arange(n) % 4] + 0.1 * rng.random((n, d))).astype(np.float32)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_cluster_tree_finds_the_clusters(sparse: bool) -> None:
    rows = clusters()
    rng = np.random.default_rng(0)
    given = csr_array(rows) if sparse else rows
    tree = cluster_tree(given, np.ones(len(rows)), max_leaf_size=60, rng=rng)
    leaf = tree.leaves(given).ravel()
    assert sorted(np.bincount(leaf)[tree.left < 0].tolist()) == [60] * 4
    assert len(set(zip(leaf.tolist(), (np.arange(240) % 4).tolist(), strict=True))) == 4


def test_threads_change_nothing() -> None:
    one, two = (
        cluster_tree(
            csr_array(clusters()),
            np.linspace(0.1, 1, 240),
            max_leaf_size=10,
            rng=np.random.default_rng(0),
            n_jobs=n_jobs,
        )
        for n_jobs in (1, 2)
    )
    assert_array_equal(one.left, two.left)
    assert_array_equal(one.weights.toarray(), two.weights.toarray())


def test_rows_of_more_weight_pull_the_centres() -> None:
    rows = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], dtype=np.float32)
    heavy = np.array([1, 0, 0, 1])
    tree = cluster_tree(rows, heavy, max_leaf_size=2, rng=np.random.default_rng(0))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    difference = tree.weights.toarray()[0]
    assert_allclose(np.abs(difference), np.abs(unit[3] - unit[0]), rtol=1e-5)


@pytest.mark.parametrize("n_rows", [1, 2, 7])
def test_rows_that_are_all_alike(n_rows: int) -> None:
    for rows in (np.zeros((n_rows, 3)), np.ones((n_rows, 3))):
        given = csr_array(rows.astype(np.float32))
        tree = cluster_tree(given, np.ones(n_rows), max_leaf_size=1, rng=np.random.default_rng(0))
        assert (tree.left < 0).sum() == n_rows
        leaf = tree.leaves(given).ravel()
        assert (leaf == leaf[0]).all()
        assert tree.left[leaf[0]] < 0


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("root", [5]),
        ("left", [0, -1, 3, -1, -1]),  # a node is its own child
        ("left", [1, -1, 4, -1, -1]),  # there is no right child
        ("left", [1, -1, 5, -1, -1]),
        ("left", [1, -1, 3, -1]),
        ("bias", np.zeros(4, dtype=np.float32)),
    ],
)
def test_damage_is_found(name: str, damaged) -> None:
    def read(forest: RowForest) -> None:
        arrays: dict[str, np.ndarray] = {}
        packed = pack(forest, "forest", arrays)
        unpack(RowForest, packed, "forest", arrays, {"n_features": 2}, StoredCheck())

    read(TREE)
    values = damaged if name == "bias" else np.array(damaged, dtype=np.int32)
    with pytest.raises(ValueError, match=f"{name}|n_nodes"):
        read(TREE._replace(**{name: values}))
