"""labelry predict: read rows and print their labels, in constant memory."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO, TypeVar

import typer
from typer import Argument, Option

from labelry.cli import options
from labelry.cli.model_commands import Model, load_model, output
from labelry.cli.options import kept_if_interrupted, progress_shown, say, stoppable
from labelry.cli.reading import Reading, reads_data
from labelry.cli.streams import check_output_open

if TYPE_CHECKING:
    from labelry.data import Dataset
    from labelry.data.rankings import RankingLines
    from labelry.estimators.base import LabelRanker
    from labelry.progress import Advance

T = TypeVar("T")

_K = 5
_MOST_LABELS = 100  # best labels of a row that --threshold chooses from
_COPIED = 1 << 20  # characters copied at a time


@reads_data
def predict(
    model: Model,
    file: Annotated[
        Path,
        Argument(
            metavar="FILE",
            help="Rows to label in any format, or one text per line; - is standard input.",
        ),
    ] = Path("-"),
    k: Annotated[
        int | None,
        Option(
            "-k",
            help="Labels per row.",
            min=1,
            show_default=f"{_K}; {_MOST_LABELS} with --threshold",
        ),
    ] = None,
    threshold: Annotated[
        float | None, Option(help="Print only labels with at least this score.")
    ] = None,
    form: Annotated[
        Literal["jsonl", "csv", "xc"] | None,
        Option(
            "--format",
            show_default="csv for --out NAME.csv, otherwise jsonl",
            help="Format of the output. jsonl: one object per row. csv: one line per row, for "
            "spreadsheets: columns of FILE, then label_1, score_1, ...; with --threshold one cell "
            "of labels. xc: a sparse matrix of scores with one column per label of the model, "
            "written after the last row. --input-format is the format of FILE.",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        Option(
            metavar="COLUMNS",
            help="Columns of FILE to write before the labels, such as id,title; or all, or none.",
            show_default="all for csv, none for jsonl",
        ),
    ] = None,
    out: Annotated[
        Path | None, options.out_option("File to write.", show_default="standard output")
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Print the best labels of each row and their scores, in the order of the rows.

    Example: labelry predict tagger.labelry new.jsonl -k 3

    Or: echo "pain in the left knee" | labelry predict tagger.labelry
    """
    from threadpoolctl import threadpool_limits

    from labelry.data.rankings import RankingLines
    from labelry.data.streams import is_standard_input
    from labelry.progress import phase

    form = form or ("csv" if out is not None and out.suffix == ".csv" else "jsonl")
    if out is None:
        check_output_open()  # before the work, not after
    # One thread per block: reading, predicting and formatting of several blocks overlap.
    ranker = load_model(model, jobs=1)
    n_best = k or (_K if threshold is None else _MOST_LABELS)
    source = "standard input" if is_standard_input(file) else file.name
    if is_standard_input(file) and sys.stdin is not None and sys.stdin.isatty() and not quiet:
        say("labelry: type one text per line; end with Ctrl-D", err=True)
    n_done = 0
    with progress_shown(quiet):
        blocks = replace(reading, jobs=1).unlabelled_blocks(file, ranker, _columns(keep, form))
        first = stoppable(next, blocks)
    if keep not in (None, "all", "none") and not first.cells:
        raise typer.BadParameter(f"--keep is for tables; {file} holds features")
    separator = ranker.about_.source.label_separator
    labels, kept = ranker.classes_.tolist(), list(first.cells or ())
    lines = RankingLines(form, labels, n_best, threshold, separator, kept)
    blocks = chain([first], blocks)
    with (
        progress_shown(quiet),
        kept_if_interrupted(lambda: f"{n_done:,} rows are printed" if out is None else None),
        threadpool_limits(1),
        output(out, force) as target,
        phase(f"labelling {source}", unit="rows") as advance,
    ):
        answers = _one_by_one(_answers(ranker, blocks, n_best, lines, reading.jobs))
        if form == "xc":
            _write_counted(answers, target, len(ranker.classes_), advance)
        else:
            target.write(lines.header)
            for n_rows, text in answers:
                target.write(text)
                n_done += n_rows
                advance(n_rows)


def _columns(keep: str | None, form: str) -> Sequence[str] | Literal["all"]:
    """Return the columns of the input that are to be kept."""
    if form == "xc" and keep is not None:
        raise typer.BadParameter("--keep is for jsonl and csv")
    keep = keep or ("all" if form == "csv" else "none")
    if keep == "all":
        return "all"
    return [] if keep == "none" else [name.strip() for name in keep.split(",")]


def _answers(
    ranker: LabelRanker, blocks: Iterator[Dataset], k: int, lines: RankingLines, jobs: int | None
) -> Iterator[tuple[int, str]]:
    """Yield the number of rows of each block and their lines; several blocks run at once."""
    from labelry.linalg.parallel import resolve_jobs, stream

    def label(block: Dataset) -> tuple[int, str]:
        ids, scores = ranker.topk_ids(block.rows, k)
        cells = list((block.cells or {}).values())
        return block.n_rows, lines(ids, scores, cells, ranker.known_words(block.rows, ids))

    yield from stream(label, ((block,) for block in blocks), resolve_jobs(jobs))


def _one_by_one(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items, each computed where Ctrl-C does not wait for it."""
    while (item := stoppable(next, items, None)) is not None:
        yield item


def _write_counted(
    answers: Iterable[tuple[int, str]], target: TextIO, n_labels: int, advance: Advance
) -> None:
    """Write the number of lines, then the lines, which wait on disk until it is known."""
    total = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as waiting:
        for n_rows, text in answers:
            waiting.write(text)
            total += n_rows
            advance(n_rows)
        waiting.seek(0)
        target.write(f"{total} {n_labels}\n")
        shutil.copyfileobj(waiting, target, _COPIED)
