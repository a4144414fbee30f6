"""Clients can cause only so many lines of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from labelry.server import logs


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def written() -> Iterator[tuple[logging.Logger, Clock, list[str]]]:
    log, clock, handler = logging.getLogger("test.labelry"), Clock(), Kept()
    handler.addFilter(logs.Limit(clock))
    log.addHandler(handler)
    log.propagate = False
    yield log, clock, handler.lines
    log.removeHandler(handler)
    log.propagate = True


def test_a_flood_is_cut_off_and_counted(written: tuple[logging.Logger, Clock, list[str]]) -> None:
    log, clock, lines = written
    for i in range(1234):
        log.warning("client %d is wrong", i)
    assert lines == [f"client {i} is wrong" for i in range(logs.MOST_LINES)]
    log.warning("something else")
    assert lines[-1] == "something else"
    clock.now += logs.SECONDS
    log.warning("client %d is wrong", 5)
    left_out = 1234 - logs.MOST_LINES
    assert lines[-1] == f"client 5 is wrong (and {left_out:,} such lines left out before)"
    log.warning("client %d is wrong", 6)
    assert lines[-1] == "client 6 is wrong"


def test_messages_that_differ_are_not_remembered_for_ever(
    written: tuple[logging.Logger, Clock, list[str]],
) -> None:
    log, _, lines = written
    for i in range(3000):
        log.warning(f"line {i}")
    assert len(lines) == 3000
    (limit,) = log.handlers[0].filters
    assert len(limit._kinds) <= 1000  # type: ignore[union-attr]
