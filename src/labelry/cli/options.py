"""Options that several commands share."""

from __future__ import annotations

import json
import logging
import math
import os
import reprlib
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
import typer.core
from typer import Argument, Option

from labelry.progress import show_phases, visible

Labelled = Annotated[Path, Argument(metavar="DATA", help="Labelled rows, any format.")]
Seed = Annotated[
    int, Option("--seed", help="Seed of the random numbers: the same seed gives the same model.")
]
Jobs = Annotated[int | None, Option("--jobs", help="Threads to use.", show_default="all cores")]
Json = Annotated[bool, Option("--json", help="Print one JSON object to standard output.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
Force = Annotated[bool, Option("--force", "-f", help="Replace what is there.")]


_MOST = 2**31 - 1  # a number of things has to fit into 32 bits
_LONGEST_NAME = 255  # bytes of the name of a file, on most file systems

P = ParamSpec("P")
T = TypeVar("T")

_SHOW_CURSOR = "\x1b[?25h"
_LOOK = 0.1  # seconds between looks for an interrupt; not tuned

own_process = False  # whether this process runs one command and nothing else; set by `run`


class CheckedCommand(typer.core.TyperCommand):
    """A command that refuses absurd values of its options, such as nan or an empty name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for option in self.get_params(ctx):
            if option.param_type_name == "option":
                value = ctx.params.get(option.name)
                for each in value if isinstance(value, (tuple, list)) else [value]:
                    if problem := _problem(each, is_size=option.metavar == "SIZE"):
                        raise ValueError(f"{option.opts[0]} must {problem}")
        return rest


def _problem(value: object, *, is_size: bool) -> str | None:
    """Return what is wrong with the value of an option."""
    if value == "":
        return "not be empty"
    if value == Path():
        return "not be empty, nor the folder that this is"
    if isinstance(value, float) and not math.isfinite(value):
        return f"be a finite number, got {value}"
    if isinstance(value, int) and not is_size and abs(value) > _MOST:
        return f"be at most {_MOST} in size, got {reprlib.repr(value)}"
    if isinstance(value, Path) and any(len(os.fsencode(p)) > _LONGEST_NAME for p in value.parts):
        return f"be a name of at most {_LONGEST_NAME} bytes, got {reprlib.repr(str(value))}"
    return None


def out_option(help: str, **more: Any) -> Any:
    """Return the option --out of a command."""
    return Option("--out", "-o", help=help, **more)


@contextmanager
def progress_shown(quiet: bool) -> Iterator[None]:
    """Show phases and log lines on standard error, unless `quiet`."""
    if quiet:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Spoken("%(message)s"))
    log = logging.getLogger("labelry")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    stream = _Stream()
    try:
        with show_phases(stream):  # type: ignore[arg-type]
            yield
    except KeyboardInterrupt:
        stream.leave()
        raise
    finally:
        log.removeHandler(handler)


class _Spoken(logging.Formatter):
    """Format log lines: parameters become flags, and control characters of names are shown."""

    def format(self, record: logging.LogRecord) -> str:
        from labelry.cli.system_flags import as_flags

        return visible(as_flags(super().format(record)))


class _Stream:
    """Standard error for a progress bar whose thread may outlive the command."""

    def __init__(self) -> None:
        self._stream, self._output = sys.stderr, sys.stdout
        self._left = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if self._left else self._stream.write(text)

    def leave(self) -> None:
        """Move below the bar and ignore what its thread still writes."""
        if not self._left and self._stream.isatty():
            self._left = True
            self._stream.write(_SHOW_CURSOR + "\n")
            sys.stderr, sys.stdout = self._stream, self._output  # a bar replaces them


def stoppable(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in another thread, so that Ctrl-C ends the command while it computes.

    Python handles Ctrl-C in the main thread only, and not during a call of numpy, scipy or a
    compiler, which may take seconds; a compiler may swallow it or crash. The thread is abandoned
    and ends with the process, so the function must not leave temporary files.
    """
    if not own_process:
        return function(*args, **kwargs)
    context = copy_context()  # progress is shown there as here
    apart = ThreadPoolExecutor(1, thread_name_prefix="labelry-command")
    with _interrupts_noted() as interrupts:
        found = apart.submit(lambda: context.run(function, *args, **kwargs))
        while not interrupts and not wait([found], timeout=_LOOK).done:
            pass
    if interrupts:
        raise KeyboardInterrupt
    return found.result()


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Collect interrupts instead of raising them, which could leave a lock held.

    The main thread looks at the list every `_LOOK` seconds.
    """
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # a command in the background
        signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def kept_if_interrupted(kept: Callable[[], str | None]) -> Iterator[None]:
    """On Ctrl-C, add what was done so far to the error; `main` prints it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if (what := kept()) is not None:
            interrupt.add_note(visible(what))
        raise


@contextmanager
def warnings_told() -> Iterator[None]:
    """Print each warning as one line on standard error, without its line of code."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"labelry: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


def say(text: object, *, err: bool = False) -> None:
    """Print one line, and show the control characters of names in it."""
    typer.echo(visible(text), err=err)


def print_json(value: dict[str, Any]) -> None:
    """Print one object on one line of standard output; nan and infinity become null."""
    say(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    rows: Iterable[Sequence[str]],
    *heading: str,
    title: str = "",
    width: int = 0,
    frame: bool = True,
) -> None:
    """Print rows as a table, at least `width` characters wide.

    If the first heading is empty, the other columns are numbers.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # `Text` keeps brackets in names, which are markup in a str.
    table = Table(
        title=Text(visible(title), style="italic") if title else None,
        title_justify="left",
        show_header=bool(heading),
        box=box.HEAVY_HEAD if frame else None,
    )
    for i, text in enumerate(heading):
        table.add_column(text, justify="right" if i and not heading[0] else "left")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console = Console()
    console.width = max(console.width, width)
    console.print(table)
