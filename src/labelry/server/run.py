"""Processes and sockets of a server."""

from __future__ import annotations

import atexit
import gc
import logging
import math
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

import uvicorn
from fastapi import FastAPI
from numba import threading_layer  # type: ignore[attr-defined]
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from labelry.errors import LabelryError
from labelry.server.app import create_app
from labelry.server.metrics import SHARED, forget_process
from labelry.server.open_files import allow_connections
from labelry.server.protocol import GuardedProtocol
from labelry.server.served import load_served
from labelry.server.settings import Settings

_SILENT_SECONDS = 15  # after which a worker that does not answer its parent is replaced
_LOOK_SECONDS = 0.1  # how often signals and workers are looked for
_PAUSE_SECONDS = 5.0  # before a worker that could not load the model is started again

_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s [%(process)d] %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "labelry": {"handlers": ["stderr"], "level": "INFO"},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING"},
    },
}


def serve(
    settings: Settings, host: str, port: int, workers: int, ready: Callable[[str], None]
) -> None:
    """Serve until SIGINT or SIGTERM, then end what was begun; `ready` is told the address.

    Raises
    ------
    ModelError
        If the model cannot be loaded.
    ValueError
        If the address cannot be listened on, or there cannot be so many connections.
    LabelryError
        If a worker ends before any of them has loaded the model.
    """
    allow_connections(settings.max_connections)
    with listen(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        announce = partial(ready, address)
        if workers == 1:
            app = create_app(settings)
            check_threads()
            _serve_here(_config(app, settings), listener, announce)
            return
        load_served(settings.model)  # a model that cannot be served is told here, once
        check_threads()
        config = _config(partial(_worker, settings), settings, workers=workers, factory=True)
        with tempfile.TemporaryDirectory(prefix="labelry-metrics-") as folder:
            os.environ[SHARED] = folder
            _Workers(config, listener, announce).run()


def check_threads() -> None:
    """A `LabelryError` if a kernel ran on threads of numba's own.

    labelry has its own (see docs/architecture.md); numba's simplest layer ends the process when two
    threads call at once, as they do here while a model is replaced.
    """
    try:
        layer = threading_layer()
    except ValueError:  # none was started
        return
    raise LabelryError(
        f"numba's threading layer {layer!r} is in use, which is not safe in a server: a kernel was "
        "compiled with parallel=True"
    )


def _config(app: Callable[..., Any], settings: Settings, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        log_config=_LOGGING,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=math.ceil(2 * settings.timeout),
        timeout_worker_healthcheck=_SILENT_SECONDS,
        **options,
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that clients can connect to from now on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot listen on {host} port {port}: {reason}") from error
    listener.set_inheritable(True)
    return listener


def _serve_here(config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]) -> None:
    # uvicorn raises the signal that ended it once more; here the end was asked for and is no error.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    _Server(config, ready).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


class _Workers(Multiprocess):
    """Workers that are waited for until the first of them serves, and replaced from then on."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]
    ) -> None:
        super().__init__(config, sockets=[listener])
        self._ready = ready
        self._serving = False
        self._failed: int | None = None  # exit code of a worker that ended before any served

    def init_processes(self) -> None:
        # Ctrl-C reaches the workers as well, and they would print where it met them. They are
        # ended by this process, which hears of it when they are started.
        resource_tracker.ensure_running()  # or it is started with the first, and lets it through
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().init_processes()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

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
        for listener in self.sockets:  # or clients would wait for the last worker to end, in vain
            listener.close()
        if self._serving:
            super().terminate_all()
            return
        for worker in self.processes:  # there is nothing that it could end in good order
            worker.kill()

    def keep_subprocess_alive(self) -> None:
        if not self._serving:
            self._look_for_the_first()
            return
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            forget_process(pid)

    def _look_for_the_first(self) -> None:
        ended = [worker.exitcode for worker in self.processes if worker.exitcode is not None]
        if ended:
            self._failed = ended[0]
            self.should_exit.set()
        elif any(map(_is_serving, self.processes)):
            self._serving = True
            self._ready()


def _is_serving(worker: Process) -> bool:
    """Whether a worker says so at once; one that is importing answers later, and to every ping."""
    said = worker.is_ready(timeout=0.1)
    while worker.parent_conn.poll():
        said = worker.parent_conn.recv()
    return said


def _worker(settings: Settings) -> FastAPI:
    """The application of a worker process.

    A worker that replaces a dead one may find a broken model, which its siblings refused. It
    must not end in the way that makes uvicorn end them all, so it ends in another, after a pause.
    """
    atexit.register(gc.freeze)  # as of the process that starts it: it ends sooner
    try:
        app = create_app(settings)
        check_threads()
        return app
    except Exception as error:
        logging.getLogger("labelry.server").error("a worker cannot start: %s", error)
        time.sleep(_PAUSE_SECONDS)
        os._exit(1)  # at once: a worker that takes its time to end keeps its parent waiting
