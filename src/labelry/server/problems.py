"""Errors for clients, all in one format."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse

_MOST_SHOWN = 300  # characters of a message; a request of a megabyte is not sent back


class AsciiJSON(JSONResponse):
    """JSON in ASCII and without NaN, so that every client can read any label."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, allow_nan=False).encode()


@dataclass(eq=False)
class Problem(Exception):
    """A request that cannot be answered, with the reason and the remedy."""

    status: int  # of HTTP
    code: str  # name of the error, for programs
    message: str  # sentence for people, without paths and tracebacks
    where: str | None = None  # part of the request, such as ``features.3``
    # The connection is closed after the answer, because the rest of the body is not read or there
    # are too many connections.
    closes: bool = field(default=False, kw_only=True)

    def response(self) -> AsciiJSON:
        """Return the answer, in which what the client sent is shortened."""
        error: dict[str, Any] = {"code": self.code, "message": _shortened(self.message)}
        error["where"] = self.where and _shortened(self.where)
        headers = {"retry-after": "1"} if self.status == 503 else {}
        if self.closes:
            headers["connection"] = "close"
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return AsciiJSON({"error": error}, self.status, headers)


def _shortened(text: str) -> str:
    """Leave out the middle of a long text: its end says what to do."""
    half = _MOST_SHOWN // 2
    return text if len(text) <= _MOST_SHOWN else f"{text[:half]} ... {text[-half:]}"
