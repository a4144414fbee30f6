"""Datasets are whole when made, and splits partition them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from labelry.data.dataset import Dataset


def make(n_rows: int) -> Dataset:
    """Row i has the text "i", the feature value i + 1 and the label i % 3."""
    Y = np.eye(3)[np.arange(n_rows) % 3]
    X = np.arange(1.0, n_rows + 1)[:, None]
    return Dataset(
        sparse.coo_matrix(Y),
        X=sparse.csc_array(X),
        texts=[str(i) for i in range(n_rows)],
        label_names=["a", "b", "c"],
        feature_names=["f"],
    )


def rows_of(dataset: Dataset) -> list[int]:
    """Original row numbers, and that labels, features and texts went together."""
    rows = [int(text) for text in dataset.texts]
    assert dataset.X.toarray().ravel().tolist() == [i + 1 for i in rows]
    assert dataset.Y.toarray().argmax(axis=1).tolist() == [i % 3 for i in rows]
    return rows


def test_matrices_are_brought_into_form():
    data = make(4)
    for A in (data.X, data.Y):
        assert isinstance(A, sparse.csr_array)
        assert A.dtype == np.float32
        assert A.has_canonical_format
    assert (data.n_rows, data.n_features, data.n_labels) == (4, 1, 3)
    dense = Dataset(data.Y, X=[[1], [2], [3], [4]])
    assert dense.X.dtype == np.float32
    assert dense.X.shape == (4, 1)


def test_canonical_matrices_are_not_copied():
    Y = sparse.csr_array(np.eye(3, dtype=np.float32))
    X = np.ones((3, 2), dtype=np.float32)
    data = Dataset(Y, X=X)
    assert data.X is X
    assert np.shares_memory(data.Y.data, Y.data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"X": np.ones((2, 2))}, "X has 2 entries, but there are 3 rows of Y"),
        ({"X": np.ones(3)}, "X must have 2 dimensions"),
        ({"texts": ["a"]}, "texts has 1 entries, but there are 3 rows of Y"),
        ({"label_names": ["a"]}, "label_names has 1 entries, but there are 2 columns of Y"),
        (
            {"X": np.ones((3, 2)), "feature_names": ["f"]},
            "feature_names has 1 entries, but there are 2 columns of X",
        ),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Dataset(sparse.csr_array((3, 2), dtype=np.float32), **fields)


def test_dense_or_repeated_labels_are_refused():
    with pytest.raises(ValueError, match="Y must be a sparse matrix"):
        Dataset(np.eye(2))
    with pytest.raises(ValueError, match="row 0 of Y has column 1 more than once"):
        Dataset(sparse.coo_array(([1, 1], ([0, 0], [1, 1]))))


@pytest.mark.parametrize("rows", [[3, 0, 0, -1], np.array([True, False, True, False, True]), []])
def test_take(rows):
    data = make(5).take(rows)
    assert (
        rows_of(data) == np.arange(5)[np.asarray(rows, dtype=None if len(rows) else int)].tolist()
    )
    assert data.label_names == ["a", "b", "c"]
    assert data.feature_names == ["f"]


def test_take_refuses_rows_out_of_range():
    with pytest.raises(IndexError):
        make(3).take([3])


@given(st.integers(2, 40), st.floats(0.01, 0.99), st.integers(0, 5))
def test_random_split_partitions_the_rows(n_rows, test_size, seed):
    train, test = make(n_rows).split(test_size, random_state=seed)
    a, b = rows_of(train), rows_of(test)
    assert sorted(a + b) == list(range(n_rows))
    assert a == sorted(a)
    assert b == sorted(b)
    assert len(b) == min(max(round(test_size * n_rows), 1), n_rows - 1)


def test_split_depends_on_the_seed_only():
    data = make(50)
    first = rows_of(data.split(random_state=1)[1])
    assert first == rows_of(data.split(random_state=1)[1])
    assert first == rows_of(data.split(random_state=np.random.default_rng(1))[1])
    assert first != rows_of(data.split(random_state=2)[1])
    assert len(rows_of(data.split(7)[1])) == 7


@given(st.lists(st.sampled_from("uvwxyz"), min_size=2, max_size=40), st.integers(0, 5))
def test_grouped_split_never_cuts_a_group(groups, seed):
    data = make(len(groups))
    if len(set(groups)) == 1:
        with pytest.raises(ValueError, match="at least 2 groups; got 1"):
            data.split(groups=groups)
        return
    train, test = data.split(0.3, random_state=seed, groups=groups)
    a, b = rows_of(train), rows_of(test)
    assert a
    assert b
    assert sorted(a + b) == list(range(len(groups)))
    assert not {groups[i] for i in a} & {groups[i] for i in b}


def test_grouped_split_comes_near_the_wanted_size():
    groups = np.repeat(np.arange(100), 3)
    _, test = make(300).split(0.25, groups=groups)
    assert abs(test.n_rows - 75) <= 1


@pytest.mark.parametrize("test_size", [0.0, 1.0, -0.1, float("nan"), 0, 5, 6])
def test_split_refuses_impossible_sizes(test_size):
    with pytest.raises(ValueError, match=f"test_size must be .* got {test_size}"):
        make(5).split(test_size)


def test_split_refuses_wrong_groups_and_too_few_rows():
    with pytest.raises(ValueError, match=r"groups must have the shape \(5,\)"):
        make(5).split(groups=[1, 2])
    with pytest.raises(ValueError, match="at least 2 rows; got 1"):
        make(1).split()
