"""Clients that try to stop a server, for benchmarks/soak.py: only against this machine.

    python benchmarks/attackers.py PORT KIND [--clients 8] [--seconds 5] [--key KEY]

Each client sends what its kind of attack sends, for ever on one connection, and opens another when
that one ends. Answers are not read. Prints how much was sent, as JSON. The process has the lowest
priority: attackers elsewhere would take no processor time of the server's machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

CHUNKED = "Transfer-Encoding: chunked"


class Attack(NamedTuple):
    """What a client sends first, what it repeats, and seconds between the repetitions.

    They are longer for more than 1,000 clients, which would keep themselves busy.

    `head` has {} where a header with a key may be. Without `more`, one connection follows another.
    """

    head: str
    more: bytes = b""
    pause: float = 0.0


def post(*headers: str, body: str = "") -> str:
    lines = ["POST /v1/predict HTTP/1.1", "Host: a", "Content-Type: application/json", *headers]
    return "\r\n".join(lines) + "\r\n{}\r\n" + body


WRONG = '{"features": [' + "[1,2]," * 150_000 + "[1]]}"

KINDS = {
    "many headers": Attack("GET /v1/model HTTP/1.1\r\n{}", b"a: b\r\n" * 10_000),
    "one long header": Attack("GET /v1/model HTTP/1.1\r\n{}X: ", b"a" * 65_536),
    "many trailers": Attack(post(CHUNKED, body="2\r\n[]\r\n0\r\n"), b"a: b\r\n" * 10_000),
    "one long trailer": Attack(post(CHUNKED, body="2\r\n[]\r\n0\r\nX: "), b"a" * 65_536),
    "large chunk extensions": Attack(post(CHUNKED, body="2;"), b"a=b;" * 16_384),
    "tiny chunks": Attack(post(CHUNKED), b"1\r\n \r\n" * 10_000),
    "endless body": Attack(post("Content-Length: 1000000000000"), b" " * 65_536),
    "endless chunk": Attack(post(CHUNKED, body="ffffffffff\r\n"), b" " * 65_536),
    "requests without end": Attack("", b"GET /v1/model HTTP/1.1\r\nHost: a\r\n\r\n" * 1000),
    "wrong bodies of 900 KB": Attack(post(f"Content-Length: {len(WRONG)}", body=WRONG)),
    "no HTTP": Attack("no HTTP\r\n\r\n"),
    "slow headers": Attack("GET /v1/model HTTP/1.1\r\n{}X: ", b"a", 0.1),
    "slow body": Attack(post("Content-Length: 100000"), b" ", 0.1),
    "held bodies": Attack(post("Content-Length: 1000000", body=" " * 900_000), b" ", 0.1),
}


def attack(port: int, kind: Attack, key: str, end: float, counts: Counter) -> None:
    """Be one client until the end."""
    header = f"X-API-Key: {key}\r\n" if key else ""
    head = kind.head.replace("{}", header).encode()
    while (left := end - time.monotonic()) > 0:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), left) as client:
            counts["connections"] += 1
            client.settimeout(max(end - time.monotonic(), 0.01))
            client.sendall(head)
            while kind.more and time.monotonic() < end:
                counts["bytes"] += client.send(kind.more)
                time.sleep(kind.pause)
            if not kind.more:
                client.recv(1 << 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=["nobody", *KINDS])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(19)
    threading.stack_size(1 << 16)  # thousands of them may run
    counts: Counter = Counter()
    end = time.monotonic() + options.seconds
    if options.kind == "nobody":  # to compare with
        time.sleep(options.seconds)
        return
    kind = KINDS[options.kind]
    kind = kind._replace(pause=kind.pause * max(1, options.clients / 1000))
    arguments = (options.port, kind, options.key, end, counts)
    clients = [threading.Thread(target=attack, args=arguments) for _ in range(options.clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
