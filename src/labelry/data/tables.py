"""Texts with labels: JSONL, CSV, TSV, Parquet and fastText lines.

Each format is read a row at a time and knows nothing of the others; what they share is what a
text, a label and a column may be. What was not said is found in the first rows: the columns
(`labelry.data.columns`) and what separates labels (`labelry.data.separators`). Blanks around labels
go; nothing else is repaired: whatever cannot be taken as it stands is a DataError.
"""

from __future__ import annotations

import codecs
import csv
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from labelry.checks import check_one_of
from labelry.data.cells import FIT_NAMES, as_names, as_text, bad, flaw_of_names, shown
from labelry.data.columns import Wanted
from labelry.data.delimiters import find_delimiter
from labelry.data.parquet import read_parquet
from labelry.data.separators import AUTO, find_separator, separator_words, split_cell
from labelry.data.streams import open_input, read_line
from labelry.errors import DataError
from labelry.storage.about import Source

log = logging.getLogger("labelry")

TABLE_FORMATS = ("jsonl", "csv", "tsv", "parquet", "fasttext")
DELIMITERS = {"csv": ",", "tsv": "\t"}  # as they are written
BLOCK_ROWS = 10_000

_AHEAD = 2_000  # rows that columns and separators are found in; not tuned
# One cell of a CSV; an unclosed quote is noticed after this many characters, not at the end
# of a file that does not fit in memory.
_MAX_CELL = 1 << 24

TO_UTF8 = "save the file as UTF-8 (in Excel: CSV UTF-8), or convert it with iconv"

LABEL_PREFIX = "__label__"
SPACE = " \t\v\f\r\n"  # what separates words in fastText; other Unicode spaces do not
LABEL_WORD = re.compile(rf"(?<![^{SPACE}]){LABEL_PREFIX}([^{SPACE}]*)(?:[{SPACE}]|$)")

T = TypeVar("T")
Row = tuple[str, list[str], list[str]]  # text, labels, kept cells
Cells = tuple[int, Sequence[Any]]  # the line of a row, and its values of the chosen columns
# A function that takes a header and its line number, and returns the columns to read.
Choose = Callable[[Sequence[str], int | None], tuple[str, ...]]


class Texts(NamedTuple):
    """A block of rows, and how they were read."""

    texts: list[str]
    labels: list[list[str]]  # of each text
    source: Source
    cells: dict[str, list[str]]  # of each column that is kept


def read_table_blocks(
    path: str | Path,
    format: str,
    *,
    text_column: str | Sequence[str] | None = None,
    label_column: str | None = None,
    label_separator: str | None = AUTO,
    label_role: str = "label",
    like: Source | None = None,
    keep: Sequence[str] | Literal["all"] = (),
    block_rows: int = BLOCK_ROWS,
) -> Iterator[Texts]:
    """Read texts and label names, `block_rows` rows at a time and in constant memory.

    Parameters
    ----------
    format
        JSONL and Parquet hold a label or a list of labels, str or int, a row; null, and in
        JSONL a missing key, is a row without labels. CSV and TSV have a header line, quotes as
        in RFC 4180, and all labels of a row in one cell; CSV may be separated by commas, semicolons
        or tabs. fastText has ``__label__name`` words anywhere in the line; the rest of the line is
        the text. Blank lines are no rows, except in fastText.
    text_column
        Column of the text, or several, which are joined by line breaks. By default the usual names
        are looked for: a title, and a text, content, body, description, ...
    label_column
        By default the file is searched for the usual names: labels, tags, label, categories, ...
        With the empty string texts are read without labels.
    label_separator
        Stands between the labels of a cell. None: a cell is one label. "json": a cell is a list of
        labels in brackets. "auto": found in the first rows.
    label_role : str
        What errors call the column of the labels.
    like : Source, optional
        How another file was read for the same model. It fills in what the caller leaves open.
    keep
        Columns whose cells are kept as texts, or "all". Lines of text have one, "text".

    What was found is told to the log. A DataError names the file, the line (Parquet: the row), what
    was found, what was expected.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1; got {block_rows}")
    texts = (text_column,) if isinstance(text_column, str) else tuple(text_column or ())
    kept: tuple[str, ...] | Literal["all"] = "all" if keep == "all" else tuple(keep)
    check_columns(format, texts, label_column, label_separator)
    wanted = Wanted(texts, label_column, label_role, like, kept)
    return _Table(path, format, wanted, label_separator).blocks(block_rows)


def check_columns(
    format: str, texts: tuple[str, ...], label_column: str | None, separator: str | None
) -> None:
    """Raise a ValueError if these cannot be the columns of a table."""
    check_one_of("format", format, TABLE_FORMATS)
    Wanted(texts, label_column).check()
    if separator == "":
        raise ValueError("label_separator must not be empty; None stands for one label per cell")


class _Table:
    """A file that is being read; what is found on the way is in `source`."""

    def __init__(
        self, path: str | Path, format: str, wanted: Wanted, separator: str | None
    ) -> None:
        self.path, self.wanted, self.separator = path, wanted, separator
        self.finds_separator = separator == AUTO
        like = wanted.like
        if separator == AUTO and like and (like.label_separator or like.format in DELIMITERS):
            self.separator = like.label_separator
        self.source = Source(Path(path).name, format=format)
        self.kept: tuple[str, ...] = ()

    def blocks(self, block_rows: int) -> Iterator[Texts]:
        """Collect rows into blocks; at least one row must come."""
        fasttext = self.source.format == "fasttext"
        rows = self._lines() if fasttext else self._rows()
        none_yet = True
        while block := list(islice(rows, block_rows)):
            none_yet = False
            texts, labels, cells = (list(part) for part in zip(*block, strict=True))
            columns = (list(column) for column in zip(*cells, strict=True))
            kept = dict(zip(self.kept, columns, strict=bool(self.kept)))
            yield Texts(texts, labels, self.source, kept)
        if none_yet:
            raise DataError("found no rows; expected at least one", path=self.path)

    def _lines(self) -> Iterator[Row]:
        """Yield the rows of fastText, whose only cell is the text."""
        if self.wanted.keep:
            self.kept = self.wanted.kept_of(["text"], self.path, None)
        for text, names in _fasttext_rows(self.path):
            yield text, names, [text] * len(self.kept)

    def _rows(self) -> Iterator[Row]:
        """Yield the text, the labels and the kept cells of each row."""
        head, records = read_ahead(self._records())
        n_texts, labelled = len(self.source.text_columns), self.source.label_column is not None
        self._look_at([values[n_texts] for _, values in head] if labelled else [])
        del head

        def split(cell: str) -> list[str]:
            return split_cell(cell, self.separator)

        for line, values in records:
            text = self._joined(values[:n_texts], line)
            names = as_names(values[n_texts], split, self.path, line) if labelled else []
            yield text, names, [_cell(value) for value in values[n_texts + labelled :]]

    def _records(self) -> Iterator[Cells]:
        if self.source.format == "jsonl":
            return _jsonl_cells(self.path, self._choose)
        if self.source.format == "parquet":
            return read_parquet(self.path, self._choose)
        tabs, named = self.source.format == "tsv", (*self.wanted.text, self.wanted.label or "")
        return _csv_cells(_csv_records(self.path, tabs, named), self.path, self._choose)

    def _choose(self, header: Sequence[str], line: int | None) -> tuple[str, ...]:
        """Return the columns to read: those of the text, and that of the labels if it is wanted."""
        optional = self.source.format == "jsonl"  # a row without the key has no labels
        texts, label = self.wanted.found_in(header, self.path, line, optional=optional)
        self.source = replace(self.source, text_columns=texts, label_column=label)
        self.kept = self.wanted.kept_of(header, self.path, line)
        return (*texts, *([] if label is None else [label]), *self.kept)

    def _look_at(self, labels: Sequence[Any]) -> None:
        """Find what separates the labels of the first rows, and tell all that was found."""
        cells = [value for value in labels if isinstance(value, str)]
        if self.separator == AUTO:
            self.separator = find_separator(cells)
        if cells:
            self.source = replace(self.source, label_separator=self.separator)
        source, wanted = self.source, self.wanted
        found = [f"text: {' + '.join(source.text_columns)}"]
        guesses = [] if wanted.text else ["`text_column`"]
        if source.label_column is not None:
            how = f", {separator_words(self.separator)}" if cells else ""
            found.append(f"{wanted.role}s: {source.label_column}{how}")
            guesses += [] if wanted.label else ["`label_column`"]
            guesses += ["`label_separator`"] if cells and self.finds_separator else []
        elif wanted.label is None:
            found.append(f"{wanted.role}s: none found")
            guesses.append("`label_column`")
        trained = wanted.like and wanted.like.text_columns
        if trained and trained != source.text_columns:
            found.append(f"the model was trained on {' + '.join(trained)}")
        if guesses and source.text_columns:
            log.info("%s (to change: %s)", "; ".join(found), ", ".join(guesses))

    def _joined(self, values: Sequence[Any], line: int) -> str:
        """Return the text of a row; of several columns, some may be empty or missing."""
        parts = [as_text(value, self.path, line) for value in values if value is not None]
        if not parts:
            names = " or ".join(map(repr, self.source.text_columns))
            raise bad("no text (it is null, or missing)", f"a string as {names}", self.path, line)
        return "\n".join(part for part in parts if part)


def _cell(value: Any) -> str:
    """Return a value as a cell of a table holds it."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def read_ahead(items: Iterator[T], most: int = _AHEAD) -> tuple[list[T], Iterator[T]]:
    """Return the first items, and an iterator over all. An error is raised at its own item."""
    head: list[T] = []
    error: DataError | None = None
    try:
        for item in islice(items, most):
            head.append(item)  # those before an error are kept
    except DataError as found:
        error = found

    def again(waiting: deque[T]) -> Iterator[T]:
        while waiting:
            yield waiting.popleft()
        if error is not None:
            raise error
        yield from items

    return head, again(deque(head))


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, its end included; leave a byte-order mark out."""
    with open_input(path) as stream:
        for number in count(1):
            raw = read_line(stream, path, number)
            if not raw:
                return
            if number == 1 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise bad("UTF-16 text", f"UTF-8: {TO_UTF8}", path)
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            if b"\0" in raw:
                raise bad(f"a NUL at byte {raw.index(0)} of the line", "text", path, number)
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                found = f"the byte 0x{raw[error.start]:02x} at byte {error.start} of the line"
                raise bad(found, f"UTF-8: {TO_UTF8}", path, number) from error
            yield number, line


# Reading: each format has a generator of rows.


def _jsonl_cells(path: str | Path, choose: Choose) -> Iterator[Cells]:
    head, records = read_ahead(_json_objects(path))
    keys = list(dict.fromkeys(key for _, record in head for key in record))
    names = choose(keys, head[0][0]) if head else ()
    del head
    for line, record in records:
        yield line, [record.get(name) for name in names]


def _json_objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
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
        yield number, record


def _json_flaw(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _csv_cells(
    records: Iterator[tuple[int, list[str]]], path: str | Path, choose: Choose
) -> Iterator[Cells]:
    line, header = next(records, (1, []))
    if not header:
        return
    names = choose(header, line)
    at = [header.index(name) for name in names]
    for line, cells in records:
        if len(cells) != len(header):
            raise bad(f"{len(cells)} fields", f"{len(header)}, as in the header", path, line)
        yield line, [cells[i] for i in at]


def _csv_records(
    path: str | Path, tabs: bool, named: Sequence[str]
) -> Iterator[tuple[int, list[str]]]:
    """Yield each record: the number of its first line, and its cells. A line `sep=` is left out."""
    # The limit is the process's own: it is only ever raised, so that long documents can be read.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_CELL))
    head, lines = read_ahead(read_lines(path), 100)
    n_before, delimiter = find_delimiter([line for _, line in head], named)
    del head
    lines = islice(lines, n_before, None)
    delimiter = "\t" if tabs else delimiter
    reader = csv.reader((line for _, line in lines), delimiter=delimiter, strict=True)
    while True:
        line = n_before + reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            expected = "fields that are quoted whole or not at all, with quotes inside doubled"
            raise bad(f"malformed fields ({error})", expected, path, line) from error
        if cells is None:
            return
        if cells:
            yield line, cells


def _fasttext_rows(path: str | Path) -> Iterator[tuple[str, list[str]]]:
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
