"""labelry tune."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelry.cli import options
from labelry.cli.options import (
    kept_if_interrupted,
    print_json,
    progress_shown,
    stoppable,
    warnings_told,
)
from labelry.cli.reading import Reading, reads_data
from labelry.cli.system_flags import SystemCommand, check_applies, given_parameters

if TYPE_CHECKING:
    from labelry.data import Dataset
    from labelry.estimator import LabelRanker
    from labelry.systems.tuning import Trial, Tuned


class TuneCommand(SystemCommand):
    """Takes the parameters of the systems as flags, but for names that are its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's parameters; its own come first."""
        found: dict[str, Any] = {}
        for parameter in super().get_params(ctx):
            found.setdefault(parameter.name, parameter)
        return list(found.values())


@reads_data
def tune(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Labelled rows, any format.")],
    system: Annotated[str, typer.Option("--system", help="What to tune.")],
    trials: Annotated[
        int, typer.Option(help="Configurations to try; more take longer.", min=1)
    ] = 27,
    measure: Annotated[
        str, typer.Option(help="What to be good at: P@1, P@5, nDCG@5, PSP@5, R@10, ...")
    ] = "P@1",
    budget: Annotated[
        str | None,
        typer.Option(help="Time for the search, such as 10m.", show_default="what it takes"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also train the winner on all rows: model directory."),
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Search a system's own ranges for the parameters that do best on held-out rows.

    Many configurations on a ninth of the rows, the best third on a third, the best of those on all;
    the defaults are always among them. Parameters that are given stay as they are. The winner's
    figure is optimistic, as it was chosen by it: measure it on rows that took no part.

    Example: labelry tune train.jsonl.gz --system linear-tree --trials 9 --out tuned.labelry
    """
    from labelry import modelfile
    from labelry.systems import system_class
    from labelry.systems.ranges import ranges_of
    from labelry.systems.tuning import tune as search

    fixed = given_parameters(context)
    ranges_of(system)
    check_applies(system, fixed)
    if out is not None:
        modelfile.check_writable(out, force=force)
    with progress_shown(quiet):
        dataset = reading.read(data)
    judged: list[tuple[int, Trial]] = []

    def told(n_rows: int, trial: Trial) -> None:
        judged.append((n_rows, trial))
        if not quiet:
            _tell(n_rows, trial, measure)

    with kept_if_interrupted(lambda: _best_so_far(judged, measure)):
        found = stoppable(
            search,
            system,
            dataset,
            n_trials=trials,
            measure=measure,
            fixed=fixed,
            budget=budget,
            random_state=seed,
            n_jobs=reading.jobs,
            told=told,
        )
    parameters = fixed | found.best.parameters
    if out is not None:
        model = system_class(system)(**parameters, random_state=seed, n_jobs=reading.jobs)
        _train(model, dataset, out, force, quiet)
    command = ["labelry", "train", str(data), *reading.flags(), "--out", str(out or "MODEL")]
    command += ["--system", system, *flags_of(parameters), *(["--seed", str(seed)] if seed else [])]
    if json:
        print_json(_as_json(found, system, measure, parameters) | {"command": shlex.join(command)})
    else:
        _print_result(found, measure)
        typer.echo(shlex.join(command))


def _tell(n_rows: int, trial: Trial, measure: str) -> None:
    flags = shlex.join(flags_of(trial.parameters)) or "(defaults)"
    said = f"{measure} {trial.score:6.2f}" if trial.error is None else f"failed: {trial.error}"
    typer.echo(f"{n_rows:9,} rows  {trial.seconds:7.1f} s  {said}  {flags}", err=True)


def _best_so_far(judged: list[tuple[int, Trial]], measure: str) -> str | None:
    """The best trial with the most rows, which are what it is fair to compare on."""
    ended = [(n_rows, trial.score, trial) for n_rows, trial in judged if trial.error is None]
    if not ended:
        return None
    n_rows, score, best = max(ended, key=lambda found: found[:2])
    flags = shlex.join(flags_of(best.parameters)) or "the defaults"
    return f"no file was changed; best so far, with {n_rows:,} rows: {measure} {score:.2f}, {flags}"


def _train(model: LabelRanker, dataset: Dataset, out: Path, force: bool, quiet: bool) -> None:
    from labelry.progress import recorded

    with progress_shown(quiet), warnings_told(), recorded():
        stoppable(model.fit_dataset, dataset).set_params(n_jobs=None).save(out, force=force)


def flags_of(parameters: Mapping[str, Any]) -> list[str]:
    """Parameters as `labelry train` takes them.

    >>> flags_of({"n_trees": 3, "normalize": False})
    ['--n-trees', '3', '--no-normalize']
    """
    flags: list[str] = []
    for name, value in parameters.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            flags += [f"--{dashed}", str(_plain(value))]
    return flags


def _plain(value: Any) -> Any:
    """A value as it can be typed; what was read from a file is not known by its name."""
    return value if isinstance(value, (str, int, float)) else "FILE"


def _as_json(
    found: Tuned, system: str, measure: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "system": system,
        "measure": measure,
        "score": found.best.score,
        "default_score": math.nan if found.default is None else found.default.score,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "held_out_rows": found.n_held_out,
        "rungs": [
            {
                "rows": rung.n_rows,
                "trials": [
                    trial._asdict() | {"score": None if trial.error else trial.score}
                    for trial in rung.trials
                ],
            }
            for rung in found.rungs
        ],
    }


def _print_result(found: Tuned, measure: str) -> None:
    default = "failed" if found.default is None else f"{found.default.score:.2f}"
    typer.echo(
        f"best {measure} {found.best.score:.2f}, defaults {default}, on {found.n_held_out:,} "
        "held-out rows by which the best was chosen; to train it:",
        err=True,
    )
