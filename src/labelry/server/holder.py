"""The current model, which a new one replaces while requests run."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from pathlib import Path

from labelry.errors import LabelryError
from labelry.server.metrics import Metrics
from labelry.server.schemas import FailedReload
from labelry.server.served import Identity, Served, identity, load_served

log = logging.getLogger("labelry.server")


class Holder:
    """Holds the model of a directory and watches for a replacement.

    A new model is loaded and tried in its own thread, and replaces the old one by one assignment.
    Requests that began with the old model end with it; it is freed after the last of them. A
    model that cannot be loaded changes nothing but `failed`.
    """

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._path = path
        self._metrics = metrics
        self.current, self._seen = load_served(path)
        self.failed: FailedReload | None = None

    async def watch(self, seconds: float) -> None:
        """Check the directory every so many seconds, for ever."""
        # Full collections leave out the libraries and the first model: they took a quarter of a
        # second every few thousand requests. Later models stay out of this: to freeze them too,
        # everything would have to be looked through once more, while requests wait.
        gc.collect()
        gc.freeze()
        while True:
            await asyncio.sleep(seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """Load the model again if the directory has changed since the last check."""
        # Not in this thread: a file system that does not answer must not stop the server.
        if (found := await asyncio.to_thread(identity, self._path)) == self._seen:
            return
        self._seen = found  # a broken model is not tried again until it changes
        try:
            self._take(*await asyncio.to_thread(load_served, self._path))
        except Exception as error:
            self._refuse(error)

    def _take(self, served: Served, seen: Identity) -> None:
        self.current, self._seen, self.failed = served, seen, None
        self._metrics.reloads.labels("ok").inc()
        log.info("now serving model %s (%s)", served.fingerprint, served.model.system)

    def _refuse(self, error: Exception) -> None:
        known = isinstance(error, (LabelryError, OSError))
        log.error("the new model is not served: %s", error, exc_info=not known)
        # The message for clients names the model without its path on this machine.
        message = str(error) if known else "the model cannot be used"
        for shown in (os.path.realpath(self._path), str(self._path)):
            message = message.replace(shown, self.current.name)
        self.failed = FailedReload(message=message, at=time.time())
        self._metrics.reloads.labels("failed").inc()
