"""The options of every command that reads a dataset, in one place."""

from __future__ import annotations

import functools
import inspect
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from labelry.cli.options import Jobs, stoppable
from labelry.cli.system_flags import as_flags, typed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from labelry.data import Dataset
    from labelry.data.shards import Shards
    from labelry.estimators.base import LabelRanker

PANEL = "Reading the data"
_MOST_DIGITS = 15  # of a size
_BLOCK_ROWS = 2_000  # rows that are labelled at a time; not tuned
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(?:([KMGT])(i?B)?|B)?\s*", re.IGNORECASE)


_SEPARATORS = {"none": None, "tab": "\t", "\\t": "\t"}  # as they are typed


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def as_bytes(text: str) -> int:
    """Return the bytes of a number, or of a text such as "64MB", "512MiB" or "4G" (which is 4GiB).

    >>> as_bytes("4GiB"), as_bytes("1.5 kB"), as_bytes("100")
    (4294967296, 1500, 100)
    """
    found = _SIZE.fullmatch(text)
    if not found or not float(found[1]) or len(found[1]) > _MOST_DIGITS:
        raise typer.BadParameter(
            f"a size is a number such as 512MiB or 4GiB, got {reprlib.repr(text)}"
        )
    base = 1000 if (found[3] or "").upper() == "B" else 1024
    return int(float(found[1]) * base ** ("KMGT".index(found[2].upper()) + 1 if found[2] else 0))


Memory = Annotated[
    int | None,
    Option(
        "--memory",
        metavar="SIZE",
        parser=as_bytes,
        help="Memory that training from shards may use beside program and model, such as 4GiB.",
        show_default="half of what is free",
    ),
]


def _option(*flags: str, **options: Any) -> Any:
    return Option(*flags, rich_help_panel=PANEL, **options)


_FORMAT = {
    "help": "Format of the data: xc, svmlight, npz, jsonl, csv, tsv, parquet, fasttext or shards.",
    "show_default": "recognised from the content",
}


@dataclass(frozen=True)
class Reading:
    """How to read a dataset; each field is an option of the command line."""

    input_format: Annotated[str | None, _option("--input-format", "--format", **_FORMAT)] = None
    text_column: Annotated[
        list[str] | None,
        _option(
            help="Column or key that holds the text; may be repeated, then they are joined.",
            show_default="as in training, or the usual names",
        ),
    ] = None
    label_column: Annotated[
        str | None,
        _option(
            help="Column or key that holds the labels.",
            show_default="as in training, or a usual name",
        ),
    ] = None
    label_separator: Annotated[
        str | None,
        _option(
            help="What stands between the labels of a cell, such as ';'. tab: a tab. json: a cell "
            "is a JSON list. none: a cell is one label.",
            show_default="as in training, or found",
        ),
    ] = None
    label_names: Annotated[
        Path | None,
        _option(help="File with the name of label i on line i, for formats of features."),
    ] = None
    jobs: Jobs = None

    def flags(self) -> list[str]:
        """Return the flags that read a file the same way again, without --jobs."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return [
            word
            for field in fields(self)
            if field.name != "jobs" and given[field.name] != field.default
            for value in _each(given[field.name])
            for word in typed(field.name, value)
        ]

    @property
    def _how(self) -> dict[str, Any]:
        """Return the keyword arguments of a reader."""
        names = ("text_column", "label_column", "label_names")
        found = {name: getattr(self, name) for name in names} | {"n_jobs": self.jobs}
        return found | {"label_separator": self.separator("auto")}

    def separator(self, default: str | None) -> str | None:
        """Return what separates labels, as it is given in Python; the default if it is not said."""
        said = self.label_separator
        return default if said is None else _SEPARATORS.get(said, said)

    @staticmethod
    def _for(model: LabelRanker | None) -> dict[str, Any]:
        """Return arguments for a file that a model labels: it is read as the training file was."""
        if model is None:
            return {}
        width = None if model.text_features_ is not None else model.n_features_in_
        return {"n_features": width, "like": model.about_.source}

    def training_rows(self, path: Path) -> Dataset:
        """Read rows to train on, and the hash of their file, which the model keeps."""
        dataset = self.read(path)
        tell_flaws(dataset)
        if not dataset.Y.nnz:
            raise ValueError(f"{path}: no row has a label; name their column with `label_column`")
        source = dataset.source
        return replace(dataset, source=source and stoppable(source.hashed, path))

    def read(
        self, path: Path, *, model: LabelRanker | None = None, n_features: int | None = None
    ) -> Dataset:
        """Read a dataset, for a model if there is one, showing that it is being read."""
        from labelry.data import read
        from labelry.progress import phase

        with phase(f"reading {path.name}"):
            how = self._how | {"n_features": n_features} | self._for(model)
            return stoppable(read, path, self.input_format, **how)

    def read_groups(self, path: Path, column: str) -> NDArray[np.int32]:
        """Return the number of the group of each row, from a column of a table."""
        from labelry.data.files import read_groups

        return read_groups(path, column, self.input_format, text_column=self.text_column)

    def opened(self, path: Path, *, model: LabelRanker | None = None) -> Dataset | Shards:
        """Return a dataset in memory, or shards that are read as they are needed."""
        from labelry.data.shards import is_shards, open_shards

        return open_shards(path) if is_shards(path) else self.read(path, model=model)

    def write_shards(self, source: Path, directory: Path, size: int, *, force: bool) -> Shards:
        """Read a dataset into a directory of shards, or continue an interrupted conversion."""
        from labelry.data.shard_writer import write_shards

        return write_shards(
            source, directory, self.input_format, shard_bytes=size, force=force, **self._how
        )

    def unlabelled_blocks(
        self, path: Path, model: LabelRanker, keep: Sequence[str] | Literal["all"] = ()
    ) -> Iterator[Dataset]:
        """Read rows that a model is to predict, whose labels are not needed, a block at a time."""
        from labelry.data import read_blocks

        how = self._how | self._for(model) | {"label_column": "", "label_names": None}
        return read_blocks(path, self.input_format, block_rows=_BLOCK_ROWS, keep=keep, **how)


def tell_flaws(dataset: Dataset) -> None:
    """Warn of what is probably wrong with the rows."""
    from labelry.data.flaws import flaws_of

    for flaw in stoppable(flaws_of, dataset) if dataset.Y.nnz else []:
        typer.echo(f"labelry: warning: {as_flags(flaw)}", err=True)


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `reading: Reading` an option for each field of it.

    In a command with a parameter `form`, --format is the format of its output.
    """
    own_format = {"input_format": Annotated[str | None, _option("--input-format", **_FORMAT)]}
    has_format = "form" in inspect.signature(command).parameters
    return with_fields(command, "reading", Reading, own_format if has_format else {})


def with_fields(
    command: Callable[..., None], name: str, cls: Any, hints: Mapping[str, Any]
) -> Callable[..., None]:
    """Give a command that takes a dataclass under a name an option for each field of it.

    `hints` replaces the annotations of some fields.
    """
    own = inspect.signature(command, eval_str=True)
    hints = inspect.get_annotations(cls, eval_str=True) | dict(hints)
    names = [field.name for field in fields(cls)]
    parameters = [p for p in own.parameters.values() if p.name != name]
    parameters += [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(cls)
    ]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        value = cls(**{each: given.pop(each) for each in names})
        command(**given, **{name: value})

    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = own.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper
