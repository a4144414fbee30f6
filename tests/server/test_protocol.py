"""Clients that are slow, silent, greedy or wrong, on real sockets."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from labelry.server import protocol
from labelry.server.app import create_app
from labelry.server.protocol import GuardedProtocol
from labelry.server.run import listen
from labelry.server.settings import ServerSettings

SECONDS = 20
MOST = 100 << 20  # bytes that a server may take before it ends a connection
Start = Callable[..., str]


LIVE = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = b'{"text": "cat"}'
PREDICT = b"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


class Talk:
    """Runs a conversation, of reader and writer, with a real server."""

    port: int

    def __init__(self, model: Path, timeout: float = SECONDS) -> None:
        app = create_app(ServerSettings(model, timeout=timeout))
        config = uvicorn.Config(
            app, http=GuardedProtocol, ws="none", log_config=None, limit_concurrency=3
        )
        self.server = uvicorn.Server(config)
        self._writers: list[asyncio.StreamWriter] = []

    def __call__(self, conversation: Callable[..., Awaitable[None]]) -> None:
        asyncio.run(self._run(conversation))

    async def _run(self, conversation: Callable[..., Awaitable[None]]) -> None:
        listener = listen("127.0.0.1", 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that buffers fill soon
        self.port = listener.getsockname()[1]
        serving = asyncio.create_task(self.server._serve([listener]))
        try:
            async with asyncio.timeout(SECONDS):
                await conversation(*await self.connect())
        finally:
            for writer in self._writers:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
            self.server.should_exit = True
            await serving

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    @property
    def clients(self) -> set[Any]:
        """Addresses of those that are connected."""
        return {connection.client for connection in self.server.server_state.connections}

    @property
    def connection(self) -> Any:
        """The server's end of the only connection."""
        (connection,) = self.server.server_state.connections
        return connection

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            await asyncio.sleep(0.005)


async def answer_to(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Headers and body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


@pytest.fixture
def talk(models: dict[str, Path]) -> Talk:
    return Talk(models["texts"])


def said(address: str, sent: bytes) -> bytes:
    """All that comes back, until the server closes the connection."""
    host, port = address.removeprefix("http://").split(":")
    answer = bytearray()
    with (
        socket.create_connection((host, int(port)), timeout=SECONDS) as client,
        suppress(ConnectionError),  # closed before all was read that was sent
    ):
        client.sendall(sent)
        while part := client.recv(1 << 16):
            answer += part
    return bytes(answer)


def test_silence_ends(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.05)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        assert await reader.read() == b""

    talk(conversation)


def test_a_clock_runs_whenever_no_request_is_being_answered(talk: Talk) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk.until(lambda: talk.server.server_state.connections)
        for _ in range(2):
            await talk.until(lambda: talk.connection._waiting)
            writer.write(PREDICT + b"Content-Length: 15\r\n\r\n")
            await talk.until(lambda: not talk.connection._waiting)  # the application has its own
            writer.write(b'{"text": "cat"}')
            assert b"200 OK" in (await answer_to(reader))[0]
        assert talk.connection._waiting

    talk(conversation)


def test_a_wall_clock_that_jumps_ends_nothing(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk.until(lambda: talk.server.server_state.connections)
        for now in (1.0, 1e10, 2e9, 0.0):
            writer.write(PREDICT + b"Content-Length: 15\r\n\r\n" + BODY[:5])
            await talk.until(lambda: talk.connection._body % 15 == 5)
            monkeypatch.setattr(time, "time", lambda now=now: now)
            writer.write(BODY[5:])
            assert b"200 OK" in (await answer_to(reader))[0]

    talk(conversation)


def test_a_body_that_nobody_waits_for_ends(talk: Talk) -> None:
    """The answer was there before it, and clears every other clock when it goes on."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
        assert b"404 Not Found" in (await answer_to(reader))[0]
        clock = talk.connection._waiting
        assert clock
        writer.write(b"a")
        await talk.until(lambda: talk.connection.timeout_keep_alive_task is None)
        assert talk.connection._waiting is clock  # not set back by what comes
        # When the body ends after all, the connection goes on.
        writer.write(b"a" * 99 + LIVE)
        assert b"200 OK" in (await answer_to(reader))[0]

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


TRAILERS = PREDICT + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
MORE = {
    "headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 100),
    "a header": (b"GET / HTTP/1.1\r\nX: ", b"a" * 1000),
    "a path": (b"GET /", b"a" * 1000),
    "trailers": (TRAILERS, b"a: b\r\n" * 100),
    "a trailer": (TRAILERS + b"X: ", b"a" * 1000),
    "an extension": (PREDICT + b"Transfer-Encoding: chunked\r\n\r\n2;", b"a=b;" * 300),
    "extensions": (
        PREDICT + b"Transfer-Encoding: chunked\r\n\r\n",
        (b"1;" + b"a" * 500 + b"\r\n \r\n") * 2,
    ),
    "chunks": (PREDICT + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 200),
}


@pytest.mark.parametrize("key", [None, "secret"])
@pytest.mark.parametrize("what", MORE)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_comes_beside_a_body_ends(
    address_of: Start, what: str, key: str | None, size: int
) -> None:
    """It comes little by little, or in pieces of a megabyte, with the key and without one."""
    head, more = MORE[what]
    assert until_reset(address_of("texts", api_key=key), head, more * size) < MOST


def until_reset(address: str, head: bytes, more: bytes) -> int:
    """Send `more` on and on; return how many bytes were sent until the server ended it."""
    host, port = address.removeprefix("http://").split(":")
    sent = 0
    with socket.create_connection((host, int(port)), timeout=SECONDS) as client:
        client.sendall(head)
        client.setblocking(False)
        with suppress(ConnectionError):
            while sent < MOST:
                readable, writable, _ = select.select([client], [client], [], SECONDS)
                assert readable or writable, "neither taken nor ended"
                with suppress(BlockingIOError):
                    if readable and not client.recv(1 << 16):
                        break
                    if writable:
                        sent += client.send(more)
    return sent


def test_what_comes_beside_a_body_is_counted_to_the_byte(talk: Talk) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PREDICT + b"Transfer-Encoding: chunked\r\n\r\n")
        await talk.until(lambda: talk.server.server_state.connections and talk.connection.cycle)
        begun = talk.connection._framing
        writer.write(b"3;a=b\r\n{}")
        await talk.until(lambda: talk.connection._body == 2)
        assert talk.connection._framing - begun == 7 + protocol._CHUNK_COST
        writer.write(b" \r\n")
        await talk.until(lambda: talk.connection._body == 3)
        writer.write(b"0\r\nX-Api: ")
        await talk.until(lambda: talk.connection._framing - begun == 19 + 2 * protocol._CHUNK_COST)

    talk(conversation)


def test_a_hundred_headers_are_taken(address_of: Start) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 80) for i in range(100))
    answer = said(address_of("texts"), b"GET /health/live HTTP/1.0\r\n" + many + b"\r\n")
    assert b"200 OK" in answer


def test_a_body_in_many_chunks_is_read(talk: Talk) -> None:
    body = json.dumps({"text": "cat " * 50_000}).encode()
    parts = [body[i : i + 150] for i in range(0, len(body), 150)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PREDICT + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        assert b"200 OK" in (await answer_to(reader))[0]
        writer.write(LIVE)
        assert b"200 OK" in (await answer_to(reader))[0]

    talk(conversation)


def test_a_trailer_is_no_header(address_of: Start) -> None:
    """A key, or the kind of a body, that stands behind it must not count."""
    body = b"POST /v1/predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n%s\r\n"
    body += b"f\r\n" + BODY + b"\r\n0\r\n%s\r\n"
    key, kind = b"X-API-Key: secret\r\n", b"Content-Type: application/json\r\n"
    for headers, trailers, expected in (
        (key + kind + b"Connection: close\r\n", b"X-A: b\r\n", b"200"),
        (kind + b"Connection: close\r\n", key, b"401"),
        (key + b"Connection: close\r\n", kind, b"415"),
    ):
        answer = said(address_of("texts", api_key="secret"), body % (headers, trailers))
        assert answer.split()[1] == expected


def test_a_body_is_not_read_for_ever_after_its_answer(address_of: Start) -> None:
    head = PREDICT + b"Content-Length: 1000000000000\r\n\r\n"
    assert until_reset(address_of("texts", api_key="secret"), head, b" " * (1 << 16)) < MOST


def test_a_slow_body_ends(models: dict[str, Path]) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"text": '
        )
        answer = await reader.read()
        assert b"408 Request Timeout" in answer
        assert b"slow_body" in answer

    Talk(models["texts"], timeout=0.2)(conversation)


def test_headers_that_come_at_once_are_counted_too(address_of: Start) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 80) for i in range(1000))
    answer = said(address_of("texts"), b"GET /health/live HTTP/1.1\r\n" + many + b"\r\n")
    assert b"200 OK" not in answer


def test_a_large_body_before_the_next_headers_is_not_counted_as_headers(talk: Talk) -> None:
    body = json.dumps({"text": "cat " * 50_000}).encode()
    request = PREDICT + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request + LIVE[:-2])
        assert b"200 OK" in (await answer_to(reader))[0]
        writer.write(LIVE[-2:])
        assert b"200 OK" in (await answer_to(reader))[0]

    talk(conversation)


@pytest.mark.parametrize(
    "request_",
    [
        # More than the buffers of both ends take, so that the server waits to write on.
        b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * protocol.MOST_PIPELINED,
        # Less than what makes it wait, but too much for a connection to be closed.
        b"GET /openapi.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ],
)
def test_a_client_that_does_not_read_is_cut_off(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    monkeypatch.setattr(protocol, "STUCK_SECONDS", 0.05)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", talk.port))
            await talk.until(lambda: client.getsockname() in talk.clients)
            await loop.sock_sendall(client, request_)
            await talk.until(lambda: client.getsockname() not in talk.clients)

    talk(conversation)


def test_requests_in_a_row_are_answered_in_order(talk: Talk) -> None:
    paths = [b"/health/live", b"/nothing", b"/health/ready", b"/nothing"] * 3

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in paths))
        for path in paths:
            head, body = await answer_to(reader)
            assert head.split()[1] == (b"404" if path == b"/nothing" else b"200")
            assert (b"model" in body) == (path == b"/health/ready")

    talk(conversation)


def test_requests_without_end_before_an_answer_end(address_of: Start) -> None:
    """Each would be kept until its turn."""
    answer = said(address_of("texts"), LIVE * 1000)
    assert answer.count(b"200 OK") < 1000


def test_connections_beyond_the_limit_are_told_and_those_within_are_served(talk: Talk) -> None:
    async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(LIVE)
        return b"".join(await answer_to(reader))

    async def conversation(*first: Any) -> None:
        within = [first, await talk.connect(), await talk.connect()]
        await talk.until(lambda: len(talk.server.server_state.connections) == 3)
        surplus = await talk.connect()
        await talk.until(lambda: len(talk.server.server_state.connections) == 4)
        answer = await asked(*surplus)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"too_many_connections" in answer
        assert b"retry-after: 1" in answer
        assert b"nosniff" in answer
        assert await surplus[0].read() == b""  # and closed
        for connection in within:
            assert b"200 OK" in await asked(*connection)
        within[1][1].close()
        await talk.until(lambda: len(talk.server.server_state.connections) == 2)
        assert b"200 OK" in await asked(*await talk.connect())

    talk(conversation)


def test_connections_leave_files_for_everything_else(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "most_connections", lambda: 1)

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(LIVE)
        assert b"200 OK" in (await answer_to(reader))[0]
        other, _ = await talk.connect()
        assert await other.read() == b""
        writer.write(LIVE)
        assert b"200 OK" in (await answer_to(reader))[0]

    talk(conversation)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET /health/live HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"200"),
        (b"GET http://other.example/health/live HTTP/1.0\r\n\r\n", b"200"),
        (b"HEAD /page/app.js HTTP/1.0\r\n\r\n", b"200"),
        (b"TRACE /health/live HTTP/1.0\r\nX-Echo: me\r\n\r\n", b"405"),
        (b"OPTIONS /v1/predict HTTP/1.0\r\nOrigin: http://a\r\n\r\n", b"405"),
        (b"OPTIONS * HTTP/1.0\r\n\r\n", b"404"),
        (b"CONNECT other.example:443 HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"BREW /health/live HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET /health/live\r\n\r\n", b"200"),  # of 1991
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET /health/live HTTP/1.1\r\nHost: a\r\nX-A: \x00\r\n\r\n", b"400"),
        (b"GET /health/live HTTP/1.1\r\nHost: a\r\nX A: b\r\n\r\n", b"400"),
        (PREDICT + b"Content-Length: -1\r\n\r\n" + BODY, b"400"),
        (PREDICT + b"Content-Length: 0x0f\r\n\r\n" + BODY, b"400"),
        (PREDICT + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n" + BODY, b"400"),
        (PREDICT + b"Content-Length: 99999999999\r\n\r\n" + BODY, b"413"),
        (PREDICT + b"Content-Length: 15\r\nContent-Length: 16\r\n\r\n" + BODY, b"400"),
        (PREDICT + b"Content-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY, b"400"),
        (PREDICT + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", b"400"),
        (PREDICT + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 40 + b"\r\n", b"400"),
        (PREDICT + b"Transfer-Encoding: chunked\r\n\r\nf;a=b\r\n" + BODY, b"408"),  # no end
        (PREDICT + b"Content-Length: 16\r\n\r\n" + BODY, b"408"),  # one byte short
        (PREDICT + b"Transfer-Encoding: chunked\r\n\r\n"
         + (b"8000\r\n" + b" " * 0x8000 + b"\r\n") * 40, b"413"),
    ],
)  # fmt: skip
def test_odd_and_wrong_requests(address_of: Start, request_: bytes, expected: bytes) -> None:
    limits = {"timeout": 0.2} if expected == b"408" else {}
    answer = said(address_of("texts", **limits), request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[:2] == [b"HTTP/1.1", expected]
    assert b"X-Echo" not in answer
    assert b"access-control" not in head.lower()
    assert body or request_.startswith(b"HEAD")
    if expected == b"405":
        assert b"\r\nallow: " in head


def test_a_body_longer_than_it_says_is_another_request(address_of: Start) -> None:
    sent = PREDICT + b"Content-Length: 15\r\n\r\n" + BODY + b"more\r\n\r\n"
    answer = said(address_of("texts"), sent)
    assert answer.count(b"HTTP/1.1 ") >= 1
    assert answer.rpartition(b"HTTP/1.1 ")[2].startswith(b"400")


def test_no_redirection_to_a_host_that_the_client_names(address_of: Start) -> None:
    sent = b"GET /v1/model/ HTTP/1.0\r\nHost: other.example\r\n\r\n"
    answer = said(address_of("texts"), sent)
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"other.example" not in answer


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page", "/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py",
     "/page/..%5capp.py", "/page/%2fetc%2fpasswd", "/..%2f..%2fetc/passwd", "//etc/passwd",
     "/page/app.js%00.css"],
)  # fmt: skip
def test_no_file_but_those_of_the_page(address_of: Start, path: str) -> None:
    answer = said(address_of("texts"), f"GET {path} HTTP/1.0\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"import" not in answer
    assert b"root:" not in answer


def test_what_is_no_http(talk: Talk) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert b"400 Bad Request" in await reader.read()

    talk(conversation)
