"""The processes and the socket of a server."""

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
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from labelry.errors import LabelryError
from labelry.server.app import create_app
from labelry.server.metrics import SHARED
from labelry.server.protocol import GuardedProtocol, allow_connections
from labelry.server.served import load_served
from labelry.server.settings import ServerSettings

_SILENT_SECONDS = 15  # without an answer to its parent, after which a worker is replaced
_LOOK_SECONDS = 0.1  # between checks of signals and workers
_PAUSE_SECONDS = 5.0  # before a worker that could not load the model ends and is replaced

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
    settings: ServerSettings, host: str, port: int, workers: int, ready: Callable[[str], None]
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the open requests; call `ready` with the address.

    A `ModelError` if the model cannot be loaded, a `ValueError` if the address cannot be listened
    on or there cannot be so many connections, and a `LabelryError` if a worker ends before any of
    them has loaded the model.
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
        load_served(settings.model)  # a model that cannot be served is reported once
        check_threads()
        config = _config(partial(_worker, settings), settings, workers=workers, factory=True)
        with tempfile.TemporaryDirectory(prefix="labelry-metrics-") as folder:
            os.environ[SHARED] = folder
            _Workers(config, listener, announce).run()


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
    """Return a socket that clients can connect to."""
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
    # uvicorn raises the signal that ended it again; here this end is not an error.
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
    """Waits until the first worker serves; from then on replaces workers that end."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]
    ) -> None:
        super().__init__(config, sockets=[listener])
        self._ready = ready
        self._serving = False
        self._failed: int | None = None  # exit code of a worker that ended before any served

    def init_processes(self) -> None:
        # Ctrl-C also reaches the workers, which would print a traceback. This process ends them;
        # its own Ctrl-C is blocked while they start.
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
        for listener in self.sockets:  # so that clients do not wait in vain
            listener.close()
        if self._serving:
            super().terminate_all()
            return
        for worker in self.processes:  # none serves a request yet
            worker.kill()

    def keep_subprocess_alive(self) -> None:
        if not self._serving:
            self._look_for_the_first()
            return
        before = {process.pid for process in self.processes}
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
    atexit.register(gc.freeze)  # as in its parent, so that it ends sooner
    try:
        app = create_app(settings)
        check_threads()
        return app
    except Exception as error:
        logging.getLogger("labelry.server").error("a worker cannot start: %s", error)
        time.sleep(_PAUSE_SECONDS)
        os._exit(1)  # at once, so that its parent does not wait
