"""The processes and the socket of a server."""

from __future__ import annotations

import atexit
import gc
import ipaddress
import logging
import math
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

import uvicorn
from fastapi import FastAPI
from numba import threading_layer  # type: ignore[attr-defined]
from prometheus_client.multiprocess import mark_process_dead
from threadpoolctl import threadpool_limits
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from labelry.errors import LabelryError
from labelry.server.app import create_app
from labelry.server.logs import CONFIGURATION
from labelry.server.metrics import SHARED
from labelry.server.protocol import GuardedProtocol, allow_connections
from labelry.server.served import load_served
from labelry.server.settings import ServerSettings

_SILENT_SECONDS = 15  # without an answer to its parent, after which a worker is replaced
_LOOK_SECONDS = 0.1  # between checks of signals and workers
_RECEIVE_BYTES = 1 << 16  # that wait to be read; Linux takes twice as many
_LATE_SECONDS = 5.0  # after its time to end, before a worker is killed
_PAUSE_SECONDS = 5.0  # before a worker that could not load the model ends and is replaced

_HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
_TERMINAL = {signal.SIGINT, signal.SIGHUP} if _HANGUP else {signal.SIGINT}


def serve(
    settings: ServerSettings, host: str, port: int, workers: int, ready: Callable[[str, bool], None]
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, then finish the open requests.

    `ready` is called with the address, and whether other machines can reach it.

    A `ModelError` if the model cannot be loaded, a `ValueError` if the address cannot be listened
    on or there cannot be so many connections, and a `LabelryError` if a worker ends before any of
    them has loaded the model.
    """
    allow_connections(settings.max_connections)
    hold_blas()
    with listen(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        announce = partial(ready, address, is_beyond_this_machine(listener))
        if workers == 1:
            app = create_app(settings)
            check_threads()
            _serve_here(_config(app, settings), listener, announce)
            return
        load_served(settings.model)  # a model that cannot be served is reported once
        check_threads()
        config = _config(partial(_worker, settings), settings, workers=workers, factory=True)
        with tempfile.TemporaryDirectory(prefix="labelry-metrics-") as folder:
            os.environ[SHARED] = folder
            _Workers(config, listener, announce).run()


def hold_blas() -> None:
    """Hold BLAS to one thread, for as long as this process runs.

    Parallel work is done by processes. With more threads, those of BLAS wait for each other on busy
    processors, some of them with Python's lock: a model that was loaded held up requests for a
    second (benchmarks/soak.py).
    """
    threadpool_limits(1)


def check_threads() -> None:
    """A `LabelryError` if a kernel ran on threads of numba's own.

    labelry has its own threads (see docs/architecture.md). numba's simplest layer ends the process
    if two threads call it at once, as happens here while a model is replaced.
    """
    try:
        layer = threading_layer()
    except ValueError:  # none was started
        return
    raise LabelryError(
        f"numba's threading layer {layer!r} is in use, which is not safe in a server: a kernel was "
        "compiled with parallel=True"
    )


def _config(app: Callable[..., Any], settings: ServerSettings, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        log_config=CONFIGURATION,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=math.ceil(2 * settings.timeout),
        timeout_worker_healthcheck=_SILENT_SECONDS,
        **options,
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that clients can connect to."""
    if not host:  # the system would take it for all addresses
        raise ValueError(
            "the host is empty: give an address, such as 127.0.0.1, or 0.0.0.0 for all"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Of each connection; otherwise it grows to megabytes, which are all read at a time while
        # the other clients wait.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError, ValueError, TypeError) as error:  # the last two: of the name
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot listen on {host} port {port}: {reason}") from error
    listener.set_inheritable(True)
    return listener


def is_beyond_this_machine(listener: socket.socket) -> bool:
    """Return whether other machines may reach a socket."""
    return not ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def _serve_here(config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]) -> None:
    # uvicorn raises the signal that ended it again; here this end is not an error.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if _heeds_hangups():
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    _Server(config, ready).run(sockets=[listener])


def _heeds_hangups() -> bool:
    """Return whether a hangup is to end this process; nohup says no."""
    return _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


class _Workers(Multiprocess):
    """Waits until the first worker serves; from then on replaces workers that end."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]
    ) -> None:
        heeds_hangups = _heeds_hangups()
        super().__init__(config, sockets=[listener])
        if _HANGUP is not None and not heeds_hangups:
            signal.signal(_HANGUP, signal.SIG_IGN)
        self._ready = ready
        self._serving = False
        self._failed: int | None = None  # exit code of a worker that ended before any served

    def init_processes(self) -> None:
        with _signals_for_this_process():
            super().init_processes()

    def handle_hup(self) -> None:
        self.handle_term()

    def run(self) -> None:
        self.init_processes()
        while not self.should_exit.wait(_LOOK_SECONDS):
            self.handle_signals()
            self.keep_subprocess_alive()
        self.terminate_all()
        self.join_all()
        if self._failed is not None:
            raise LabelryError(
                f"a worker ended with exit code {self._failed} before it had loaded the model"
            )

    def terminate_all(self) -> None:
        for listener in self.sockets:  # so that clients do not wait in vain
            listener.close()
        if self._serving:
            super().terminate_all()
            return
        for worker in self.processes:  # none serves a request yet
            worker.kill()

    def join_all(self) -> None:
        """Wait for the workers to answer what has begun; kill one that hangs or is stopped."""
        end = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + _LATE_SECONDS
        for worker in self.processes:
            worker.process.join(max(end - time.monotonic(), 0))
            if worker.exitcode is None:
                worker.process.kill()
                worker.process.join()

    def keep_subprocess_alive(self) -> None:
        if not self._serving:
            self._look_for_the_first()
            return
        before = {process.pid for process in self.processes}
        with _signals_for_this_process():
            super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]  # its counts stay

    def _look_for_the_first(self) -> None:
        ended = [worker.exitcode for worker in self.processes if worker.exitcode is not None]
        if ended:
            self._failed = ended[0]
            self.should_exit.set()
        elif any(map(_is_serving, self.processes)):
            self._serving = True
            self._ready()


@contextmanager
def _signals_for_this_process() -> Iterator[None]:
    """Keep Ctrl-C and hangups from the workers that are started meanwhile.

    A terminal sends both to them too. They would end at once, or print a traceback; this process
    ends them. It heeds the signals afterwards.
    """
    resource_tracker.ensure_running()  # or it is started with the first, and lets them through
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERMINAL)


def _is_serving(worker: Process) -> bool:
    """Return whether a worker answers at once; one that is importing answers all pings later."""
    said = worker.is_ready(timeout=0.1)
    while worker.parent_conn.poll():
        said = worker.parent_conn.recv()
    return said


def _worker(settings: ServerSettings) -> FastAPI:
    """Return the application of a worker process.

    A worker that replaces a dead one may find a broken model, which the other workers refused. If
    it raised an error, uvicorn would end all workers, so it exits after a pause.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    atexit.register(gc.freeze)  # as in its parent, so that it ends sooner
    hold_blas()
    try:
        app = create_app(settings)
        check_threads()
        return app
    except Exception as error:
        logging.getLogger("labelry.server").error("a worker cannot start: %s", error)
        time.sleep(_PAUSE_SECONDS)
        os._exit(1)  # at once, so that its parent does not wait


def _end_with_parent() -> None:
    """Wait until the parent is killed, then end at once: nobody else would end this worker."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    shutil.rmtree(os.environ[SHARED], ignore_errors=True)  # as the parent does at its end
    os._exit(1)
