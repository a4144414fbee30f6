"""labelry train, embed, evaluate, inspect."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from labelry.cli import options
from labelry.cli.options import (
    kept_if_interrupted,
    print_json,
    progress_shown,
    stoppable,
    warnings_told,
)
from labelry.cli.reading import PANEL, Memory, Reading, reads_data
from labelry.cli.system_flags import TAGGER, check_applies, given_parameters

if TYPE_CHECKING:
    from labelry.data import Dataset
    from labelry.data.shards import Shards
    from labelry.estimator import LabelRanker
    from labelry.linalg.rows import Rows

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model directory.")]


@reads_data
def train(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training data, any format.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model directory to write.")],
    system: Annotated[
        str,
        typer.Option(
            "--system", help="What to train; see the parameters below.", show_default="the tagger"
        ),
    ] = TAGGER,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="Names or descriptions of labels, for the tagger: a line 'label<TAB>name' each, "
            "or .csv or .jsonl with label and name. Labels without rows are then predicted too.",
        ),
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            "--group-column",
            help="Column or key that rows belong together by (a site, an author), for the tagger: "
            "its probabilities are then right for rows of other groups.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    memory: Memory = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Train from shards on the Dask cluster of this scheduler: tcp://host:8786.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a training from shards that was interrupted."),
    ] = False,
    seed: options.Seed = 0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Train a model and write it to a directory.

    Without --system it is the tagger, which needs no tuning; --quality says what to spend time on.

    Example: labelry train train.jsonl.gz --out tagger.labelry --quality best --budget 10m
    """
    from labelry import modelfile
    from labelry.data import Dataset
    from labelry.data.names import read_names
    from labelry.memory import human, peak
    from labelry.progress import phase, recorded

    estimator = _estimator(context, system, seed, reading.jobs)
    modelfile.check_writable(out, force=force)  # before an hour of training, not after
    _check_for_tagger(system, {"--names": names, "--group-column": group_column})
    further: dict[str, Any] = {} if names is None else {"names": read_names(names)}
    passes = Passes(memory, scheduler, resume)
    with progress_shown(quiet), warnings_told(), recorded(), ExitStack() as until_saved:
        dataset = _training_data(reading, data, names, group_column, passes, estimator)
        if group_column is not None:
            further["groups"] = reading.read_groups(data, group_column)
        start = time.perf_counter()
        if isinstance(dataset, Dataset):
            model = stoppable(estimator.fit_dataset, dataset, **further)
        else:
            model = _fit_shards(estimator, dataset, data, out, passes, until_saved)
        seconds = time.perf_counter() - start
        with phase(f"saving {out.name}"):
            model.set_params(n_jobs=None)  # of this run, not of the model
            model.save(out, force=force)
    size = modelfile.inspect(out)["size_bytes"]
    if json:
        print_json(
            {
                "system": system,
                "rows": dataset.n_rows,
                "labels": dataset.n_labels,
                "seconds": round(seconds, 3),
                "bytes": size,
                "peak_bytes": peak(),
                "out": str(out),
            }
        )
    elif not quiet:
        typer.echo(
            f"trained {system} on {dataset.n_rows:,} rows and {dataset.n_labels:,} labels in "
            f"{seconds:.1f} s with at most {human(peak())} of memory; "
            f"{size / 1e6:,.1f} MB in {out}",
            err=True,
        )


class Passes(NamedTuple):
    """The options of training from shards."""

    memory: int | None
    scheduler: str | None
    resume: bool

    def check_unused(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if getattr(self, name):
                raise typer.BadParameter(f"--{name} is for {why}")


def _training_data(
    reading: Reading,
    data: Path,
    names: Path | None,
    group_column: str | None,
    passes: Passes,
    estimator: LabelRanker,
) -> Dataset | Shards:
    """A dataset in memory; or shards as they are, for which alone some options are."""
    from labelry.cluster.locations import is_url, open_location
    from labelry.data.shards import is_shards

    if not is_shards(data) and not is_url(data):
        why = "training from shards: make them with labelry convert --sharded"
        passes.check_unused(Passes._fields, why)
        if group_column is not None and not data.is_file():
            raise typer.BadParameter("--group-column needs a file: it is read twice")
        return reading.read(data)
    if names is not None:
        raise typer.BadParameter("--names needs texts; shards have them no longer")
    if group_column is not None:
        raise typer.BadParameter("--group-column needs a table; shards have its columns no longer")
    if not estimator.learns_by_passes():
        why = f"systems that learn by passes; {estimator.system} has all rows in memory"
        passes.check_unused(("scheduler", "resume"), why)
    return open_location(data)


def _fit_shards(
    estimator: LabelRanker,
    shards: Shards,
    data: Path,
    out: Path,
    passes: Passes,
    until_saved: ExitStack,
) -> LabelRanker:
    """Train by passes here or on a cluster; what they come to is kept until the model is saved."""
    from labelry.cluster.checkpoint import checkpointed, job_of
    from labelry.memory import available

    rows: Rows
    if passes.scheduler is None:
        bound = available() // 2 if passes.memory is None else passes.memory
        rows = shards.rows(memory=bound, n_jobs=estimator.n_jobs)
    else:
        from labelry.cluster.dask_rows import DaskRows, connect

        client = until_saved.enter_context(connect(passes.scheduler))
        rows = DaskRows(data, client, memory=passes.memory)
    if estimator.learns_by_passes():
        folder = out.parent / f".{out.name}.labelry-passes"
        kept = checkpointed(rows, folder, job_of(estimator, shards), resume=passes.resume)
        rows = until_saved.enter_context(kept)
        told = kept_if_interrupted(lambda: "the passes so far are kept: --resume goes on with them")
        until_saved.enter_context(told)
    return stoppable(estimator.fit, rows)


def _check_for_tagger(system: str, given: dict[str, object]) -> None:
    """Refuse options that only the tagger takes, by their flags."""
    for flag, value in given.items():
        if value is not None and system != TAGGER:
            raise typer.BadParameter(f"{flag} is for the tagger, not for {system}")


def _estimator(context: typer.Context, system: str, seed: int, jobs: int | None) -> LabelRanker:
    """The unfitted estimator that the flags describe."""
    from labelry.systems import system_class

    given = given_parameters(context)
    cls = system_class(system)
    check_applies(system, given)
    return cls(**given, random_state=seed, n_jobs=jobs)


@reads_data
def embed(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Labelled rows, any format.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="labels.npy (with the names beside it), or .txt or .vec for word2vec's format.",
        ),
    ],
    system: Annotated[
        str, typer.Option("--system", help="rembrandt, plst, cplst, cca, pca, compressed-sensing.")
    ] = "rembrandt",
    seed: options.Seed = 0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Write a vector for each label: near each other where rows like both.

    Example: labelry embed train.jsonl.gz --out labels.npy --embedding-dim 100
    """
    from labelry.embeddings import export_embedding, export_files

    export_files(out, force=force)  # better refused now than after training
    estimator = _estimator(context, system, seed, reading.jobs)
    if "embedding_dim" not in estimator.get_params():
        raise typer.BadParameter(f"{system} has no label embedding")
    if "decoder" not in given_parameters(context):
        estimator.set_params(decoder="least-squares")  # the embedding needs none: the cheapest
    with progress_shown(quiet):
        dataset = reading.read(data)
        model = stoppable(estimator.fit_dataset, dataset)
        files = export_embedding(out, model.label_embedding_, model.classes_.tolist(), force=force)
    if json:
        n_labels, dim = model.label_embedding_.shape
        print_json({"labels": n_labels, "dimensions": dim, "files": [str(f) for f in files]})


@reads_data
def evaluate(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="TEST", help="Labelled rows, any format.")],
    cutoffs: Annotated[
        str, typer.Option("--at", help="Cutoffs k of P@k and the others.")
    ] = "1,3,5",
    propensity: Annotated[
        tuple[float, float],
        typer.Option("--propensity", help="A and B of the propensity model, for PSP@k."),
    ] = (0.55, 1.5),
    threshold: Annotated[
        float | None, typer.Option(help="Also F1 of the labels that score at least this.")
    ] = None,
    by_frequency: Annotated[
        bool, typer.Option("--by-frequency", help="Also for head, torso and tail labels.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Measure a model on labelled rows; every measure is a percentage.

    Example: labelry evaluate tagger.labelry test.jsonl.gz --json
    """
    from labelry.evaluation import evaluate as measure

    ranker = load_model(model, reading.jobs)
    with progress_shown(quiet):
        result = stoppable(
            measure,
            ranker,
            reading.opened(data, n_features=width(ranker)),
            ks=_cutoffs(cutoffs),
            propensity=propensity,
            threshold=threshold,
            by_frequency=by_frequency,
        )
    if json:
        print_json(result)
    else:
        print_measures(result)


def _cutoffs(text: str) -> tuple[int, ...]:
    try:
        ks = tuple(int(part) for part in text.split(","))
    except ValueError:
        ks = ()
    if not ks or min(ks) < 1:
        raise typer.BadParameter(f"--at takes whole numbers such as 1,3,5; got {text!r}")
    return ks


def print_measures(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    groups = {"": result} | result.get("by_frequency", {})
    ks = list(dict.fromkeys(name.partition("@")[2] for name in result if "@" in name))
    table = Table(box=None)
    for heading in ("", *(f"@{k}" for k in ks)):
        table.add_column(heading, justify="right" if heading else "left")
    for group, values in groups.items():
        for name in dict.fromkeys(n.partition("@")[0] for n in values if "@" in n):
            cells = [values.get(f"{name}@{k}") for k in ks]
            table.add_row(
                f"{group} {name}".strip(), *("" if c is None else f"{c:.2f}" for c in cells)
            )
    console = Console()
    console.print(table)
    for name, value in result.items():
        if isinstance(value, (int, float)) and "@" not in name:
            console.print(f"{name}: {value:{',.2f' if isinstance(value, float) else ','}}")


def inspect(model: Model, json: options.Json = False) -> None:
    """Say what a model directory holds, without reading its arrays.

    Example: labelry inspect tagger.labelry
    """
    from labelry import modelfile
    from labelry.memory import human

    found = modelfile.inspect(model)
    if json:
        print_json(found)
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{found['system']}, {found['n_labels'] or 0:,} labels, {human(found['size_bytes'])}, "
        f"made by labelry {found['labelry_version']} (format {found['format_version']})"
    )
    for title, rows in (
        ("parameters", [(name, str(value)) for name, value in found["parameters"].items()]),
        (
            "arrays",
            [
                (name, f"{a['dtype']} {tuple(a['shape'])} {human(a['bytes'])}")
                for name, a in found["arrays"].items()
            ],
        ),
        ("training", _training_rows(found["training"]) if "training" in found else []),
    ):
        table = Table(title=title, show_header=False, box=None, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def _training_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    from rich.markup import escape

    from labelry.memory import human

    if "damaged" in record:
        return [(escape(record["damaged"]), "")]
    rows = [
        (escape(p["name"]), f"{p['seconds']:.1f} s, +{human(p['rise_bytes'])}")
        for p in record["phases"]
    ]
    return [*rows, ("in all", f"{record['seconds']:.1f} s, {human(record['peak_bytes'])}")]


def load_model(path: Path, jobs: int | None) -> LabelRanker:
    from labelry.systems import load

    return stoppable(load, path).set_params(n_jobs=jobs)


def label_of(ranker: LabelRanker, text: str) -> str | int:
    """A label as the model has it: a number, where its labels are numbers."""
    return int(text) if ranker.classes_.dtype.kind in "iu" and text.isdigit() else text


def width(ranker: LabelRanker) -> int | None:
    """Features that a model expects, where it was trained on features."""
    return None if ranker.text_features_ is not None else ranker.n_features_in_


@contextmanager
def output(path: Path | None, force: bool) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        yield sys.stdout
        return

    from labelry.data.streams import open_output

    if path.exists() and not force:
        raise ValueError(f"{path} already exists; use --force to replace it")
    with open_output(path) as raw:
        yield codecs.getwriter("utf-8")(raw)  # type: ignore[misc]
