"""labelry compare: train several systems on the same rows and show them in one table."""

from __future__ import annotations

import json as json_
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer
from typer import Argument, Option

from labelry.cli import options
from labelry.cli.options import kept_if_interrupted, print_json, print_table, progress_shown, say
from labelry.cli.reading import Reading, reads_data
from labelry.cli.system_flags import TAGGER, parameters_of_system, typed
from labelry.errors import LabelryError, did_you_mean

_TABLE_WIDTH = 120  # characters that the columns need


class Contender(NamedTuple):
    """A system with parameters, as flags of `labelry train`."""

    name: str
    flags: list[str]


@reads_data
def compare(
    train: Annotated[Path, Argument(metavar="TRAIN", help="Training data, any format.")],
    test: Annotated[
        Path | None,
        Argument(
            metavar="TEST",
            help="Labelled rows to measure on. By default a quarter of TRAIN is held out.",
            show_default=False,
        ),
    ] = None,
    systems: Annotated[
        str,
        Option(
            help="Names of systems, or qualities of the tagger (fast, balanced, best). Parameters "
            "follow a colon: linear-tree:n-trees=3:prune=0.2."
        ),
    ] = "one-vs-rest,rembrandt,fast,balanced,best",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Train several systems on the same rows and show accuracy, times, memory and size.

    Each system runs in its own process. A system that fails is listed with the reason.
    `labelry train --system NAME --help` lists the parameters of a system.

    Example: labelry compare train.jsonl.gz test.jsonl.gz --systems rembrandt,linear-tree,balanced
    """
    from labelry.progress import phase

    contenders = parse_systems(systems)
    with TemporaryDirectory(prefix="labelry-") as name, progress_shown(quiet):
        folder = Path(name)
        files = _written(reading, train, test, seed, folder)
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
    """Return the systems of a list such as ``rembrandt,linear-tree:n-trees=3``.

    >>> parse_systems("fast,knn:normalize=false")
    [Contender(name='fast', flags=['--quality', 'fast']), \
Contender(name='knn:normalize=false', flags=['--system', 'knn', '--no-normalize'])]
    """
    from labelry.estimators import SYSTEMS

    qualities = parameters_of_system(TAGGER)["quality"].named
    contenders = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        system, *pairs = name.split(":")
        if system not in (*SYSTEMS, *qualities):
            known = ", ".join((*qualities, *SYSTEMS))
            near = did_you_mean(system, (*qualities, *SYSTEMS))
            raise typer.BadParameter(f"unknown system {system!r}; there are: {known}{near}")
        flags = ["--quality" if system in qualities else "--system", system]
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise typer.BadParameter(f"{pair!r} in {name!r} should be parameter=value")
            flags += typed(key, {"true": True, "false": False}.get(value.lower(), value))
        contenders.append(Contender(name, flags))
    if not contenders:
        raise typer.BadParameter("--systems needs at least one name")
    return contenders


def _written(
    reading: Reading, train: Path, test: Path | None, seed: int, folder: Path
) -> tuple[Path, Path]:
    """Write training and test rows in the format that is quickest to read again."""
    from labelry.data import write

    rows = reading.read(train)
    if test is None:
        parts = rows.split(0.25, random_state=seed)
    else:
        parts = rows, reading.read(test, n_features=rows.n_features)
    suffix = ".jsonl" if rows.X is None else ".npz"
    files = folder / f"train{suffix}", folder / f"test{suffix}"
    for part, file in zip(parts, files, strict=True):
        write(part, file)
    return files


def _measure(
    contender: Contender, files: tuple[Path, Path], folder: Path, seed: int, common: list[str]
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
    """Run a labelry command in its own process; return what it prints with --json."""
    command = [sys.executable, "-m", "labelry", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip(" │╭╰─╮╯") for line in done.stderr.splitlines()]
        said = [line for line in lines if line and not line.startswith(("Usage:", "Try '"))]
        raise LabelryError((said or [f"exit code {done.returncode}"])[-1])
    return dict(json_.loads(done.stdout))


def _print_table(found: dict[str, dict[str, Any]]) -> None:
    from labelry.memory import human

    names = [f"{measure}@{k}" for measure in ("P", "PSP") for k in (1, 3, 5)]
    rows = [
        (
            system,
            *(f"{measures[name]:.2f}" for name in names),
            f"{measures['train_seconds']:.1f}",
            f"{measures['predict_ms_per_row']:.3f}",
            human(measures["model_bytes"]),
            human(measures["peak_bytes"]),
        )
        for system, measures in found.items()
        if "failed" not in measures
    ]
    heading = ("", *names, "train s", "ms a row", "model", "peak memory")
    print_table(rows, *heading, width=_TABLE_WIDTH, frame=False)
    for system, measures in found.items():
        if "failed" in measures:
            say(f"{system}: {measures['failed']}")
