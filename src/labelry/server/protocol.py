"""Limits for clients that open many connections, send slowly or do not read answers.

Each connection is an open file, and a process may have only so many.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from labelry.server.gate import SURPLUS

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

HEADER_SECONDS = 10.0
HEADER_BYTES = 1 << 16
# Bytes beside the body after the headers: sizes and extensions of chunks, and trailers. A body in
# many chunks may have as many bytes of them again as the body has.
FRAMING_BYTES = 1 << 14
# Bytes of a body that still come after the answer, and are dropped.
UNREAD_BYTES = 1 << 18
STUCK_SECONDS = 30.0
MOST_PIPELINED = 16  # requests of a connection that wait for an earlier answer

# Bytes that count beside its own, because each calls Python (HTTP/2 counts 32 for a header). The
# most of one request take a fraction of a millisecond, of which 64 attackers cause many at a time:
# benchmarks/soak.py measures them.
_HEADER_COST = 512  # so that there are at most 127 headers
_CHUNK_COST = 32

_PIECE = 1 << 14  # bytes that are parsed before they are counted; uvloop reads 256 KiB at a time
_OTHERS = 64  # files of a worker beside its connections, such as model, metrics and pipes


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits, so that idle clients hold no connection or memory.

    A clock runs from the beginning of a connection, and from each answer, until the headers of the
    next request are complete; from then on the application has its own. A client that does not take
    its answers for `STUCK_SECONDS` is cut off, also while the connection is to be closed, which
    waits for them to be taken.

    What comes beside the bodies that the application reads is counted, and ends the connection at
    about `HEADER_BYTES` or `FRAMING_BYTES`. Trailers are dropped: nothing here needs them, and they
    must not pass for headers.

    With `limit_concurrency`, connections beyond that many are marked, and `Gate` refuses their
    requests; the others are served. (uvicorn would refuse every request while there are so many.)
    """

    _waiting: asyncio.TimerHandle | None = None  # until the headers are complete
    _stuck: asyncio.TimerHandle | None = None  # until the client reads on
    _is_surplus = False
    _in_headers = False
    _begins_here = False  # a request or its body, within the piece that is being read
    _framing = 0  # bytes beside the body, since the beginning or the end of the headers
    _most_framing = HEADER_BYTES
    _body = 0  # bytes for the application
    _unread = 0  # bytes of the body that came after the answer

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
        for start in range(0, len(data), _PIECE):
            if self.transport.is_closing():
                return
            self._read(data[start : start + _PIECE])

    def _read(self, piece: bytes) -> None:
        self._begins_here, body = False, self._body + self._unread
        super().data_received(piece)
        if self._begins_here:
            return  # which of the bytes came before is not known; `_count` saw those after
        self._framing += len(piece) - (self._body + self._unread - body)
        if self._is_too_much():
            self._close()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many requests before an answer")  # to the parser: answers 400
        super().on_message_begin()
        if self._is_surplus:
            self.scope[SURPLUS] = True  # type: ignore[literal-required]
        self._in_headers = self._begins_here = True
        self._framing = self._body = self._unread = 0
        self._most_framing = HEADER_BYTES
        self._wait()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url), 0)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value), _HEADER_COST)
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers, self._begins_here = False, True
        self._framing, self._most_framing = 0, FRAMING_BYTES
        self._end_wait()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Count a chunk; the parser calls it if it is there."""
        self._count(0, _CHUNK_COST)

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._unread += len(body)
            if self._unread > UNREAD_BYTES:
                raise ValueError("too many bytes of a body after its answer")
        else:
            self._body += len(body)
        super().on_body(body)

    def _count(self, size: int, cost: int) -> None:
        """Count the cost of a part, and its size unless `data_received` did."""
        self._framing += cost + (size if self._begins_here else 0)
        if self._is_too_much():
            raise ValueError("too many bytes beside the body")

    def _is_too_much(self) -> bool:
        return self._framing > self._most_framing + self._body

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
    if resource is None:
        return sys.maxsize, sys.maxsize
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if n == resource.RLIM_INFINITY else n for n in found)
    return soft, hard
