"""The nearest training rows by their own features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from labelry.estimators.baselines import NearestNeighbours
from labelry.storage import modelfile


def grouped(n: int = 400, n_groups: int = 40) -> tuple[np.ndarray, csr_array]:
    """Rows near one of many directions, each with two labels of its own."""
    rng = np.random.default_rng(0)
    group = rng.integers(n_groups, size=n)
    X = rng.standard_normal((n_groups, 20))[group] + 0.5 * rng.standard_normal((n, 20))
    Y = np.kron(np.eye(n_groups), [1, 1])[group]
    return X.astype(np.float32), csr_array(Y.astype(np.float32))


X, Y = grouped()
TRAIN, TEST = slice(0, 320), slice(320, 400)


@pytest.mark.parametrize("as_given", [np.asarray, csr_array])
@pytest.mark.parametrize("index", ["exact", "approximate"])
def test_similar_rows_share_their_labels(as_given, index: str) -> None:
    model = NearestNeighbours(n_neighbors=10, index=index)
    if as_given is csr_array and index == "approximate":
        with pytest.raises(ValueError, match="index must be exact for sparse rows"):
            model.fit(as_given(X[TRAIN]), Y[TRAIN])
        return
    model.fit(as_given(X[TRAIN]), Y[TRAIN])
    assert model.score(as_given(X[TEST]), Y[TEST]) > 0.95
    labels, scores = model.topk_ids(as_given(X[TEST]), 3)
    assert scores.max() <= 1 + 1e-5
    full = model.score_all(as_given(X[TEST]))
    found = labels >= 0
    assert_allclose(np.take_along_axis(full, labels, axis=1)[found], scores[found], atol=1e-5)


def test_lengths_of_rows_do_not_matter() -> None:
    stretch = np.random.default_rng(1).uniform(0.1, 10, (len(X), 1)).astype(np.float32)
    plain, stretched = (NearestNeighbours().fit(A, Y).score_all(A[:9]) for A in (X, X * stretch))
    assert_allclose(plain, stretched, atol=1e-4)


def test_an_approximate_index_is_saved_as_arrays_and_gives_the_same(tmp_path: Path) -> None:
    model = NearestNeighbours(index="approximate").fit(X, Y)
    model.save(tmp_path / "m")
    file = modelfile.load(tmp_path / "m")
    assert {"fitted.lists.centres", "fitted.lists.bounds"} <= set(file.arrays)
    again = NearestNeighbours.from_file(file)
    for a, b in zip(model.topk_ids(X, 3), again.topk_ids(X, 3), strict=True):
        assert_array_equal(a, b)


def test_the_seed_decides_the_index() -> None:
    first, same, other = (
        NearestNeighbours(index="approximate", random_state=seed).fit(X, Y).lists_.centres
        for seed in (1, 1, 2)
    )
    assert_array_equal(first, same)
    assert first.shape != other.shape or not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("A", "B"),
    [
        (np.zeros((6, 4)), np.eye(6, 3)),  # no features; rows without labels
        (csr_array((6, 4)), np.eye(6, 3)),
        (np.ones((3, 2)), np.zeros((3, 2))),  # no label on any row
        (np.ones((1, 1)), np.ones((1, 1))),  # one row, one label
        (csr_array(np.ones((1, 1))), np.ones((1, 1))),
    ],
)
def test_odd_data_gives_finite_scores(A, B: np.ndarray) -> None:
    labels, scores = NearestNeighbours().fit(A, csr_array(B)).topk_ids(A, 2)
    assert (labels >= 0).any() == B.any()
    assert np.isfinite(scores[labels >= 0]).all()
    assert (scores[labels < 0] == -np.inf).all()


def test_errors_name_the_parameter() -> None:
    for parameters, message in (
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"sharpness": -1.0}, "sharpness must be at least 0, got -1"),
        ({"index": "tree"}, "index must be one of exact, approximate; got 'tree'"),
    ):
        with pytest.raises(ValueError, match=message):
            NearestNeighbours(**parameters).fit(X, Y)
