"""Errors for clients, all in one format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse


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

    def response(self) -> JSONResponse:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "where": self.where}
        headers = {"retry-after": "1"} if self.status == 503 else {}
        if self.closes:
            headers["connection"] = "close"
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return JSONResponse({"error": error}, self.status, headers)
