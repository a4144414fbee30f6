"""Data frames and columns of pandas, polars and Hugging Face datasets; none of them is imported.

A frame is recognised by its attributes and a column by being a sequence, so relatives of these
libraries work too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from numbers import Number
from typing import Any

import numpy as np
from scipy.sparse import issparse

from labelry.checks import refuse_masked


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame; a ValueError if its rows are not computed yet."""
    if issparse(value) or isinstance(value, (np.ndarray, list, tuple)):
        return False
    for method in ("collect", "compute"):  # frames of polars and of Dask
        if hasattr(value, method):
            kind = type(value).__name__
            raise ValueError(f"this {kind} has no rows yet; give what its {method}() returns")
    if hasattr(value, "column_names"):  # datasets of Hugging Face, tables of Arrow
        kind = type(value).__name__
        raise ValueError(f"a {kind} has several columns; give one of them, or its to_pandas()")
    return hasattr(value, "columns") and hasattr(value, "dtypes")


def frame_columns(frame: Any) -> list[tuple[Any, Any]]:
    """Return the name and the values of each column of a frame, as `plain_column` gives them."""
    if hasattr(frame, "items"):  # pandas, where two columns may have the same name
        return [(name, plain_column(column)) for name, column in frame.items()]
    return [(name, plain_column(frame[name])) for name in frame.columns]


def plain_column(column: Any) -> Any:
    """Return a column, or another sequence, as a list, and one of numbers as an array.

    What is no sequence is returned as it is.
    """
    if isinstance(column, (str, bytes, np.ndarray, list)) or issparse(column):
        return column
    if hasattr(column, "to_list"):
        is_number = np.asarray(column[:0]).dtype.kind in "biuf"
        return np.asarray(column) if is_number else column.to_list()
    return list(column) if isinstance(column, Sequence) else column


def plain_rows(name: str, X: Any) -> Any:
    """Return texts in any form as a list of str; return other rows as they are.

    The texts of several columns are joined by line breaks. A ValueError names the first entry that
    is no text, or says which columns are texts if others are numbers.

    Parameters
    ----------
    name
        Name of the rows in messages.

    Examples
    --------
    >>> plain_rows("X", ("a", "b"))
    ['a', 'b']
    >>> plain_rows("X", ["a", None])
    Traceback (most recent call last):
    ...
    ValueError: X must be texts, but row 1 is None (NoneType); fill it with '', or leave it out
    """
    refuse_masked(name, X)
    if issparse(X):  # one of its formats is a mapping
        return X
    if isinstance(X, (str, bytes, Mapping, Set, Iterator)):
        kind = type(X).__name__
        raise ValueError(f"{name} must be a list of str, one for each row; got {kind}")
    if not is_frame(X):
        values = plain_column(X)
        is_matrix = isinstance(values, np.ndarray) and values.ndim == 2
        first = values[:1] if is_matrix or isinstance(values, list) else []
        if len(first) and _has_text(plain_column(first[0])):
            raise ValueError(f"row 0 of {name} is a list of texts; join the texts of each row")
        return _texts(name, values) if _has_text(values) else values
    texts, others = {}, []
    for number, (column, values) in enumerate(frame_columns(X)):
        where = f"column {column!r} of {name}"
        if _has_text(values):
            texts[number] = _texts(where, values)
        else:
            others.append(column)
            if isinstance(values, list):
                _refuse_others(where, values, (Number, type(None)), "numbers or texts")
    if not texts:
        return X
    if others:
        titles = [column for number, column in enumerate(X.columns) if number in texts]
        raise ValueError(
            f"{name} has columns of texts, {titles}, and of numbers, {others}: give either the "
            f"texts alone, as in {name}[{titles}], or the numbers alone"
        )
    return list(map("\n".join, zip(*texts.values(), strict=True)))


def checked_texts(name: str, texts: Any) -> list[str]:
    """Return texts in any form as a list of str; a ValueError for what is none."""
    rows = plain_rows(name, list(texts) if isinstance(texts, Iterator) else texts)
    if not isinstance(rows, (list, np.ndarray)):
        kind = type(texts).__name__
        raise ValueError(f"{name} must be a list of str, one for each row; got {kind}")
    return _texts(name, rows)


def _has_text(values: Any) -> bool:
    """Return whether some entry of a column is a text."""
    if isinstance(values, np.ndarray):
        return values.ndim == 1 and values.dtype.kind not in "biufc" and _has_text(values.tolist())
    return isinstance(values, list) and any(isinstance(value, str) for value in values)


def _texts(where: str, values: Any) -> list[str]:
    """Return a column of texts as a list; a ValueError names the first entry that is no text."""
    values = values if isinstance(values, list) else values.tolist()
    _refuse_others(where, values, (str,), "texts")
    return values


def _refuse_others(where: str, values: list[Any], types: tuple[type, ...], what: str) -> None:
    """Raise a ValueError that names the first row whose entry is not of one of these types."""
    if all(issubclass(found, types) for found in set(map(type, values))):
        return
    row = next(i for i, value in enumerate(values) if not isinstance(value, types))
    got = f"{values[row]!r:.40} ({type(values[row]).__name__})"
    remedy = "fill it with '', or leave it out" if what == "texts" else "leave it out"
    raise ValueError(f"{where} must be {what}, but row {row} is {got}; {remedy}")
