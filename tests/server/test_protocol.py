"""Headers that do not end, or do not come; what is no HTTP at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn

from labelry.server import protocol
from labelry.server.app import create_app
from labelry.server.protocol import GuardedProtocol
from labelry.server.run import listen
from labelry.server.settings import Settings

SECONDS = 20


class Talk:
    """Runs a conversation, of reader and writer, with a real server."""

    def __init__(self, model: Path) -> None:
        app = create_app(Settings(model, timeout=0.2))
        config = uvicorn.Config(app, http=GuardedProtocol, ws="none", log_config=None)
        self.server = uvicorn.Server(config)

    def __call__(self, conversation: Callable[..., Awaitable[None]]) -> None:
        asyncio.run(self._run(conversation))

    async def _run(self, conversation: Callable[..., Awaitable[None]]) -> None:
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        serving = asyncio.create_task(self.server._serve([listener]))
        try:
            async with asyncio.timeout(SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                await conversation(reader, writer)
                writer.close()
        finally:
            self.server.should_exit = True
            await serving


@pytest.fixture
def talk(models: dict[str, Path]) -> Talk:
    return Talk(models["texts"])


def test_silence_ends(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.05)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        assert await reader.read() == b""

    talk(conversation)


def test_the_clock_stops_when_headers_are_complete(talk: Talk) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(b'{"status": "live"}')) == b'{"status": "live"}'
            (connection,) = talk.server.server_state.connections
            assert connection._waiting is None

    talk(conversation)


def test_endless_headers_end(talk: Talk) -> None:
    async def send_for_ever(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"X-More: " + b"a" * 10_000 + b"\r\n")
            await writer.drain()

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            await send_for_ever(writer)

    talk(conversation)


def test_a_slow_body_ends(talk: Talk) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"text": '
        )
        answer = await reader.read()
        assert b"408 Request Timeout" in answer
        assert b"slow_body" in answer

    talk(conversation)


def test_a_client_that_does_not_read_is_cut_off(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "STUCK_SECONDS", 0.05)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # 10,000 pages, far more than the buffers of both ends take.
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 10_000)
        with pytest.raises(ConnectionError):
            await writer.wait_closed()

    talk(conversation)


def test_what_is_no_http(talk: Talk) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert b"400 Bad Request" in await reader.read()

    talk(conversation)
