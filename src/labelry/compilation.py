"""What numba compiles in this process: how many kernels, for how long, and whom to tell.

A kernel is compiled when it is first called, and afterwards read from the cache of numba. That
happens once for each machine, but it may take longer than the work that waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

TYPICAL_SECONDS = 20  # for `labelry train`; measured by benchmarks/cold_start.py

_INTERVAL = 5.0  # seconds between two notices; not tuned


class CompilationClock:
    """The kernels that were compiled, and the seconds that this took.

    numba compiles in one thread at a time. Compiling a kernel includes compiling those it calls.
    """

    def __init__(self) -> None:
        self.kernels = 0
        self.listeners: list[Callable[[str], None]] = []
        self._before = 0.0  # seconds of kernels that are compiled
        self._start = 0.0  # of the one that is being compiled
        self._depth = 0
        self._told = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds so far, with those of the kernel that is being compiled."""
        return self._before + (time.monotonic() - self._start if self._depth else 0.0)

    def notify(self, event: Any) -> None:
        """Take a start or an end of a compilation; numba calls this."""
        now = time.monotonic()
        if event.is_start:
            if self._depth == 0:
                self._start = now
            self._depth += 1
            if self._told == 0.0:
                self._tell(
                    "compiling kernels for this machine, once: it may take about "
                    f"{TYPICAL_SECONDS} s (`labelry warm` does it beforehand)"
                )
            return
        self._depth -= 1
        self.kernels += 1
        if self._depth == 0:
            self._before += now - self._start
            if now - self._told >= _INTERVAL:
                self._tell(f"compiled {self.kernels:,} kernels in {self._before:.0f} s so far")

    def _tell(self, text: str) -> None:
        if self.listeners:
            self._told = time.monotonic()
        for tell in self.listeners:
            tell(text)


@cache
def clock() -> CompilationClock:
    """Return the clock of this process, which counts from the first call of this function."""
    from numba.core import event

    found = CompilationClock()
    event.Listener.register(CompilationClock)
    event.register("numba:compile", found)  # type: ignore[no-untyped-call]
    return found


@contextmanager
def compilation_told(tell: Callable[[str], None]) -> Iterator[CompilationClock]:
    """Call `tell` with a line when a first kernel is compiled, and every few seconds after it."""
    found = clock()
    found.listeners.append(tell)
    try:
        yield found
    finally:
        found.listeners.remove(tell)
