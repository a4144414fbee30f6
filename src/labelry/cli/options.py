"""Options that several commands share."""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

Seed = Annotated[int, typer.Option("--seed", help="Seed of everything that is random.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Threads to use.", show_default="all cores")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace what is there.")]


own_process = False  # whether a command is all that this process does; `main` knows


@contextmanager
def progress_shown(quiet: bool) -> Iterator[None]:
    """Show phases and log lines on standard error, unless they are not wanted."""
    from labelry.linalg.parallel import keep_main_thread_free
    from labelry.progress import shown

    if own_process:
        keep_main_thread_free()
    if quiet:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("labelry")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with shown():
            yield
    finally:
        log.removeHandler(handler)


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
