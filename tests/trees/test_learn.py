"""Learners: every label has its leaf, sets are small and even, planted clusters come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array
from scipy.sparse.linalg import ArpackNoConvergence

from labelry.linalg import spectral
from labelry.trees import balanced_tree, random_tree, spectral_tree
from labelry.trees.structure import Tree

LEARNERS = ["random", "balanced", "sparse", "spectral"]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def vectors(n: int, k: int = 10) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((n, k)).astype(np.float32)


def learnt(learner: str, n: int, **options: Any) -> Tree:
    if learner == "random":
        return random_tree(n, rng=rng(), **options)
    if learner == "balanced":
        return balanced_tree(vectors(n), rng=rng(), n_jobs=1, **options)
    if learner == "sparse":
        V = csr_array(np.maximum(vectors(n) - 0.5, 0))
        return balanced_tree(V, rng=rng(), n_jobs=1, **options)
    B = np.abs(vectors(n))
    return spectral_tree(B @ B.T, rng=rng(), n_jobs=1, **options)


def label_sets_below_root(tree: Tree) -> list[list[int]]:
    nodes = np.arange(1, tree.first_child[1])
    return sorted(sorted(tree.label_sets[[s]].indices.tolist()) for s in nodes)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    ("n", "branching", "max_leaf_size"),
    [
        (1, 16, None),
        (2, 16, None),
        (2, 2, 1),
        (16, 16, None),
        (17, 16, None),
        (99, 200, 1),
        (99, 7, 2),
    ],
)
def test_leaves_partition_the_labels(
    learner: str, n: int, branching: int, max_leaf_size: int | None
) -> None:
    tree = learnt(learner, n, branching=branching, max_leaf_size=max_leaf_size).check()
    assert sorted(tree.label[tree.label >= 0]) == list(range(n))
    n_children = np.diff(tree.first_child)
    assert n_children.max() <= max(branching, max_leaf_size or branching)
    if n > 1:
        assert n_children[tree.label < 0].min() >= 2
    # Equal sizes, up to one label; a set of one label is a leaf.
    below, leaf = tree.n_leaves_below, tree.label >= 0
    for s in np.flatnonzero(~leaf):
        children = np.arange(tree.first_child[s], tree.first_child[s + 1])
        assert np.ptp(below[children]) <= 1
    assert tree.depth[leaf].min() >= tree.depth[leaf].max() - 1


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(("depth", "expected"), [(1, 1), (2, 2), (3, 3), (50, 6)])
def test_depth_is_a_limit(learner: str, depth: int, expected: int) -> None:
    tree = learnt(learner, 64, branching=2, depth=depth, max_leaf_size=1)
    assert tree.depth.max() == expected
    assert tree.first_child[1] == (65 if depth == 1 else 3)


@pytest.mark.parametrize("balance", [1.0, 2.0, 4.0])
def test_balance_is_a_limit(balance: float) -> None:
    V = vectors(500) + 3 * (np.arange(500)[:, None] < 50)  # fifty of a kind
    tree = balanced_tree(
        V, branching=4, depth=3, max_leaf_size=20, balance=balance, rng=rng(), n_jobs=1
    )
    assert tree.summary().balance <= max(balance, 1.1)  # 31 labels beside 32
    assert (tree.summary().balance > 1.1) == (balance > 1)


@pytest.mark.parametrize("storage", [np.asarray, csr_array])
def test_planted_clusters_at_both_levels(storage: Any) -> None:
    """Four families of four clusters of five labels, in any order."""
    generator = rng()
    families = np.repeat(generator.standard_normal((4, 30)), 20, axis=0)
    clusters = np.repeat(generator.standard_normal((16, 30)), 5, axis=0)
    V = 2 * families + clusters + 0.1 * generator.standard_normal((80, 30))
    shuffle = generator.permutation(80)  # label i is planted at place shuffle[i]
    tree = balanced_tree(storage(V[shuffle]), branching=4, max_leaf_size=5, rng=generator, n_jobs=1)
    sets = [shuffle[tree.label_sets[[s]].indices] for s in range(1, 21)]
    assert {tuple(np.unique(labels // 20)) for labels in sets[:4]} == {(0,), (1,), (2,), (3,)}
    assert {tuple(np.unique(labels // 5)) for labels in sets[4:]} == {(c,) for c in range(16)}


def test_only_directions_count() -> None:
    V = vectors(60)
    scaled = V * np.linspace(0.01, 100, 60, dtype=np.float32)[:, None]
    one, other = (balanced_tree(A, branching=4, rng=rng(), n_jobs=1) for A in (V, scaled))
    np.testing.assert_array_equal(one.label, other.label)


@pytest.mark.parametrize("V", [np.zeros((300, 3)), np.ones((300, 3)), csr_array((300, 3))])
def test_vectors_without_differences(V: Any) -> None:
    for balance in (1.0, np.inf):
        tree = balanced_tree(V, branching=4, balance=balance, rng=rng(), n_jobs=1)
        assert tree.depth.max() <= 5


def test_seed_decides() -> None:
    V = vectors(300)
    trees = [balanced_tree(V, rng=np.random.default_rng(s), n_jobs=j) for s, j in ((0, 1), (0, 2))]
    assert trees[0].label.tobytes() == trees[1].label.tobytes()
    other = balanced_tree(V, rng=np.random.default_rng(1), n_jobs=1)
    assert trees[0].label.tobytes() != other.label.tobytes()


def test_copies_go_to_near_clusters_only() -> None:
    V = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    V[3], V[4] = [1, 0.9, 0], [0.9, 1, 0]  # these belong to two clusters
    plain = balanced_tree(V, branching=3, max_leaf_size=4, rng=rng(), n_jobs=1)
    joint = balanced_tree(V, branching=3, max_leaf_size=4, copies=2, rng=rng(), n_jobs=1)
    assert label_sets_below_root(plain) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert label_sets_below_root(joint) == [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [8, 9, 10, 11]]
    assert np.diff(joint.leaves().ptr).tolist() == [1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    sparse = balanced_tree(
        csr_array(V), branching=3, max_leaf_size=4, copies=2, rng=rng(), n_jobs=1
    )
    assert label_sets_below_root(sparse) == label_sets_below_root(joint)


def test_copies_are_limited_and_harmless_in_small_trees() -> None:
    V = np.abs(vectors(200))  # all near to one another
    tree = balanced_tree(V, branching=4, copies=2, rng=rng(), n_jobs=1)
    n_leaves = np.diff(tree.leaves().ptr)
    assert n_leaves.max() == 3
    assert balanced_tree(V[:4], branching=4, copies=2, rng=rng(), n_jobs=1).n_nodes == 5


def blocks(n_blocks: int, size: int) -> csr_array:
    """Affinity 1 within blocks, and 0.01 between neighbours of a ring."""
    A = block_diag([csr_array(np.ones((size, size)) - np.eye(size))] * n_blocks).toarray()
    ring = np.arange(n_blocks * size)
    A[ring, ring - 1] += 0.01
    A[ring - 1, ring] += 0.01
    return csr_array(A)


@pytest.mark.parametrize("limit", [spectral._DENSE, 0])  # all eigenvectors, or a few
@pytest.mark.parametrize("balance", [1.0, 2.0])
def test_spectral_finds_the_blocks(
    limit: int, balance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spectral, "_DENSE", limit)
    shuffle = rng().permutation(60)
    A = blocks(6, 10)[shuffle][:, shuffle]
    tree = spectral_tree(A, branching=6, max_leaf_size=10, balance=balance, rng=rng(), n_jobs=1)
    found = [set(shuffle[labels] // 10) for labels in label_sets_below_root(tree)]
    assert sorted(found, key=min) == [{b} for b in range(6)]


def test_spectral_without_convergence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ArpackNoConvergence("no", np.zeros(0), np.zeros((60, 0)))

    monkeypatch.setattr(spectral, "_DENSE", 0)
    monkeypatch.setattr(spectral, "eigsh", fail)
    tree = spectral_tree(blocks(6, 10), branching=6, max_leaf_size=10, rng=rng(), n_jobs=1)
    assert label_sets_below_root(tree) == np.arange(60).reshape(6, 10).tolist()


def test_labels_that_are_never_confused_stay_together() -> None:
    blocks = [np.ones((10, 10)) - np.eye(10)] * 3 + [np.zeros((10, 10))]
    A = block_diag([csr_array(block) for block in blocks])
    tree = spectral_tree(A, branching=4, max_leaf_size=10, rng=rng(), n_jobs=1)
    assert label_sets_below_root(tree) == np.arange(40).reshape(4, 10).tolist()


@pytest.mark.parametrize("limit", [spectral._DENSE, 0])
def test_no_confusion_at_all(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral, "_DENSE", limit)
    tree = spectral_tree(csr_array((100, 100)), branching=4, rng=rng(), n_jobs=1)
    assert tree.summary().depth == 4


def test_refusals() -> None:
    V = vectors(10)
    for options, reason in [
        ({"branching": 1}, "branching must be at least 2; got 1"),
        ({"depth": 0}, "depth must be at least 1, or None; got 0"),
        ({"max_leaf_size": 0}, "max_leaf_size must be at least 1; got 0"),
        ({"balance": 0.9}, "balance must be at least 1; got 0.9"),
        ({"balance": np.nan}, "balance must be at least 1; got nan"),
        ({"copies": -1}, "copies must be at least 0; got -1"),
        ({"n_jobs": 0}, "n_jobs must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=reason):
            balanced_tree(V, rng=rng(), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="V must have two dimensions"):
        balanced_tree(V[0], rng=rng())
    with pytest.raises(ValueError, match="V must not have infinite entries or NaN"):
        balanced_tree(V * np.nan, rng=rng())
    with pytest.raises(ValueError, match="V must have at least 1 row, one per label; got 0"):
        balanced_tree(V[:0], rng=rng())
    with pytest.raises(ValueError, match="a tree must have at least 1 label; got 0"):
        random_tree(0, rng=rng())
    with pytest.raises(ValueError, match=r"A must be square, labels x labels; got \(10, 9\)"):
        spectral_tree(np.ones((10, 9)), rng=rng())
    with pytest.raises(ValueError, match="A must be symmetric"):
        spectral_tree(np.triu(np.ones((9, 9))), rng=rng())
    with pytest.raises(ValueError, match="A must not have negative or infinite entries, or NaN"):
        spectral_tree(-np.ones((9, 9)), rng=rng())
