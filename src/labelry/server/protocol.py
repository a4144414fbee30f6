"""Limits for clients that open many connections, send slowly or do not read answers.

Each connection is an open file, and a process may have only so many.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from labelry.server.gate import SURPLUS

HEADER_SECONDS = 10.0
HEADER_BYTES = 1 << 16
STUCK_SECONDS = 30.0
MOST_PIPELINED = 16  # requests of a connection that wait for an earlier answer

_OTHERS = 64  # files of a worker beside its connections, such as model, metrics and pipes


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits, so that idle clients hold no connection or memory.

    A clock runs from the beginning of a connection, and from each answer, until the headers of the
    next request are complete; from then on the application has its own. A client that does not take
    its answers for `STUCK_SECONDS` is cut off, also while the connection is to be closed, which
    waits for them to be taken.

    With `limit_concurrency`, connections beyond that many are marked, and `Gate` refuses their
    requests; the others are served. (uvicorn would refuse every request while there are so many.)
    """

    _waiting: asyncio.TimerHandle | None = None  # until the headers are complete
    _stuck: asyncio.TimerHandle | None = None  # until the client reads on
    _in_headers = False
    _header_bytes = 0
    _is_surplus = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        most, self.limit_concurrency = self.limit_concurrency, None
        self._is_surplus = most is not None and len(self.connections) > most
        self._wait()
        if len(self.connections) > most_connections():
            transport.abort()  # no file is left to wait with for the request

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        self._end_stuck()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        begun = self._in_headers
        super().data_received(data)
        if begun and self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._close()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many requests before an answer")  # to the parser: answers 400
        super().on_message_begin()
        if self._is_surplus:
            self.scope[SURPLUS] = True  # type: ignore[literal-required]
        self._in_headers, self._header_bytes = True, 0
        self._wait()

    def on_headers_complete(self) -> None:
        # What came with the first bytes has not been counted.
        if len(self.url) + sum(len(n) + len(v) for n, v in self.headers) > HEADER_BYTES:
            raise ValueError("too many bytes of headers")
        self._in_headers = False
        self._end_wait()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_if_stuck()
        elif is_last:
            self._wait()  # also if the body was not read to its end, and is still on its way

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._end_if_stuck()

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end_if_stuck()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self._end_stuck()
        super().resume_writing()

    def _close(self) -> None:
        self.transport.close()
        self._end_if_stuck()

    def _wait(self) -> None:
        self._end_wait()
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._close)

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end_if_stuck(self) -> None:
        if self._stuck is None:
            self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def _end_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None


def most_connections() -> int:
    """Return the most connections that leave enough files for the rest of the work."""
    return _limits()[0] - _OTHERS


def allow_connections(n: int) -> None:
    """Raise the limit of this process and of its workers for `n` connections.

    If possible, it leaves room for as many again, so that further clients get an answer. A
    `ValueError` if the system does not allow so many.
    """
    soft, hard = _limits()
    if n + _OTHERS > hard:
        raise ValueError(
            f"max_connections must be at most {hard - _OTHERS}, as this system allows {hard} open "
            f"files (ulimit -Hn); got {n}"
        )
    wanted = min(2 * n + _OTHERS, hard)
    if soft < wanted:
        highest = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))


def _limits() -> tuple[int, int]:
    """Return the limit of this process, and how far it can be raised."""
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if n == resource.RLIM_INFINITY else n for n in found)
    return soft, hard
