"""The settings of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from labelry.checks import check_at_least, check_positive


@dataclass(frozen=True)
class ServerSettings:
    """The model to serve, and the limits."""

    model: Path  # directory
    # Key that clients must send for everything but health and documentation.
    api_key: str | None = field(default=None, repr=False)
    # Most rows of one request, and of one call of the model. A larger value answers more rows per
    # second under load, and a single row behind a full batch waits longer.
    max_batch: int = 256
    max_body: int = 1 << 20  # most bytes of a request's body
    timeout: float = 10.0  # seconds for an answer; to send the request a client has as long again
    # Most connections of a worker; further ones get a 503 and are closed. Each takes about 20 KB.
    max_connections: int = 1000
    access_log: bool = False  # write a line for each request
    poll: float = 1.0  # seconds between checks of the model directory

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_body", "max_connections"):
            check_at_least(name, getattr(self, name), 1)
        for name in ("timeout", "poll"):
            check_positive(name, getattr(self, name))
        if self.api_key is not None and not self.api_key.isascii():
            raise ValueError("the API key must be of ASCII characters, as HTTP headers are")
        if self.api_key == "":
            raise ValueError("the API key is empty")

    @property
    def max_waiting(self) -> int:
        """Rows that may wait for the model before further requests are refused."""
        return 16 * self.max_batch
