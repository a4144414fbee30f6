"""Labels in every usual form, encoded as one sparse indicator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from labelry.checks import refuse_masked
from labelry.data.canonical import (
    RepeatedEntryError,
    canonical_csr,
    check_no_repeats,
    make_csr,
    row_of_entry,
)
from labelry.data.frames import frame_columns, is_frame, plain_column

Label = str | int


class EncodedLabels(NamedTuple):
    """Labels as a sparse indicator, and the form in which they were given.

    The indicator has sorted indices, no duplicates and no stored zeros; it may share memory with
    the input. Predictions are given back in the same form.
    """

    indicator: csr_array
    classes: NDArray[Any] | None  # name of each column; None: the column number is the name
    kind: Literal["multiclass", "multilabel"]  # multiclass: each row has exactly one label
    form: Literal["classes", "indicator", "lists"]


def indicator(
    lists: Iterable[Iterable[Label]], classes: Sequence[Label] | None = None
) -> tuple[csr_array, list[Any]]:
    """Return the sparse indicator of lists of labels, and the name of each column.

    Parameters
    ----------
    lists
        The labels of each row, in any order; a row may be empty.
    classes
        Names of the first columns, in this order; further labels follow, sorted.

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
    if names and not isinstance(names[0], str):
        check_label_size(min(names), max(names))
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

    - a sparse matrix or dense array (n_rows, n_labels) of 0 and 1, or bool;
    - a class vector (n_rows,) of int, str, bool or whole-numbered float. As in scikit-learn, a
      dense array of one column is a class vector too, with a warning;
    - a list of lists, tuples, sets or arrays of str or int: the labels of each row. A list of
      lists is never taken for an indicator;
    - a column or a data frame of pandas, polars or the like: a frame of one column is that column,
      any other frame an indicator, whose columns are named by the labels.

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
        return _from_indicator(Y)
    refuse_masked("Y", Y)
    if is_frame(Y):
        return _from_frame(Y)
    Y = plain_column(Y)
    if not isinstance(Y, list):
        Y = np.asarray(Y)
        if Y.ndim == 0:
            raise ValueError("Y must be an array or a list with one entry per row")
    if len(Y) == 0:
        raise ValueError("Y is empty: Found array with 0 sample(s), a minimum of 1 is required")
    if isinstance(Y, np.ndarray) and Y.ndim > 1 and Y.shape[1:] != (1,):
        return _from_indicator(Y)
    may_hold_rows = not isinstance(Y, np.ndarray) or (Y.dtype == object and Y.ndim == 1)
    if may_hold_rows and any(map(_is_row, Y)):
        return _from_lists(Y)
    return _from_classes(Y)


def encoded(y: Any) -> tuple[EncodedLabels, Any]:
    """Return labels as an indicator, and the form in which they were given.

    The form is that of `encode_labels`, or "dense" for an indicator that is not sparse.
    """
    labels = encode_labels(y)
    dense = labels.form == "indicator" and not issparse(y)
    return labels, "dense" if dense else labels.form


def label_counts(Y: csr_array) -> NDArray[np.int32]:
    """Return the number of rows of each label.

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
    names
        Name of each column of `Y`; None: the column number is the name.
    model_names
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
        # Before numpy turns ["a", 1] and ["a", nan] into texts, and 2^63 with -1 into a float.
        _check_one_kind(np.ravel(Y).tolist() if isinstance(Y, np.ndarray) else Y)
    y = column_or_1d(np.asarray(Y), warn=True)
    if y.dtype == object:
        y = np.asarray(y.tolist())
    if y.dtype.kind in "uf":
        bad = np.flatnonzero(~np.isfinite(y))
        if len(bad):
            found = f"row {bad[0]} is {y[bad[0]]}"
            raise ValueError(f"Input y contains NaN or infinity: {found}; leave such rows out")
        check_label_size(y.min(), y.max())
    if y.dtype.kind == "f":
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


def _check_one_kind(values: list[Any]) -> None:
    """Refuse classes of several types; the error names the first two rows that differ."""
    kinds = _kinds(values)
    if len(kinds) > 1 and not kinds <= {"int", "float"}:
        (first,) = _kinds(values[:1])
        row = next(i for i, value in enumerate(values) if _kinds([value]) != {first})
        (other,) = _kinds([values[row]])
        raise ValueError(
            f"Unknown label type: Y mixes {first} and {other}; row 0 is {values[0]!r:.40} and row "
            f"{row} is {values[row]!r:.40}. The classes of a class vector are of one type"
        )
    if "int" in kinds:
        check_label_size(min(values), max(values))


def check_label_size(smallest: Any, largest: Any) -> None:
    """Raise a ValueError unless labels that are numbers fit into 64 bits with a sign."""
    if not -(2**63) <= smallest <= largest < 2**63:
        wrong = largest if largest >= 2**63 else smallest
        raise ValueError(
            f"labels that are numbers must be from -2^63 to 2^63 - 1, but one is {wrong}; give "
            "such labels as texts"
        )


def _from_frame(Y: Any) -> EncodedLabels:
    """Encode an indicator with named columns; a frame of one column is that column."""
    columns = frame_columns(Y)
    if len(columns) == 1:
        values = columns[0][1]
        return encode_labels(values[:, None] if isinstance(values, np.ndarray) else values)
    for name, values in columns:
        if isinstance(values, list):
            raise ValueError(
                f"Unknown label type: column {name!r} of Y begins with {values[:1]!r:.40}; an "
                "indicator holds numbers or bool. Give labels as one column, or as lists"
            )
    sparse = getattr(Y, "sparse", None)  # of pandas, if all of its columns are sparse
    labels = _from_indicator(np.asarray(Y) if sparse is None else sparse.to_coo())
    names = [name for name, _ in columns]
    if names == list(range(len(names))):
        return labels
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError("the columns of Y must be named by distinct labels, all of them texts")
    return labels._replace(classes=np.array(names, dtype=object))


def _from_indicator(Y: Any) -> EncodedLabels:
    _check_indicator(Y)
    if not issparse(Y):  # 1e-50 is no 0 before the rounding to float32
        csr = checked_indicator(csr_array(Y)).astype(np.float32)
        return EncodedLabels(csr, None, "multilabel", "indicator")
    csr = canonical_csr(Y, "Y")
    if not csr.data.all():
        csr = csr.copy()  # eliminate_zeros works in place
        csr.eliminate_zeros()
    return EncodedLabels(checked_indicator(csr), None, "multilabel", "indicator")


def checked_indicator(Y: csr_array, first_row: int = 0) -> csr_array:
    """Return Y; raise a ValueError unless all its entries are 1: a row has a label or not.

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
    if isinstance(row, np.ndarray) and row.ndim == 1:
        return row.tolist()
    if isinstance(row, (str, bytes, dict, np.ndarray)) or not isinstance(row, Iterable):
        raise ValueError(f"row {i} must be a list of labels; got {row!r}")
    return row if isinstance(row, Collection) else list(row)


def _check_label_types(rows: list[Collection[Any]], classes: list[Any]) -> None:
    """Refuse labels other than all str or all int; the error names the first row at fault."""
    kinds = _kinds(chain(classes, chain.from_iterable(rows)))
    if kinds <= {"str"} or kinds <= {"int"}:
        return
    expected = None
    places = chain([("classes", classes)], ((f"row {i}", row) for i, row in enumerate(rows)))
    for place, row in places:
        for label in row:
            (kind,) = _kinds([label])
            expected = expected or kind
            if kind != expected or kind not in ("str", "int"):
                raise ValueError(
                    f"{place}: labels must be all str or all int; got {label!r} of type {kind}"
                )


def _kinds(values: Iterable[Any]) -> set[str]:
    """Return the names of the types of values; numpy's types count as Python's."""
    names: dict[Any, str] = {str: "str", (bool, np.bool_): "bool", (int, np.integer): "int"}
    names |= {(float, np.floating): "float"}
    return {
        next((name for types, name in names.items() if issubclass(found, types)), found.__name__)
        for found in set(map(type, values))
    }


def _plain(names: list[Any]) -> list[Any]:
    """Return str and int of Python in place of numpy's."""
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def _is_row(entry: Any) -> bool:
    is_array = isinstance(entry, np.ndarray) and entry.ndim > 0
    return is_array or isinstance(entry, (list, tuple, set, frozenset))
