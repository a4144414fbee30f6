"""labelry report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labelry.cli import options
from labelry.cli.model_commands import Model, load_model, output, width
from labelry.cli.options import progress_shown, stoppable
from labelry.cli.reading import Reading, reads_data


@reads_data
def report(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Labelled rows, any format.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")],
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="Names or descriptions of labels, as of labelry train.",
            show_default="those that the model was told",
        ),
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Write a report on a model as one HTML file that can be mailed.

    Accuracy with confidence intervals, calibration, confused labels, examples, a map of the labels.

    Example: labelry report tagger.labelry test.jsonl.gz --out report.html
    """
    from labelry import modelfile
    from labelry.data.names import read_names
    from labelry.report.page import report_page

    with output(out, force) as target, progress_shown(quiet):
        found = modelfile.inspect(model)
        ranker = load_model(model, reading.jobs)
        page = stoppable(
            report_page,
            ranker,
            reading.read(data, n_features=width(ranker)),
            model_name=model.resolve().name,
            data_name=data.name,
            titles=None if names is None else read_names(names),
            training=found.get("training"),
            size_bytes=found["size_bytes"],
            seed=seed,
        )
        target.write(page)
    if not quiet:
        typer.echo(f"the report is in {out}; open it in a browser", err=True)
