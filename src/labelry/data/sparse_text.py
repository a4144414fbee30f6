"""Feature vectors as text: the XC repository's format and svmlight.

Both have a row per line, ``label,label feature:value feature:value``. XC starts with a line
``n d c`` (rows, features, labels) and numbers from 0. svmlight has no such header, allows
comments after ``#``, and numbers features from 1, usually.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.data import parse_kernels as kernels
from labelry.data.canonical import make_csr
from labelry.data.dataset import Dataset
from labelry.data.sparse_chunks import (
    MAX_WIDTH,
    Chunk,
    Layout,
    Part,
    id_range,
    read_chunks,
    read_layout,
)
from labelry.data.streams import is_read_once, open_input, open_output
from labelry.errors import DataError
from labelry.linalg.parallel import balanced_spans, resolve_jobs, stream
from labelry.memory import watch

_CHUNK_BYTES = 1 << 22
_ENTRIES_PER_WRITE = 1 << 18


def read_sparse_text(
    path: str | Path,
    *,
    header: bool | None = None,
    zero_based: bool | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    n_jobs: int | None = None,
) -> Dataset:
    """Read an XC repository or svmlight file, plain or compressed.

    Every line is ``label,label feature:value feature:value``, separated by blanks or tabs; labels
    or features may be missing. Features need not be in order. Values are finite decimal
    numbers, read as float32; zeros that the file has are kept as entries of X.

    With a header, each of the announced lines is a row, an empty one too, and labels are column
    numbers. Without, lines that are empty or only a comment (``# ...``) are skipped, and labels are
    integers, perhaps written ``+1`` or ``3.0``. With exactly one label on every row, and no
    `n_labels`, the file is multiclass: the columns of Y are the distinct labels in increasing
    order, `label_names` has them as text. Otherwise labels are column numbers, so they must not be
    negative. A DataError names the line of the first thing that breaks the format. Memory stays
    below about twice the size of the result.

    Parameters
    ----------
    header
        Whether the first line is ``n d c``. None: if it has several fields but no colon.
    zero_based
        Whether the first feature is 0 or 1. None: 0 with a header; without, 1 unless the
        file has a feature 0.
    n_features, n_labels
        Columns of X and Y, at least those of the header. None: as in the header, or else
        just enough for the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "train.txt"
    ...     _ = path.write_text("2 3 4\\n1,3 0:0.5 2:1\\n 1:2\\n")
    ...     data = read_sparse_text(path)
    >>> data.X.toarray().tolist(), data.Y.toarray().tolist()
    ([[0.5, 0.0, 1.0], [0.0, 2.0, 0.0]], [[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    """
    X, Y, survey = _Stack(), _Stack(), _Survey()
    take = watch(f"reading all of {path}", "read it in blocks, or convert it to shards")
    with open_input(path) as file:
        layout = read_layout(file, path, header, zero_based, n_features, n_labels)
        for chunk in read_chunks(file, layout, _CHUNK_BYTES, n_jobs):
            if not layout.is_complete:
                survey.add(chunk)
            X.add(chunk.X)
            Y.add(chunk.Y)
            take(sum(array.nbytes for part in (chunk.X, chunk.Y) for array in part))
    return _dataset(X.finish(), Y.finish(), survey.columns(layout))


def read_sparse_text_blocks(
    path: str | Path,
    *,
    header: bool | None = None,
    zero_based: bool | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    n_jobs: int | None = None,
    block_bytes: int = _CHUNK_BYTES,
) -> Iterator[Dataset]:
    """Read as `read_sparse_text`, about `block_bytes` of text at a time, in constant memory.

    The blocks, one below the other, are what `read_sparse_text` returns; all have its columns.
    A file without a header is read twice to know them, unless `zero_based`, `n_features` and
    `n_labels` are all given. Standard input and pipes cannot be: then a block has just the columns
    that it needs itself, unless they are given, and features count from 1 unless `zero_based`.
    """
    options = (header, zero_based, n_features, n_labels)
    with open_input(path) as file:
        layout = read_layout(file, path, *options)
        if layout.is_complete:
            yield from _blocks(file, layout, _Survey().columns(layout), block_bytes, n_jobs)
            return
        if is_read_once(path):
            layout = layout._replace(zero_based=bool(zero_based))
            yield from _blocks(file, layout, None, block_bytes, n_jobs)
            return
        survey = _Survey()
        for chunk in read_chunks(file, layout, block_bytes, n_jobs):
            survey.add(chunk)
    with open_input(path) as file:
        read_layout(file, path, *options)  # only to come to the rows
        yield from _blocks(file, layout, survey.columns(layout), block_bytes, n_jobs)


def _blocks(
    file: io.BufferedReader,
    layout: Layout,
    columns: _Columns | None,
    block_bytes: int,
    n_jobs: int | None,
) -> Iterator[Dataset]:
    """Yield blocks of rows that share their columns; None: each block has its own."""
    for chunk in read_chunks(file, layout, block_bytes, n_jobs):
        if chunk.n_rows:
            survey = _Survey()
            if columns is None:
                survey.add(chunk)
            yield _dataset(chunk.X, chunk.Y, columns or survey.columns(layout))


def write_sparse_text(
    dataset: Dataset, path: str | Path, *, header: bool = True, n_jobs: int | None = None
) -> None:
    """Write X and Y as XC repository text, or without `header` as svmlight.

    Values are written with the fewest digits that read back as the same float32. The suffix of
    `path` may ask for compression. svmlight has features numbered from 1 and, if all
    `label_names` are integers, those as labels; otherwise labels are column numbers.
    Feature names, other label names and, in svmlight, empty columns at the end are not kept.

    A DataError says if the dataset has no X, values that are not finite, labels with other weights
    than 1, or rows without labels and features, which svmlight cannot express.
    """
    X, Y = _writable(dataset, header, path)
    labels = _label_numbers(dataset, header)
    x = (X.indptr.astype(np.int64), X.indices.astype(np.int32, copy=False), X.data)
    y = (Y.indptr.astype(np.int64), Y.indices.astype(np.int32, copy=False))
    work = x[0] + y[0]
    spans = balanced_spans(work, 1 + (int(work[-1]) + 2 * dataset.n_rows) // _ENTRIES_PER_WRITE)
    tasks = ((labels, 0 if header else 1, x, y, *span) for span in spans)
    with open_output(path) as out:
        if header:
            out.write(b"%d %d %d\n" % (*X.shape, Y.shape[1]))
        for text in stream(_format, tasks, resolve_jobs(n_jobs)):
            out.write(text)


def _writable(dataset: Dataset, header: bool, path: str | Path) -> tuple[csr_array, csr_array]:
    if dataset.X is None:
        raise DataError("cannot be written: the dataset has texts, but no features", path=path)
    X, Y = csr_array(dataset.X), dataset.Y  # X may be dense
    if not np.isfinite(X.data).all():
        raise DataError("cannot be written: X has values that are not finite", path=path)
    if not (Y.data == 1).all():
        raise DataError("cannot be written: Y has values other than 1", path=path)
    empty = np.flatnonzero((np.diff(X.indptr) == 0) & (np.diff(Y.indptr) == 0))
    if not header and empty.size:
        flaw = f"row {empty[0]} has neither labels nor features, which svmlight cannot express"
        raise DataError(f"cannot be written: {flaw}; write it with a header", path=path)
    return X, Y


def _label_numbers(dataset: Dataset, header: bool) -> NDArray[np.int32]:
    """Choose what to write for each column of Y."""
    columns = np.arange(dataset.n_labels, dtype=np.int32)
    names = dataset.label_names
    if header or not names or not all(re.fullmatch(r"0|-?[1-9]\d{0,8}", name) for name in names):
        return columns
    numbers = np.array([int(name) for name in names], np.int32)
    # Negative labels can be read only where each row has exactly one label.
    if numbers.min() < 0 and (np.diff(dataset.Y.indptr) != 1).any():
        return columns
    return numbers


def _format(
    labels: NDArray[np.int32], first_feature: int, X: Any, Y: Any, begin: int, stop: int
) -> memoryview:
    n_features, n_labels = (int(part[0][stop] - part[0][begin]) for part in (X, Y))
    out = np.empty(28 * n_features + 12 * n_labels + 2 * (stop - begin), np.uint8)
    size = kernels.format_rows(out, labels, first_feature, X, Y, begin, stop)
    return out[:size].data


class _Columns(NamedTuple):
    """What the numbers in the file stand for."""

    n_features: int
    n_labels: int
    first_feature: int
    classes: NDArray[np.int32] | None = None  # multiclass: the label of each column


class _Survey:
    """What has to be known of all rows before the columns of a file without header are."""

    def __init__(self) -> None:
        self.least_feature = MAX_WIDTH
        self.top_feature = self.top_label = -1
        self.top_line = self.minus_line = 0  # 0: none
        self.is_multiclass = True
        self.classes = np.empty(0, np.int32)

    def add(self, chunk: Chunk) -> None:
        if chunk.X.indices.size:
            self.least_feature = min(self.least_feature, int(chunk.X.indices.min()))
            top = int(chunk.X.indices.max())
            if top > self.top_feature:
                self.top_feature, self.top_line = top, chunk.first_line + chunk.top_line
        if chunk.Y.indices.size:
            self.top_label = max(self.top_label, int(chunk.Y.indices.max()))
        if not self.minus_line and chunk.minus_line >= 0:
            self.minus_line = chunk.first_line + chunk.minus_line
        self.is_multiclass = self.is_multiclass and bool(np.all(np.diff(chunk.Y.indptr) == 1))
        if self.is_multiclass:
            self.classes = np.union1d(self.classes, chunk.Y.indices)

    def columns(self, layout: Layout) -> _Columns:
        zero_based = self.least_feature == 0 if layout.zero_based is None else layout.zero_based
        first = 0 if zero_based else 1
        multiclass = layout.n_labels is None and self.is_multiclass
        errors = []
        if self.top_feature - first >= layout.feature_width:
            expected = id_range(first, layout.feature_width - 1 + first)
            errors.append((self.top_line, f"feature {self.top_feature}, expected {expected}"))
        if self.minus_line and not multiclass:
            expected = "column numbers from 0, as not every row has exactly one label"
            errors.append((self.minus_line, f"a negative label, expected {expected}"))
        if errors:
            line, message = min(errors)
            raise DataError("found " + message, path=layout.path, line=line)
        n_features, n_labels = layout.n_features, layout.n_labels
        if n_features is None:
            n_features = max(0, self.top_feature + 1 - first)
        if n_labels is None:
            n_labels = len(self.classes) if multiclass else self.top_label + 1
        return _Columns(n_features, n_labels, first, self.classes if multiclass else None)


class _Growing:
    """An array that is appended to.

    The system can grow and shrink large memory where it is, so that, unlike with a list of
    parts to be joined, the old and the new array need not exist at the same time.
    """

    def __init__(self, dtype: Any) -> None:
        self._array = np.empty(0, dtype)
        self.size = 0

    def extend(self, values: NDArray[Any]) -> None:
        end = self.size + len(values)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) * 5 // 4), refcheck=False)
        self._array[self.size : end] = values
        self.size = end

    def finish(self) -> NDArray[Any]:
        self._array.resize(self.size, refcheck=False)
        return self._array


class _Stack:
    """Rows that are put below each other."""

    def __init__(self) -> None:
        self._arrays = [_Growing(dtype) for dtype in (np.int64, np.int32, np.float32)]
        self._arrays[0].extend(np.zeros(1, np.int64))

    def add(self, part: Part) -> None:
        indptr, indices, data = self._arrays
        indptr.extend(part.indptr[1:] + data.size)
        indices.extend(part.indices)
        data.extend(part.data)

    def finish(self) -> Part:
        return Part(*(array.finish() for array in self._arrays))


def _dataset(X: Part, Y: Part, columns: _Columns) -> Dataset:
    features, labels, names = X.indices, Y.indices, None
    features -= columns.first_feature
    if columns.classes is not None:
        labels = np.searchsorted(columns.classes, labels).astype(np.int32)
        names = [str(value) for value in columns.classes.tolist()]
    return Dataset(
        make_csr(Y.data, labels, Y.indptr, columns.n_labels),
        make_csr(X.data, features, X.indptr, columns.n_features),
        label_names=names,
    )
