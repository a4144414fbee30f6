"""Clients that send headers without end, or none at all, or do not take their answers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0
HEADER_BYTES = 1 << 16
STUCK_SECONDS = 30.0


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP, with limits of time and size until the headers of a request are complete.

    From then on the application has its own, until its answer is on the way: a client that takes
    nothing of it for `STUCK_SECONDS` is cut off.
    """

    _waiting: asyncio.TimerHandle | None = None  # until the headers are complete
    _stuck: asyncio.TimerHandle | None = None  # until the client reads on
    _header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        self._end_stuck()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._waiting is None:
            self._wait()

    def on_headers_complete(self) -> None:
        self._end_wait()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waiting is not None:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._end_stuck()
        super().resume_writing()

    def _wait(self) -> None:
        self._header_bytes = 0
        self._waiting = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
