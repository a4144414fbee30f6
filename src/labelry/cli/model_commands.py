"""labelry train, embed, evaluate, inspect."""

from __future__ import annotations

import codecs
import reprlib
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, get_args, get_type_hints

import typer
from typer import Argument, Option

from labelry.cli import options
from labelry.cli.card import CardFlags, has_card
from labelry.cli.options import (
    kept_if_interrupted,
    print_json,
    print_table,
    progress_shown,
    say,
    stoppable,
    warnings_told,
)
from labelry.cli.reading import PANEL, Memory, Reading, reads_data
from labelry.cli.streams import standard_output
from labelry.cli.system_flags import TAGGER, given_parameters, parameters_of_system, system_option

if TYPE_CHECKING:
    from labelry.data import Dataset
    from labelry.data.shards import Shards
    from labelry.estimators.base import LabelRanker
    from labelry.linalg.rows import Rows

_MOST_CUTOFF = 10_000  # as each row is padded to so many labels
_MOST_PROPENSITY = 100  # beyond it, powers overflow
_MANY = 20  # percent of unknown labels from which on the file was probably read wrongly
_NEXT = {  # what one types after a training, and why
    "evaluate {} TEST": "how good it is, on rows that it has not seen",
    "predict {} NEW": "labels for new rows",
    "serve {}": "a page and an API",
}

Model = Annotated[Path, Argument(metavar="MODEL", help="Model directory.")]


@reads_data
@has_card
def train(
    context: typer.Context,
    data: Annotated[Path, Argument(metavar="TRAIN", help="Training data, any format.")],
    out: Annotated[Path, options.out_option("Model directory to write.")],
    system: Annotated[
        str,
        system_option(
            "What to train, such as linear-tree or one-vs-rest", show_default="the tagger"
        ),
    ] = TAGGER,
    names: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Descriptions of labels, for the tagger: lines 'label<TAB>description', or .csv "
            "or .jsonl with label and name. Labels without rows can then be predicted.",
        ),
    ] = None,
    group_column: Annotated[
        str | None,
        Option(
            help="Column or key of the group of a row, such as a site or an author, for the "
            "tagger. Whole groups are held out, so that probabilities are right for new groups.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    memory: Memory = None,
    scheduler: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Train from shards on the Dask cluster of this scheduler, as tcp://host:8786.",
        ),
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Continue an interrupted training from shards.")
    ] = False,
    seed: options.Seed = 0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    card: CardFlags,
    reading: Reading,
) -> None:
    """Train a model and write it to a directory.

    Without --system it trains the tagger, which needs no tuning: a higher --quality takes longer.

    Example: labelry train train.jsonl.gz --out tagger.labelry --quality best --budget 10m
    """
    from labelry.data import Dataset
    from labelry.data.names import read_names
    from labelry.memory import human, peak
    from labelry.progress import phase, recorded
    from labelry.storage import modelfile

    estimator = _estimator(context, system, seed, reading.jobs)
    shown = card.read()
    modelfile.check_writable(out, force=force)  # before an hour of training, not after
    for flag, value in (("--names", names), ("--group-column", group_column)):
        if value is not None and system != TAGGER:
            raise typer.BadParameter(f"{flag} is for the tagger, not for {system}")
    further: dict[str, Any] = {} if names is None else {"names": read_names(names)}
    passes = Passes(memory, scheduler, resume)
    with progress_shown(quiet), warnings_told(), recorded(), ExitStack() as until_saved:
        dataset = _training_data(reading, data, names, group_column, passes, estimator)
        if group_column is not None:
            further["groups"] = reading.read_groups(data, group_column)
        start = time.perf_counter()
        if isinstance(dataset, Dataset):
            model = stoppable(estimator.fit, dataset, **further)
        else:
            model = _fit_shards(estimator, dataset, data, out, passes, until_saved)
        seconds = time.perf_counter() - start
        with phase(f"saving {out.name}"):
            model.set_card(**vars(shown)).set_params(n_jobs=None)  # its n_jobs was for this run
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
        say(
            f"trained {system} on {dataset.n_rows:,} rows and {dataset.n_labels:,} labels in "
            f"{seconds:.1f} s with at most {human(peak())} of memory; "
            f"{size / 1e6:,.1f} MB in {out}",
            err=True,
        )
        for command, why in _NEXT.items():
            said = f"labelry {command.format(shlex.quote(str(out)))}"
            typer.echo(f"  {said:<40}  # {why}", err=True)


class Passes(NamedTuple):
    """Options of training from shards."""

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
    """Return a dataset in memory, or shards; refuse options that do not go with it."""
    from labelry.data.cluster.locations import is_url, open_location
    from labelry.data.shards import is_shards

    if not is_shards(data) and not is_url(data):
        why = "training from shards: make them with labelry convert --sharded"
        passes.check_unused(Passes._fields, why)
        if group_column is not None and not data.is_file():
            raise typer.BadParameter("--group-column needs a file: it is read twice")
        return reading.training_rows(data)
    if names is not None:
        raise typer.BadParameter("--names needs texts, but shards hold features")
    if group_column is not None:
        raise typer.BadParameter("--group-column needs a table, but shards hold features")
    if not estimator.by_passes:
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
    """Train from shards, here or on a cluster; keep the passes until the model is saved."""
    from labelry.data.cluster.checkpoint import checkpointed, job_of
    from labelry.memory import available

    rows: Rows
    if passes.scheduler is None:
        bound = available() // 2 if passes.memory is None else passes.memory
        rows = shards.rows(memory=bound, n_jobs=estimator.n_jobs)
    else:
        from labelry.data.cluster.dask_rows import DaskRows, connect

        client = until_saved.enter_context(connect(passes.scheduler))
        rows = DaskRows(data, client, memory=passes.memory)
    if estimator.by_passes:
        folder = out.parent / f".{out.name}.labelry-passes"
        job = job_of(estimator.system, estimator.get_params(deep=False), shards)
        kept = checkpointed(rows, folder, job, resume=passes.resume)
        rows = until_saved.enter_context(kept)
        told = kept_if_interrupted(lambda: "the passes so far are kept: --resume continues")
        until_saved.enter_context(told)
    return stoppable(estimator.fit, rows)


def _estimator(context: typer.Context, system: str, seed: int, jobs: int | None) -> LabelRanker:
    """Return the unfitted estimator that the flags describe."""
    from labelry.estimators import system_class

    given = given_parameters(context)
    estimator = system_class(system)(**given, random_state=seed, n_jobs=jobs)
    estimator.check_parameters()  # before the data are read
    return estimator


@reads_data
def embed(
    context: typer.Context,
    data: options.Labelled,
    out: Annotated[
        Path,
        options.out_option(
            "labels.npy (with the names beside it), or .txt or .vec for word2vec's format."
        ),
    ],
    system: Annotated[
        str, system_option("What learns the vectors, such as rembrandt, plst or linear-tree")
    ] = "rembrandt",
    seed: options.Seed = 0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Write one vector per label. Labels that appear on similar documents get similar vectors.

    Example: labelry embed train.jsonl.gz --out labels.npy --embedding-dim 100
    """
    from labelry.embeddings.export import export_embedding, export_files
    from labelry.ranking.ranker import HasLabelVectors

    export_files(out, force=force)  # refuses before the training, not after
    estimator = _estimator(context, system, seed, reading.jobs)
    fitted = get_type_hints(type(estimator).fit_function)["return"]
    if not any(issubclass(cls, HasLabelVectors) for cls in get_args(fitted) or [fitted]):
        raise typer.BadParameter(f"{system} has no label vectors")
    if "decoder" in parameters_of_system(system) and "decoder" not in given_parameters(context):
        estimator.set_params(decoder="least-squares")  # the vectors need none: the cheapest
    with progress_shown(quiet):
        dataset = reading.read(data)
        model = stoppable(estimator.fit, dataset)
        vectors = stoppable(model.label_vectors)
        files = export_embedding(out, vectors, model.classes_.tolist(), force=force)
    if json:
        n_labels, dim = vectors.shape
        print_json({"labels": n_labels, "dimensions": dim, "files": [str(f) for f in files]})


@reads_data
def evaluate(
    model: Model,
    data: Annotated[Path, Argument(metavar="TEST", help="Labelled rows, any format.")],
    cutoffs: Annotated[
        str, Option("--at", help="Cutoffs k of P@k and the other measures.")
    ] = "1,3,5",
    propensity: Annotated[
        tuple[float, float], Option(help="A and B of the propensity model, for PSP@k.")
    ] = (0.55, 1.5),
    threshold: Annotated[
        float | None, Option(help="Also measure F1 of the labels with at least this score.")
    ] = None,
    by_frequency: Annotated[
        bool, Option("--by-frequency", help="Also measure frequent, medium and rare labels.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Measure a model on labelled rows; every measure is a percentage.

    Example: labelry evaluate tagger.labelry test.jsonl.gz --json
    """
    from labelry.evaluation.evaluate import evaluate as measure

    ks = _cutoffs(cutoffs)
    if not all(0 < value <= _MOST_PROPENSITY for value in propensity):
        raise ValueError(
            f"--propensity must be two numbers above 0 and at most {_MOST_PROPENSITY}, got "
            f"{propensity[0]} {propensity[1]}"
        )
    ranker = load_model(model, reading.jobs)
    with progress_shown(quiet):
        rows = reading.opened(data, model=ranker)
        result = stoppable(
            measure,
            ranker,
            rows,
            ks=ks,
            propensity=propensity,
            threshold=threshold,
            by_frequency=by_frequency,
        )
    _warn_of_unknown_labels(ranker, rows)
    if json:
        print_json(result)
        return
    print_measures(result)
    if "P@1" in result:
        n = result["rows"]
        right = round(result["P@1"] * n / 100)
        typer.echo(f"the first label is right for {right:,} of {n:,} {_noun(ranker)}")


def _noun(ranker: LabelRanker) -> str:
    return "rows" if ranker.text_features_ is None else "documents"


def _warn_of_unknown_labels(ranker: LabelRanker, rows: Dataset | Shards) -> None:
    """Warn if the model has not all labels of the file: something else may separate them."""
    known = set(map(str, ranker.classes_.tolist()))
    names = rows.label_names or []
    unknown = [name for name in names if name not in known]
    if unknown:
        share = 100 * len(unknown) / len(names)
        said = f"{share:.0f} % of the labels in this file are unknown to the model"
        remedy = ". If the file was read wrongly, --label-column or --label-separator correct that"
        if share < _MANY:
            remedy = ""
        say(f"labelry: warning: {said}, such as {unknown[0]!r}{remedy}", err=True)


def _cutoffs(text: str) -> tuple[int, ...]:
    try:
        ks = tuple(int(part) for part in text.split(","))
    except ValueError:
        ks = ()
    if not ks or min(ks) < 1 or max(ks) > _MOST_CUTOFF:
        raise typer.BadParameter(
            f"--at takes whole numbers up to {_MOST_CUTOFF:,} such as 1,3,5; got "
            f"{reprlib.repr(text)}"
        )
    return ks


def print_measures(result: dict[str, Any]) -> None:
    """Print the measures at k as a table, a column for each k, and below it the others."""
    groups = {"": result} | result.get("by_frequency", {})
    ks = list(dict.fromkeys(name.partition("@")[2] for name in result if "@" in name))
    rows = []
    for group, values in groups.items():
        for name in dict.fromkeys(n.partition("@")[0] for n in values if "@" in n):
            cells = [values.get(f"{name}@{k}") for k in ks]
            shown = ("" if cell is None else f"{cell:.2f}" for cell in cells)
            rows.append((f"{group} {name}".strip(), *shown))
    print_table(rows, "", *(f"@{k}" for k in ks), frame=False)
    for name, value in result.items():
        if isinstance(value, (int, float)) and "@" not in name:
            say(f"{name}: {value:{',.2f' if isinstance(value, float) else ','}}")


def load_model(path: Path, jobs: int | None) -> LabelRanker:
    from labelry.estimators import load

    return stoppable(load, path).set_params(n_jobs=jobs)


def label_of(ranker: LabelRanker, text: str) -> str | int:
    """Return a label as the model has it: a number if its labels are numbers."""
    return int(text) if ranker.classes_.dtype.kind in "iu" and text.isdigit() else text


def check_replaceable(path: Path, force: bool) -> None:
    """Raise a ValueError for a file that exists, unless `force`; a device or pipe is written to."""
    if (path.is_file() or path.is_dir()) and not force:
        raise ValueError(f"{path} already exists; use --force to replace it")


@contextmanager
def output(path: Path | None, force: bool) -> Iterator[TextIO]:
    """Open standard output, or a file that appears only when it is complete."""
    if path is None:
        yield standard_output()
        return

    from labelry.data.streams import open_output

    check_replaceable(path, force)
    with open_output(path) as raw:
        yield codecs.getwriter("utf-8")(raw)  # type: ignore[misc]
