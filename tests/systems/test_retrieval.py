"""Candidates of several systems, and the scores of the judges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, issparse

from labelry.decoders.evidence import known_of_labels, n_features
from labelry.decoders.lexical import label_names
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.systems import retrieval
from labelry.systems.retrieval import (
    JUDGES,
    Retrievers,
    fit_retrievers,
    label_centroids,
    lost_centroids,
)

N, D, C = 120, 30, 12


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
    return fit_retrievers(*rows, n_trees=2, embedding_dim=8, n_neighbors=15, rng=rng, n_jobs=1)


def test_all_judges_score_all_candidates(
    rows: tuple[Matrix, csr_array], fitted: Retrievers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_BLOCK_ROWS", 50)
    X, Y = rows
    blocks = list(fitted.judged(X, 4, n_jobs=2))
    assert [len(labels) for _, labels, _ in blocks] == [50, 50, 20]
    labels = np.concatenate([labels for _, labels, _ in blocks])
    F = np.concatenate([F for _, _, F in blocks])
    assert F.shape == (*labels.shape, n_features(len(JUDGES)))
    for proposer in (fitted.tree, fitted.embedding):
        for row, proposed in zip(labels, proposer._topk(X, 4)[0], strict=True):
            assert set(proposed.tolist()) - {-1} <= set(row.tolist())
    listed = labels >= 0

    def judged(name: str) -> np.ndarray:
        return F[..., 3 * JUDGES.index(name)]

    def expected(scores: np.ndarray) -> np.ndarray:
        return np.where(listed, np.take_along_axis(scores, labels.clip(0), axis=1), 0)

    centroids = fitted.centroids.toarray() if issparse(fitted.centroids) else fitted.centroids
    dense = X.toarray() if issparse(X) else X
    Z = fitted.embedding._embed(X)
    V = fitted.embedding.label_embedding_
    votes = fitted.embedding._scores(X)
    assert_allclose(judged("neighbours"), expected(votes), atol=1e-5)
    assert (judged("nearest neighbours") <= judged("neighbours") + 1e-6).all()
    assert (judged("nearest neighbours") < judged("neighbours") - 1e-6).any()
    assert_allclose(judged("low rank"), expected(Z @ V.T), atol=1e-5)
    assert_allclose(judged("centroids"), expected(dense @ centroids.T), atol=1e-5)
    assert_array_equal(
        known_of_labels(F)[listed], np.log1p(Y.sum(axis=0))[labels[listed]].astype("f4")
    )
    best = np.take_along_axis(labels, judged("tree").argmax(axis=1)[:, None], axis=1)
    assert_array_equal(best, fitted.tree._topk(X, 1)[0])


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


def test_names_propose_and_judge_and_centroids_stand_in(
    rows: tuple[Matrix, csr_array], fitted: Retrievers
) -> None:
    X, _ = rows
    names = np.random.default_rng(1).random((C, D), dtype=np.float32)
    names[::3] = 0
    named = fitted._replace(names=label_names(names))
    assert named.judges == (*JUDGES, "names")
    _, labels, F = next(named.judged(X, 4, n_jobs=1))
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
    _, labels, F = next(grown.judged(X, 4, n_jobs=1))
    late = labels == C
    assert late.any(axis=1).all()
    assert (F[..., 3][late] > 0).all()
    for judge in ("tree", "low rank"):
        assert_array_equal(F[..., 3 * JUDGES.index(judge)][late], F[..., 3][late])
    other = (labels >= 0) & (labels < C - 1)
    assert (F[..., 0][other] != F[..., 3][other]).any()
    assert_array_equal(grown.taught, [*(Y.sum(axis=0) > 0), False])


def test_many_rows_are_searched_in_lists(
    rows: tuple[Matrix, csr_array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_MANY_ROWS", 100)
    options = {"n_trees": 1, "embedding_dim": 8, "n_neighbors": 15, "n_jobs": 1}
    fitted = fit_retrievers(*rows, rng=np.random.default_rng(0), **options)
    assert fitted.embedding.decoder_.lists is not None
    _, labels, _ = next(fitted.judged(rows[0], 4, 1))
    assert (labels[:, 0] >= 0).all()


def test_rows_may_come_dense_where_they_were_sparse_and_the_other_way(
    rows: tuple[Matrix, csr_array], fitted: Retrievers
) -> None:
    X = rows[0]
    other = X.toarray() if issparse(X) else csr_array(X)
    (_, labels, F), (_, same_labels, same) = (next(fitted.judged(A, 4, 1)) for A in (X, other))
    assert_array_equal(labels, same_labels)
    assert_allclose(F, same, atol=1e-5)


def test_labels_whose_rows_are_held_out_keep_their_place(rows: tuple[Matrix, csr_array]) -> None:
    X, Y = rows
    held_out = np.zeros(X.shape[0], dtype=bool)
    held_out[Y[:, [3]].tocoo().row] = True  # all rows of label 3, some of others
    further = lost_centroids(X, Y, held_out)
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
    options = {"n_trees": 2, "embedding_dim": 8, "n_neighbors": 15, "n_jobs": 1}
    some = fit_retrievers(
        X[seen], Y[seen], further=further, rng=np.random.default_rng(0), **options
    )
    again = fit_retrievers(X, Y, before=some, rng=np.random.default_rng(0), **options)
    assert again.tree.tree_ is some.tree.tree_
    assert again.taught[3]
    assert not some.taught[3]
    with_label = np.flatnonzero(held_out)
    assert not (some.tree._topk(X[with_label], 1)[0] == 3).any()
    assert (again.tree._topk(X[with_label], 3)[0] == 3).any(axis=1).mean() > 0.8
