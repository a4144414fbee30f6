"""labelry tune."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from labelry.cli import options
from labelry.cli.options import (
    kept_if_interrupted,
    print_json,
    progress_shown,
    say,
    stoppable,
    warnings_told,
)
from labelry.cli.reading import Reading, reads_data
from labelry.cli.system_flags import given_parameters, system_option, typed

if TYPE_CHECKING:
    from labelry.evaluation.tuning import Trial, Tuned


@reads_data
def tune(
    context: typer.Context,
    data: options.Labelled,
    system: Annotated[str, system_option("What to tune, such as linear-tree")],
    trials: Annotated[int, Option(help="Configurations to try; more take longer.", min=1)] = 27,
    measure: Annotated[
        str, Option(help="Measure to maximise: P@1, P@5, nDCG@5, PSP@5, R@10, ...")
    ] = "P@1",
    budget: Annotated[
        str | None, Option(help="Time for the search, such as 10m.", show_default="no limit")
    ] = None,
    out: Annotated[
        Path | None, options.out_option("Model directory: also train the winner on all rows.")
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    reading: Reading,
) -> None:
    """Search for the parameters of a system that do best on held-out rows.

    It trains many configurations on a ninth of the rows, the best third of them on a third, and the
    best of those on all rows. The defaults are always among them. Parameters that are given stay
    fixed. The score of the winner is optimistic, because the winner was chosen by it: measure it on
    rows that took no part.

    Example: labelry tune train.jsonl.gz --system linear-tree --trials 9 --out tuned.labelry
    """
    from labelry.estimators import system_class
    from labelry.evaluation.tuning import ranges_of
    from labelry.evaluation.tuning import tune as search
    from labelry.progress import recorded
    from labelry.storage import modelfile

    fixed = given_parameters(context)
    ranges_of(system)
    if out is not None:
        modelfile.check_writable(out, force=force)
    with progress_shown(quiet):
        dataset = reading.training_rows(data) if out else reading.read(data)
    trials_done: list[tuple[int, Trial]] = []

    def told(n_rows: int, trial: Trial) -> None:
        trials_done.append((n_rows, trial))
        if not quiet:
            _tell(n_rows, trial, measure)

    with kept_if_interrupted(lambda: _best_so_far(trials_done, measure)):
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
        with progress_shown(quiet), warnings_told(), recorded():
            stoppable(model.fit, dataset).set_params(n_jobs=None).save(out, force=force)
    command = ["labelry", "train", str(data), *reading.flags(), "--out", str(out or "MODEL")]
    command += ["--system", system, *flags_of(parameters), *(["--seed", str(seed)] if seed else [])]
    if json:
        print_json(_as_json(found, system, measure, parameters) | {"command": shlex.join(command)})
    else:
        default = "failed" if found.default is None else f"{found.default.score:.2f}"
        say(
            f"best {measure} {found.best.score:.2f}, defaults {default}, on {found.n_held_out:,} "
            "held-out rows by which the best was chosen; to train it:",
            err=True,
        )
        say(shlex.join(command))


def _tell(n_rows: int, trial: Trial, measure: str) -> None:
    flags = shlex.join(flags_of(trial.parameters)) or "(defaults)"
    said = f"{measure} {trial.score:6.2f}" if trial.error is None else f"failed: {trial.error}"
    say(f"{n_rows:9,} rows  {trial.seconds:7.1f} s  {said}  {flags}", err=True)


def _best_so_far(trials_done: list[tuple[int, Trial]], measure: str) -> str | None:
    """Return the best trial of those with the most rows: scores compare only on equal rows."""
    ended = [(n_rows, trial.score, trial) for n_rows, trial in trials_done if trial.error is None]
    if not ended:
        return None
    n_rows, score, best = max(ended, key=lambda found: found[:2])
    flags = shlex.join(flags_of(best.parameters)) or "the defaults"
    return f"no file was changed; best so far, with {n_rows:,} rows: {measure} {score:.2f}, {flags}"


def flags_of(parameters: Mapping[str, Any]) -> list[str]:
    """Return parameters as flags of `labelry train`.

    >>> flags_of({"n_trees": 3, "normalize": False})
    ['--n-trees', '3', '--no-normalize']
    """
    return [word for name, value in parameters.items() for word in typed(name, _plain(value))]


def _plain(value: Any) -> Any:
    """Return a value as it can be typed; a value that was read from a file is FILE."""
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
