"""Neighbours with rows that came later are the neighbours of all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.ranking.neighbours import fit_neighbours, widened

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(300, 6)).astype(np.float32)
Y = csr_array((RNG.random((300, 9)) < 0.2).astype(np.float32))
QUERIES = RNG.normal(size=(20, 6)).astype(np.float32)


def test_rows_that_come_later_count_like_the_others() -> None:
    first = fit_neighbours(Z[:200], Y[:200][:, :7], n_neighbors=15)
    grown = first.with_rows(Z[200:], Y[200:])
    dense = Y.toarray()
    dense[:200, 7:] = 0  # labels that came with the later rows
    both = fit_neighbours(Z, csr_array(dense), n_neighbors=15)
    points = Z * first.scale
    expected = replace(
        both, scale=first.scale, points=points / np.linalg.norm(points, axis=1, keepdims=True)
    )
    assert_allclose(grown.scores(QUERIES), expected.scores(QUERIES), atol=1e-5)


def test_rows_join_the_list_of_the_nearest_centre() -> None:
    whole = fit_neighbours(Z[:200], Y[:200], n_neighbors=15, weights=np.full(200, 2, np.float32))
    first = whole.approximate(np.random.default_rng(0))
    grown = first.with_rows(Z[200:], Y[200:], n_jobs=2)
    assert grown.lists is not None
    centres, bounds = grown.lists.centres, grown.lists.bounds
    assert bounds[-1] == len(grown.points) == grown.labels.shape[0] == 300
    nearest = (grown.points @ centres).argmax(axis=1)
    assert_array_equal(nearest, np.repeat(np.arange(centres.shape[1]), np.diff(bounds)))
    assert sorted(grown.weights.tolist()) == [1.0] * 100 + [2.0] * 200
    # With all lists looked into, the search is exact.
    every = replace(grown, lists=grown.lists._replace(n_probes=centres.shape[1]))
    plain = whole.with_rows(Z[200:], Y[200:])
    assert_allclose(every.scores(QUERIES), plain.scores(QUERIES), atol=1e-5)


def test_widened_labels_are_the_same_with_empty_columns() -> None:
    wide = widened(Y, 12)
    assert_array_equal(wide.toarray()[:, :9], Y.toarray())
    assert wide.shape == (300, 12)
    assert not wide.toarray()[:, 9:].any()
