"""Texts with labels in Parquet files, read a few rows at a time.

A column that holds one long text very many times is a small file: texts are therefore looked up in
the dictionary that the file has of them, and are one in memory too. A row group that would not
fit in memory is refused by the sizes that the file says it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from labelry import memory
from labelry.data.cells import bad
from labelry.data.streams import seekable_input
from labelry.errors import DataError, MissingExtraError

_ROWS = 4_096  # read or written together


def read_parquet(
    path: str | Path, choose: Callable[[list[str], int | None], Sequence[str]]
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the number of each row, and its values of the columns that are chosen."""
    pyarrow, _ = _pyarrow()
    number = 0
    # Parquet is read from its end.
    with seekable_input(path, "Parquet has its own compression: unpack it first") as stream:
        try:
            for batch in _batches(stream, path, choose):
                columns = [_python_values(column, path, number) for column in batch]
                for values in zip(*columns, strict=True):
                    number += 1
                    yield number, values
        except (pyarrow.ArrowException, OSError, RuntimeError, UnicodeDecodeError) as error:
            message = f"found damaged Parquet data ({error}); expected a whole Parquet file"
            raise DataError(message, path=path) from error


def write_parquet(
    rows: Iterable[tuple[str, list[str]]], stream: IO[bytes], text_column: str, label_column: str
) -> None:
    """Write rows of text and labels."""
    pyarrow, parquet = _pyarrow()
    schema = pyarrow.schema(
        [(text_column, pyarrow.string()), (label_column, pyarrow.list_(pyarrow.string()))]
    )
    rows = iter(rows)
    with parquet.ParquetWriter(stream, schema) as writer:
        while block := list(islice(rows, _ROWS)):
            columns = [list(column) for column in zip(*block, strict=True)]
            writer.write_table(pyarrow.table(columns, schema=schema))


def _batches(
    stream: IO[bytes], path: str | Path, choose: Callable[[list[str], int | None], Sequence[str]]
) -> Iterator[list[Any]]:
    """Yield the wanted columns of a few rows at a time."""
    parquet = _pyarrow()[1]
    file = parquet.ParquetFile(stream)
    header, schema = file.schema_arrow.names, file.schema
    used = list(choose(header, None))  # a column may be there twice: read, and kept
    leaves = [
        (i, schema.column(i).path)
        for i in range(len(schema))
        if any(f"{schema.column(i).path}.".startswith(f"{name}.") for name in used)
    ]
    # Of all columns: to ask a damaged file about one may end the process (pyarrow 26).
    groups = range(file.metadata.num_row_groups)
    sizes = (file.metadata.row_group(g).total_byte_size for g in groups)
    memory.require(
        max(sizes, default=0),
        f"a row group of {path}",
        "write it with smaller row groups, or fewer columns",
    )
    texts = [leaf for i, leaf in leaves if schema.column(i).physical_type == "BYTE_ARRAY"]
    file = parquet.ParquetFile(stream, metadata=file.metadata, read_dictionary=texts)
    for g in groups:  # each has a dictionary of its own
        for batch in file.iter_batches(_ROWS, row_groups=[g], columns=list(dict.fromkeys(used))):
            yield [batch.column(name) for name in used]


def _python_values(column: Any, path: str | Path, rows_before: int) -> list[Any]:
    try:
        return _values(column)
    except ValueError:  # a string that is not UTF-8, or a value beyond Python's range
        for number, scalar in enumerate(column, rows_before + 1):
            try:
                scalar.as_py()
            except ValueError as error:
                raise bad(f"a value of {column.type} ({error})", "UTF-8", path, number) from error
        raise


def _values(column: Any) -> list[Any]:
    """Return the values of a column or of its lists; each dictionary value is made once."""
    types = _pyarrow()[0].types
    if types.is_list(column.type) or types.is_large_list(column.type):
        items = iter(_values(column.flatten()))
        lengths = column.value_lengths().to_pylist()
        return [None if n is None else list(islice(items, n)) for n in lengths]
    if not types.is_dictionary(column.type):
        return column.to_pylist()
    used = column.indices.unique().drop_null()
    value_of = dict(zip(used.to_pylist(), column.dictionary.take(used).to_pylist(), strict=True))
    return [value_of.get(code) for code in column.indices.to_pylist()]  # none for a null


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "formats", "reading or writing Parquet") from error
    return pyarrow, pyarrow.parquet
