"""Sparse text, piece by piece: what the first line tells, lines to rows, errors in words."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from labelry.data import parse_kernels as kernels
from labelry.data.streams import read_line
from labelry.errors import DataError
from labelry.linalg.parallel import resolve_jobs, stream

MAX_WIDTH = 2**31 - 1  # so that column numbers fit in int32
_BOM = b"\xef\xbb\xbf"


class Layout(NamedTuple):
    """What is known before the rows are read."""

    path: str | Path
    zero_based: bool | None
    n_features: int | None  # columns of the result, None: not known yet
    n_labels: int | None
    n_rows: int | None = None  # None: no header
    feature_width: int = MAX_WIDTH  # what the rows may use
    label_width: int = MAX_WIDTH
    unread: bytes = b""  # the first line, if it is a row

    @property
    def is_complete(self) -> bool:
        return None not in (self.zero_based, self.n_features, self.n_labels)

    @property
    def limits(self) -> tuple[int, int, int, int]:
        """Smallest and largest label and feature that a line may have."""
        min_label = 0 if self.n_labels is not None else -MAX_WIDTH
        min_feature = 1 if self.zero_based is False else 0
        # While the first number is not known, the last may be one more.
        max_feature = self.feature_width - (1 if self.zero_based else 0)
        return min_label, self.label_width - 1, min_feature, max_feature


def read_layout(
    file: io.BufferedReader,
    path: str | Path,
    header: bool | None,
    zero_based: bool | None,
    n_features: int | None,
    n_labels: int | None,
) -> Layout:
    for name, width in (("n_features", n_features), ("n_labels", n_labels)):
        if width is not None and not 0 <= width <= MAX_WIDTH:
            raise ValueError(f"{name} must be between 0 and {MAX_WIDTH}; got {width}")
    first = read_line(file, path, 1).removeprefix(_BOM)
    if not first:
        raise DataError("the file is empty, expected rows 'label,label feature:value'", path=path)
    if header is None:
        fields = first.split(b"#")[0]
        header = b":" not in fields and len(fields.split()) > 1
    if not header:
        x, y = (MAX_WIDTH if width is None else width for width in (n_features, n_labels))
        return Layout(path, zero_based, n_features, n_labels, None, x, y, first)
    n_rows, d, c = _parse_header(first, path)
    for name, announced, given in (("features", d, n_features), ("labels", c, n_labels)):
        if given is not None and announced > given:
            message = f"found {announced} {name}, expected at most {given}"
            raise DataError(message, path=path, line=1)
    columns = (d if n_features is None else n_features, c if n_labels is None else n_labels)
    return Layout(path, zero_based is not False, *columns, n_rows, d, c)


def _parse_header(line: bytes, path: str | Path) -> tuple[int, int, int]:
    fields = line.split()
    if len(fields) == 3 and all(f.isdigit() and len(f) < 19 for f in fields):
        n_rows, d, c = (int(f) for f in fields)
        if max(d, c) <= MAX_WIDTH:
            return n_rows, d, c
    expected = "a header of three integers: numbers of rows, features and labels"
    raise DataError(f"found {_shorten(line)}, expected {expected}", path=path, line=1)


class Part(NamedTuple):
    """Some rows of a CSR matrix."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]

    @classmethod
    def empty(cls, n_rows: int, size: int) -> Self:
        return cls(np.empty(n_rows + 1, np.int64), np.empty(size, np.int32), np.empty(size, "f4"))

    def head(self, n_rows: int) -> Part:
        size = self.indptr[n_rows]
        return Part(self.indptr[: n_rows + 1], self.indices[:size], self.data[:size])


class Chunk(NamedTuple):
    """Some lines as rows, up to the first wrong one; lines count from `first_line`."""

    X: Part
    Y: Part
    n_rows: int
    n_lines: int
    error: str | None  # what is wrong in the line after n_lines
    top_line: int  # the first line with the largest feature, or -1
    minus_line: int  # the first line with a negative label, or -1
    first_line: int = 0  # the number of its first line in the file


def read_chunks(
    file: io.BufferedReader, layout: Layout, size: int, n_jobs: int | None
) -> Iterator[Chunk]:
    """Parse the rest of the file in order; the first error in the file is raised."""
    tasks = ((text, layout) for text in _cut(file, layout, size))
    line = 1 if layout.n_rows is None else 2
    n_rows = 0
    for chunk in stream(_parse, tasks, resolve_jobs(n_jobs)):
        if layout.n_rows is not None:
            chunk = _check_surplus(chunk, layout, n_rows, line)
        if chunk.error is not None:
            raise DataError(chunk.error, path=layout.path, line=line + chunk.n_lines)
        yield chunk._replace(first_line=line)
        line += chunk.n_lines
        n_rows += chunk.n_rows
    if layout.n_rows is not None and n_rows < layout.n_rows:
        expected = f"expected {layout.n_rows} as in the header"
        message = f"found the end of the file after {n_rows} rows, {expected}"
        raise DataError(message, path=layout.path, line=line)
    if n_rows == 0 and layout.n_rows is None:
        raise DataError("found no rows, expected 'label,label feature:value'", path=layout.path)


def _cut(file: io.BufferedReader, layout: Layout, size: int) -> Iterator[bytes | DataError]:
    """Cut into padded pieces of whole lines. An error in reading takes its place in the order."""
    first = layout.unread
    try:
        while True:
            text, rest = file.read(size), read_line(file, layout.path)
            if not first and not text:
                return
            newline = b"" if (rest or text or first).endswith(b"\n") else b"\n"
            yield b"".join((first, text, rest, newline, bytes(kernels.PADDING)))
            first = b""
    except DataError as error:
        yield error


def _parse(text: bytes | DataError, layout: Layout) -> Chunk:
    if isinstance(text, DataError):
        raise text
    array = np.frombuffer(text, np.uint8)
    newlines, commas, colons = kernels.count_marks(array)
    X, Y = Part.empty(newlines, colons), Part.empty(newlines, commas + newlines)
    n_rows, n_lines, error, place, top_line, minus_line = kernels.parse_lines(
        array, layout.n_rows is None, *layout.limits, tuple(X), tuple(Y)
    )
    message = None if error == kernels.OK else _explain(error, text, place, layout)
    return Chunk(X.head(n_rows), Y.head(n_rows), n_rows, n_lines, message, top_line, minus_line)


def _check_surplus(chunk: Chunk, layout: Layout, n_rows: int, line: int) -> Chunk:
    """Allow only empty lines after the rows that the header announced."""
    announced = layout.n_rows or 0
    room = announced - n_rows
    surplus = f"found another row, expected only {announced} as in the header"
    if chunk.n_rows > room:
        sizes = np.diff(chunk.X.indptr[room:]) + np.diff(chunk.Y.indptr[room:])
        filled = np.flatnonzero(sizes)
        if filled.size:
            raise DataError(surplus, path=layout.path, line=line + room + int(filled[0]))
        chunk = chunk._replace(X=chunk.X.head(room), Y=chunk.Y.head(room), n_rows=room)
    if chunk.error is not None and chunk.n_rows == room:
        return chunk._replace(error=surplus)
    return chunk


def _explain(error: int, text: bytes, place: int, layout: Layout) -> str:
    """Look again at the token where the kernel stopped."""
    min_label, max_label, min_feature, max_feature = layout.limits
    if error == kernels.REPEATED_LABEL:
        labels = _match(rb"[^ \t\n#]*", text, place).split(b",")
        return f"found label {_repeated(labels)} twice, expected each label once in a row"
    if error == kernels.REPEATED_FEATURE:
        line = _match(rb"[^\n#]*", text, place)
        features = [token.split(b":")[0] for token in line.split()]
        return f"found feature {_repeated(features)} twice, expected each feature once in a row"
    if error == kernels.BAD_LABEL:
        token = _match(rb"[^ \t\n,]*", text, place)
        if re.fullmatch(rb"[+-]?\d+(\.0*)?", token):
            return f"found label {_shorten(token)}, expected {id_range(min_label, max_label)}"
        return f"found label {_shorten(token)}, expected an integer"
    token = _match(rb"[^ \t\n]*", text, place)
    number, colon, value = token.partition(b":")
    if error == kernels.BAD_VALUE:
        return f"found {_shorten(token)}, expected {_number_expected(value)} after the colon"
    if number == b"qid":
        return f"found {_shorten(token)}, expected feature:value; query ids are not supported"
    if not colon:
        return f"found {_shorten(token)} without a colon, expected feature:value"
    if re.fullmatch(rb"-?\d+", number):
        return f"found feature {_shorten(number)}, expected {id_range(min_feature, max_feature)}"
    return f"found {_shorten(token)}, expected an integer before the colon"


def _match(pattern: bytes, text: bytes, place: int) -> bytes:
    found = re.compile(pattern).match(text, place)
    return b"" if found is None else found.group().removesuffix(b"\r")


def _repeated(ids: list[bytes]) -> str:
    """Find the first id that was there before, however it is written."""
    seen = set()
    for text in ids:
        digits = text.split(b".")[0].lstrip(b"+-0") or b"0"
        key = b"-" + digits if text.startswith(b"-") and digits != b"0" else digits
        if key in seen:
            return _shorten(text)
        seen.add(key)
    return "?"


def _number_expected(value: bytes) -> str:
    if value.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity"):
        return "a finite number"
    if re.fullmatch(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value):
        return "a number that fits in float32"
    return "a decimal number"


def id_range(low: int, high: int) -> str:
    return f"an integer from {low} to {high}" if low <= high else "none, as their number is 0"


def _shorten(token: bytes) -> str:
    text = token.strip().decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")
