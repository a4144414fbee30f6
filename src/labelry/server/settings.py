"""What a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from labelry.checks import check_at_least, check_positive


@dataclass(frozen=True)
class Settings:
    """What to serve, and within which limits.

    Attributes
    ----------
    model : Path
        Model directory.
    api_key : str, optional
        What a client must show for everything but health and documentation.
    max_batch : int
        Most rows of one request, and of one call of the model. Larger: more rows a second under
        load, and a longer wait for whoever asks for one row behind a full batch.
    max_body : int
        Most bytes of a request's body.
    timeout : float
        Seconds for a request, of which the client may take as many again to send it.
    max_connections : int
        Most connections of a worker; further ones are told to come again, and closed. Larger: more
        clients at once, and about 20 KB of memory for each.
    poll : float
        Seconds between looks at the model directory.
    """

    model: Path
    api_key: str | None = field(default=None, repr=False)
    max_batch: int = 256
    max_body: int = 1 << 20
    timeout: float = 10.0
    max_connections: int = 1000
    poll: float = 1.0

    def __post_init__(self) -> None:
        check_at_least("max_batch", self.max_batch, 1)
        check_at_least("max_body", self.max_body, 1)
        check_at_least("max_connections", self.max_connections, 1)
        check_positive("timeout", self.timeout)
        check_positive("poll", self.poll)
        if self.api_key is not None and not self.api_key.isascii():
            raise ValueError("the API key must be of ASCII characters, as HTTP headers are")
        if self.api_key == "":
            raise ValueError("the API key is empty")

    @property
    def max_waiting(self) -> int:
        """Rows that may wait for the model before further requests are turned away."""
        return 16 * self.max_batch
