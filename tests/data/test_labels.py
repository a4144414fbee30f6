"""Labels come in many forms and leave in one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.preprocessing import MultiLabelBinarizer

from labelry.data.labels import align, encode_labels, indicator

LABELS = st.one_of(
    st.lists(st.sets(st.text(max_size=3), max_size=4), max_size=8),
    st.lists(st.sets(st.integers(-5, 5), max_size=4), max_size=8),
)


@given(LABELS)
def test_indicator_round_trip(rows):
    Y, names = indicator(rows)
    assert names == sorted(set().union(*rows))
    assert Y.shape == (len(rows), len(names))
    assert Y.dtype == np.float32
    assert Y.has_canonical_format
    found = [{names[j] for j in np.flatnonzero(row)} for row in Y.toarray()]
    assert found == [set(row) for row in rows]


def test_indicator_equals_scikit_learn():
    rows = [["b", "a"], [], ["c", "b"]]
    Y, names = indicator(rows)
    binarizer = MultiLabelBinarizer().fit(rows)
    assert names == list(binarizer.classes_)
    np.testing.assert_array_equal(Y.toarray(), binarizer.transform(rows))


def test_indicator_keeps_given_classes_and_appends_new_ones_sorted():
    Y, names = indicator([["x", "b"], ["a"]], classes=["x", "c", "b"])
    assert names == ["x", "c", "b", "a"]
    assert Y.toarray().tolist() == [[1, 0, 1, 0], [0, 0, 0, 1]]


def test_indicator_takes_generators_and_numpy_labels():
    Y, names = indicator(iter([iter(["b"]), np.array(["a", "b"]), (np.str_("c"),)]))
    assert names == ["a", "b", "c"]
    assert {type(name) for name in names} == {str}
    assert Y.toarray().tolist() == [[0, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert [type(name) for name in indicator([[np.int64(3)], [3]])[1]] == [int]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["a"], ["b", "c", "b"]], "row 1 has the label 'b' more than once"),
        ([[0, 1, 0], [1, 0, 0]], "row 0 has the label 0 more than once; if Y is an indicator"),
        (["a", "b"], "row 0 must be a list of labels; got 'a'"),
        ([["a"], None], "row 1 must be a list of labels; got None"),
        ([["a"], [1]], "row 1: labels must be all str or all int; got 1 of type int"),
        ([["a"], ["b", None]], "row 1: .* got None of type NoneType"),
        ([[1.5]], "row 0: .* got 1.5 of type float"),
        ([[True]], "row 0: .* got True of type bool"),
        ([[["a"]]], "row 0: .* of type list"),
    ],
)
def test_indicator_names_the_row_at_fault(rows, message):
    with pytest.raises(ValueError, match=message):
        indicator(rows)


def test_indicator_refuses_bad_classes():
    with pytest.raises(ValueError, match="classes must be distinct"):
        indicator([["a"]], classes=["b", "b"])
    with pytest.raises(ValueError, match="row 0: labels must be all str or all int"):
        indicator([["a"]], classes=[1])


@pytest.mark.parametrize(
    "y",
    [
        ["b", "a", "b"],
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], dtype=object),
        [7, -1, 7],
        (7, -1, 7),
        np.array([7, -1, 7], dtype=object),
        np.array([7.0, -1.0, 7.0]),
        [True, False, True],
    ],
)
def test_class_vector(y):
    encoded = encode_labels(y)
    assert (encoded.kind, encoded.form) == ("multiclass", "classes")
    assert encoded.indicator.toarray().tolist() == [[0, 1], [1, 0], [0, 1]]
    assert encoded.classes.tolist() == sorted({y[0], y[1]})
    assert encoded.classes.dtype.kind != "O"


def test_class_vector_of_one_column_warns_as_in_scikit_learn():
    with pytest.warns(DataConversionWarning):
        encoded = encode_labels(np.array([["b"], ["a"]], dtype=object))
    assert encoded.classes.tolist() == ["a", "b"]
    with pytest.warns(DataConversionWarning):
        assert encode_labels(np.array([[4], [5]])).kind == "multiclass"


def test_many_classes_do_not_warn():
    assert encode_labels(np.arange(100)).indicator.shape == (100, 100)
    assert encode_labels([*range(60), *range(40)]).indicator.shape == (100, 60)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float64])
def test_dense_indicator(dtype):
    Y = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1]])
    encoded = encode_labels(Y.astype(dtype))
    assert encoded[1:] == (None, "multilabel", "indicator")
    assert encoded.indicator.dtype == np.float32
    np.testing.assert_array_equal(encoded.indicator.toarray(), Y)


@pytest.mark.parametrize("maker", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_indicator_drops_stored_zeros(maker):
    Y = maker((np.array([1.0, 0.0, 1.0]), ([0, 0, 1], [1, 0, 0])), shape=(2, 3))
    encoded = encode_labels(Y)
    assert encoded[1:] == (None, "multilabel", "indicator")
    assert encoded.indicator.toarray().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert encoded.indicator.nnz == 2
    assert Y.nnz == 3, "the input stays as it was"


@pytest.mark.parametrize(
    "rows",
    [
        [["b", "a"], [], ["b"]],
        [{"b", "a"}, set(), {"b"}],
        (("b", "a"), (), ("b",)),
        [np.array(["b", "a"]), np.array([], dtype=str), np.array(["b"])],
    ],
)
def test_lists_of_labels(rows):
    encoded = encode_labels(rows)
    assert encoded[2:] == ("multilabel", "lists")
    assert encoded.classes.tolist() == ["a", "b"]
    assert encoded.indicator.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]


def test_object_array_of_lists():
    rows = np.empty(2, dtype=object)
    rows[:] = [[3, 1], [1]]
    encoded = encode_labels(rows)
    assert encoded.classes.tolist() == [1, 3]
    assert encoded.indicator.toarray().tolist() == [[1, 1], [1, 0]]


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        ("abc", "one entry per row"),
        ({"a", "b"}, "one entry per row"),
        (3, "one entry per row"),
        ([], "empty"),
        (np.zeros((0, 3)), "empty"),
        (np.zeros((3, 0)), "empty"),
        (sparse.csr_array((0, 3)), "empty"),
        ([[], []], "no labels"),
        ([0.5, 1.5, 0.1], "Unknown label type"),
        (np.array([1.0, np.nan]), "NaN or infinity: row 1 is nan"),
        (np.array([1.0, np.inf]), "NaN or infinity: row 1 is inf"),
        ([1, 2**63], "from -2.63 to 2.63 - 1, but one is 9223372036854775808; give .* as texts"),
        ([-1, 2**63], "but one is 9223372036854775808"),
        ([-(2**63) - 1, 5], "but one is -9223372036854775809"),
        ([[1], [2**63, 5]], "but one is 9223372036854775808"),
        (np.array([2**63], dtype=np.uint64), "but one is 9223372036854775808"),
        (np.array([1e20]), r"but one is 1e\+20"),
        (np.array([1j, 2]), "Complex data not supported"),
        (["a", "b", 1], r"Unknown label type: Y mixes str and int; row 0 is 'a' and row 2 is 1\."),
        (["a", np.nan], "Unknown label type: Y mixes str and float; .* row 1 is nan"),
        ([None, "a"], "Y mixes NoneType and str; row 0 is None"),
        ([None, None], "Unknown label type"),
        ([b"a", b"b"], "Unknown label type"),
        (["a", ["b"]], "row 0 must be a list of labels; got 'a'"),
        (np.zeros((2, 2, 2)), "2 dimensions .* has 3"),
        (np.array([["a", "b"]]), "Unknown label type"),
        (np.array([[0, 1], [2, 0]]), r"0 or 1 .* Y\[1, 0\] is 2"),
        (np.array([[0, 1], [np.nan, 0]]), r"no NaN.* Y\[1, 0\] is nan"),
        (np.array([[0.3, 1.0]]), r"0 or 1 .* Y\[0, 0\] is 0.3"),
        (np.array([[1e-50, 1.0]]), r"0 or 1 .* Y\[0, 0\] is 1e-50"),
        (sparse.csr_array([[0.0, -1.0]]), r"0 or 1 .* Y\[0, 1\] is -1"),
        (sparse.csr_array([[0.0, 1.0], [0.5, 1.0]]), r"0 or 1 .* Y\[1, 0\] is 0.5"),
        (sparse.csr_array([[1.0, 0.0], [0.0, np.nan]]), r"Y\[1, 1\] is nan"),
        (sparse.csr_array([[np.inf]]), r"Y\[0, 0\] is inf"),
        (sparse.csr_array([[1e300]]), r"Y\[0, 0\] is inf"),
        (sparse.coo_array(([1, 1], ([0, 0], [1, 1]))), "row 0 of Y has column 1 more than once"),
        (sparse.csr_array([[1j]]), "Unknown label type"),
    ],
)
def test_bad_labels_are_refused(Y, message):
    with pytest.raises(ValueError, match=message):
        encode_labels(Y)


def test_align_by_name():
    Y, names = indicator([["c", "new"], ["a"], ["old"]])
    aligned = align(Y, names, ["c", "missing", "a"])
    assert aligned.toarray().tolist() == [[1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    assert aligned.has_canonical_format


def test_align_by_number():
    Y = sparse.csr_array(np.array([[0, 2, 0]], dtype=np.float32))
    assert align(Y, None, range(5)).toarray().tolist() == [[0, 2, 0, 0, 0]]
    assert align(Y, None, range(1)).toarray().tolist() == [[0, 2, 0]]
    assert align(Y, ["7", "8", "9"], [9, 8]).toarray().tolist() == [[0, 2, 0]]


@given(LABELS, LABELS)
def test_align_keeps_the_labels_of_each_row(rows, other):
    Y, names = indicator(rows)
    _, model_names = indicator(other)
    aligned = align(Y, names, model_names)
    known = {str(name) for name in model_names}
    order = [str(n) for n in model_names] + [str(n) for n in names if str(n) not in known]
    assert aligned.shape == (len(rows), len(order))
    found = [{order[j] for j in np.flatnonzero(row)} for row in aligned.toarray()]
    assert found == [{str(label) for label in row} for row in rows]


def test_align_refuses_ambiguous_names():
    Y = sparse.csr_array(np.eye(2, dtype=np.float32))
    with pytest.raises(ValueError, match="distinct"):
        align(Y, ["a", "a"], ["b"])
    with pytest.raises(ValueError, match="distinct"):
        align(Y, ["a", "b"], ["c", "c"])
    with pytest.raises(ValueError, match="2 columns of Y; got 3 names"):
        align(Y, ["a", "b", "c"], ["a"])
