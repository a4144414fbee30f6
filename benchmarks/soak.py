"""The server for a long time, with very many connections, killed workers, and attackers.

    python benchmarks/soak.py [--parts connections,kills,attacks,soak] [--minutes 10]

Trains a tagger on ICD-10-CM and starts `labelry serve` with an API key, once for each part:

- `connections`: `--connections` are open at once, each with a request that has begun: first within
  the limit, then beyond it. Then as many send their headers one byte at a time, while others ask.
- `kills`: two workers are killed in turn, `--kills` times, while clients ask that try once more.
- `attacks`: each kind of benchmarks/attackers.py, with the key and without it, by 1, 8 and 64
  clients for `--seconds`, while the health of the server is asked for; memory and answers.
- `soak`: clients ask for `--minutes`, rightly and wrongly, and leave in the middle, and the model
  is replaced, every fifth time by a damaged one, and once in five times it is gone for three
  seconds; `--attackers` of each kind attack meanwhile, half
  of them with the key. `--good` clients ask rightly only, and their answers are timed. Memory is
  read every second. Of each connection that is lost it says when and how, and what the server wrote
  about that time.

Linux only; ends by itself, and asks and attacks only the server that it started. Prints Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
from attackers import KINDS

from labelry.data import write
from labelry.data.icd import icd10cm

LABELRY = [sys.executable, "-c", "from labelry.cli import main; main()"]
KEY = "secret"
ATTACKERS = Path(__file__).with_name("attackers.py")
HEAD = (
    f"POST /v1/predict HTTP/1.1\r\nHost: a\r\nX-API-Key: {KEY}\r\n"
    "Content-Type: application/json\r\nContent-Length: "
)
ATTACKERS_AT_ONCE = (1, 8, 64)
NEAR = timedelta(seconds=2)  # log lines that may have to do with a lost connection


class Loss(NamedTuple):
    """A connection that ended before its answer was there.

    `idle` is how long before the request it was last used, `waited` how long after it was lost;
    `answered` counts the requests before.
    """

    at: datetime
    doing: str
    error: str
    answered: int
    idle: float
    waited: float
    body: int


class Client:
    """A connection of a client, opened when there is something to ask."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.writer: asyncio.StreamWriter | None = None
        self.close()

    def lost(self, error: Exception, body: bytes) -> Loss:
        number = getattr(error, "errno", None)
        said = f"{type(error).__name__}{f' {errno.errorcode[number]}' if number else ''}"
        if isinstance(error, asyncio.IncompleteReadError):
            said += f" after {len(error.partial)} bytes"
        waited = time.monotonic() - self._asked
        idle = self._asked - self._used
        return Loss(datetime.now(), self._doing, said, self._answered, idle, waited, len(body))

    async def send(self, body: bytes) -> None:
        await self._write(f"{HEAD}{len(body)}\r\n\r\n".encode() + body)

    async def ask(self, body: bytes) -> int:
        """Status of the answer, when all of it is there."""
        await self.send(body)
        return await self._status()

    async def begin(self, length: int) -> int:
        """Status of a request without its body: 100 is to go on."""
        await self._write(f"{HEAD}{length}\r\nExpect: 100-continue\r\n\r\n".encode())
        return await self._status()

    async def end(self, body: bytes) -> int:
        """Status of a request that was begun."""
        await self._write(body)
        return await self._status()

    async def _write(self, data: bytes) -> None:
        self._asked = time.monotonic()
        if self.writer is None:
            self._doing, self._used = "connecting", self._asked
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._doing = "sending"
        self.writer.write(data)
        await self.writer.drain()

    async def _status(self) -> int:
        self._doing = "reading"
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await self.reader.readexactly(int(length[1]) if length else 0)
        self._used = time.monotonic()
        self._answered += 1
        if b"connection: close" in head:
            self.close()
        return int(head.split()[1])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()
        self.writer, self._answered = None, 0


@contextmanager
def server(path: Path, *options: object) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Port and process of a server that is ready."""
    command = [*LABELRY, "serve", str(path), "--port", "0", *map(str, options)]
    log = (path.parent / "server.log").open("a")
    environment = {**os.environ, "LABELRY_API_KEY": KEY}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
    )
    try:
        found = re.search(
            r"127\.0\.0\.1:(\d+)", process.stdout.readline() if process.stdout else ""
        )
        if not found:
            sys.exit("the server did not start")
        yield int(found[1]), process
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait():
            sys.exit(f"the server ended with {process.returncode}")


def memory(pid: int) -> float:
    """Memory that a process holds for itself, in MiB: without files that are mapped."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def workers_of(pid: int) -> list[int]:
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [c for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


# ---- attackers --------------------------------------------------------------------------------


class Health(NamedTuple):
    """Answers of /health/live on new connections, in milliseconds; and memory above that at rest.

    `working` is the slowest answer less the time in which the server or this process waited for a
    processor, as other work on the machine makes them.
    """

    median: float
    q99: float
    slowest: float
    working: float
    mib: float


def attackers(port: int, kind: str, n: int, key: str, seconds: float) -> subprocess.Popen[str]:
    """Start clients that attack for some seconds."""
    command = [sys.executable, str(ATTACKERS), str(port), kind, "--clients", str(n)]
    command += ["--key", key, "--seconds", str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def health(port: int) -> float:
    """Milliseconds for an answer on a new connection."""
    start = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    if b" 200 OK" not in answer:
        sys.exit(f"the health of the server was {answer!r}")
    return 1e3 * (time.perf_counter() - start)


def waited(pid: int) -> float:
    """Milliseconds that the first thread of a process has waited for a processor so far."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e6


def asked_under_attack(port: int, pid: int, kind: str, n: int, key: str, seconds: float) -> Health:
    rest = memory(pid)
    attack = attackers(port, kind, n, key, seconds)
    times, working, most = [], [], rest
    while attack.poll() is None:
        before = waited(pid) + waited(os.getpid())
        times.append(health(port))
        working.append(times[-1] - (waited(pid) + waited(os.getpid()) - before))
        most = max(most, memory(pid))
        time.sleep(0.005)
    median, q99 = float(np.median(times)), float(np.quantile(times, 0.99))
    return Health(median, q99, max(times), max(working), most - rest)


def attacks(path: Path, options: argparse.Namespace) -> None:
    print(f"## Attackers, each kind for {options.seconds:g} s\n")
    print("| | " + " | ".join(f"{n} | {n} with the key" for n in ATTACKERS_AT_ONCE) + " | MiB |")
    print("|---" * (2 * len(ATTACKERS_AT_ONCE) + 2) + "|")
    with server(path) as (port, process):
        for _ in range(100):
            health(port)
        for kind in ("nobody", *KINDS):
            found = [
                asked_under_attack(port, process.pid, kind, n, key, options.seconds)
                for n in ATTACKERS_AT_ONCE
                for key in ("", KEY)
            ]
            cells = [
                f"{each.median:.1f} / {each.q99:.0f} / {each.slowest:.0f} ({each.working:.0f})"
                for each in found
            ]
            most = max(each.mib for each in found)
            print(f"| {kind} | {' | '.join(cells)} | {most:.1f} |", flush=True)
    print(
        "\nMilliseconds until /health/live answers: median / 99 % / slowest (and the slowest less"
    )
    print("the time in which the server or the asker waited for a processor). MiB above rest.\n")


# ---- 1. very many connections -----------------------------------------------------------------


async def crowd(port: int, n: int, pid: int) -> tuple[Counter, float]:
    """Statuses on `n` connections, and the memory when a request has begun on each of them."""
    body = b'{"text": "pain in the left knee", "k": 3}'
    clients = [Client(port) for _ in range(n)]
    counts: Counter = Counter()
    told = await asyncio.gather(*(client.begin(len(body)) for client in clients))
    held = memory(pid)
    within = [client for client, status in zip(clients, told, strict=True) if status == 100]
    counts.update(status for status in told if status != 100)
    counts.update(await asyncio.gather(*(client.end(body) for client in within)))
    for client in clients:
        client.close()
    return counts, held


def connections(path: Path, options: argparse.Namespace) -> None:
    n = options.connections
    print(f"## {n:,} connections at once\n")
    print("| limit | statuses | MiB before | with all | after |\n|---|---|---|---|---|")
    for limit in (n, 1000):
        limits = ("--max-connections", limit, "--max-batch", 1024, "--timeout", 120)
        with server(path, *limits) as (port, process):
            before = asyncio.run(crowd(port, 10, process.pid))[1]
            counts, held = asyncio.run(crowd(port, n, process.pid))
            after = asyncio.run(crowd(port, 10, process.pid))[1]
            print(f"| {limit:,} | {dict(counts)} | {before:.1f} | {held:.1f} | {after:.1f} |")
    print()
    print("| headers byte by byte | health: median ms | slowest ms | MiB more |\n|---|---|---|---|")
    with server(path, "--max-connections", 2 * n) as (port, process):
        found = asked_under_attack(port, process.pid, "slow headers", n, "", 2 * options.seconds)
        print(f"| {n:,} clients | {found.median:.1f} | {found.slowest:.1f} | {found.mib:.1f} |\n")


# ---- 2. workers that are killed ---------------------------------------------------------------


async def insist(port: int, body: bytes, counts: Counter, stop: asyncio.Event) -> None:
    """Ask on and on, and once more where that fails."""
    client = Client(port)
    while not stop.is_set():
        for attempt in range(2):
            try:
                counts[await client.ask(body)] += 1
                break
            except (OSError, asyncio.IncompleteReadError):
                client.close()
                counts["asked again" if attempt == 0 else "failed"] += 1
    client.close()


async def kill_in_turn(port: int, pid: int, options: argparse.Namespace, counts: Counter) -> None:
    stop = asyncio.Event()
    body = b'{"text": "pain in the left knee", "k": 3}'
    clients = [insist(port, body, counts, stop) for _ in range(options.clients)]
    asking = asyncio.gather(*clients)
    for i in range(options.kills):
        await asyncio.sleep(2)
        victim = workers_of(pid)[i % 2]
        os.kill(victim, signal.SIGKILL)
        counts["killed"] += 1
        await until(lambda v=victim: len(workers_of(pid)) == 2 and v not in workers_of(pid))
    await asyncio.sleep(5)
    stop.set()
    await asking


async def until(condition: Callable[[], bool]) -> None:
    while True:
        with suppress(OSError):  # a process that ends while it is looked at
            if condition():
                return
        await asyncio.sleep(0.05)


def kills(path: Path, options: argparse.Namespace) -> None:
    counts: Counter = Counter()
    with server(path, "--workers", 2) as (port, process):
        asyncio.run(until(lambda: len(workers_of(process.pid)) == 2))
        asyncio.run(kill_in_turn(port, process.pid, options, counts))
    print(f"## {options.kills} workers killed under load\n\n{dict(counts)}\n")


# ---- 3. for a long time -----------------------------------------------------------------------


def bodies(texts: list[str]) -> list[bytes]:
    """Requests of many kinds; one in seven is wrong."""
    rng = np.random.default_rng(0)
    some = [json.dumps({"text": text, "k": 5}).encode() for text in texts[:2000]]
    some += [json.dumps({"text": texts[i : i + 64], "k": 10}).encode() for i in range(0, 2000, 64)]
    some += [json.dumps({"text": t, "explain": True, "k": 3}).encode() for t in texts[:50]]
    wrong = [b'{"text": "a", "k": 0}', b"{", b"[" * 3000, b'{"text": "\xff"}', b'{"text": 1e999}']
    wrong += [b'{"text": [' + b"1," * 100_000 + b"1]}", b'{"text": "' + b"a" * 2_000_000 + b'"}']
    wrong += [b'{"text": "a", "labels": ["no such label"]}', b'{"features": {"3": 1}}']
    some += 40 * wrong
    return [some[i] for i in rng.permutation(len(some))]


async def talk(
    port: int, wanted: list[bytes], number: int, counts: Counter, losses: list[Loss], end: float
) -> None:
    """Ask until the end; now and then leave without an answer, or begin what is not ended."""
    client = Client(port)
    place = number * 97
    while time.monotonic() < end:
        place += 1
        body = wanted[place % len(wanted)]
        try:
            if place % 50 == 0:
                await client.send(body)
                client.close()
                counts["left"] += 1
            elif place % 211 == 0:
                await client.send(body)
                client.writer.write(b"POST /v1/pre")  # type: ignore[union-attr]
                client.close()
                counts["half a request"] += 1
            else:
                counts[await client.ask(body)] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            # The answer to what is too large may be lost, as the connection ends while it is sent.
            counts["lost, too large" if len(body) > 1 << 20 else "lost"] += 1
            if len(body) <= 1 << 20:
                losses.append(client.lost(error, body))
            client.close()
    client.close()


async def ask_rightly(
    port: int, texts: list[str], number: int, times: list[float], lost: list[str], end: float
) -> None:
    """Ask for the labels of one text after the other; nothing of this may be lost or slow."""
    client = Client(port)
    place = number * 89
    while time.monotonic() < end:
        place += 1
        body = json.dumps({"text": texts[place % len(texts)], "k": 5}).encode()
        start = time.perf_counter()
        try:
            status = await client.ask(body)
        except (OSError, asyncio.IncompleteReadError) as error:
            lost.append(type(error).__name__)
            client.close()
        else:
            if status != 200:
                lost.append(str(status))
        times.append(time.perf_counter() - start)
        await asyncio.sleep(0.01)
    client.close()


async def replace(path: Path, other: Path, seconds: float, counts: Counter, end: float) -> None:
    """Put copies of a model in its place: every fifth is damaged, every fifth comes late."""
    while time.monotonic() + seconds < end:
        await asyncio.sleep(seconds)
        counts["replaced"] += 1
        fresh = path.with_name("fresh")
        await asyncio.to_thread(shutil.copytree, other, fresh)
        if counts["replaced"] % 5 == 0:
            file = fresh / "arrays.safetensors"
            os.truncate(file, file.stat().st_size // 2)
        path.rename(path.with_name("old"))
        if counts["replaced"] % 5 == 3:
            await asyncio.sleep(3)  # the server sees that there is none
        fresh.rename(path)
        await asyncio.to_thread(shutil.rmtree, path.with_name("old"))


async def watch(pid: int, curve: list[tuple[float, float]], end: float) -> None:
    start = time.monotonic()
    while time.monotonic() < end:
        curve.append((time.monotonic() - start, memory(pid)))
        await asyncio.sleep(1)


def soak(path: Path, texts: list[str], options: argparse.Namespace) -> None:
    wanted = bodies(texts)
    other = path.with_name("other")
    shutil.copytree(path, other)
    counts: Counter = Counter()
    losses: list[Loss] = []
    curve: list[tuple[float, float]] = []
    times: list[float] = []
    lost: list[str] = []
    seconds = 60 * options.minutes
    with server(path) as (port, process):

        async def everything() -> None:
            end = time.monotonic() + seconds
            clients = [talk(port, wanted, i, counts, losses, end) for i in range(options.clients)]
            clients += [ask_rightly(port, texts, i, times, lost, end) for i in range(options.good)]
            replacing = replace(path, other, options.replace, counts, end)
            await asyncio.gather(*clients, replacing, watch(process.pid, curve, end))

        n = options.attackers
        keys = [("", n - n // 2), (KEY, n // 2)]
        attacking = [
            attackers(port, kind, clients, key, seconds)
            for kind in KINDS
            for key, clients in keys
            if clients
        ]
        processes = {"the server": process.pid, "the clients": os.getpid()}
        before = {name: waited(pid) for name, pid in processes.items()}
        asyncio.run(everything())
        shares = {
            name: (waited(pid) - before[name]) / (10 * seconds) for name, pid in processes.items()
        }
        sent = [json.loads(attack.communicate()[0]) for attack in attacking]
        time.sleep(12)  # until connections that clients left have ended
        rest = memory(process.pid)
    answers = sum(n for what, n in counts.items() if isinstance(what, int))
    print(f"## {options.minutes:g} minutes, {options.clients} clients\n")
    if times:
        ms = 1e3 * np.array(times)
        print(
            f"{options.good} clients that ask rightly: {len(ms):,} requests, {len(lost)} lost "
            f"{dict(Counter(lost))}; ms: median {np.median(ms):.0f}, "
            f"99 % {np.quantile(ms, 0.99):.0f}, slowest {ms.max():.0f}\n"
        )
    if sent:
        connections_, mib = (sum(each.get(w, 0) for each in sent) for w in ("connections", "bytes"))
        print(
            f"{options.attackers} attackers of each of {len(KINDS)} kinds: {connections_:,} "
            f"connections, {mib / 2**20:,.0f} MiB\n"
        )
    print(f"{answers:,} answers, {answers / seconds:,.0f} a second: {dict(counts)}\n")
    tell_losses(losses, (path.parent / "server.log").read_text().splitlines())
    said = ", ".join(f"{name} {share:.0f} %" for name, share in shares.items())
    print(f"Time spent waiting for a processor, which other work held: {said}.\n")
    print("| minute | memory, MiB: median | least | most |\n|---|---|---|---|")
    for minute in range(int(np.ceil(seconds / 60))):
        part = [mib for at, mib in curve if minute <= at / 60 < minute + 1]
        if part:
            print(f"| {minute} | {np.median(part):.1f} | {min(part):.1f} | {max(part):.1f} |")
    print(f"\nAt rest in the end: {rest:.1f} MiB.\n", flush=True)


def tell_losses(losses: list[Loss], log: list[str]) -> None:
    """Each lost connection, and the lines that the server wrote near that time."""
    if not losses:
        return
    print("| lost at | while | error | answered before | idle, s | waited, s | bytes |")
    print("|---|---|---|---|---|---|---|")
    for at, doing, error, answered, idle, waited, body in losses:
        row = (f"{at:%H:%M:%S.%f}", doing, error, answered, f"{idle:.3f}", f"{waited:.3f}", body)
        print("|", " | ".join(map(str, row)), "|")
    print()
    for line in log:
        with suppress(ValueError):  # not the first line of an entry
            written = datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S")
            if any(abs(written - loss.at) < NEAR for loss in losses):
                print(f"    {line}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--replace", type=float, default=10, help="seconds between new models")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--good", type=int, default=4, help="clients that ask rightly only")
    parser.add_argument("--attackers", type=int, default=2, help="of each kind, in the soak")
    parser.add_argument("--seconds", type=float, default=3, help="of each attack alone")
    parser.add_argument("--parts", default="connections,kills,attacks,soak")
    parser.add_argument("--model", type=Path, help="a tagger of texts, instead of training one")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        path, data = Path(folder) / "icd.labelry", icd10cm()
        if options.model:
            shutil.copytree(options.model, path)
        else:
            write(data.train, Path(folder) / "train.jsonl")
            train = ["train", str(Path(folder) / "train.jsonl"), "--out", str(path), "--quiet"]
            subprocess.run([*LABELRY, *train, "--quality", "fast"], check=True)
        parts: dict[str, Callable[[], None]] = {
            "connections": lambda: connections(path, options),
            "kills": lambda: kills(path, options),
            "attacks": lambda: attacks(path, options),
            "soak": lambda: soak(path, data.test.texts or [], options),
        }
        load = os.getloadavg()[0]
        print(f"{os.cpu_count()} processors; load of the machine before the runs: {load:.1f}.\n")
        for part in options.parts.split(","):
            parts[part]()


if __name__ == "__main__":
    main()
