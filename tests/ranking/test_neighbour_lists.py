"""Lists of similar vectors against plain computations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from labelry.linalg.matrices import scaled_rows
from labelry.linalg.topk import topk
from labelry.ranking.neighbours import VectorLists, make_lists


def grouped(n: int, seed: int) -> np.ndarray:
    """Unit vectors around forty directions."""
    directions = np.random.default_rng(0).standard_normal((40, 12))
    rng = np.random.default_rng(seed)
    rows = directions[rng.integers(40, size=n)] + 0.4 * rng.standard_normal((n, 12))
    return scaled_rows(rows.astype(np.float32))


POINTS, QUERIES = grouped(900, 1), grouped(50, 2)


def kept(points: np.ndarray, n_jobs: int = 1) -> tuple[VectorLists, np.ndarray]:
    lists, order = make_lists(points, rng=np.random.default_rng(0), n_jobs=n_jobs)
    assert_array_equal(np.sort(order), np.arange(len(points)))
    return lists, points[order]


def test_a_list_holds_the_points_that_are_nearest_to_its_centre() -> None:
    lists, points = kept(POINTS)
    assert lists.centres.shape[1] <= 60  # twice the root of 900
    assert_allclose(np.linalg.norm(lists.centres, axis=0), 1, rtol=1e-5)
    sizes = np.diff(lists.bounds)
    assert sizes.min() >= 1
    cosines = points @ lists.centres
    own = cosines[np.arange(900), np.repeat(np.arange(len(sizes)), sizes)]
    assert_allclose(own, cosines.max(axis=1), atol=1e-6)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_all_lists_together_are_an_exact_search(n_jobs: int) -> None:
    lists, points = kept(POINTS, n_jobs)
    near, inner = lists._replace(n_probes=1000).search(QUERIES, points, 20, n_jobs)
    exact = topk(QUERIES @ points.T, 20)[1]
    assert_allclose(inner, exact, atol=1e-6)
    assert_allclose(np.einsum("ik,ijk->ij", QUERIES, points[near]), exact, atol=1e-6)


def test_a_few_lists_hold_what_a_plain_search_in_them_finds() -> None:
    lists, points = kept(POINTS)
    near, inner = lists._replace(n_probes=3).search(QUERIES, points, 10)
    for query, found, best in zip(QUERIES, near, inner, strict=True):
        probes = np.argsort(-(query @ lists.centres))[:3]
        rows = np.concatenate([np.arange(*lists.bounds[c : c + 2]) for c in probes])
        expected = np.sort(points[rows] @ query)[::-1][:10]
        n = len(expected)
        assert_allclose(best[:n], expected, atol=1e-6)
        assert np.isin(found[:n], rows).all()
        assert (found[n:] == -1).all()
        assert (best[n:] == -np.inf).all()


def test_more_lists_find_more() -> None:
    lists, points = kept(POINTS)
    least = topk(QUERIES @ points.T, 10)[1][:, [-1]] - 1e-6
    found = [
        (lists._replace(n_probes=n).search(QUERIES, points, 10)[1] >= least).mean()
        for n in (1, 4, 60)
    ]
    assert found[0] < found[1] <= found[2] == 1
    assert found[1] > 0.9


@pytest.mark.parametrize(
    "points",
    [
        np.ones((1, 3), np.float32),  # one point
        np.tile(scaled_rows(np.ones((1, 3), np.float32)), (50, 1)),  # the same point many times
        np.zeros((7, 3), np.float32),  # points of rows without features
    ],
)
def test_odd_points(points: np.ndarray) -> None:
    """Even a query that points away from every centre finds something."""
    lists, points = kept(points)
    near, inner = lists.search(np.array([[-1, 0, 0]], np.float32), points, 2)
    assert near[0, 0] >= 0
    assert np.isfinite(inner[0, 0])
