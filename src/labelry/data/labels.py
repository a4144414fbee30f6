"""Labels in the forms that people have them, brought to one sparse indicator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from labelry.data.canonical import (
    RepeatedEntryError,
    canonical_csr,
    check_no_repeats,
    make_csr,
    row_of_entry,
)

Label = str | int


class EncodedLabels(NamedTuple):
    """Labels as a sparse indicator, and how they came.

    Attributes
    ----------
    indicator : csr_array (n_rows, n_labels), float32
        Sorted indices, no duplicates, no stored zeros. It may share memory with the input.
    classes : ndarray (n_labels,) or None
        Name (or value) of each column; None for an indicator: the column number is the name.
    kind : {"multiclass", "multilabel"}
        "multiclass" for a class vector, where each row has exactly one label.
    form : {"classes", "indicator", "lists"}
        How the labels were given, so that predictions can be given back alike.
    """

    indicator: csr_array
    classes: NDArray[Any] | None
    kind: Literal["multiclass", "multilabel"]
    form: Literal["classes", "indicator", "lists"]


def indicator(
    lists: Iterable[Iterable[Label]], classes: Sequence[Label] | None = None
) -> tuple[csr_array, list[Any]]:
    """Sparse indicator of lists of labels, and the name of each column.

    Parameters
    ----------
    lists : iterable of iterables of str or of int
        The labels of each row, in any order; a row may be empty.
    classes : sequence of str or of int, optional
        Names of the first columns, in this order; further labels follow, sorted.

    Returns
    -------
    Y : csr_array (n_rows, n_labels), float32
    names : list of str or of int
        Sorted when `classes` is not given.

    Examples
    --------
    >>> Y, names = indicator([["b", "a"], [], ["b"]])
    >>> names, Y.toarray().tolist()
    (['a', 'b'], [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    """
    rows = [_label_row(i, row) for i, row in enumerate(lists)]
    names = [] if classes is None else _plain(list(classes))
    _check_label_types(rows, names)
    names += sorted(set(_plain(list(set(chain.from_iterable(rows))))).difference(names))
    column = {name: j for j, name in enumerate(names)}
    if len(column) < len(names):
        raise ValueError("classes must be distinct, but some name is given more than once")

    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=indptr[1:])
    nnz = int(indptr[-1])
    indices = np.fromiter(map(column.__getitem__, chain.from_iterable(rows)), np.int32, nnz)
    Y = make_csr(np.ones(nnz, np.float32), indices, indptr, len(names))
    Y.sort_indices()
    try:
        check_no_repeats(Y, "Y")
    except RepeatedEntryError as error:
        name = names[error.column]
        hint = "" if isinstance(name, str) else "; if Y is an indicator, give it as an array"
        raise ValueError(f"row {error.row} has the label {name!r} more than once{hint}") from None
    return Y, names


def encode_labels(Y: Any) -> EncodedLabels:
    """Encode what the ``fit(X, Y)`` of an estimator accepts as labels.

    Parameters
    ----------
    Y : one of
        - sparse matrix or dense array (n_rows, n_labels) of 0 and 1, or bool;
        - class vector (n_rows,) of int, str, bool or whole-numbered float. As in
          scikit-learn, a dense array of one column is a class vector too, with a warning;
        - list of lists, tuples, sets or arrays of str or int: the labels of each row. A list
          of lists is never taken for an indicator.

    Examples
    --------
    >>> encode_labels(["dog", "cat", "dog"]).classes.tolist()
    ['cat', 'dog']
    >>> encode_labels([{"dog"}, {"dog", "cat"}]).kind
    'multilabel'
    """
    if Y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    if issparse(Y):
        return EncodedLabels(_from_sparse(Y), None, "multilabel", "indicator")
    if not isinstance(Y, (list, tuple)):
        Y = np.asarray(Y)
        if Y.ndim == 0:
            raise ValueError("Y must be an array or a list with one entry per row")
    if len(Y) == 0:
        raise ValueError("Y is empty: Found array with 0 sample(s), a minimum of 1 is required")
    if isinstance(Y, np.ndarray) and Y.ndim > 1 and Y.shape[1:] != (1,):
        return EncodedLabels(_from_dense(Y), None, "multilabel", "indicator")
    may_hold_rows = not isinstance(Y, np.ndarray) or (Y.dtype == object and Y.ndim == 1)
    if may_hold_rows and any(map(_is_row, Y)):
        return _from_lists(Y)
    return _from_classes(Y)


def label_counts(Y: csr_array) -> NDArray[np.int32]:
    """Rows of each label.

    >>> label_counts(csr_array([[1, 0, 1], [1, 0, 0]])).tolist()
    [2, 0, 1]
    """
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int32)


def align(Y: csr_array, names: Sequence[Label] | None, model_names: Sequence[Label]) -> csr_array:
    """Bring the columns of `Y` into the order of a model, by name.

    Labels that the model does not know follow as further columns, in the order of `names`, so
    that metrics count them; labels that only the model knows are empty columns. Names are
    compared as text: 3 is "3".

    Parameters
    ----------
    Y : csr_array (n_rows, n_labels)
    names : sequence of str or int, or None
        Name of each column of `Y`; None: the column number is the name.
    model_names : sequence of str or int
        Name of each column of the model; ``range(n_labels)`` when its labels have no names.

    Examples
    --------
    >>> Y, names = indicator([["a"], ["c", "z"]])
    >>> align(Y, names, ["c", "b", "a"]).toarray().tolist()
    [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
    """
    n_labels = Y.shape[1]
    names = range(n_labels) if names is None else names
    if len(names) != n_labels:
        raise ValueError(f"names must name the {n_labels} columns of Y; got {len(names)} names")
    column = {str(name): j for j, name in enumerate(model_names)}
    if len(column) < len(model_names) or len(set(map(str, names))) < n_labels:
        raise ValueError("names and model_names must each be distinct")
    target = np.fromiter(
        (column.setdefault(str(name), len(column)) for name in names), np.int32, n_labels
    )
    aligned = make_csr(Y.data.copy(), target[Y.indices], Y.indptr.copy(), len(column))
    aligned.sort_indices()
    return aligned


def _from_lists(rows: Iterable[Any]) -> EncodedLabels:
    Y, names = indicator(rows)
    if not names:
        raise ValueError("Y has no labels: every row is an empty list")
    # Texts as objects: a fixed-width array is as wide as its longest name.
    classes = np.array(names, dtype=object if isinstance(names[0], str) else None)
    return EncodedLabels(Y, classes, "multilabel", "lists")


def _from_classes(Y: Any) -> EncodedLabels:
    if not isinstance(Y, np.ndarray) or Y.dtype == object:
        # Before numpy turns ["a", 1] and ["a", nan] into texts.
        kinds = {
            _kind(type_)
            for type_ in set(map(type, np.ravel(Y) if isinstance(Y, np.ndarray) else Y))
        }
        if len(kinds) > 1 and not kinds <= {"int", "float"}:
            raise ValueError(
                f"Unknown label type: Y mixes {' and '.join(sorted(kinds))}; the classes of a "
                "class vector are of one type"
            )
    y = column_or_1d(np.asarray(Y), warn=True)
    if y.dtype == object:
        y = np.asarray(y.tolist())
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)  # refuses continuous values
    elif y.dtype.kind not in "biuU":
        raise ValueError(
            f"Unknown label type: Y has dtype {y.dtype}; classes are int, str, bool or "
            "whole-numbered float"
        )
    classes, column = np.unique(y, return_inverse=True)
    n = len(y)
    Y = make_csr(np.ones(n, np.float32), column, np.arange(n + 1), len(classes))
    return EncodedLabels(Y, classes, "multiclass", "classes")


def _from_dense(Y: NDArray[Any]) -> csr_array:
    _check_indicator(Y)
    return checked_indicator(csr_array(Y)).astype(np.float32)  # 1e-50 is no 0 before this


def _from_sparse(Y: Any) -> csr_array:
    _check_indicator(Y)
    csr = canonical_csr(Y, "Y")
    if not csr.data.all():
        csr = csr.copy()  # eliminate_zeros works in place
        csr.eliminate_zeros()
    return checked_indicator(csr)


def checked_indicator(Y: csr_array, first_row: int = 0) -> csr_array:
    """Y itself, or a ValueError unless all its entries are 1: a label is there, or it is not.

    The error counts rows from `first_row`.
    """
    bad = np.flatnonzero(Y.data != 1)
    if len(bad):
        i, j, value = first_row + row_of_entry(Y, bad[0]), Y.indices[bad[0]], Y.data[bad[0]]
        raise ValueError(
            f"labels must be 0 or 1 (no NaN, no inf), there or not; Y[{i}, {j}] is {value}. "
            "How much a row counts is sample_weight, of systems that have it"
        )
    return Y


def _check_indicator(Y: Any) -> None:
    """Refuse an indicator of the wrong shape or of things that are not numbers."""
    if Y.ndim != 2:
        raise ValueError(f"an indicator has 2 dimensions (n_rows, n_labels); Y has {Y.ndim}")
    if 0 in Y.shape:
        raise ValueError(f"Y is empty: {Y.shape[0]} sample(s) and {Y.shape[1]} labels")
    if Y.dtype.kind not in "biuf":
        raise ValueError(
            f"Unknown label type: an indicator holds numbers or bool; Y has dtype {Y.dtype}"
        )


def _label_row(i: int, row: Any) -> Collection[Any]:
    if isinstance(row, (list, tuple, set, frozenset)):
        return row
    if isinstance(row, np.ndarray) and row.ndim == 1:
        return row.tolist()
    if isinstance(row, (str, bytes, dict)) or not isinstance(row, Iterable) or _is_array(row):
        raise ValueError(f"row {i} must be a list of labels; got {row!r}")
    return list(row)


def _check_label_types(rows: list[Collection[Any]], classes: list[Any]) -> None:
    """Refuse labels other than all str or all int; the error names the first row at fault."""
    types = set(map(type, chain(classes, chain.from_iterable(rows))))
    kinds = {_kind(type_) for type_ in types}
    if kinds <= {"str"} or kinds <= {"int"}:
        return
    expected = None
    places = chain([("classes", classes)], ((f"row {i}", row) for i, row in enumerate(rows)))
    for place, row in places:
        for label in row:
            kind = _kind(type(label))
            expected = expected or kind
            if kind != expected or kind not in ("str", "int"):
                raise ValueError(
                    f"{place}: labels must be all str or all int; got {label!r} of type {kind}"
                )


def _kind(type_: type) -> str:
    """Name of a type, numpy's own counted with Python's."""
    for name, types in _KINDS.items():
        if issubclass(type_, types):
            return name
    return type_.__name__


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool, np.bool_),
    "int": (int, np.integer),
    "float": (float, np.floating),
}


def _plain(names: list[Any]) -> list[Any]:
    """Python's own str and int for numpy's."""
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def _is_row(entry: Any) -> bool:
    return isinstance(entry, (list, tuple, set, frozenset)) or _is_array(entry)


def _is_array(entry: Any) -> bool:
    return isinstance(entry, np.ndarray) and entry.ndim > 0
