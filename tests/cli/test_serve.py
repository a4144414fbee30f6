"""`labelry serve` as a person runs it: a real process, asked over a real socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import labelry
from labelry.cli import main
from labelry.server.logs import MOST_LINES

LABELRY = [sys.executable, "-c", "from labelry.cli import main; main()"]
SECONDS = 180  # after which a test gives up waiting


@pytest.fixture
def model(tmp_path: Path) -> Path:
    fit("cat", tmp_path / "animals.labelry")
    return tmp_path / "animals.labelry"


def fit(first: str, path: Path) -> None:
    texts = [f"{first} sits", "dog barks"] * 3
    model = labelry.Rembrandt(embedding_dim=1, decoder="least-squares", n_jobs=1)
    model.fit(texts, [[first], ["dog"]] * 3).save(path, force=True)


@contextmanager
def serving(
    *arguments: object, before: str = "", **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address and process of a server that is ready."""
    command = [*LABELRY[:-1], before + LABELRY[-1], "serve", *map(str, arguments), "--port", "0"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, **environment}, **pipes)
    try:
        line = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, process.communicate()[1]
        yield found.group(), process
    finally:
        process.kill()
        process.communicate()


def get(url: str, body: Any = None, key: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urlopen(Request(url, data, headers), timeout=SECONDS) as answer:
        raw = answer.read()
        return json.loads(raw) if "json" in answer.headers["content-type"] else raw.decode()


def best(address: str, text: str, key: str = "") -> str:
    found = get(f"{address}/v1/predict", {"text": text, "k": 1}, key)
    return found["predictions"][0][0]["label"]


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def test_ask_replace_and_end_with_a_request_in_flight(model: Path) -> None:
    key = "s3cret"
    with serving(model, LABELRY_API_KEY=key) as (address, process):
        with pytest.raises(OSError, match="401"):
            best(address, "the cat sits")
        assert best(address, "the cat sits", key) == "cat"
        old = get(f"{address}/health/ready")["model"]
        fit("cow", model)
        until(lambda: get(f"{address}/health/ready")["model"] != old)
        assert best(address, "the cow sits", key) == "cow"

        # The headers are there and half of the body: the request has begun.
        port = int(address.rpartition(":")[2])
        client = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        body = b'{"text": "the cow sits", "k": 1}'
        head = "POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        head += f"X-API-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body[:9])
        get(f"{address}/health/live")  # a round trip later the server has read it
        process.send_signal(signal.SIGTERM)
        until(lambda: refuses(port))
        client.sendall(body[9:])
        answer = b"".join(iter(lambda: client.recv(4096), b""))
        client.close()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b'"label": "cow"' in answer
        assert process.wait(SECONDS) == 0
        assert "now serving model" in (process.stderr.read() if process.stderr else "")


def test_the_client_of_the_examples(model: Path) -> None:
    client = Path(__file__).parents[2] / "examples" / "server_client.py"
    with serving(model) as (address, _):
        asked = [sys.executable, client, address, "dog barks", "cat sits"]
        lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")
    assert (lines[0], lines[3]) == ("dog barks", "cat sits")
    assert {line.split()[1] for line in lines[1:3]} == {"cat", "dog"}


def test_ctrl_c_ends_it_and_is_no_error(model: Path) -> None:
    with serving(model) as (_, process):
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert process.stderr
        assert process.stderr.read() == "labelry: loading animals.labelry\n"


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of the workers; Linux says them."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [pid for pid, command in commands.items() if b"spawn_main" in command]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_a_worker_that_is_killed_is_replaced(model: Path) -> None:
    with serving(model, "--workers", 2) as (address, process):
        until(lambda: len(workers_of(process)) == 2)
        first = workers_of(process)
        asked = 40
        for _ in range(asked):  # each on a connection of its own, so both workers answer
            assert best(address, "the cat sits") == "cat"
        line = f'labelry_requests_total{{path="/v1/predict",status="200"}} {asked}.0'
        assert line in get(f"{address}/metrics")
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(workers_of(process)) == 2 and first[0] not in workers_of(process))
        assert best(address, "the cat sits") == "cat"
        line = f'labelry_requests_total{{path="/v1/predict",status="200"}} {asked + 1}.0'
        assert line in get(f"{address}/metrics")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent to look."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_workers_end_with_a_parent_that_is_killed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    with serving(model, "--workers", 2, TMPDIR=str(tmp_path / "figures")) as (address, process):
        until(lambda: len(workers_of(process)) == 2)
        assert best(address, "the cat sits") == "cat"
        assert list((tmp_path / "figures").glob("labelry-metrics-*"))
        workers = workers_of(process)
        process.kill()
        until(lambda: not any(map(is_there, workers)))
        until(lambda: refuses(int(address.rpartition(":")[2])))  # their last threads have ended
        assert not list((tmp_path / "figures").glob("labelry-metrics-*"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_a_worker_that_is_stopped_does_not_keep_the_server(model: Path) -> None:
    with serving(model, "--workers", 2, "--timeout", 0.5) as (address, process):
        until(lambda: len(workers_of(process)) == 2)
        assert best(address, "the cat sits") == "cat"
        workers = workers_of(process)
        os.kill(workers[0], signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        assert not any(map(is_there, workers))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_a_worker_that_is_stopped_is_replaced(model: Path) -> None:
    sooner = "import labelry.server.run as run; run._SILENT_SECONDS = 0.5; "
    with serving(model, "--workers", 2, before=sooner) as (address, process):
        until(lambda: len(workers_of(process)) == 2)
        stopped = workers_of(process)[0]
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: len(workers_of(process)) == 2 and stopped not in workers_of(process))
        assert best(address, "the cat sits") == "cat"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_hangup_drains(model: Path, workers: int) -> None:
    options = ("--timeout", SECONDS, "--workers", workers)
    with serving(model, *options, before=OWN_GROUP) as (address, process):
        body = b'{"text": "the cat sits", "k": 1}'
        status, connection = begun(address, body)
        assert status == 100
        os.killpg(process.pid, signal.SIGHUP)  # as a terminal that is closed sends it
        until(lambda: refuses(int(address.rpartition(":")[2])))
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
        connection.close()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert process.wait(SECONDS) == 0


def test_a_hangup_is_ignored_as_nohup_wants_it(model: Path) -> None:
    ignore = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    with serving(model, before=ignore) as (address, process):
        process.send_signal(signal.SIGHUP)
        assert best(address, "the cat sits") == "cat"


OWN_GROUP = "import os; os.setpgid(0, 0); "


def test_a_server_without_a_key_says_who_can_reach_it(model: Path) -> None:
    for options, environment, expected in (
        (("--host", "0.0.0.0"), {"LABELRY_API_KEY": "a"}, False),
        (("--host", "0.0.0.0"), {}, True),
        (("--host", "127.0.0.1"), {}, False),
    ):
        command = [*LABELRY, "serve", str(model), "--port", "0", *options]
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        assert process.stdout.readline().startswith("serving animals.labelry")
        process.terminate()
        said = process.communicate(timeout=SECONDS)[1]
        assert ("whoever can reach this address can use the server" in said) is expected


def test_the_log_of_wrong_requests_is_short(model: Path) -> None:
    with serving(model, LABELRY_API_KEY="secret") as (address, process):
        host, port = address.removeprefix("http://").split(":")
        for _ in range(100):
            with socket.create_connection((host, int(port)), timeout=SECONDS) as client:
                client.sendall(b"no HTTP\r\n\r\n")
                assert b"400" in client.recv(4096)
        process.terminate()
        said = process.communicate(timeout=SECONDS)[1]
        assert said.count("Invalid HTTP request") == MOST_LINES


# Workers, but not the process that starts them, wait here until they are let go.
WAITING = """
import os, sys, time
while "--multiprocessing-fork" in sys.orig_argv and not os.path.exists({go!r}):
    time.sleep(0.01)
"""


@contextmanager
def loading(model: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A server whose workers are loading, and the file that lets them go on once it is there."""
    go = model.parent / "go"
    (model.parent / "sitecustomize.py").write_text(WAITING.format(go=str(go)))
    paths = os.pathsep.join([str(model.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [*LABELRY, "serve", str(model), "--workers", "2", "--port", "0"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
    try:
        until(lambda: len(workers_of(process)) == 2)
        yield go, process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
class TestWorkersThatLoad:
    def test_are_waited_for(self, model: Path) -> None:
        with loading(model) as (go, process):
            go.touch()
            assert process.stdout
            assert process.stdout.readline().startswith("serving animals.labelry at http://")
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0

    def test_may_end_instead(self, model: Path) -> None:
        with loading(model) as (_, process):
            os.kill(workers_of(process)[1], signal.SIGKILL)
            out, err = process.communicate(timeout=SECONDS)
            assert (process.returncode, out) == (1, "")
            why = "a worker ended with exit code -9 before it had loaded the model"
            assert err == f"labelry: loading animals.labelry\nlabelry: {why}\n"

    def test_end_with_the_server(self, model: Path) -> None:
        with loading(model) as (_, process):
            workers = workers_of(process)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
            out, err = process.communicate(timeout=SECONDS)
            assert (process.returncode, out) == (0, "")
            assert err == "labelry: loading animals.labelry\n"
            assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


class Client(threading.Thread):
    """Asks on and on, on a connection that it keeps, and once more where that fails."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._host = address.removeprefix("http://")
        self.answered = 0
        self.failures: list[Exception] = []
        self.stop = threading.Event()

    def run(self) -> None:
        connection = HTTPConnection(self._host, timeout=SECONDS)
        while not (self.stop.is_set() or self.failures):
            try:
                self._ask(connection)
            except (OSError, HTTPException):
                connection.close()
                try:
                    self._ask(connection)
                except Exception as error:
                    self.failures.append(error)
        connection.close()

    def _ask(self, connection: HTTPConnection) -> None:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/predict", '{"text": "the cat sits", "k": 1}', headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        if answer.status != 200 or found["predictions"][0][0]["label"] != "cat":
            raise AssertionError(f"{answer.status}: {found}")
        self.answered += 1


def begun(address: str, body: bytes) -> tuple[int, socket.socket]:
    """A connection on which a request has begun, and what it was told: 100 is to go on."""
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=SECONDS)
    head = "POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    head += f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode())
    return int(client.recv(4096).split()[1]), client


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_workers_are_killed_and_the_server_ended_under_load(model: Path) -> None:
    with serving(model, "--workers", 2, "--timeout", SECONDS) as (address, process):
        until(lambda: len(workers_of(process)) == 2)
        clients = [Client(address) for _ in range(2)]
        for client in clients:
            client.start()
        try:
            for pid in workers_of(process):
                before = [client.answered for client in clients]
                until(lambda b=before: all(c.answered > n for c, n in zip(clients, b, strict=True)))
                os.kill(pid, signal.SIGKILL)
                until(lambda p=pid: len(workers_of(process)) == 2 and p not in workers_of(process))
            before = [client.answered for client in clients]
            until(lambda: all(c.answered > n for c, n in zip(clients, before, strict=True)))
        finally:
            for client in clients:
                client.stop.set()
            for client in clients:
                client.join()
        assert [client.failures for client in clients] == [[], []]

        body = b'{"text": "the cat sits", "k": 1}'
        statuses, connections = zip(*(begun(address, body) for _ in range(8)), strict=True)
        assert set(statuses) == {100}
        process.send_signal(signal.SIGTERM)
        until(lambda: refuses(int(address.rpartition(":")[2])))
        for connection in connections:
            connection.sendall(body)
        for connection in connections:
            answer = b"".join(iter(lambda c=connection: c.recv(4096), b""))
            connection.close()
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b'"label": "cat"' in answer
        assert process.wait(SECONDS) == 0


def may_begin(address: str) -> bool:
    status, connection = begun(address, b"{}")
    connection.close()
    return status == 100


def test_more_connections_than_files_were_allowed(model: Path) -> None:
    lower = "import resource as r; n = r.RLIMIT_NOFILE; r.setrlimit(n, (100, r.getrlimit(n)[1])); "
    options = ("--max-connections", 150, "--timeout", SECONDS)
    with serving(model, *options, before=lower) as (address, _):
        statuses, connections = zip(*(begun(address, b"{}") for _ in range(200)), strict=True)
        assert statuses == (100,) * 150 + (503,) * 50
        for connection in connections:
            connection.close()
        until(lambda: may_begin(address))


@pytest.fixture
def failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What the command says when it ends with exit code 2."""
    for stream in ("stdout", "stderr"):  # a command replaces them
        monkeypatch.setattr(sys, stream, getattr(sys, stream))

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["labelry", "serve", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        said = capfd.readouterr()
        assert said.out == ""
        return said.err

    return run


def test_bad_model_and_port(failure: Callable[..., str], model: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        said = failure(tmp_path / "nothing", "--port", 0, "--workers", workers)
        assert "there is no model at" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = failure(model, "--port", port)
        why = f"labelry: cannot listen on 127.0.0.1 port {port}: Address already in use"
        assert said.splitlines()[-1] == why
    assert "--host must not be empty" in failure(model, "--host", "")
    assert "cannot listen on no.such.host" in failure(model, "--host", "no.such.host.invalid")
    assert "timeout must be positive" in failure(model, "--timeout", 0)
    assert "--max-connections must be at most" in failure(model, "--max-connections", 1 << 40)


def test_bad_keys(
    failure: Callable[..., str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_text("\n")
    assert "API key is empty" in failure(model, "--api-key-file", tmp_path / "empty")
    assert "cannot read" in failure(model, "--api-key-file", tmp_path / "none")
    monkeypatch.setenv("LABELRY_API_KEY", "schlüssel")
    said = failure(model)
    assert "ASCII" in said
    assert "schl" not in said


def test_without_the_extra(model: Path) -> None:
    hide = "import sys; sys.modules['fastapi'] = None; "
    command = [sys.executable, "-c", hide + LABELRY[2], "serve", str(model)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert (
        "labelry serve needs the package 'fastapi': pip install 'labelry[serve]'" in result.stderr
    )


def test_help_has_an_example() -> None:
    result = subprocess.run([*LABELRY, "serve", "--help"], capture_output=True, text=True)
    assert "Example: labelry serve tagger.labelry" in result.stdout
