"""HTTP servers that could carry the application of `labelry serve`: their cost, and attacks.

    pip install granian hypercorn
    python benchmarks/http_servers.py MODEL

For a saved model of texts: processor time of a request to predict, asked by 8 clients that keep
their connections; the slowest answer of /health/live, and memory, while 8 clients of a kind of
benchmarks/attackers.py attack. Linux only. Prints Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from serving import processor_seconds
from soak import KEY, Client, attackers, health, memory

KINDS = ("many headers", "many trailers", "one long trailer", "large chunk extensions")
KINDS += ("tiny chunks",)
CLIENTS = 8
APPLICATION = "http_servers:application"
UVICORN = ["-m", "uvicorn", "--factory", APPLICATION, "--no-access-log", "--log-level", "error"]
COMMANDS = {
    "labelry serve": ["-c", "from labelry.cli import main; main()", "serve", "MODEL"],
    "uvicorn, httptools": [*UVICORN, "--http", "httptools"],
    "uvicorn, h11": [*UVICORN, "--http", "h11"],
    "granian": ["-m", "granian", "--interface", "asgi", "--factory", APPLICATION],
    "hypercorn": ["-m", "hypercorn", "-k", "uvloop", "http_servers:application()"],
}


def application() -> object:
    """Return the application, for servers that find it by its name."""
    from labelry.server.app import create_app
    from labelry.server.settings import ServerSettings

    return create_app(ServerSettings(Path(os.environ["LABELRY_MODEL"]), api_key=KEY))


def processes(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in processes(int(child)))]


def held(pid: int) -> float:
    return sum(memory(each) for each in processes(pid))


@contextmanager
def server(name: str, model: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of a server that answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(model) if part == "MODEL" else part for part in COMMANDS[name]]
    address = ["-b", f"127.0.0.1:{port}"] if name == "hypercorn" else ["--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, *command, *address],
        env={**os.environ, "LABELRY_MODEL": str(model), "LABELRY_API_KEY": KEY},
        cwd=Path(__file__).parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            if process.poll() is not None:
                sys.exit(f"{name} did not start")
            with suppress(OSError):
                health(port)
                break
            time.sleep(0.1)
        yield port, process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def cost(port: int, pid: int, seconds: float) -> tuple[float, float]:
    """Requests a second, and microseconds of processor time for each."""
    body = b'{"text": "pain in the left knee", "k": 5}'

    async def ask(end: float) -> int:
        client, n = Client(port), 0
        while time.monotonic() < end:
            if await client.ask(body) != 200:
                sys.exit("a request was not answered")
            n += 1
        client.close()
        return n

    async def everyone() -> int:
        end = time.monotonic() + seconds
        return sum(await asyncio.gather(*(ask(end) for _ in range(CLIENTS))))

    asyncio.run(everyone())
    before = processor_seconds(pid)
    n = asyncio.run(everyone())
    return n / seconds, 1e6 * (processor_seconds(pid) - before) / n


def under_attack(port: int, pid: int, kind: str, seconds: float) -> str:
    rest = most = held(pid)
    slowest = 0.0
    attack = attackers(port, kind, CLIENTS, "", seconds)
    while attack.poll() is None:
        try:
            slowest = max(slowest, health(port))
        except OSError:
            slowest = float("inf")
        most = max(most, held(pid))
        time.sleep(0.01)
    return f"{slowest:.0f} ms, {most - rest:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--servers", default=";".join(COMMANDS), help="separated by ;")
    options = parser.parse_args()
    print("| | requests/s | µs | " + " | ".join(KINDS) + " |\n" + "|---" * (len(KINDS) + 3) + "|")
    for name in options.servers.split(";"):
        with server(name, options.model.resolve()) as (port, pid):
            speed, each = cost(port, pid, options.seconds)
        cells = []
        for kind in KINDS:  # each on a server of its own: some do not recover
            with server(name, options.model.resolve()) as (port, pid):
                cells.append(under_attack(port, pid, kind, options.seconds))
        print(f"| {name} | {speed:,.0f} | {each:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
