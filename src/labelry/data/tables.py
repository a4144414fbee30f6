"""Texts with labels: JSONL, CSV, TSV, Parquet and fastText lines.

Each format is read a block of rows at a time and knows nothing of the others; what they share
is what a text, a label and a column may be. Nothing is repaired: whatever cannot be taken
exactly as it stands is a DataError.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelry.checks import check_one_of
from labelry.data.cells import (
    FIT_NAMES,
    FIT_TEXT,
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    Column,
    as_names,
    as_text,
    bad,
    flaw_of_names,
    flaw_of_text,
    shown,
)
from labelry.data.dataset import Dataset
from labelry.data.parquet import read_parquet, write_parquet
from labelry.data.streams import open_input, open_output, read_line
from labelry.errors import DataError
from labelry.storage.about import Source

TABLE_FORMATS = ("jsonl", "csv", "tsv", "parquet", "fasttext")
DELIMITERS = {"csv": ",", "tsv": "\t"}
BLOCK_ROWS = 10_000

# One cell of a CSV; an unclosed quote is noticed after this many characters, not at the end
# of a file that does not fit in memory.
_MAX_CELL = 1 << 24

_PREFIX = "__label__"
_SPACE = " \t\v\f\r\n"  # what separates words in fastText; other Unicode spaces do not
LABEL_WORD = re.compile(rf"(?<![^{_SPACE}]){_PREFIX}([^{_SPACE}]*)(?:[{_SPACE}]|$)")

_encode_json = json.JSONEncoder(ensure_ascii=False).encode

Row = tuple[str, list[str]]  # text and labels


class Texts(NamedTuple):
    """A block of rows, and how they were read."""

    texts: list[str]
    labels: list[list[str]]  # of each text
    source: Source


def read_table_blocks(
    path: str | Path,
    format: str,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = "auto",
    label_role: str = "label",
    like: Source | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Iterator[Texts]:
    """Read texts and label names, `block_rows` rows at a time and in constant memory.

    Parameters
    ----------
    format
        JSONL and Parquet hold a label or a list of labels, str or int, a row; null, and in
        JSONL a missing key, is a row without labels. CSV and TSV have a header line, quotes as
        in RFC 4180, and all labels of a row in one cell. fastText has ``__label__name`` words
        anywhere in the line; the rest of the line is the text. Blank lines are no rows, except
        in fastText.
    text_column
        By default the first of "text", "content", "body", "description", "title" there is.
    label_column
        By default the first of "labels", "tags", "label", "categories", "category" there is.
        The empty string reads texts without labels.
    label_separator
        Stands between the labels in a cell of CSV or TSV: "|" if it is "auto". None: a cell is one
        label.
    label_role : str
        What errors call the column of the labels.
    like : Source, optional
        Another file for the same model: its columns come before the usual ones, and its separator
        is that of "auto".

    A DataError names the file, the line (Parquet: the row), what was found, what was expected.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1; got {block_rows}")
    _check_columns(format, text_column, label_column, label_separator)
    like = like or Source()
    of_labels = filter(None, [like.label_column])
    text = Column("text", text_column, (*like.text_columns, *TEXT_COLUMNS), label_column)
    labels = Column(label_role, label_column, (*of_labels, *LABEL_COLUMNS), text_column)
    if label_separator == "auto":
        label_separator = like.label_separator if like.format in DELIMITERS else "|"
    if format == "jsonl":
        rows = _jsonl_rows(path, text, labels)
    elif format == "parquet":
        rows = read_parquet(path, text, labels)
    elif format == "fasttext":
        rows = _fasttext_rows(path)
    else:
        rows = _csv_rows(path, DELIMITERS[format], text, labels, label_separator)
    separator = label_separator if format in DELIMITERS else None

    def source() -> Source:
        columns = () if text.taken is None else (text.taken,)
        return Source(Path(path).name, None, format, columns, labels.taken, separator)

    return _blocks(rows, path, block_rows, source)


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
    _check_columns(format, text_column, label_column, label_separator)
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


def _blocks(
    rows: Iterator[Row], path: str | Path, block_rows: int, source: Callable[[], Source]
) -> Iterator[Texts]:
    """Collect rows into blocks; at least one row must come."""
    none_yet = True
    while block := list(islice(rows, block_rows)):
        none_yet = False
        yield Texts([text for text, _ in block], [labels for _, labels in block], source())
    if none_yet:
        raise DataError("found no rows; expected at least one", path=path)


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, its end included; leave a byte-order mark out."""
    with open_input(path) as stream:
        for number in count(1):
            raw = read_line(stream, path, number)
            if not raw:
                return
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            if b"\0" in raw:
                raise bad(f"a NUL at byte {raw.index(0)} of the line", "text", path, number)
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                found = f"the byte 0x{raw[error.start]:02x} at byte {error.start} of the line"
                raise bad(found, "UTF-8", path, number) from error
            yield number, line


def _check_columns(
    format: str, text_column: str | None, label_column: str | None, label_separator: str | None
) -> None:
    check_one_of("format", format, TABLE_FORMATS)
    if text_column == "":
        raise ValueError("text_column must not be empty")
    if text_column is not None and text_column == label_column:
        raise ValueError(f"text_column and label_column are both {text_column!r}; they must differ")
    if label_separator == "":
        raise ValueError("label_separator must not be empty; None stands for one label per cell")


# Reading, a generator of rows for each format.


def _jsonl_rows(path: str | Path, text: Column, labels: Column) -> Iterator[Row]:
    for number, line in read_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if line.isspace() or not line:
                continue
            found = f"invalid JSON ({_json_flaw(error)})"
            raise bad(found, "one JSON object a line", path, number) from error
        if type(record) is not dict:
            raise bad(shown(record), "a JSON object", path, number)
        text_key = text.find(record, path, number)
        if text_key is None:
            raise text.missing(record, path, number)
        label_key = labels.find(record, path, number)
        value = None if label_key is None else record[label_key]
        yield as_text(record[text_key], path, number), as_names(value, path, number)


def _json_flaw(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _csv_rows(
    path: str | Path, delimiter: str, text: Column, labels: Column, separator: str | None
) -> Iterator[Row]:
    records = _csv_records(path, delimiter)
    line, header = next(records, (1, []))
    if not header:
        return
    text_at = text.position(header, path, line)
    label_at = labels.position(header, path, line) if labels.wanted else None
    for line, cells in records:
        if len(cells) != len(header):
            raise bad(f"{len(cells)} fields", f"{len(header)}, as in the header", path, line)
        names: list[str] = []
        if label_at is not None and cells[label_at]:
            cell = cells[label_at]
            names = [cell] if separator is None else cell.split(separator)
            if flaw := flaw_of_names(names):
                raise bad(f"{flaw} ({shown(cell)})", FIT_NAMES, path, line)
        yield cells[text_at], names


def _csv_records(path: str | Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each record, and its cells."""
    # The limit is the process's own: it is only ever raised, so that long documents can be read.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_CELL))
    reader = csv.reader((line for _, line in read_lines(path)), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            expected = "fields that are quoted whole or not at all, with quotes inside doubled"
            raise bad(f"malformed fields ({error})", expected, path, line) from error
        if cells is None:
            return
        if cells:
            yield line, cells


def _fasttext_rows(path: str | Path) -> Iterator[Row]:
    for number, raw in read_lines(path):
        line = raw.removesuffix("\n").removesuffix("\r")
        labels = list(LABEL_WORD.finditer(line))
        if not labels:
            yield line, []
            continue
        names = [label[1] for label in labels]
        if flaw := flaw_of_names(names):
            raise bad(flaw, FIT_NAMES, path, number)
        # Each label goes with the one space after it, or before it at the end of the line.
        text = LABEL_WORD.sub("", line)
        yield text[:-1] if labels[-1].end() == len(line) else text, names


# Writing: rows, and for each format a function that makes a row a line.


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
        yield text, labels


def _of_row(number: int, error: DataError, path: str | Path) -> DataError:
    return DataError(f"row {number}: {error}", path=path)


def _jsonl_line(text_column: str, label_column: str, _: int, text: str, names: list[str]) -> str:
    return _encode_json({text_column: text, label_column: names})


def _csv_line(delimiter: str, separator: str | None, _: int, text: str, names: list[str]) -> str:
    if separator is None and len(names) > 1:
        raise bad(f"{len(names)} labels", "one label a row, as label_separator is None")
    cell = (separator or "").join(names)
    if separator is not None and names and cell.split(separator) != names:
        expected = f"labels without the separator {separator!r}; choose another label_separator"
        raise bad(f"the labels {shown(names)}", expected)
    return csv_cell(text, delimiter) + delimiter + csv_cell(cell, delimiter)


def csv_cell(text: str, delimiter: str = ",") -> str:
    """Give a cell as RFC 4180 has it: in quotes where it needs them."""
    # csv.writer leaves a lone carriage return unquoted in some versions of Python.
    if re.search(f'[{delimiter}"\r\n]', text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _fasttext_line(number: int, text: str, names: list[str]) -> str:
    spaced = next((name for name in names if not set(_SPACE).isdisjoint(name)), None)
    if spaced is not None:
        expected = "labels without white space, which fastText cannot hold"
        raise bad(f"the label {shown(spaced)}", expected)
    if "\n" in text or "\r" in text:
        expected = "texts of one line, as fastText cannot hold line breaks"
        raise bad(f"a line break in the text {shown(text)}", expected)
    if label := LABEL_WORD.search(text):
        expected = f"texts without words that begin with {_PREFIX}"
        raise bad(f"{shown(label[0])} in a text", expected)
    line = " ".join([_PREFIX + name for name in names] + [text] * bool(text))
    if number == 1 and line.startswith("\ufeff"):
        expected = "another first character, as fastText cannot hold this one there"
        raise bad("a byte-order mark at the start", expected)
    return line
