"""Clusterings and what is fitted in them, against plain computations."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.embeddings.local_clusters import (
    Clustering,
    cluster_centres,
    ensemble_size,
    fit_clusters,
    make_partitions,
    on_columns,
    used_columns,
)
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.progress import phase, show_phases

X = scaled_rows(random_array((60, 25), density=0.3, rng=0, format="csr", dtype=np.float32))
Y = csr_array(np.eye(60, dtype=np.float32))


def partitions(n_clusters: int = 4, n_learners: int = 3) -> list:
    rng = np.random.default_rng(0)
    return make_partitions(Rows(X, Y, n_jobs=1), n_clusters, n_learners, rng=rng)


def test_usual_sizes() -> None:
    assert ensemble_size(5000, None, None) == (1, 1)
    assert ensemble_size(30_000, None, None) == (5, 5)
    assert ensemble_size(30_000, None, 2) == (5, 2)
    assert ensemble_size(3, 8, None) == (3, 5)  # no more clusters than rows


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_each_cluster_is_fitted_on_its_rows(n_jobs: int) -> None:
    sets = partitions()
    fitted = fit_clusters(
        lambda X, Y, rng, n_jobs: (X.toarray(), Y.indices, rng.random(), n_jobs),
        Rows(X, Y, n_jobs=n_jobs),
        sets,
        rng=np.random.default_rng(0),
    )
    for learner, partition in zip(fitted, sets, strict=True):
        assert len(learner) == 4
        assert_array_equal(np.concatenate([rows for _, rows, _, _ in learner]), partition.members)
        for dense, rows, _, jobs in learner:
            assert_array_equal(dense, X.toarray()[rows])
            assert jobs == 1  # twelve clusters are enough for a thread each
    assert len({chance for learner in fitted for _, _, chance, _ in learner}) == 12


def test_only_the_count_of_rows_is_shown() -> None:
    def fit(*_: object) -> None:
        with phase("inner"):
            pass

    text = io.StringIO()
    with show_phases(text):
        fit_clusters(fit, Rows(X, Y, n_jobs=1), partitions(), rng=np.random.default_rng(0))
    assert "local embeddings: 180 rows" in text.getvalue()
    assert "inner" not in text.getvalue()


def test_rows_go_to_the_cluster_of_the_nearest_centre() -> None:
    (sets,) = partitions(4, 1)
    centres = cluster_centres(Rows(X, Y), sets)
    expected = np.argmax((X @ centres).toarray(), axis=1)
    found = np.full(60, -1)
    features = np.tile(np.arange(25, dtype=np.int32), 4)
    clustering = Clustering(centres, features, np.arange(0, 101, 25))
    for c, rows, own in clustering.queries(X, 1):
        found[rows] = c
        assert_array_equal(own.toarray(), X[rows].toarray())
    assert_array_equal(found, expected)
    lonely = clustering.queries(X[:1], 1)
    assert [(c, rows.tolist()) for c, rows, _ in lonely] == [(expected[0], [0])]


def test_columns() -> None:
    A = csr_array(np.array([[1, 0, 4, 0, 5], [0, 2, 0, 0, 0]], np.float32))
    columns = np.array([0, 4], np.int32)
    assert used_columns(A).tolist() == [0, 1, 2, 4]
    assert used_columns(A.toarray()).tolist() == [0, 1, 2, 3, 4]
    assert_array_equal(on_columns(A, columns).toarray(), A.toarray()[:, columns])
    assert_array_equal(on_columns(A.toarray(), columns), A.toarray()[:, columns])
    assert on_columns(A, columns[:0]).shape == (2, 0)
