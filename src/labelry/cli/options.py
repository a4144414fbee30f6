"""Options that several commands share."""

from __future__ import annotations

import json
import logging
import math
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

Seed = Annotated[int, typer.Option("--seed", help="Seed of everything that is random.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Threads to use.", show_default="all cores")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace what is there.")]


P = ParamSpec("P")
T = TypeVar("T")

_SHOW_CURSOR = "\x1b[?25h"
_LOOK = 0.1  # s, how often the main thread looks for an interrupt

own_process = False  # whether a command is all that this process does; `main` knows


@contextmanager
def progress_shown(quiet: bool) -> Iterator[None]:
    """Show phases and log lines on standard error, unless they are not wanted."""
    from labelry.progress import shown

    if quiet:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("labelry")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    stream = _Stream()
    try:
        with shown(stream):  # type: ignore[arg-type]
            yield
    except KeyboardInterrupt:
        stream.leave()
        raise
    finally:
        log.removeHandler(handler)


class _Stream:
    """Standard error for a bar, which may be of a thread that is left behind."""

    def __init__(self) -> None:
        self._stream, self._output = sys.stderr, sys.stdout
        self._left = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if self._left else self._stream.write(text)

    def leave(self) -> None:
        """Go on below the bar, which is not to be seen again."""
        if not self._left and self._stream.isatty():
            self._left = True
            self._stream.write(_SHOW_CURSOR + "\n")
            sys.stderr, sys.stdout = self._stream, self._output  # a bar puts itself before them


def stoppable(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in another thread, so that Ctrl-C ends the command while it computes.

    Python heeds Ctrl-C in the main thread alone, and not inside of a call of numpy, scipy or a
    compiler, which may take seconds; a compiler may even swallow it, or crash. The work is left
    where it is and ends with the process, so it must not leave files behind.
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
    """Note interrupts in place of raising them: amid a lock they would be lost, or leave it held.

    One that comes just before the main thread begins to wait is noted when it looks up next.
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
    """On Ctrl-C, note what was done until then; `main` says so, or that no file was changed."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if (what := kept()) is not None:
            interrupt.add_note(what)
        raise


@contextmanager
def warnings_told() -> Iterator[None]:
    """Print warnings as a line on standard error, without the line of code that they come from."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        typer.echo(f"labelry: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


def print_json(value: dict[str, Any]) -> None:
    """Print one object on one line of standard output; a value that is not a number is null."""
    typer.echo(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
