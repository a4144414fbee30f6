"""labelry predict: rows in, their labels out, in constant memory."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeVar

import typer

from labelry.cli import options
from labelry.cli.model_commands import Model, load_model, output, width
from labelry.cli.options import kept_if_interrupted, progress_shown, stoppable
from labelry.cli.reading import Reading, reads_data

if TYPE_CHECKING:
    from labelry.data import Dataset
    from labelry.data.rankings import RankingLines
    from labelry.estimator import LabelRanker
    from labelry.progress import Advance

T = TypeVar("T")

_K = 5
_MOST_LABELS = 100  # of a row that a threshold chooses from
_COPIED = 1 << 20  # characters at a time


class OutputFormat(StrEnum):
    """How predictions are written."""

    jsonl = "jsonl"
    csv = "csv"
    xc = "xc"


@reads_data
def predict(
    model: Model,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Rows to label, any format, or a text a line; - is standard input.",
        ),
    ] = Path("-"),
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            help="Labels per row.",
            min=1,
            show_default=f"{_K}; {_MOST_LABELS} with --threshold",
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Only labels that score at least this.")
    ] = None,
    form: Annotated[
        OutputFormat,
        typer.Option(
            "--format",
            help="Of what is written. jsonl: an object a row; csv: for spreadsheets, a line a "
            "row; xc: a sparse matrix of scores, a column for each label that the model has, "
            "written when the last row is done. --input-format is that of FILE.",
        ),
    ] = OutputFormat.jsonl,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write.", show_default="standard output"),
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Print the best labels of each row with their scores, in row order, as rows come in.

    Example: labelry predict tagger.labelry new.jsonl -k 3

    Or: echo "pain in the left knee" | labelry predict tagger.labelry
    """
    from threadpoolctl import threadpool_limits

    from labelry.data.rankings import RankingLines
    from labelry.data.streams import is_standard_input
    from labelry.progress import phase

    # A thread to a block: reading, predicting and formatting of several blocks overlap.
    ranker = load_model(model, jobs=1)
    if ranker.text_features_ is not None:
        ranker.text_features_.n_jobs = 1
    n_best = k or (_K if threshold is None else _MOST_LABELS)
    lines = RankingLines(form.value, ranker.classes_.tolist(), n_best, threshold)
    source = "standard input" if is_standard_input(file) else file.name
    if is_standard_input(file) and sys.stdin is not None and sys.stdin.isatty() and not quiet:
        typer.echo("labelry: a text a line; end with Ctrl-D", err=True)
    blocks = replace(reading, jobs=1).unlabelled_blocks(file, n_features=width(ranker))
    n_done = 0
    with (
        progress_shown(quiet),
        kept_if_interrupted(lambda: f"{n_done:,} rows are printed" if out is None else None),
        threadpool_limits(1),
        output(out, force) as target,
        phase(f"labelling {source}", unit="rows") as advance,
    ):
        answers = _one_by_one(_answers(ranker, blocks, n_best, lines, reading.jobs))
        if form is OutputFormat.xc:
            _write_counted(answers, target, len(ranker.classes_), advance)
        else:
            target.write(lines.header)
            for n_rows, text in answers:
                target.write(text)
                n_done += n_rows
                advance(n_rows)


def _answers(
    ranker: LabelRanker,
    blocks: Iterator[Dataset],
    k: int,
    lines: RankingLines,
    jobs: int | None,
) -> Iterator[tuple[int, str]]:
    """Number and lines of the rows of each block; some blocks are worked on ahead."""
    from labelry.estimator import rows_of
    from labelry.linalg.parallel import resolve_jobs, stream

    def label(block: Dataset) -> tuple[int, str]:
        return block.n_rows, lines(*ranker.topk_ids(rows_of(block), k))

    yield from stream(label, ((block,) for block in blocks), resolve_jobs(jobs))


def _one_by_one(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made where Ctrl-C does not wait for it."""
    while (item := stoppable(next, items, None)) is not None:
        yield item


def _write_counted(
    answers: Iterable[tuple[int, str]], target: TextIO, n_labels: int, advance: Advance
) -> None:
    """Lines after their number, which is known at the end: until then they wait on disk."""
    total = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as waiting:
        for n_rows, text in answers:
            waiting.write(text)
            total += n_rows
            advance(n_rows)
        waiting.seek(0)
        target.write(f"{total} {n_labels}\n")
        shutil.copyfileobj(waiting, target, _COPIED)
