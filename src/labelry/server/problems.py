"""Errors that a client meets, all of one shape."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse


class Problem(Exception):
    """A request that cannot be answered: what is wrong, where, and what would be right.

    Parameters
    ----------
    status : int
        Of HTTP.
    code : str
        For programs; does not change.
    message : str
        For people. It holds nothing of the machine: no path, no traceback.
    where : str, optional
        Part of the request, such as ``features.3``.
    closes : bool
        Whether the connection ends with the answer: the rest of the body is not read, or there are
        too many connections.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        where: str | None = None,
        *,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.where = where
        self.closes = closes

    def response(self) -> JSONResponse:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "where": self.where}
        headers = {"retry-after": "1"} if self.status == 503 else {}
        if self.closes:
            headers["connection"] = "close"
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return JSONResponse({"error": error}, self.status, headers)
