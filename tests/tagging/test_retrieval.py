"""Candidates of several retrievers, and the scores of the scorers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, issparse

from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.rows import Rows
from labelry.ranking.evidence import known_of_labels, n_features
from labelry.ranking.lexical import label_names
from labelry.tagging import retrieval
from labelry.tagging.blend import BlendSettings
from labelry.tagging.retrieval import (
    SCORERS,
    Retrievers,
    fit_retrievers,
    label_centroids,
    lost_centroids,
)

N, D, C = 120, 30, 12
TWO_TREES = BlendSettings(n_trees=2, embedding_dim=8, n_neighbors=15)


@pytest.fixture(params=["sparse", "dense"])
def rows(request: pytest.FixtureRequest) -> tuple[Matrix, csr_array]:
    """Rows that are sums of a vector for each of their two labels, and noise."""
    rng = np.random.default_rng(0)
    Y = np.zeros((N, C), dtype=np.float32)
    Y[np.arange(N), rng.integers(0, C - 1, N)] = 1  # the last label has no rows
    Y[np.arange(N), rng.integers(0, C - 1, N)] = 1
    words = (rng.random((C, D)) < 0.2) * rng.random((C, D))
    X = Y @ words + (rng.random((N, D)) < 0.05) * rng.random((N, D))
    X = scaled_rows(X.astype(np.float32))
    return (csr_array(X) if request.param == "sparse" else X), csr_array(Y)


@pytest.fixture
def fitted(rows: tuple[Matrix, csr_array]) -> Retrievers:
    rng = np.random.default_rng(0)
    return fit_retrievers(Rows(*rows, n_jobs=1), TWO_TREES, None, rng)


def test_all_scorers_score_all_candidates(
    rows: tuple[Matrix, csr_array], fitted: Retrievers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_BLOCK_ROWS", 50)
    X, Y = rows
    blocks = list(fitted.candidates(X, 4, n_jobs=2))
    assert [len(labels) for _, labels, _ in blocks] == [50, 50, 20]
    labels = np.concatenate([labels for _, labels, _ in blocks])
    F = np.concatenate([F for _, _, F in blocks])
    assert F.shape == (*labels.shape, n_features(len(SCORERS)))
    for proposer in (fitted.trees, fitted.embedding):
        for row, proposed in zip(labels, proposer.topk(X, 4)[0], strict=True):
            assert set(proposed.tolist()) - {-1} <= set(row.tolist())
    listed = labels >= 0

    def scored(name: str) -> np.ndarray:
        return F[..., 3 * SCORERS.index(name)]

    def expected(scores: np.ndarray) -> np.ndarray:
        return np.where(listed, np.take_along_axis(scores, labels.clip(0), axis=1), 0)

    centroids = fitted.centroids.toarray() if issparse(fitted.centroids) else fitted.centroids
    dense = X.toarray() if issparse(X) else X
    Z = fitted.embedding.embed(X)
    V = fitted.embedding.label_embedding
    shares = fitted.embedding.scores(X)
    assert_allclose(scored("neighbours"), expected(shares), atol=1e-5)
    assert (scored("nearest neighbours") <= scored("neighbours") + 1e-6).all()
    assert (scored("nearest neighbours") < scored("neighbours") - 1e-6).any()
    assert_allclose(scored("low rank"), expected(Z @ V.T), atol=1e-5)
    assert_allclose(scored("centroids"), expected(dense @ centroids.T), atol=1e-5)
    assert_array_equal(
        known_of_labels(F)[listed], np.log1p(Y.sum(axis=0))[labels[listed]].astype("f4")
    )
    best = np.take_along_axis(labels, scored("tree").argmax(axis=1)[:, None], axis=1)
    assert_array_equal(best, fitted.trees.topk(X, 1)[0])


def test_centroids_are_unit_means_without_small_entries(rows: tuple[Matrix, csr_array]) -> None:
    X, Y = rows
    dense = X.toarray() if issparse(X) else X
    means = scaled_rows(Y.toarray().T @ dense)
    sums = csr_array(Y.T) @ X
    found, lengths = label_centroids(sums)
    assert_allclose(lengths, np.linalg.norm(Y.toarray().T @ dense, axis=1), rtol=1e-5)
    assert issparse(found) == issparse(X)
    if issparse(X):
        assert np.abs(found.data).min() >= 0.03
        means[np.abs(means) < 0.03] = 0
        found = found.toarray()
    assert_allclose(found, means, atol=1e-6)
    assert not found[-1].any()


def test_names_propose_and_score_and_centroids_stand_in(
    rows: tuple[Matrix, csr_array], fitted: Retrievers
) -> None:
    X, _ = rows
    names = np.random.default_rng(1).random((C, D), dtype=np.float32)
    names[::3] = 0
    named = replace(fitted, names=label_names(names))
    assert named.scorers == (*SCORERS, "names")
    _, labels, F = next(named.candidates(X, 4, n_jobs=1))
    assert F.shape[-1] == n_features(6)
    sparse = csr_array(X)
    for row, proposed in zip(labels, named.names.nearest(sparse, 4)[0], strict=True):
        assert set(proposed.tolist()) - {-1} <= set(row.tolist())
    products = sparse.toarray() @ scaled_rows(names).T
    centroids = fitted.centroids.toarray() if issparse(fitted.centroids) else fitted.centroids
    products[:, ::3] = (sparse.toarray() @ centroids.T)[:, ::3]
    expected = np.where(labels < 0, 0, np.take_along_axis(products, labels.clip(0), axis=1))
    assert_allclose(F[..., 15], expected, atol=1e-5)


def test_for_labels_that_came_later_the_votes_stand_in(
    rows: tuple[Matrix, csr_array], fitted: Retrievers
) -> None:
    X, Y = rows
    more = csr_array(np.hstack([np.zeros((N, C)), np.ones((N, 1))]).astype(np.float32))
    grown = fitted.with_labels(1).with_rows(X, more)
    assert grown.counts.tolist() == [*fitted.counts.tolist(), N]
    assert fitted.neighbours.labels.shape == (N, C)  # what was there is not touched
    assert grown.neighbours.labels.shape == (2 * N, C + 1)
    _, labels, F = next(grown.candidates(X, 4, n_jobs=1))
    late = labels == C
    assert late.any(axis=1).all()
    assert (F[..., 3][late] > 0).all()
    for scorer in ("tree", "low rank"):
        assert_array_equal(F[..., 3 * SCORERS.index(scorer)][late], F[..., 3][late])
    other = (labels >= 0) & (labels < C - 1)
    assert (F[..., 0][other] != F[..., 3][other]).any()
    assert_array_equal(grown.taught, [*(Y.sum(axis=0) > 0), False])


def test_many_rows_are_searched_in_lists(
    rows: tuple[Matrix, csr_array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_MANY_ROWS", 100)
    size = BlendSettings(n_trees=1, embedding_dim=8, n_neighbors=15)
    fitted = fit_retrievers(Rows(*rows, n_jobs=1), size, None, np.random.default_rng(0))
    assert fitted.neighbours.lists is not None
    _, labels, _ = next(fitted.candidates(rows[0], 4))
    assert (labels[:, 0] >= 0).all()


def test_rows_may_come_dense_where_they_were_sparse_and_the_other_way(
    rows: tuple[Matrix, csr_array], fitted: Retrievers
) -> None:
    X = rows[0]
    other = X.toarray() if issparse(X) else csr_array(X)
    (_, labels, F), (_, same_labels, same) = (next(fitted.candidates(A, 4)) for A in (X, other))
    assert_array_equal(labels, same_labels)
    assert_allclose(F, same, atol=1e-5)


def test_labels_whose_rows_are_held_out_keep_their_place(rows: tuple[Matrix, csr_array]) -> None:
    X, Y = rows
    held_out = np.zeros(X.shape[0], dtype=bool)
    held_out[Y[:, [3]].tocoo().row] = True  # all rows of label 3, some of others
    further = lost_centroids(Rows(X, Y), ~held_out)
    lost = np.setdiff1d(np.arange(Y.shape[1]), Y[np.flatnonzero(~held_out)].indices)
    assert 3 in lost
    sums = Y.T @ X
    if issparse(X):
        dense, sums = further.toarray(), sums.toarray()
    else:
        dense = further
    assert_allclose(dense[lost], sums[lost], rtol=1e-5)
    assert not np.delete(dense, lost, axis=0).any()
    seen = np.flatnonzero(~held_out)
    seen_rows, rows = Rows(X[seen], Y[seen], n_jobs=1), Rows(X, Y, n_jobs=1)
    some = fit_retrievers(seen_rows, TWO_TREES, None, np.random.default_rng(0), further=further)
    again = fit_retrievers(rows, TWO_TREES, None, np.random.default_rng(0), before=some)
    assert again.trees.tree is some.trees.tree
    assert again.taught[3]
    assert not some.taught[3]
    with_label = np.flatnonzero(held_out)
    assert not (some.trees.topk(X[with_label], 1)[0] == 3).any()
    assert (again.trees.topk(X[with_label], 3)[0] == 3).any(axis=1).mean() > 0.8
