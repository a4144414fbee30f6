"""labelry explain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelry.cli import options
from labelry.cli.model_commands import Model, label_of, load_model, width
from labelry.cli.options import print_json, stoppable
from labelry.cli.reading import Reading, reads_data

if TYPE_CHECKING:
    from labelry.systems.explanation import Explanation
    from labelry.systems.tagger import Tagger


@reads_data
def explain(
    model: Model,
    what: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE", help="A text, or a file of rows of which one is taken."
        ),
    ],
    label: Annotated[
        str | None, typer.Option("--label", help="Label to explain.", show_default="the k best")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Best labels to explain.", min=1)] = 3,
    n: Annotated[int, typer.Option("-n", help="Words for and against to show.", min=1)] = 10,
    row: Annotated[int, typer.Option("--row", help="Row of FILE, from 0.", min=0)] = 0,
    json: options.Json = False,
    *,
    reading: Reading,
) -> None:
    """Show which words of a text speak for its best labels, and which against.

    Example: labelry explain tagger.labelry "acute pain in left knee" -k 1
    """
    from labelry.systems.tagger import Tagger

    tagger = load_model(model, reading.jobs)
    if not isinstance(tagger, Tagger):
        raise ValueError(f"{model} holds a {tagger.system} model; only a tagger can explain itself")
    x = _row(tagger, what, row, reading)
    if label is None:
        labels = [found for found, _ in stoppable(tagger.predict, x, k=k)[0]]
    else:
        labels = [label_of(tagger, label)]
    one = x[0] if tagger.text_features_ is not None else x
    explanations = [stoppable(tagger.explain, one, each, n) for each in labels]
    if json:
        print_json({"explanations": [found._asdict() for found in explanations]})
        return
    for found in explanations:
        _print(found)


def _row(tagger: Tagger, what: str, row: int, reading: Reading) -> Any:
    """The text, or one row of the file, in the form of many."""
    from labelry.estimator import rows_of

    path = Path(what)
    if len(what) > 255 or not path.is_file():
        if tagger.text_features_ is None:
            raise ValueError(f"the model was trained on feature vectors: give a file, got {what!r}")
        return [what]
    before = 0
    for block in reading.unlabelled_blocks(path, n_features=width(tagger)):
        if row < before + block.n_rows:
            return rows_of(block)[row - before : row - before + 1]
        before += block.n_rows
    raise ValueError(f"{path} has {before} rows: --row must be below that, got {row}")


def _print(found: Explanation) -> None:
    from rich.console import Console
    from rich.table import Table

    sure = "not a candidate" if found.probability is None else f"{found.probability:.3f}"
    table = Table("for", "", "against", "", title=f"{found.label}: {sure}", title_justify="left")
    for i in range(max(len(found.supporting), len(found.opposing))):
        cells = []
        for side in (found.supporting, found.opposing):
            cells += [str(side[i][0]), f"{side[i][1]:+.3f}"] if i < len(side) else ["", ""]
        table.add_row(*cells)
    console = Console()
    console.print(table)
    console.print(
        f"other words {found.rest:+.3f}, bias {found.bias:+.3f}: margin {found.margin:+.3f}"
    )
    if found.judges:
        said = ", ".join(f"{judge} {score:.3f}" for judge, score in found.judges.items())
        console.print(f"judges: {said}")
