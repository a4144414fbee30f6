"""All commands of the command line, and how errors are printed."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer import Option

from labelry import memory
from labelry._version import __version__
from labelry.cli import (
    compare_command,
    data_commands,
    demo_command,
    inspect_commands,
    model_commands,
    options,
    predict_command,
    serve_command,
    tune_command,
    warm_command,
)
from labelry.cli.options import CheckedCommand, say
from labelry.cli.streams import check_output_open
from labelry.cli.system_flags import SystemCommand, as_flags, flag_of
from labelry.errors import DataError, LabelryError, MemoryBudgetError, ModelError, ParameterError

# Parts of the errors of Python and of the system's linker at a limit of the process.
_LIMITED = ("can't start new thread", "failed to map segment", "cannot allocate memory")
_LEAST_ADDRESSES, _ADDRESSES_OF_A_THREAD = 1 << 30, 1 << 27  # bytes; tried, with two threads
_MORE_MEMORY = "; give it more memory, or raise the limits of the process (ulimit -v, ulimit -u)"
_PRINTING = ("evaluate", "compare", "tune", "stats", "explain", "similar", "inspect", "topics")

app = typer.Typer(
    name="labelry",
    help="Predict the right few labels out of very many.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("train", cls=SystemCommand)(model_commands.train)
app.command("tune", cls=SystemCommand)(tune_command.tune)
app.command("predict", cls=CheckedCommand)(predict_command.predict)
app.command("evaluate", cls=CheckedCommand)(model_commands.evaluate)
app.command("compare", cls=CheckedCommand)(compare_command.compare)
app.command("explain", cls=CheckedCommand)(inspect_commands.explain)
app.command("embed", cls=SystemCommand)(model_commands.embed)
app.command("inspect", cls=CheckedCommand)(inspect_commands.inspect)
app.command("report", cls=CheckedCommand)(inspect_commands.report)
app.command("serve", cls=CheckedCommand)(serve_command.serve)
app.command("tree", cls=CheckedCommand)(inspect_commands.tree)
app.command("topics", cls=CheckedCommand)(inspect_commands.topics)
app.command("demo", cls=CheckedCommand)(demo_command.demo)
app.command("similar", cls=CheckedCommand)(inspect_commands.similar)
app.command("stats", cls=CheckedCommand)(data_commands.stats)
app.command("convert", cls=CheckedCommand)(data_commands.convert)
app.command("warm", cls=CheckedCommand)(warm_command.warm)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"labelry {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    _check_limits()
    if context.invoked_subcommand in _PRINTING:
        check_output_open()  # before the work, not after


def _check_limits() -> None:
    """Refuse to start where libraries would abort the process for want of addresses."""
    needed = _LEAST_ADDRESSES + _ADDRESSES_OF_A_THREAD * (os.cpu_count() or 1)
    if memory.address_space() < needed:
        raise MemoryBudgetError(
            f"labelry needs {memory.human(needed)} of virtual memory on this machine: raise the "
            "limit of the process (ulimit -v)"
        )


def run() -> None:
    """Run a command: exit 0 on success, 2 on bad usage or input, 1 on failure.

    An interruption is raised to `main`.
    """
    options.own_process = True
    try:
        _run_or_interrupt()
    except ParameterError as error:
        _fail(f"{flag_of(error.parameter)} {error.problem}", 2)
    except (DataError, ModelError, ValueError) as error:
        _fail(as_flags(str(error)), 2)
    except MemoryError as error:
        more = "" if isinstance(error, LabelryError) else _MORE_MEMORY
        _fail(f"{str(error) or 'out of memory'}{more}", 1)
    except (LabelryError, OSError) as error:
        _fail(str(error) or type(error).__name__, 1)
    except (RuntimeError, ImportError) as error:
        if not any(said in str(error) for said in _LIMITED):
            raise
        _fail(f"{error}{_MORE_MEMORY}", 1)


def _run_or_interrupt() -> None:
    try:
        app()
    except BaseException as ended:
        if _was_interrupted(ended):
            raise KeyboardInterrupt from ended
        raise


def _was_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error; typer turns it into an exit, a lock into an error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _fail(message: str, code: int) -> None:
    say(f"labelry: {message}", err=True)
    sys.exit(code)
