"""Labels on a plane: neighbours stay neighbours, whatever the size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labelry.report import label_map as module
from labelry.report.label_groups import GREY, MOST_GROUPS, dense_groups
from labelry.report.label_map import LEADERS, LabelMap, label_map


@pytest.fixture(autouse=True)
def without_umap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_installed_umap", lambda: None)


def clusters(n_clusters: int, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors in clusters far from one another, in mixed order, and the cluster of each."""
    rng = np.random.default_rng(seed)
    cluster = rng.permutation(np.repeat(np.arange(n_clusters), size))
    centres = 10 * np.eye(n_clusters, 20)
    return (centres[cluster] + rng.normal(size=(len(cluster), 20))).astype(np.float32), cluster


def drawn(
    vectors: np.ndarray, counts: Any = None, names: list[str] | None = None, seed: int = 0
) -> LabelMap:
    counts = np.ones(len(vectors)) if counts is None else counts
    names = [str(i) for i in range(len(vectors))] if names is None else names
    return label_map(vectors, counts, names, np.random.default_rng(seed))


def same_among_nearest(points: np.ndarray, cluster: np.ndarray) -> float:
    """Share of the 3 nearest points that are of the same cluster."""
    distance = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :3]
    return float((cluster[nearest] == cluster[:, None]).mean())


@pytest.mark.parametrize("size", [20, 300])  # t-SNE of all labels; of landmarks
def test_labels_lie_beside_similar_ones(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LANDMARKS", 200)
    V, cluster = clusters(8, size)
    found = drawn(V)
    assert found.points.dtype == np.float32
    assert found.points.min() >= 0
    assert found.points.max() <= 1
    assert np.ptp(found.points, axis=0).max() == pytest.approx(1)
    assert same_among_nearest(found.points, cluster) > 0.95
    # Room for each: no two at the same place.
    assert len(np.unique(found.points.round(5), axis=0)) > 0.99 * len(V)


def test_groups_follow_the_vectors_and_are_named_by_frequent_labels() -> None:
    V, cluster = clusters(6, 30)
    counts = np.arange(len(V)) + 1000 * (cluster == 3)
    colours = ["red", "blue", "green", "pink", "grey", "black"]
    names = [f"{colours[c]} thing {i}" for i, c in enumerate(cluster)]
    found = drawn(V, counts, names)
    assert found.groups.dtype == np.uint8
    assert (found.groups == GREY).mean() < 0.2
    assert len(found.leaders) == len(found.words) >= 6
    for group, word in enumerate(found.words):
        members = np.flatnonzero(found.groups == group)
        assert len(set(cluster[members])) == 1  # a group never mixes clusters
        best = members[np.argsort(-counts[members])][:LEADERS]
        assert found.leaders[group][: len(best)].tolist() == best.tolist()
        assert (found.leaders[group][len(best) :] == -1).all()
        assert not word or word.lower() in names[members[0]]
    assert {colour.capitalize() for colour in colours} <= {w.split()[0] for w in found.words}
    rows = np.bincount(found.groups, counts, 256)[: len(found.words)]
    assert (np.diff(rows) <= 0).all()  # the group with the most rows first
    assert cluster[found.groups == 0][0] == 3


def blobs(centres: np.ndarray, size: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    points = np.repeat(centres, size, axis=0) + rng.normal(0, 0.01, (size * len(centres), 2))
    return points.clip(0, 1).astype(np.float32)


def test_a_group_is_one_dense_place_and_what_lies_between_is_grey() -> None:
    grid = np.stack(np.meshgrid(np.linspace(0.1, 0.9, 6), np.linspace(0.1, 0.9, 6)), -1)
    points = blobs(grid.reshape(-1, 2), 50)
    stray = np.random.default_rng(1).random((40, 2)).astype(np.float32)
    points = np.concatenate([points, stray])
    U = np.ones((len(points), 2), dtype=np.float32)
    groups, words = dense_groups(points, U, np.ones(len(points)), ["7"] * len(points))
    assert len(words) == MOST_GROUPS < 36
    assert set(words) == {""}
    assert set(groups.tolist()) == {*range(MOST_GROUPS), GREY}
    for group in range(MOST_GROUPS):
        assert np.ptp(points[groups == group], axis=0).max() < 0.15


def test_a_word_names_one_group_only_and_must_be_in_enough_of_its_labels() -> None:
    points = blobs(np.array([[0.1, 0.1], [0.9, 0.1], [0.5, 0.9]]), 60)
    names = (
        ["fox of the wood"] * 100
        + ["fox of the sea"] * 20
        + [f"rare{chr(97 + i % 26)}{i}" for i in range(60)]
    )
    names[-5:] = ["odd one"] * 5  # too few of its group
    groups, words = dense_groups(points, np.ones((180, 2), np.float32), np.arange(180), names)
    assert set(groups[120:].tolist()) == {GREY}
    assert groups[0] != groups[70]
    assert sorted(words) != [words[0]] * 2
    assert "" not in words
    assert len(words) == 2


def test_the_same_seed_gives_the_same_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LANDMARKS", 50)
    V, _ = clusters(4, 30)
    for a, b in zip(drawn(V), drawn(V), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(drawn(V).points, drawn(V, seed=1).points)


@pytest.mark.parametrize("n", [1, 2, 8, 9, 12])
def test_few_labels(n: int) -> None:
    found = drawn(np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32))
    assert np.isfinite(found.points).all()
    assert len(np.unique(found.points.round(4), axis=0)) == n
    assert len(found.leaders) == len(found.words) <= n // 3
    assert set(found.groups.tolist()) <= {*range(len(found.words)), GREY}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_labels_with_equal_vectors_are_spread(value: float) -> None:
    found = drawn(np.full((40, 5), value, dtype=np.float32), np.zeros(40))
    assert np.isfinite(found.points).all()
    assert len(np.unique(found.points.round(3), axis=0)) > 30


def test_counts_must_fit() -> None:
    with pytest.raises(ValueError, match="counts must have 3 values, got 2"):
        label_map(np.eye(3, dtype=np.float32), np.ones(2), list("abc"), np.random.default_rng(0))


def test_umap_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given the labels' vectors and a seed, and what it gives is scaled."""
    asked: dict[str, Any] = {}

    class UMAP:
        def __init__(self, **parameters: Any) -> None:
            asked.update(parameters)

        def fit_transform(self, vectors: np.ndarray) -> np.ndarray:
            asked["shape"] = vectors.shape
            return np.column_stack([np.arange(len(vectors)), np.zeros(len(vectors))])

    monkeypatch.setattr(module, "_installed_umap", lambda: UMAP)
    V, _ = clusters(3, 4)
    points = drawn(V).points
    assert (asked["shape"], asked["metric"], asked["n_neighbors"]) == ((12, 20), "cosine", 11)
    assert isinstance(asked["random_state"], int)
    np.testing.assert_allclose(points[:, 0], np.linspace(0, 1, 12), atol=1e-6)
    np.testing.assert_allclose(points[:, 1], 0.5)
    monkeypatch.setattr(module, "_UMAP_LABELS", 11)
    asked.clear()
    drawn(V)
    assert not asked  # too many for it


@pytest.mark.slow
def test_umap_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # what stands for its absence
    pytest.importorskip("umap")
    V, cluster = clusters(5, 20)
    assert same_among_nearest(drawn(V).points, cluster) > 0.95
