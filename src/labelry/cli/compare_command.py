"""labelry compare: several systems on the same data, in one table."""

from __future__ import annotations

import json as json_
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from labelry.cli import options
from labelry.cli.options import kept_if_interrupted, print_json, progress_shown
from labelry.cli.reading import Reading, reads_data
from labelry.errors import LabelryError

if TYPE_CHECKING:
    from labelry.data import Dataset

_TABLE_WIDTH = 120


class Contender(NamedTuple):
    """A system with parameters, as flags of `labelry train`."""

    name: str
    flags: list[str]


@reads_data
def compare(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training data, any format.")],
    test: Annotated[
        Path | None,
        typer.Argument(
            metavar="TEST",
            help="Labelled rows to compare on; without it a quarter of TRAIN.",
            show_default=False,
        ),
    ] = None,
    systems: Annotated[
        str,
        typer.Option(
            help="Names of systems or qualities (fast, balanced, best), each with parameters "
            "if wanted: linear-tree:n-trees=3:prune=0.2."
        ),
    ] = "one-vs-rest,rembrandt,fast,balanced,best",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Train several systems on the same rows and show accuracy, times, memory and size.

    Each runs in a process of its own; one that fails is shown with its reason.

    Example: labelry compare train.jsonl.gz test.jsonl.gz --systems rembrandt,linear-tree,balanced
    """
    from labelry.progress import phase

    contenders = parse_systems(systems)
    with TemporaryDirectory(prefix="labelry-") as name, progress_shown(quiet):
        folder = Path(name)
        parts = _parts(reading, train, test, seed)
        files = [_write(part, folder / role) for part, role in zip(parts, ("a", "b"), strict=True)]
        common = ["--quiet", "--json"] + (["--jobs", str(reading.jobs)] if reading.jobs else [])
        found: dict[str, dict[str, Any]] = {}
        with (
            kept_if_interrupted(lambda: _told(found, len(contenders), json)),
            phase("comparing", len(contenders), "systems") as advance,
        ):
            for contender in contenders:
                found[contender.name] = _measure(contender, files, folder, seed, common)
                advance(1)
    if json:
        print_json({"systems": found})
    else:
        _print_table(found)
    if all("failed" in measures for measures in found.values()):
        raise LabelryError("no system could be measured")


def _told(found: dict[str, dict[str, Any]], n_wanted: int, json: bool) -> str | None:
    """Show the systems that were measured before an interruption."""
    if json or not found:
        return None
    _print_table(found)
    return f"{len(found)} of {n_wanted} systems were compared; no file was changed"


def parse_systems(text: str) -> list[Contender]:
    """The systems of a list such as ``rembrandt,linear-tree:n-trees=3``.

    >>> parse_systems("fast,knn:normalize=false")
    [Contender(name='fast', flags=['--quality', 'fast']), \
Contender(name='knn:normalize=false', flags=['--system', 'knn', '--no-normalize'])]
    """
    from labelry.systems import SYSTEMS
    from labelry.systems.tagger import QUALITIES  # what `train` takes without --system

    contenders = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        system, *pairs = name.split(":")
        if system not in (*SYSTEMS, *QUALITIES):
            known = ", ".join((*QUALITIES, *SYSTEMS))
            raise typer.BadParameter(f"unknown system {system!r}; there are: {known}")
        flags = ["--quality" if system in QUALITIES else "--system", system]
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise typer.BadParameter(f"{pair!r} in {name!r} should be parameter=value")
            key = key.replace("_", "-")
            if value.lower() in ("true", "false"):
                flags.append(f"--{key}" if value.lower() == "true" else f"--no-{key}")
            else:
                flags += [f"--{key}", value]
        contenders.append(Contender(name, flags))
    if not contenders:
        raise typer.BadParameter("--systems needs at least one name")
    return contenders


def _parts(reading: Reading, train: Path, test: Path | None, seed: int) -> tuple[Dataset, Dataset]:
    rows = reading.read(train)
    if test is None:
        return rows.split(0.25, random_state=seed)
    return rows, reading.read(test, n_features=rows.n_features)


def _write(part: Dataset, stem: Path) -> Path:
    """In the format that is quickest to read again."""
    from labelry.data import write

    path = stem.with_suffix(".jsonl" if part.X is None else ".npz")
    write(part, path)
    return path


def _measure(
    contender: Contender, files: list[Path], folder: Path, seed: int, common: list[str]
) -> dict[str, Any]:
    model = folder / "model"
    training = ["train", str(files[0]), "--out", str(model), "--force", "--seed", str(seed)]
    try:
        trained = _labelry([*training, *contender.flags, *common])
        measures = _labelry(["evaluate", str(model), str(files[1]), *common])
    except LabelryError as error:
        return {"failed": str(error)}
    seconds, rows = measures.pop("seconds"), measures["rows"]
    return measures | {
        "train_seconds": trained["seconds"],
        "predict_ms_per_row": round(1000 * seconds / max(rows, 1), 4),
        "model_bytes": trained["bytes"],
        "peak_bytes": trained["peak_bytes"],
    }


def _labelry(arguments: list[str]) -> dict[str, Any]:
    """What a command of ours prints with --json, from a process of its own."""
    command = [sys.executable, "-m", "labelry", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip(" │╭╰─╮╯") for line in done.stderr.splitlines()]
        said = [line for line in lines if line and not line.startswith(("Usage:", "Try '"))]
        raise LabelryError((said or [f"exit code {done.returncode}"])[-1])
    return dict(json_.loads(done.stdout))


def _print_table(found: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from labelry.memory import human

    names = [f"{measure}@{k}" for measure in ("P", "PSP") for k in (1, 3, 5)]
    table = Table(box=None)
    for heading in ("", *names, "train s", "ms a row", "model", "peak memory"):
        table.add_column(heading, justify="right" if heading else "left")
    for system, measures in found.items():
        if "failed" in measures:
            continue
        table.add_row(
            system,
            *(f"{measures[name]:.2f}" for name in names),
            f"{measures['train_seconds']:.1f}",
            f"{measures['predict_ms_per_row']:.3f}",
            human(measures["model_bytes"]),
            human(measures["peak_bytes"]),
        )
    console = Console()
    console.width = max(console.width, _TABLE_WIDTH)  # a line that the terminal breaks can be read
    console.print(table)
    for system, measures in found.items():
        if "failed" in measures:
            console.print(f"{system}: {measures['failed']}", markup=False)
