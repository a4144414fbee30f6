"""One way in and one way out for every format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from sys import getsizeof
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.checks import check_one_of
from labelry.data.canonical import make_csr
from labelry.data.cells import bad, flaw_of_names, shown
from labelry.data.dataset import Dataset
from labelry.data.formats import (
    FEATURE_FORMATS,
    FORMATS,
    SHARDS,
    SUFFIXES,
    format_of_suffix,
    recognise,
)
from labelry.data.labels import indicator
from labelry.data.npz import read_npz, write_npz
from labelry.data.separators import AUTO
from labelry.data.shards import open_shards
from labelry.data.sparse_text import read_sparse_text, read_sparse_text_blocks, write_sparse_text
from labelry.data.streams import open_output
from labelry.data.table_writer import write_table
from labelry.data.tables import BLOCK_ROWS, TABLE_FORMATS, Texts, read_lines, read_table_blocks
from labelry.errors import DataError
from labelry.memory import watch
from labelry.storage.about import Source


def read(
    path: str | Path,
    format: str | None = None,
    *,
    text_column: str | Sequence[str] | None = None,
    label_column: str | None = None,
    label_separator: str | None = AUTO,
    label_names: str | Path | None = None,
    like: Source | None = None,
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
    format
        One of `FORMATS`, or "shards"; told from the content if not given.
    text_column, label_column, label_separator
        For tables, see `read_table_blocks`. The empty `label_column` stands for labels that are
        not needed, in any format; then plain lines of text can be read too.
    label_names
        For feature formats: a file with the name of label i on line i.
    like
        For tables: how another file was read, such as ``model.about_.source``. This one is read in
        the same way, where it has the same columns and nothing else is said.
    zero_based, n_features, n_labels, n_jobs
        For xc and svmlight, see `read_sparse_text`; `n_features` also for npz and shards.

    A DataError names the file, the line, what was found and what was expected; an option that the
    format has no use for is one too.
    """
    source = _source(locals())
    if source.format in TABLE_FORMATS:
        return _joined(_watched(read_table_blocks(path, source.format, **source.options), path))
    if source.format == "npz":
        return source.finished(read_npz(path))
    if source.format == SHARDS:
        return source.finished(open_shards(path).dataset())
    return source.finished(read_sparse_text(path, **source.options))


def read_blocks(
    path: str | Path,
    format: str | None = None,
    *,
    block_rows: int = BLOCK_ROWS,
    text_column: str | Sequence[str] | None = None,
    label_column: str | None = None,
    label_separator: str | None = AUTO,
    label_names: str | Path | None = None,
    like: Source | None = None,
    keep: Sequence[str] | Literal["all"] = (),
    zero_based: bool | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    n_jobs: int | None = None,
) -> Iterator[Dataset]:
    """Read a file a block of rows at a time, in constant memory; parameters as for `read`.

    `keep` names the columns of a table whose cells are kept as `Dataset.cells`, or is "all".

    In text formats each block has only its own labels as columns of Y, named by its
    `label_names`; so it has in svmlight from standard input or a pipe. An npz file is read whole,
    then handed out in blocks.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1; got {block_rows}")
    source = _source(locals())
    if source.format in TABLE_FORMATS:
        blocks = read_table_blocks(path, source.format, block_rows=block_rows, **source.options)
        return (_joined([block]) for block in blocks)
    if source.format == "npz":
        datasets = iter([read_npz(path)])
    elif source.format == SHARDS:
        datasets = open_shards(path).datasets()
    else:
        datasets = read_sparse_text_blocks(path, **source.options)
    return (
        whole.take(np.arange(start, min(start + block_rows, whole.n_rows)))
        for whole in map(source.finished, datasets)
        for start in range(0, whole.n_rows, block_rows)
    )


def read_groups(
    path: str | Path,
    column: str,
    format: str | None = None,
    *,
    text_column: str | Sequence[str] | None = None,
) -> NDArray[np.int32]:
    """The number of the group of each row: rows with the same value of a column, key or cell.

    A row without a value is a group of its own. `text_column` is that of `read`, which knows what
    a row is by its text. Errors are those of `read`; a row with several values is one too.
    """
    format = format or recognise(path)
    _check_useful(path, format, {"group_column": column})
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
    for values in chain.from_iterable(block.labels for block in blocks):
        if len(values) > 1:
            found = f"{shown(values)} in row {len(groups) + 1}"
            raise bad(found, "one value of `group_column`", path)
        groups.append(known.setdefault(values[0], len(known)) if values else -1 - len(groups))
    if not known:
        raise bad(f"no row with a value of {column!r}", "groups, as `group_column`", path)
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
    path
        A last suffix .gz, .xz or .zst compresses.
    format
        One of `FORMATS`; by default what the suffix says. Text formats keep the texts and label
        names, feature formats keep X and Y, and what else they can hold.
    label_names
        For feature formats: also write the name of label i on line i of this file.
    force
        Replace files that are there already; otherwise they are a DataError.
    """
    format = format or format_of_suffix(path)
    if format is None:
        raise DataError(
            f"the format cannot be told from the suffix {Path(path).suffix!r}; expected one of "
            f"{', '.join(SUFFIXES)}, or the option format: one of {', '.join(FORMATS)}",
            path=path,
        )
    check_one_of("format", format, FORMATS)
    _check_useful(path, format, {"label_names": label_names})
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
_WITH_COLUMNS = ("jsonl", "csv", "tsv", "parquet")
_SPARSE_TEXT = ("xc", "svmlight")
_USEFUL_FOR = {  # the formats that have a use for an option; others refuse it
    "text_column": _WITH_COLUMNS,
    "label_column": _WITH_COLUMNS,
    "group_column": _WITH_COLUMNS,
    "label_names": FEATURE_FORMATS,
    "zero_based": _SPARSE_TEXT,
    "n_features": (*FEATURE_FORMATS, SHARDS),
    "n_labels": _SPARSE_TEXT,
}
_TABLE_OPTIONS = ("text_column", "label_column", "label_separator", "like", "keep")
_SPARSE_OPTIONS = ("zero_based", "n_features", "n_labels", "n_jobs")


class _Source(NamedTuple):
    """A file, the options of the reader of its format, and what the dataset is to have."""

    path: str | Path
    format: str
    options: dict[str, Any]
    n_features: int | None
    label_names: list[str] | None
    names_path: str | Path | None

    def finished(self, dataset: Dataset) -> Dataset:
        """Return the dataset with the number of features and the labels that were asked for."""
        X, found, wanted = dataset.X, dataset.n_features, self.n_features
        if X is not None and found is not None and wanted is not None and found != wanted:
            if found > wanted or dataset.feature_names is not None:
                raise bad(f"{found} features", f"{wanted}, as n_features", self.path)
            if isinstance(X, np.ndarray):
                X = np.pad(X, [(0, 0), (0, wanted - found)])
            else:
                X = make_csr(X.data, X.indices, X.indptr, wanted)
            dataset = replace(dataset, X=X)
        if dataset.source is None:  # shards know what they were made from
            dataset = replace(dataset, source=Source(Path(self.path).name, format=self.format))
        names = self.label_names
        if names is None:
            return dataset
        if len(names) < dataset.n_labels:
            expected = f"at least {dataset.n_labels}, one for each label of the data"
            raise bad(f"{len(names)} names", expected, self.names_path)
        Y = make_csr(dataset.Y.data, dataset.Y.indices, dataset.Y.indptr, len(names))
        return replace(dataset, Y=Y, label_names=names)


def _source(given: dict[str, Any]) -> _Source:
    """Check the arguments of `read` and `read_blocks`, and find the format."""
    path, format = given["path"], given["format"]
    if format is None:
        format = recognise(path, labelled=given["label_column"] != "")
    _check_useful(path, format, given)
    names, names_path = None, given["label_names"]
    if names_path is not None:
        names = _read_names(names_path, given["n_labels"])
    if format not in _SPARSE_TEXT:
        options = {name: given[name] for name in _TABLE_OPTIONS if name in given}
    else:
        options = {name: given[name] for name in _SPARSE_OPTIONS} | {"header": format == "xc"}
        if format == "svmlight" and names is not None:
            options["n_labels"] = len(names)  # a label is the number of a name, not a class
    return _Source(path, format, options, given["n_features"], names, names_path)


def _check_useful(path: str | Path, format: str, given: Mapping[str, object]) -> None:
    """Refuse an option that would be without effect, but for labels that are not needed."""
    check_one_of("format", format, _READABLE)
    for name, formats in _USEFUL_FOR.items():
        if given.get(name) not in (None, "") and format not in formats:
            raise bad(f"the format {format}", f"{' or '.join(formats)}, as {name} is given", path)


def _check_holds(dataset: Dataset, path: str | Path, format: str) -> None:
    """Refuse to write texts where features are expected, and the other way round."""
    if format in TABLE_FORMATS and dataset.texts is None:
        message = f"found features without texts; {format} holds texts. Features can be written as "
        raise DataError(message + ", ".join(FEATURE_FORMATS), path=path)
    if format in FEATURE_FORMATS and dataset.X is None:
        message = f"found texts without features; {format} holds features. Texts can be written as "
        tables = f"{', '.join(TABLE_FORMATS)}, or made into features with TextFeatures"
        raise DataError(message + tables, path=path)


# Texts and names to datasets


def _joined(blocks: Iterable[Texts]) -> Dataset:
    """Put the rows of all blocks into one dataset."""
    texts: list[str] = []
    labels: list[list[str]] = []
    known: dict[str, str] = {}  # one string for each name, however many rows have it
    for block in blocks:
        texts += block.texts
        labels += [[known.setdefault(name, name) for name in names] for names in block.labels]
    Y, label_names = indicator(labels)
    cells = block.cells or None  # of the only block, where some are kept
    return Dataset(Y=Y, texts=texts, label_names=label_names, source=block.source, cells=cells)


def _watched(blocks: Iterator[Texts], path: str | Path) -> Iterator[Texts]:
    """Yield the blocks; stop with a MemoryBudgetError if together they do not fit in memory."""
    take = watch(f"reading all of {path}", "read it in blocks, or convert it to shards")
    for block in blocks:
        yield block
        take(sum(map(getsizeof, block.texts)) + sum(map(getsizeof, block.labels)))


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
        raise bad(f"{len(seen)} names", f"{n_labels}, as n_labels", path)
    return list(seen)


def _names_to_write(dataset: Dataset, path: str | Path) -> str:
    """Give the label names as lines, if lines can hold them."""
    if dataset.label_names is None:
        raise DataError("found labels without names; expected names to write", path=path)
    flaw = flaw_of_names(dataset.label_names)
    for name in dataset.label_names:
        if "\n" in name or "\r" in name or name.startswith("\ufeff"):
            flaw = f"a line break or a byte-order mark in the label {shown(name)}"
    if flaw:
        raise bad(flaw, "distinct, non-empty names of one line", path)
    return "".join(name + "\n" for name in dataset.label_names)
