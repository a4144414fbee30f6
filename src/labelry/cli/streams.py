"""Standard streams that may be closed, full, or not UTF-8: work goes on, and no output is lost."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from labelry.progress import visible


def open_streams() -> None:
    """Prepare the standard streams of a process for a command.

    Standard error takes what it can and drops the rest, so that no work ends for lack of a reader
    of messages. Standard output is UTF-8 unless it is a terminal, and raises an error if it is
    closed. A closed stream keeps its number, so that no file that is opened later gets messages.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stdout is None:
        sys.stdout = _Closed()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        same = sys.stdout.encoding if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=same, errors="backslashreplace")
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    messages = io.BufferedWriter(_Messages(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(
        messages, encoding=encoding, errors="backslashreplace", line_buffering=True
    )


def check_output_open() -> None:
    """Raise an OSError if this process was started without standard output."""
    if isinstance(sys.stdout, _Closed):
        sys.stdout.write("")


def standard_output() -> TextIO:
    """Return standard output, unless it is closed; a terminal shows control characters."""
    check_output_open()
    return _Terminal(sys.stdout) if sys.stdout.isatty() else sys.stdout  # type: ignore[return-value]


class _Messages(io.FileIO):
    """A file that drops what cannot be written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


class _Terminal(io.TextIOBase):
    """A terminal that shows the control characters of data instead of obeying them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write("\n".join(map(visible, text.split("\n"))))


class _Closed(io.TextIOBase):
    """A stream that refuses what is written to it."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError("standard output is closed: redirect it to a file, or to /dev/null")
