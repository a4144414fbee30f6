"""Texts with labels written as JSONL, CSV, TSV, Parquet or fastText lines.

What cannot be written so that `labelry.data.tables` reads it back is a DataError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from labelry.data.cells import FIT_NAMES, FIT_TEXT, bad, flaw_of_names, flaw_of_text, shown
from labelry.data.dataset import Dataset
from labelry.data.parquet import write_parquet
from labelry.data.separators import join_labels
from labelry.data.streams import open_output
from labelry.data.tables import DELIMITERS, LABEL_PREFIX, LABEL_WORD, SPACE, check_columns
from labelry.errors import DataError

_encode_json = json.JSONEncoder(ensure_ascii=False).encode

Row = tuple[str, list[str]]  # text and labels


def write_table(
    dataset: Dataset,
    path: str | Path,
    format: str,
    *,
    text_column: str = "text",
    label_column: str = "labels",
    label_separator: str | None = "|",
) -> None:
    """Write the texts and label names of a dataset; `read_table_blocks` gives them back.

    Only the labels that rows have are written. What the format cannot hold (relevances other
    than 1, a label with the separator in it, a line break in fastText) is a DataError, and
    then nothing is written.
    """
    if label_column == "":
        raise ValueError("label_column must not be empty")
    check_columns(format, (text_column,), label_column, label_separator)
    delimiter, rows = DELIMITERS.get(format, ""), _checked_rows(dataset, path, format)
    form: Callable[[int, str, list[str]], str]
    if format == "jsonl":
        form = partial(_jsonl_line, text_column, label_column)
    elif format == "fasttext":
        form = _fasttext_line
    else:
        form = partial(_csv_line, delimiter, label_separator)
    with open_output(path) as stream:
        if format == "parquet":
            write_parquet(rows, stream, text_column, label_column)
            return
        if delimiter:
            header = (csv_cell(name, delimiter) for name in (text_column, label_column))
            stream.write(delimiter.join(header).encode() + b"\n")
        for number, (text, names) in enumerate(rows, 1):
            try:
                line = form(number, text, names)
            except DataError as error:
                raise _of_row(number, error, path) from None
            stream.write(line.encode())
            stream.write(b"\n")


# Writing: each format has a function that turns a row into a line.


def _checked_rows(dataset: Dataset, path: str | Path, format: str) -> Iterator[Row]:
    """Yield text and label names of each row, checked."""
    if dataset.texts is None:
        raise DataError(f"found a dataset without texts; expected texts for {format}", path=path)
    if dataset.n_rows == 0:
        raise DataError("found no rows to write; expected at least one", path=path)
    Y, names = dataset.Y, dataset.label_names
    if not np.all(Y.data == 1):
        value = Y.data[np.flatnonzero(Y.data != 1)[0]]
        expected = f"only 1, as {format} holds label names without values"
        raise bad(f"the relevance {value} in Y", expected, path)
    for i, text in enumerate(dataset.texts):
        columns = Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist()
        labels = [str(j) if names is None else names[j] for j in columns]
        if flaw := flaw_of_text(text):
            raise _of_row(i + 1, bad(flaw, FIT_TEXT), path)
        if flaw := flaw_of_names(labels):
            raise _of_row(i + 1, bad(flaw, FIT_NAMES), path)
        if blank := next((name for name in labels if name != name.strip()), None):
            found = f"blanks around the label {shown(blank)}"
            raise _of_row(i + 1, bad(found, "none, as they would not be read back"), path)
        yield text, labels


def _of_row(number: int, error: DataError, path: str | Path) -> DataError:
    return DataError(f"row {number}: {error}", path=path)


def _jsonl_line(text_column: str, label_column: str, _: int, text: str, names: list[str]) -> str:
    return _encode_json({text_column: text, label_column: names})


def _csv_line(delimiter: str, separator: str | None, _: int, text: str, names: list[str]) -> str:
    cell = join_labels(names, separator)
    return csv_cell(text, delimiter) + delimiter + csv_cell(cell, delimiter)


def csv_cell(text: str, delimiter: str = ",") -> str:
    """Return a cell in the form of RFC 4180: it is quoted if it needs quotes."""
    # csv.writer leaves a lone carriage return unquoted in some versions of Python.
    if re.search(f'[{delimiter}"\r\n]', text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _fasttext_line(number: int, text: str, names: list[str]) -> str:
    spaced = next((name for name in names if not set(SPACE).isdisjoint(name)), None)
    if spaced is not None:
        expected = "labels without white space, which fastText cannot hold"
        raise bad(f"the label {shown(spaced)}", expected)
    if "\n" in text or "\r" in text:
        expected = "texts of one line, as fastText cannot hold line breaks"
        raise bad(f"a line break in the text {shown(text)}", expected)
    if label := LABEL_WORD.search(text):
        expected = f"texts without words that begin with {LABEL_PREFIX}"
        raise bad(f"{shown(label[0])} in a text", expected)
    line = " ".join([LABEL_PREFIX + name for name in names] + [text] * bool(text))
    if number == 1 and line.startswith("\ufeff"):
        expected = "another first character, as fastText cannot hold this one there"
        raise bad("a byte-order mark at the start", expected)
    return line
