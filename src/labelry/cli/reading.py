"""The options of every command that reads a dataset, in one place."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelry.cli.options import Jobs, stoppable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from labelry.data import Dataset
    from labelry.data.shards import Shards

PANEL = "Reading the data"
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(?:([KMGT])(i?B)?|B)?\s*", re.IGNORECASE)


def as_bytes(text: str) -> int:
    """Bytes of a number, or of a text such as "64MB", "512MiB" or "4G" (which is 4GiB).

    >>> as_bytes("4GiB"), as_bytes("1.5 kB"), as_bytes("100")
    (4294967296, 1500, 100)
    """
    found = _SIZE.fullmatch(text)
    if not found or not float(found[1]):
        raise typer.BadParameter(f"a size is a number such as 512MiB or 4GiB, got {text!r}")
    base = 1000 if (found[3] or "").upper() == "B" else 1024
    return int(float(found[1]) * base ** ("KMGT".index(found[2].upper()) + 1 if found[2] else 0))


Memory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=as_bytes,
        help="Bound on memory for training from shards, beyond the program and the model: 4GiB.",
        show_default="half of what is free",
    ),
]


@dataclass(frozen=True)
class Reading:
    """How to read a dataset; each field is an option of the command line."""

    input_format: Annotated[
        str | None,
        typer.Option(
            "--input-format",
            "--format",
            help="xc, svmlight, npz, jsonl, csv, tsv, parquet, fasttext or shards.",
            show_default="recognised from the content",
            rich_help_panel=PANEL,
        ),
    ] = None
    text_column: Annotated[
        str | None,
        typer.Option(help="Column or key that holds the text.", rich_help_panel=PANEL),
    ] = None
    label_column: Annotated[
        str | None,
        typer.Option(help="Column or key that holds the labels.", rich_help_panel=PANEL),
    ] = None
    label_separator: Annotated[
        str, typer.Option(help="Between labels in a CSV or TSV cell.", rich_help_panel=PANEL)
    ] = "|"
    label_names: Annotated[
        Path | None,
        typer.Option(
            help="File with the name of label i on line i, for feature formats.",
            rich_help_panel=PANEL,
        ),
    ] = None
    jobs: Jobs = None

    def flags(self) -> list[str]:
        """What to type to read the same way again; how many threads do it is left out."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return [
            part
            for field in fields(self)
            if field.name != "jobs" and given[field.name] != field.default
            for part in ("--" + field.name.replace("_", "-"), str(given[field.name]))
        ]

    def read(self, path: Path, *, n_features: int | None = None) -> Dataset:
        """Read a dataset, showing that it is being read."""
        from labelry.data import read
        from labelry.progress import phase

        with phase(f"reading {path.name}"):
            return stoppable(
                read,
                path,
                self.input_format,
                text_column=self.text_column,
                label_column=self.label_column,
                label_separator=self.label_separator,
                label_names=self.label_names,
                n_features=n_features,
                n_jobs=self.jobs,
            )

    def read_groups(self, path: Path, column: str) -> NDArray[np.int32]:
        """The number of the group of each row, by a column of a table."""
        from labelry.data.files import read_groups

        return read_groups(path, column, self.input_format, text_column=self.text_column)

    def opened(self, path: Path, *, n_features: int | None = None) -> Dataset | Shards:
        """A dataset that is read, or shards that are read as they are needed."""
        from labelry.data.shards import is_shards, open_shards

        return open_shards(path) if is_shards(path) else self.read(path, n_features=n_features)

    def write_shards(self, source: Path, directory: Path, size: int, *, force: bool) -> Shards:
        """Read a dataset into a directory of shards, or go on with it."""
        from labelry.data.shard_writer import write_shards

        return write_shards(
            source,
            directory,
            self.input_format,
            shard_bytes=size,
            force=force,
            text_column=self.text_column,
            label_column=self.label_column,
            label_separator=self.label_separator,
            label_names=self.label_names,
            n_jobs=self.jobs,
        )

    def unlabelled_blocks(
        self, path: Path, *, n_features: int | None, block_rows: int = 2_000
    ) -> Iterator[Dataset]:
        """Read rows whose labels are not needed, a block at a time."""
        from labelry.data import read_blocks

        return read_blocks(
            path,
            self.input_format,
            text_column=self.text_column,
            label_column="",
            block_rows=block_rows,
            n_features=n_features,
            n_jobs=self.jobs,
        )


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator for a command that takes `reading: Reading`: it gets an option for each field.

    A flag that the command has itself is not taken: --format may be that of the output.
    """
    own = inspect.signature(command, eval_str=True)
    hints = inspect.get_annotations(Reading, eval_str=True)
    parameters = [p for p in own.parameters.values() if p.name != "reading"]
    taken = {flag for p in parameters for flag in _flags(p.annotation)}
    for field in fields(Reading):
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=_without(hints[field.name], taken),
            )
        )

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        reading = Reading(**{field.name: given.pop(field.name) for field in fields(Reading)})
        command(**given, reading=reading)

    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = own.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _flags(annotation: Any) -> list[str]:
    """The flags that an annotation of a parameter spells out."""
    flags: list[str] = []
    for option in getattr(annotation, "__metadata__", ()):
        # typer takes the first of them for a default, and sets that right later.
        first = [option.default] if isinstance(option.default, str) else []
        flags += [*first, *(option.param_decls or ())]
    return flags


def _without(annotation: Any, taken: set[str]) -> Any:
    """The annotation of a field, its option without flags that are taken."""
    if taken.isdisjoint(_flags(annotation)):
        return annotation
    option = copy.copy(annotation.__metadata__[0])
    option.default, *option.param_decls = (f for f in _flags(annotation) if f not in taken)
    return Annotated[annotation.__origin__, option]
