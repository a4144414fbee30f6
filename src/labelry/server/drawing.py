"""Draw the map of a model's labels in a separate process.

    python -m labelry.server.drawing MODEL

A map takes seconds to a minute of processor time, most of it in libraries that hold Python's lock.
In a process of low priority it does not delay requests, and it can be ended at any time.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelry.estimators import load
from labelry.report.label_map import label_map
from labelry.report.map_canvas import encoded
from labelry.report.shown_labels import label_texts
from labelry.server.problems import Problem
from labelry.server.served import Served, fingerprint_of

_NICENESS = 10  # lowers the priority of the process

log = logging.getLogger("labelry.server")


class Drawing(NamedTuple):
    """The map of a model as clients get it, compressed."""

    model: str
    content: bytes


class Drawer:
    """Starts to draw the map of a model at the first request, and keeps the latest one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._task: asyncio.Task[Drawing] | None = None
        self._begun_for = ""
        self._begun_at = 0.0

    def begin(self, served: Served) -> None:
        """Start to draw the map of a model, unless it was started before."""
        if served.can_compare and self._begun_for != served.fingerprint:
            if self._task is not None:
                self._task.cancel()
            self._begun_for = served.fingerprint
            self._begun_at = time.monotonic()
            self._task = asyncio.create_task(_draw(self._path, served.fingerprint))

    @property
    def seconds(self) -> float:
        """Return how long ago the latest map was begun."""
        return time.monotonic() - self._begun_at

    def drawn(self, served: Served) -> Drawing | None:
        """Return the map of a model, None while it is drawn; a `Problem` if it cannot be."""
        self.begin(served)
        if self._task is None or not self._task.done():
            return None
        if self._task.exception() is not None:
            raise Problem(500, "no_map", "the map could not be drawn; the log says why")
        return self._task.result()

    async def close(self) -> None:
        """Stop drawing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def _draw(path: Path, fingerprint: str) -> Drawing:
    command = (sys.executable, "-P", "-m", "labelry.server.drawing", str(path))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        if process.returncode is None:
            process.kill()
            await process.communicate()
        raise
    found, _, content = output.partition(b"\n")
    if process.returncode or found.decode() != fingerprint:
        # The directory holds another model now, which will be served soon or was refused.
        why = f"its process ended with {process.returncode}, with the map of {found!r}"
        log.error("the map of model %s could not be drawn: %s", fingerprint, why)
        raise RuntimeError("no map")
    return Drawing(fingerprint, content)


def main() -> None:
    """Draw the map of the model in a directory, and write it to standard output."""
    os.nice(_NICENESS)
    path = Path(sys.argv[1])
    model = load(path).set_params(n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the layout warns of unusual vectors
        rng = np.random.default_rng(0)
        found = label_map(model.label_vectors(), model.label_counts_, label_texts(model), rng)
    content = gzip.compress(encoded(found, model.label_counts_), mtime=0)
    sys.stdout.buffer.write(fingerprint_of(path).encode() + b"\n" + content)


if __name__ == "__main__":
    main()
