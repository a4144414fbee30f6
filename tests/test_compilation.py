"""Kernels that are compiled are counted and told of; their time is not a time of the work."""

from __future__ import annotations

import io
import time

import numba
import pytest
from numba.core import event

from labelry import compilation, progress
from labelry.compilation import CompilationClock, clock, compilation_told
from labelry.progress import phase, show_phases


def compile_something() -> None:
    numba.njit(lambda x: x + 1)(1)


def test_a_compiled_kernel_is_counted_with_its_time() -> None:
    before = clock().kernels, clock().seconds
    compile_something()
    assert clock().kernels > before[0]
    assert clock().seconds > before[1]
    assert clock().seconds == clock().seconds  # it stands while nothing is compiled


def test_who_waits_is_told_once_at_first_and_nobody_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh = CompilationClock()
    monkeypatch.setattr(compilation, "clock", lambda: fresh)
    event.register("numba:compile", fresh)
    lines: list[str] = []
    with compilation_told(lines.append):
        compile_something()
        compile_something()
    compile_something()
    event.unregister("numba:compile", fresh)
    assert len(lines) == 1
    assert lines[0].startswith("compiling kernels for this machine, once")


def test_the_time_left_is_not_of_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    now, compiled = [0.0], [0.0]

    class Told(CompilationClock):
        seconds = property(lambda _: compiled[0])  # type: ignore[assignment]

    told = Told()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "clock", lambda: told)
    stream = io.StringIO()
    with show_phases(stream), phase("nodes", 10, "nodes") as advance:
        now[0], compiled[0] = 31.0, 30.0
        advance(1)
    assert stream.getvalue().startswith("nodes: 1 of 10 nodes, 1.0/s, 9 s left\n")
