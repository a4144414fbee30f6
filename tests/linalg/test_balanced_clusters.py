"""Balanced clusters against a plain twin, and the sizes they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, random_array

from labelry.linalg import balanced_clusters as cluster
from labelry.linalg.balanced_clusters import Sets, even_cuts, sparse_products, split_sets


def unit(V: np.ndarray) -> np.ndarray:
    return (V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-30)).astype(np.float32)


def some_vectors(n: int, k: int = 8, seed: int = 0) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((n, k)))


def one_set(n: int) -> Sets:
    return Sets(np.arange(n, dtype=np.int32), np.array([0, n]))


def assign_twin(S: np.ndarray, least: int, most: int) -> np.ndarray:
    """Rows by the regret of their second choice, each to the best part with room."""
    top = np.sort(S, axis=1)
    part, size = np.empty(len(S), dtype=int), np.zeros(S.shape[1], dtype=int)
    for done, i in enumerate(np.argsort(top[:, -2] - top[:, -1], kind="stable")):
        must_fill = np.maximum(least - size, 0).sum() >= len(S) - done
        free = np.flatnonzero(size < (least if must_fill else most))
        best = free[S[i, free] == S[i, free].max()]
        part[i] = best[size[best].argmin()]
        size[part[i]] += 1
    return part


def lloyd_twin(V: np.ndarray, seeds: np.ndarray, least: int, most: int) -> np.ndarray:
    """Spherical k-means, with the centres in full."""
    centers, best, found = V[seeds].astype(np.float64), 0.0, None
    for _ in range(cluster._MAX_STEPS):
        part = assign_twin(V @ centers.T, least, most)
        sums = np.stack([V[part == j].sum(axis=0) for j in range(len(seeds))])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        if norms.sum() <= best * (1 + cluster._GAIN):
            break
        best, found = norms.sum(), part
        centers = sums / norms
    assert found is not None
    return found


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 5), st.lists(st.integers(1, 4), min_size=2, max_size=20), st.data())
def test_assign_is_its_twin(k: int, values: list[int], data: st.DataObject) -> None:
    n = k * len(values)
    generator = np.random.default_rng(sum(values))
    S = generator.integers(-2, max(values), (n, k)).astype(np.float32)  # with many ties
    least = data.draw(st.integers(1, len(values)))
    most = data.draw(st.integers(len(values), n))
    part = np.empty(n, dtype=np.int32)
    expected = assign_twin(S, least, most)
    cluster.assign(S, np.ones(k, dtype=np.float32), least, most, part)
    np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("least", "most"), [(20, 20), (10, 40)])
def test_lloyd_is_its_twin(sparse: bool, least: int, most: int) -> None:
    V = unit(np.where(np.random.default_rng(3).random((160, 12)) < 0.5, some_vectors(160, 12), 0))
    rows = cluster._flat(csr_array(V) if sparse else V)
    seeds = np.arange(60, 65)
    work = np.zeros((12, 16), dtype=np.float32)  # wider than needed
    work[:, :5] = V[seeds].T
    found = cluster._lloyd(rows, 50, 150, 5, least, most, work)
    np.testing.assert_array_equal(found, lloyd_twin(V[50:150], seeds - 50, least, most))
    assert not work.any()


def test_seeds_are_rows_and_far_apart() -> None:
    centers = np.eye(6, dtype=np.float32)
    V = np.repeat(centers, 30, axis=0)
    V[-20:] = 0  # rows without direction are no seeds
    chance = np.random.default_rng(0).random(3 * 6).astype(np.float32)
    work, trials = np.zeros((2, 6, 16), dtype=np.float32)
    cluster._seeds(cluster._flat(V), 0, len(V), 6, chance, trials, work)
    assert not trials.any()
    np.testing.assert_array_equal(work.sum(axis=0), np.repeat([1, 0], [6, 10]))
    np.testing.assert_array_equal(work.sum(axis=1), np.ones(6))  # each centre once


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    balance=st.sampled_from([1.0, 1.3, 2.0, 5.0, np.inf]),
    data=st.data(),
)
def test_parts_are_as_equal_as_promised(
    sizes: list[int], balance: float, data: st.DataObject
) -> None:
    n_parts = np.array([data.draw(st.integers(1, size)) for size in sizes])
    n, bounds = sum(sizes), np.concatenate([[0], np.cumsum(sizes)])
    rng = np.random.default_rng(n)
    before = Sets(rng.permutation(n).astype(np.int32), bounds)
    V = some_vectors(n, 3)
    after = split_sets(V, before, n_parts, balance=balance, rng=rng, n_jobs=1)
    assert len(after.sizes) == n_parts.sum()
    ends = np.cumsum(n_parts)
    for s, parts in enumerate(np.split(after.sizes, ends[:-1])):
        assert parts.sum() == sizes[s]
        assert parts.min() >= 1
        assert parts.max() <= max(balance * parts.min(), parts.min() + 1)
        a, b = bounds[s], bounds[s + 1]
        assert sorted(after.members[a:b]) == sorted(before.members[a:b])


def test_threads_and_storage_make_no_difference() -> None:
    V = some_vectors(3000)
    results = [
        split_sets(M, one_set(3000), np.array([7]), balance=1.5, rng=np.random.default_rng(0),
                   n_jobs=jobs)
        for M, jobs in ((V, 1), (V, 3), (csr_array(V), 2))
    ]  # fmt: skip
    for other in results[1:]:
        np.testing.assert_array_equal(other.bounds, results[0].bounds)
        np.testing.assert_array_equal(other.members, results[0].members)


def test_clusters_beat_chance_by_far() -> None:
    rng = np.random.default_rng(0)
    V = unit(
        np.repeat(rng.standard_normal((8, 16)), 25, axis=0) + 0.3 * rng.standard_normal((200, 16))
    )
    parts = split_sets(V, one_set(200), np.array([8]), balance=1.0, rng=rng, n_jobs=1)
    for start, end in zip(parts.bounds[:-1], parts.bounds[1:], strict=True):
        assert len(set(parts.members[start:end] // 25)) == 1


@pytest.mark.parametrize("V", [np.zeros((64, 4)), np.ones((64, 4)), np.zeros((64, 0))])
@pytest.mark.parametrize("balance", [1.0, np.inf])
def test_equal_vectors_are_cut_evenly(V: np.ndarray, balance: float) -> None:
    rng = np.random.default_rng(0)
    parts = split_sets(unit(V), one_set(64), np.array([4]), balance=balance, rng=rng, n_jobs=1)
    assert parts.sizes.tolist() == [16, 16, 16, 16]


def test_even_cuts() -> None:
    sets = Sets(np.arange(10, dtype=np.int32), np.array([0, 7, 10]))
    assert even_cuts(sets, np.array([3, 2])).tolist() == [0, 2, 4, 7, 8, 10]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_products_of_sparse_matrices_are_those_of_scipy(n_jobs: int) -> None:
    rng = np.random.default_rng(0)
    A, C = (
        csr_array(random_array(shape, density=0.2, random_state=rng, dtype=np.float32))
        for shape in ((30, 40), (40, 7))
    )
    A.data[A.indptr[11] : A.indptr[12]] = 0.0
    for rows in (slice(0, 30), slice(10, 12), slice(5, 5)):
        found = sparse_products(A, C, rows, n_jobs)
        assert_allclose(found, (A @ C).toarray()[rows], rtol=1e-6)
