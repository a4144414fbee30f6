"""The log of a server: lines on stderr, of which clients can cause only so many."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

MOST_LINES = 10  # of one kind, in each `SECONDS`
SECONDS = 60.0

_MOST_KINDS = 1000  # that are remembered


class Limit(logging.Filter):
    """Lets through `MOST_LINES` of a kind per `SECONDS`, and counts the others.

    A kind is a message before its arguments are put in, of one level. The next line of a kind says
    how many were left out before it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[int, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is to be written."""
        now, key = self._clock(), (record.levelno, str(record.msg))
        if len(self._kinds) >= _MOST_KINDS and key not in self._kinds:
            self._kinds.clear()  # no message of ours or of a library has parts that vary
        kind = self._kinds.setdefault(key, _Kind(now))
        if now - kind.since >= SECONDS:
            kind.since, kind.written = now, 0
        if kind.written >= MOST_LINES:
            kind.left_out += 1
            return False
        kind.written += 1
        if kind.left_out:
            record.msg = f"{record.getMessage()} (and {kind.left_out:,} such lines left out before)"
            record.args = None
            kind.left_out = 0
        return True


class _Kind:
    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.left_out = 0


CONFIGURATION: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s [%(process)d] %(message)s"}},
    "filters": {"limit": {"()": Limit}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["limit"]},
        "access": {"class": "logging.StreamHandler", "formatter": "line"},  # every request
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "labelry": {"level": "INFO"},
        "labelry.access": {"handlers": ["access"], "propagate": False},
    },
}
