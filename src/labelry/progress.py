"""Progress of long work: a bar on a terminal, log lines elsewhere, nothing unless asked for.

Code that takes long is inside `phase`. A caller that wants to show the phases, as the command line
does, wraps the call in `show_phases`. One that wants a record of their time and memory wraps it in
`recorded`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

from labelry import memory
from labelry.compilation import clock, compilation_told

T = TypeVar("T")
Advance = Callable[[int], None]

# Characters that move the cursor, turn writing around or end the line of a terminal.
_CONTROLS = re.compile(
    r"[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: object) -> str:
    r"""Return a text with control characters as JSON writes them, so that they do nothing.

    Every name that a person sees on a terminal goes through here: it may come from anywhere.

    >>> print(visible("one\nred \x1b[31m"))
    one\nred \u001b[31m
    """
    return _CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], str(text))


class Display(Protocol):
    """An object that shows phases to a person."""

    @contextmanager
    def phase(self, name: str, total: int | None, unit: str) -> Iterator[Advance]:
        """Show one phase; the function it yields is called with the number of units done."""
        ...

    def say(self, text: str) -> None:
        """Show a line of text."""
        ...


class Phase(NamedTuple):
    """Time and memory of a phase, summed over all its runs.

    `times` is the number of runs, and `rise_bytes` the bytes by which it raised the peak of memory.
    """

    name: str
    times: int
    seconds: float
    rise_bytes: int


class Record:
    """The finished phases, in the order in which they first ended.

    The time of a phase inside another one counts for the outer phase, so that the times add up.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._phases: dict[str, Phase] = {}
        self._inside = False

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        if self._inside:
            yield
            return
        self._inside = True
        start, peak = time.perf_counter(), memory.peak()
        try:
            yield
        finally:
            self._inside = False
        _, times, seconds, rise = self._phases.get(name, Phase(name, 0, 0.0, 0))
        seconds += time.perf_counter() - start
        rise += max(0, memory.peak() - peak)
        self._phases[name] = Phase(name, times + 1, seconds, rise)

    def as_dict(self) -> dict[str, Any]:
        """Return the seconds so far, the peak of memory, and the phases, as plain data."""
        phases = [p._replace(seconds=round(p.seconds, 3)) for p in self._phases.values()]
        return {
            "seconds": round(time.perf_counter() - self._start, 3),
            "peak_bytes": memory.peak(),
            "phases": [p._asdict() for p in phases],
        }


_display: ContextVar[Display | None] = ContextVar("labelry_display", default=None)
_record: ContextVar[Record | None] = ContextVar("labelry_record", default=None)


@contextmanager
def phase(name: str, total: int | None = None, unit: str = "steps") -> Iterator[Advance]:
    """Name a piece of long work, of `total` units if that is known; yield a function that counts.

    Examples
    --------
    >>> with phase("counting", total=3) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    display, record = _display.get(), _record.get()
    with nullcontext() if record is None else record.timed(name):
        if display is None:
            yield lambda _: None
            return
        with display.phase(name, total, unit) as advance:
            yield advance


def counted(items: Iterable[T], name: str, total: int, unit: str) -> Iterator[T]:
    """Yield the items, and show how many of `total` are done."""
    with phase(name, total, unit) as advance:
        for item in items:
            advance(1)
            yield item


@contextmanager
def recorded() -> Iterator[Record]:
    """Record time and memory of the phases inside; a model saved inside gets a copy of the record.

    Examples
    --------
    >>> with recorded() as record:
    ...     with phase("counting"):
    ...         pass
    >>> [found["name"] for found in record.as_dict()["phases"]]
    ['counting']
    """
    record = Record()
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def current_record() -> Record | None:
    """Return the record of the surrounding `recorded`, if any."""
    return _record.get()


@contextmanager
def show_phases(stream: TextIO | None = None) -> Iterator[None]:
    """Show the phases of the work inside on `stream` (default: standard error)."""
    stream = sys.stderr if stream is None else stream
    display: Display = Bars(stream) if stream.isatty() else Lines(stream)
    token = _display.set(display)
    try:
        with compilation_told(display.say):
            yield
    finally:
        _display.reset(token)


class _Pace:
    """How fast the units of a phase are done, without the time in which kernels were compiled."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._compiled = clock().seconds

    def seconds(self) -> float:
        compiling = clock().seconds - self._compiled
        return max(time.monotonic() - self._start - compiling, 1e-9)

    def rate(self, done: int) -> str:
        return f"{done / self.seconds():,.1f}/s"

    def left(self, done: int, total: int | None) -> str:
        """Return the time left as text; "" if it is not known."""
        if total is None or not done:
            return ""
        return f"{self.seconds() * (total - done) / done:,.0f} s left"


class Bars:
    """Shows live bars with phase, rate and time left."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)

    @contextmanager
    def phase(self, name: str, total: int | None, unit: str) -> Iterator[Advance]:
        from rich import progress as rich

        columns = [
            rich.TextColumn("{task.description}", markup=False),  # it may hold the name of a file
            rich.BarColumn(),
            rich.TextColumn("{task.completed:,.0f} {task.fields[unit]} {task.fields[rate]}"),
            rich.TimeElapsedColumn(),
            rich.TextColumn("{task.fields[left]}"),
        ]
        with rich.Progress(*columns, console=self._console) as bars:
            task = bars.add_task(visible(name), total=total, unit=unit, rate="", left="")
            pace = _Pace()

            def advance(n: int) -> None:
                done = int(bars.tasks[0].completed) + n
                left = pace.left(done, total)
                bars.update(task, advance=n, rate=f"({pace.rate(done)})", left=left)

            yield advance
            if total is None:
                bars.update(task, total=bars.tasks[0].completed)

    def say(self, text: str) -> None:
        self._console.print(visible(text), markup=False, highlight=False)


class Lines:
    """Writes plain lines: every few seconds, and when a phase ends."""

    interval = 5.0  # seconds between two lines

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def phase(self, name: str, total: int | None, unit: str) -> Iterator[Advance]:
        start = last = time.monotonic()
        pace, done = _Pace(), 0

        def advance(n: int) -> None:
            nonlocal done, last
            done += n
            now = time.monotonic()
            if now - last >= self.interval:
                last = now
                of = "" if total is None else f" of {total:,}"
                parts = [f"{done:,}{of} {unit}", pace.rate(done), pace.left(done, total)]
                self.say(f"{name}: {', '.join(filter(None, parts))}")

        yield advance
        seconds = time.monotonic() - start
        self.say(f"{name}: {f'{done:,} {unit} in ' if done else ''}{seconds:.1f} s")

    def say(self, text: str) -> None:
        print(visible(text), file=self._stream, flush=True)
