"""One way in and one way out for every format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from sys import getsizeof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelry.data.canonical import make_csr
from labelry.data.cells import bad, flaw_of_names, shown
from labelry.data.dataset import Dataset
from labelry.data.formats import (
    FEATURE_FORMATS,
    FORMATS,
    SHARDS,
    SUFFIXES,
    check_format,
    format_of_suffix,
    recognise,
)
from labelry.data.labels import indicator
from labelry.data.npz import read_npz, write_npz
from labelry.data.shards import open_shards
from labelry.data.sparse_text import read_sparse_text, read_sparse_text_blocks, write_sparse_text
from labelry.data.streams import open_output
from labelry.data.tables import (
    BLOCK_ROWS,
    TABLE_FORMATS,
    Block,
    read_lines,
    read_table_blocks,
    write_table,
)
from labelry.errors import DataError
from labelry.memory import watch


def read(
    path: str | Path,
    format: str | None = None,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = "|",
    label_names: str | Path | None = None,
    zero_based: bool | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    n_jobs: int | None = None,
) -> Dataset:
    """Read a file of any format, compressed or not, into a dataset; ``-`` is standard input.

    Text formats (jsonl, csv, tsv, parquet, fasttext) give texts, label names and Y; feature
    formats (xc, svmlight, npz) give X and Y, and so does a directory of shards, if it fits in
    memory.

    Parameters
    ----------
    format : str, optional
        One of `FORMATS`, or "shards"; told from the content if not given.
    text_column, label_column, label_separator : str, optional
        For tables, see `read_table_blocks`. The empty `label_column` stands for labels that are
        not needed, in any format; then plain lines of text can be read too.
    label_names : path, optional
        For feature formats: a file with the name of label i on line i.
    zero_based, n_features, n_labels, n_jobs : optional
        For xc and svmlight, see `read_sparse_text`; `n_features` also for npz and shards.

    Raises
    ------
    DataError
        Names the file, the line, what was found and what was expected; also for an option that
        the format of the file has no use for.
    """
    if format is None:
        format = recognise(path, labelled=label_column != "")
    check_format(format, _READABLE)
    given = {
        "text_column": text_column,
        "label_column": label_column,
        "zero_based": zero_based,
        "n_features": n_features,
        "n_labels": n_labels,
        "label_names": label_names,
    }
    names, options = _reading_options(path, format, given)
    if format in TABLE_FORMATS:
        blocks = read_table_blocks(path, format, label_separator=label_separator, **options)
        return _joined(_watched(blocks, path))
    if format == "npz":
        return _named(_widened(read_npz(path), path, **options), names, label_names)
    if format == SHARDS:
        return _widened(open_shards(path).dataset(), path, **options)
    return _named(read_sparse_text(path, n_jobs=n_jobs, **options), names, label_names)


def read_blocks(
    path: str | Path,
    format: str | None = None,
    *,
    block_rows: int = BLOCK_ROWS,
    text_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = "|",
    label_names: str | Path | None = None,
    zero_based: bool | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    n_jobs: int | None = None,
) -> Iterator[Dataset]:
    """Read a file a block of rows at a time, in constant memory; parameters as for `read`.

    In text formats each block has only its own labels as columns of Y, named by its
    `label_names`; so it has in svmlight from standard input. An npz file is read whole, then
    handed out in blocks.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1; got {block_rows}")
    if format is None:
        format = recognise(path, labelled=label_column != "")
    check_format(format, _READABLE)
    given = {
        "text_column": text_column,
        "label_column": label_column,
        "zero_based": zero_based,
        "n_features": n_features,
        "n_labels": n_labels,
        "label_names": label_names,
    }
    names, options = _reading_options(path, format, given)
    if format in TABLE_FORMATS:
        blocks = read_table_blocks(
            path, format, label_separator=label_separator, block_rows=block_rows, **options
        )
        return (_joined([block]) for block in blocks)
    if format == "npz":
        datasets = iter([_widened(read_npz(path), path, **options)])
    elif format == SHARDS:
        datasets = (_widened(part, path, **options) for part in open_shards(path).datasets())
    else:
        datasets = read_sparse_text_blocks(path, n_jobs=n_jobs, **options)
    return (
        _named(block, names, label_names)
        for dataset in datasets
        for block in _cut(dataset, block_rows)
    )


def read_groups(
    path: str | Path,
    column: str,
    format: str | None = None,
    *,
    text_column: str | None = None,
) -> NDArray[np.int32]:
    """The number of the group of each row: rows with the same value of a column, key or cell.

    A row without a value is a group of its own. `text_column` is that of `read`, which knows what
    a row is by its text.

    Raises
    ------
    DataError
        As of `read`; also for a format without columns, and for a row with several values.
    """
    format = format or recognise(path)
    check_format(format, _READABLE)
    _check_options(path, format, {"group_column": column})
    blocks = read_table_blocks(
        path,
        format,
        text_column=text_column,
        label_column=column,
        label_separator=None,
        label_role="group",
    )
    known: dict[str, int] = {}
    groups: list[int] = []
    for values in chain.from_iterable(labels for _, labels in blocks):
        if len(values) > 1:
            found = f"{shown(values)} in row {len(groups) + 1}"
            raise bad(found, "one value of group_column", path, None)
        groups.append(known.setdefault(values[0], len(known)) if values else -1 - len(groups))
    if not known:
        raise bad(f"no row with a value of {column!r}", "groups, as group_column", path, None)
    return np.array(groups, dtype=np.int32)


def write(
    dataset: Dataset,
    path: str | Path,
    format: str | None = None,
    *,
    text_column: str = "text",
    label_column: str = "labels",
    label_separator: str | None = "|",
    label_names: str | Path | None = None,
    force: bool = False,
    n_jobs: int | None = None,
) -> None:
    """Write a dataset to a file, which appears only when it is whole.

    Parameters
    ----------
    path : path
        A last suffix .gz, .xz or .zst compresses.
    format : str, optional
        One of `FORMATS`; by default what the suffix says. Text formats keep the texts and label
        names, feature formats keep X and Y, and what else they can hold.
    text_column, label_column, label_separator : str
        For tables, see `write_table`.
    label_names : path, optional
        For feature formats: also write the name of label i on line i of this file.
    force : bool
        Whether files that are there already may be replaced.

    Raises
    ------
    DataError
        A file is in the way, or the format cannot hold the dataset; then nothing is written.
    """
    format = format or format_of_suffix(path)
    if format is None:
        raise DataError(
            f"the format cannot be told from the suffix {Path(path).suffix!r}; expected one of "
            f"{', '.join(SUFFIXES)}, or the option format: one of {', '.join(FORMATS)}",
            path=path,
        )
    check_format(format)
    _check_options(path, format, {"label_names": label_names})
    _check_holds(dataset, path, format)
    names = None if label_names is None else _names_to_write(dataset, label_names)
    for target in (path, label_names):
        if target is not None and not force and Path(target).is_file():
            message = "the file already exists; expected none, or the option force"
            raise DataError(message, path=target)
    if format in TABLE_FORMATS:
        write_table(
            dataset,
            path,
            format,
            text_column=text_column,
            label_column=label_column,
            label_separator=label_separator,
        )
    elif format == "npz":
        write_npz(dataset, path)
    else:
        if names is not None:  # then the labels in the file are the numbers of the names
            dataset = replace(dataset, label_names=None)
        write_sparse_text(dataset, path, header=format == "xc", n_jobs=n_jobs)
    if label_names is not None and names is not None:
        with open_output(label_names) as stream:
            stream.write(names.encode())


# What goes with which format

_READABLE = (*FORMATS, SHARDS)
_OPTIONS_OF = {
    "text_column": ("jsonl", "csv", "tsv", "parquet"),
    "label_column": ("jsonl", "csv", "tsv", "parquet"),
    "group_column": ("jsonl", "csv", "tsv", "parquet"),
    "label_names": FEATURE_FORMATS,
    "zero_based": ("xc", "svmlight"),
    "n_features": (*FEATURE_FORMATS, SHARDS),
    "n_labels": ("xc", "svmlight"),
}


def _check_options(path: str | Path, format: str, options: Mapping[str, object]) -> None:
    """Refuse an option that would be without effect, but for labels that are not needed."""
    for name, value in options.items():
        if value not in (None, "") and format not in _OPTIONS_OF[name]:
            formats = " or ".join(_OPTIONS_OF[name])
            raise bad(f"the format {format}", f"{formats}, as {name} is given", path, None)


def _reading_options(
    path: str | Path, format: str, given: dict[str, Any]
) -> tuple[list[str] | None, dict[str, Any]]:
    """Label names from their file, and the options for the reader of the format."""
    _check_options(path, format, given)
    options = {name: value for name, value in given.items() if format in _OPTIONS_OF[name]}
    names_path = options.pop("label_names", None)
    names = None if names_path is None else _read_names(names_path, given["n_labels"])
    if format in ("xc", "svmlight"):
        options["header"] = format == "xc"
    if format == "svmlight" and names is not None:
        options["n_labels"] = len(names)  # a label is the number of a name, not a class
    return names, options


def _check_holds(dataset: Dataset, path: str | Path, format: str) -> None:
    """Refuse to write texts where features are expected, and the other way round."""
    if format in TABLE_FORMATS and dataset.texts is None:
        raise DataError(
            f"found features without texts; {format} holds texts. Features can be written as "
            f"{', '.join(FEATURE_FORMATS)}",
            path=path,
        )
    if format in FEATURE_FORMATS and dataset.X is None:
        raise DataError(
            f"found texts without features; {format} holds features. Texts can be written as "
            f"{', '.join(TABLE_FORMATS)}, or made into features with TextFeatures",
            path=path,
        )


# Texts and names to datasets


def _joined(blocks: Iterable[Block]) -> Dataset:
    """Put the rows of all blocks into one dataset."""
    texts: list[str] = []
    labels: list[list[str]] = []
    known: dict[str, str] = {}  # one string for each name, however many rows have it
    for block_texts, block_labels in blocks:
        texts += block_texts
        labels += [[known.setdefault(name, name) for name in names] for names in block_labels]
    Y, label_names = indicator(labels)
    return Dataset(Y=Y, texts=texts, label_names=label_names)


def _watched(blocks: Iterator[Block], path: str | Path) -> Iterator[Block]:
    """The blocks, as long as all together fit in memory."""
    take = watch(f"reading all of {path}", "read it in blocks, or convert it to shards")
    for texts, labels in blocks:
        yield texts, labels
        take(sum(map(getsizeof, texts)) + sum(map(getsizeof, labels)))


def _cut(dataset: Dataset, block_rows: int) -> Iterator[Dataset]:
    for start in range(0, dataset.n_rows, block_rows):
        yield dataset.take(np.arange(start, min(start + block_rows, dataset.n_rows)))


def _widened(dataset: Dataset, path: str | Path, n_features: int | None) -> Dataset:
    """Bring X to a given number of columns, as the readers of sparse text do."""
    X, found = dataset.X, dataset.n_features
    if n_features is None or X is None or found is None or found == n_features:
        return dataset
    if found > n_features or dataset.feature_names is not None:
        raise bad(f"{found} features", f"{n_features}, as n_features", path, None)
    if isinstance(X, np.ndarray):
        return replace(dataset, X=np.pad(X, [(0, 0), (0, n_features - found)]))
    return replace(dataset, X=make_csr(X.data, X.indices, X.indptr, n_features))


def _read_names(path: str | Path, n_labels: int | None) -> list[str]:
    """Read a file with a label name on each line."""
    seen: dict[str, int] = {}
    for number, line in read_lines(path):
        name = line.removesuffix("\n").removesuffix("\r")
        if not name:
            raise bad("an empty line", "the name of a label", path, number)
        if name in seen:
            raise bad(f"{shown(name)} as on line {seen[name]}", "distinct names", path, number)
        seen[name] = number
    if n_labels is not None and len(seen) != n_labels:
        raise bad(f"{len(seen)} names", f"{n_labels}, as n_labels", path, None)
    return list(seen)


def _named(dataset: Dataset, names: list[str] | None, path: str | Path | None) -> Dataset:
    """Name the labels; names without rows become empty columns."""
    if names is None or path is None:
        return dataset
    if len(names) < dataset.n_labels:
        expected = f"at least {dataset.n_labels}, one for each label of the data"
        raise bad(f"{len(names)} names", expected, path, None)
    Y = make_csr(dataset.Y.data, dataset.Y.indices, dataset.Y.indptr, len(names))
    return replace(dataset, Y=Y, label_names=names)


def _names_to_write(dataset: Dataset, path: str | Path) -> str:
    """Give the label names as lines, if lines can hold them."""
    if dataset.label_names is None:
        raise DataError("found labels without names; expected names to write", path=path)
    flaw = flaw_of_names(dataset.label_names)
    for name in dataset.label_names:
        if "\n" in name or "\r" in name or name.startswith("\ufeff"):
            flaw = f"a line break or a byte-order mark in the label {shown(name)}"
    if flaw:
        raise bad(flaw, "distinct, non-empty names of one line", path, None)
    return "".join(name + "\n" for name in dataset.label_names)
