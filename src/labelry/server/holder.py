"""The model that answers now, replaced by a new one while requests run."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from labelry.errors import LabelryError
from labelry.server.metrics import Metrics
from labelry.server.served import Identity, Served, identity, load_served

log = logging.getLogger("labelry.server")


@dataclass(frozen=True)
class FailedReload:
    """Why the model that lies in the directory now is not the one that answers."""

    message: str
    at: float  # seconds since 1970


class Holder:
    """Holds the model of a directory, and looks whether another has taken its place.

    A new model is loaded and tried aside, in a thread of its own, and takes over by one
    assignment. Requests that began with the old one end with it, and it goes when the last of
    them has. A model that cannot be loaded changes nothing but `failed`.
    """

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._path = path
        self._metrics = metrics
        self.current, self._seen = load_served(path)
        self.failed: FailedReload | None = None

    async def watch(self, seconds: float) -> None:
        """Look every so many seconds, for ever."""
        _rest_heap()
        while True:
            await asyncio.sleep(seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """Load the model anew if the directory has changed since the last look."""
        if (found := identity(self._path)) == self._seen:
            return
        self._seen = found  # a broken model is tried once, until it changes again
        try:
            self._take(*await asyncio.to_thread(load_served, self._path))
        except Exception as error:
            self._refuse(error)

    def _take(self, served: Served, seen: Identity) -> None:
        self.current, self._seen, self.failed = served, seen, None
        _rest_heap()
        self._metrics.reloads.labels("ok").inc()
        log.info("now serving model %s (%s)", served.fingerprint, served.model.system)

    def _refuse(self, error: Exception) -> None:
        known = isinstance(error, (LabelryError, OSError))
        log.error("the new model is not served: %s", error, exc_info=not known)
        # What clients read names the model, not where on this machine it lies.
        message = str(error) if known else "the model cannot be used"
        for shown in (os.path.realpath(self._path), str(self._path)):
            message = message.replace(shown, self.current.name)
        self.failed = FailedReload(message, time.time())
        self._metrics.reloads.labels("failed").inc()


def _rest_heap() -> None:
    """Let the garbage collector leave alone what is there now: libraries, the model.

    To look through it all took a quarter of a second every few thousand requests.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
