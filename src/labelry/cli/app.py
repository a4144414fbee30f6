"""The commands together, and what an error looks like to the person at the terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from labelry._version import __version__
from labelry.cli import (
    compare_command,
    data_commands,
    demo_command,
    explain_command,
    model_commands,
    options,
    predict_command,
    report_command,
    serve_command,
    structure_commands,
    tune_command,
)
from labelry.cli.system_flags import SystemCommand
from labelry.errors import DataError, LabelryError, ModelError

app = typer.Typer(
    name="labelry",
    help="Predict the right few labels out of very many.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("train", cls=SystemCommand)(model_commands.train)
app.command("tune", cls=tune_command.TuneCommand)(tune_command.tune)
app.command("predict")(predict_command.predict)
app.command("evaluate")(model_commands.evaluate)
app.command("compare")(compare_command.compare)
app.command("explain")(explain_command.explain)
app.command("embed", cls=SystemCommand)(model_commands.embed)
app.command("inspect")(model_commands.inspect)
app.command("report")(report_command.report)
app.command("serve")(serve_command.serve)
app.command("tree")(structure_commands.tree)
app.command("topics")(structure_commands.topics)
app.command("demo")(demo_command.demo)
app.command("similar")(structure_commands.similar)
app.command("stats")(data_commands.stats)
app.command("convert")(data_commands.convert)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labelry {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run a command: exit 0 on success, 2 on bad usage or input, 1 on failure.

    An interruption is raised to `main`.
    """
    options.own_process = True
    try:
        _run_or_interrupt()
    except (DataError, ModelError, ValueError) as error:
        _fail(str(error), 2)
    except (LabelryError, MemoryError, OSError) as error:
        _fail(str(error) or type(error).__name__, 1)


def _run_or_interrupt() -> None:
    try:
        app()
    except BaseException as ended:
        if _was_interrupted(ended):
            raise KeyboardInterrupt from ended
        raise


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether something was made of an interruption: by typer an exit, by a lock an error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _fail(message: str, code: int) -> None:
    typer.echo(f"labelry: {message}", err=True)
    sys.exit(code)
