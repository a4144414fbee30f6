"""Nothing is kept of a request that has ended; benchmarks/soak.py has hours of it, and memory."""

from __future__ import annotations

import gc
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress

SECONDS = 60


def requests() -> list[bytes]:
    """Of many kinds, right ones and wrong ones, each on a connection of its own."""
    bodies = [
        json.dumps({"text": "cat purrs"}).encode(),
        json.dumps({"text": ["dog", "fish"] * 50, "k": 3, "threshold": 0.1}).encode(),
        json.dumps({"text": "cat", "labels": ["cat", "dog"]}).encode(),
        json.dumps({"text": "cat", "labels": ["no such label"]}).encode(),
        json.dumps({"text": [1] * 1000}).encode(),
        b"{",
        b'{"text": "\xff"}',
    ]
    head = (
        b"POST /v1/predict HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    found = [head % len(body) + body for body in bodies]
    found += [
        head % 1000 + b'{"text": "and then it went away',
        head % (1 << 40),
        b"no HTTP\r\n\r\n",
    ]
    paths = (b"/", b"/v1/labels?query=a", b"/v1/labels/1/similar", b"/v1/model", b"/nothing")
    return found + [b"GET %s HTTP/1.0\r\n\r\n" % path for path in paths]


def send(address: str, request: bytes) -> None:
    host, port = address.removeprefix("http://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=SECONDS) as client,
        suppress(ConnectionError),
    ):
        client.sendall(request)
        while b"went away" not in request and client.recv(1 << 16):
            pass


def test_nothing_is_kept_of_requests(address_of: Callable[..., str]) -> None:
    address = address_of("texts")

    def objects_after(rounds: int) -> int:
        for _ in range(rounds):
            for request in requests():
                send(address, request)
        gc.collect()
        return len(gc.get_objects())

    before = objects_after(10)
    end = time.monotonic() + SECONDS
    # Of 300 requests each would have left one. What is under way is not ended at once.
    while objects_after(20) > before + 150:
        assert time.monotonic() < end, "there are more objects after each round"
        before = max(before, objects_after(10))
