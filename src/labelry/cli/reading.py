"""The options of every command that reads a dataset, in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelry.cli.options import Jobs

if TYPE_CHECKING:
    from labelry.data import Dataset

_PANEL = "Reading the data"


@dataclass(frozen=True)
class Reading:
    """How to read a dataset; each field is an option of the command line."""

    format: Annotated[
        str | None,
        typer.Option(
            help="xc, svmlight, npz, jsonl, csv, tsv, parquet or fasttext.",
            show_default="recognised from the content",
            rich_help_panel=_PANEL,
        ),
    ] = None
    text_column: Annotated[
        str | None,
        typer.Option(help="Column or key that holds the text.", rich_help_panel=_PANEL),
    ] = None
    label_column: Annotated[
        str | None,
        typer.Option(help="Column or key that holds the labels.", rich_help_panel=_PANEL),
    ] = None
    label_separator: Annotated[
        str, typer.Option(help="Between labels in a CSV or TSV cell.", rich_help_panel=_PANEL)
    ] = "|"
    label_names: Annotated[
        Path | None,
        typer.Option(
            help="File with the name of label i on line i, for feature formats.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    jobs: Jobs = None

    def read(self, path: Path, *, n_features: int | None = None) -> Dataset:
        """Read a dataset, showing that it is being read."""
        from labelry.data import read
        from labelry.progress import phase

        with phase(f"reading {path.name}"):
            return read(
                path,
                self.format,
                text_column=self.text_column,
                label_column=self.label_column,
                label_separator=self.label_separator,
                label_names=self.label_names,
                n_features=n_features,
                n_jobs=self.jobs,
            )

    def unlabelled_blocks(self, path: Path, *, n_features: int | None) -> Iterator[Dataset]:
        """Read rows whose labels are not needed, a block at a time."""
        from labelry.data import read_blocks

        return read_blocks(
            path,
            self.format,
            text_column=self.text_column,
            label_column="",
            n_features=n_features,
            n_jobs=self.jobs,
        )


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator for a command that takes `reading: Reading`: it gets an option for each field."""
    own = inspect.signature(command, eval_str=True)
    hints = inspect.get_annotations(Reading, eval_str=True)
    parameters = [p for p in own.parameters.values() if p.name != "reading"]
    for field in fields(Reading):
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
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
