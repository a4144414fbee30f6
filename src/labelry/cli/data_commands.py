"""labelry stats, labelry convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from labelry.cli import options
from labelry.cli.options import print_json, print_table, progress_shown, say, stoppable
from labelry.cli.reading import Reading, as_bytes, reads_data, tell_flaws

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from labelry.data import Dataset
    from labelry.data.shards import Shards
    from labelry.data.statistics import Statistics

_MEANING = {
    "rows_per_label_median": "half of the labels have no more rows than this",
    "rows_without_labels": "many of them often mean that the file was read wrongly",
    "tail_label_share": "share of the labels that are on at most 5 rows",
    "tail_occurrence_share": "share of these labels in all labels of all rows",
    "density": "share of the features of a row that are not zero",
}
_BLOCKS = " ▁▂▃▄▅▆▇█"


@reads_data
def stats(
    file: Annotated[Path, Argument(help="Data in any readable format, compressed or not.")],
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Show the size of a dataset and how often its labels occur.

    Example: labelry stats train.txt.gz
    """
    from labelry.data import Dataset
    from labelry.data.statistics import describe

    with progress_shown(quiet):
        rows = reading.opened(file)
        statistics = stoppable(describe, rows)
    if json:
        print_json(statistics.to_dict())
    else:
        _print_statistics(file, statistics)
    if isinstance(rows, Dataset):
        tell_flaws(rows)


def _print_statistics(file: Path, statistics: Statistics) -> None:
    rows = []
    for name, value in statistics.to_dict().items():
        if value is not None and not isinstance(value, list):
            shown = f"{value:{',' if isinstance(value, int) else ',.4g'}}"
            meaning = _MEANING.get(name, "")
            rows.append((name.removeprefix("n_").replace("_", " "), shown, meaning))
    print_table(rows, title=file.name)
    say("rows of each label, the most frequent label first (both axes are logarithmic)")
    for line in frequency_curve(statistics.label_frequencies):
        say(line)


def frequency_curve(counts: ArrayLike, width: int = 60, height: int = 8) -> list[str]:
    """Draw label frequency against rank, on log scales, as lines of block characters."""
    import numpy as np

    frequencies = np.asarray(counts)
    frequencies = frequencies[frequencies > 0]
    if frequencies.size == 0:
        return ["(no label has any row)"]
    rank = np.power(float(frequencies.size), np.linspace(0, 1, width))
    shown = frequencies[np.minimum(np.round(rank).astype(int), frequencies.size) - 1]
    top = max(np.log(frequencies[0]), 1e-9)
    # One step above zero, so that labels with a single row are visible.
    eighths = np.maximum(np.round(np.log(shown) / top * height * 8), 1).astype(int)
    lines = []
    for level in range(height - 1, -1, -1):
        cells = "".join(_BLOCKS[n] for n in np.clip(eighths - 8 * level, 0, 8))
        value = f"{frequencies[0]:,.0f}" if level == height - 1 else "1" if level == 0 else ""
        lines.append(f"{value:>9s} |{cells}")
    lines.append(f"{'':9s} +{'-' * width}")
    lines.append(f"{'':11s}1{f'{frequencies.size:,}':>{width - 1}s}")
    return lines


@reads_data
def convert(
    source: Annotated[Path, Argument(metavar="IN", help="Data in any readable format.")],
    target: Annotated[
        Path,
        Argument(
            metavar="OUT",
            help="File to write. Its suffix says the format and the compression: "
            ".svmlight.gz, .xc, .npz, .jsonl.zst, .csv, .parquet, .fasttext. "
            "With --sharded, a directory to write.",
        ),
    ],
    to: Annotated[str | None, Option(help="Format of OUT.", show_default="from its suffix")] = None,
    sharded: Annotated[
        bool,
        Option(
            "--sharded",
            help="Write a directory of shards, for training on more data than memory holds. After "
            "an interruption, the same command continues.",
        ),
    ] = False,
    shard_size: Annotated[
        int, Option(metavar="SIZE", parser=as_bytes, help="Size of a shard.")
    ] = "64MiB",  # type: ignore[assignment]
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Write a dataset in another format.

    Example: labelry convert train.txt.gz train.npz
    """
    from labelry.data import write
    from labelry.progress import phase

    with progress_shown(quiet):
        dataset: Dataset | Shards
        if sharded:
            if to is not None:
                raise typer.BadParameter("--to is the format of a file; --sharded has its own")
            dataset = reading.write_shards(source, target, shard_size, force=force)
        else:
            dataset = reading.read(source)
            with phase(f"writing {target.name}"):
                write(
                    dataset,
                    target,
                    to,
                    label_separator=reading.separator("|"),
                    force=force,
                    n_jobs=reading.jobs,
                )
    if json:
        print_json({"rows": dataset.n_rows, "labels": dataset.n_labels, "out": str(target)})
