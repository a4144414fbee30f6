"""Checks and headers for every request: API key, security headers, failures, metrics."""

from __future__ import annotations

import hmac
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelry.server.metrics import Metrics
from labelry.server.problems import Problem

_OPEN = {"/", "/health/live", "/health/ready", "/docs", "/openapi.json"}
_PATHS = _OPEN | {"/v1/predict", "/v1/labels", "/v1/map", "/v1/model", "/metrics"}
_PAGE = "/page/"  # files that are the same for every model

# Headers of answers that are data. A page that needs other values sets them itself.
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": (
        b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}

SURPLUS = "labelry.surplus"  # in the scope of a request on a connection beyond the limit

_FAILURE = Problem(500, "internal", "the server failed to answer; its log says why")
_SURPLUS = Problem(
    503, "too_many_connections", "too many connections; try again in a second", closes=True
)
_REFUSAL = Problem(
    401,
    "unauthorized",
    "send the API key in the header Authorization: Bearer KEY or X-API-Key: KEY",
    "headers",
)

log = logging.getLogger("labelry.server")
access = logging.getLogger("labelry.access")  # logs.py says where it goes

_MOST_SHOWN = 200  # characters of a path in the access log


class Gate:
    """ASGI middleware; plain code, because it runs for every request."""

    def __init__(
        self, app: ASGIApp, *, api_key: str | None, metrics: Metrics, access_log: bool
    ) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._metrics = metrics
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0  # until an answer has begun

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.setdefault("headers", [])
                set_already = {name for name, _ in headers}
                headers += [(n, v) for n, v in _HEADERS.items() if n not in set_already]
            await send(message)

        try:
            await self._answer(scope, receive, guarded)
        except Exception:
            log.exception("a request to %s failed", _counted_as(scope["path"]))
            if not status:
                await _FAILURE.response()(scope, receive, guarded)
        finally:
            path, seconds = _counted_as(scope["path"]), time.perf_counter() - start
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.seconds.labels(path).observe(seconds)
            if self._access_log:
                _note_access(scope, status, seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if SURPLUS in scope:
            await _SURPLUS.response()(scope, receive, send)
        elif self._admits(scope):
            await self._app(scope, receive, send)
        else:
            await _REFUSAL.response()(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        if self._key is None or scope["path"] in _OPEN or scope["path"].startswith(_PAGE):
            return True
        given = b""
        for name, value in scope["headers"]:
            if name == b"x-api-key":
                given = value
            elif name == b"authorization" and value[:7].lower() == b"bearer ":
                given = value[7:].strip()
        return hmac.compare_digest(given, self._key)


def _note_access(scope: Scope, status: int, seconds: float) -> None:
    """Write who requested what. The query and the body may hold private texts."""
    client = (scope["client"] or ("-",))[0]
    path = scope["raw_path"].decode("ascii", "backslashreplace")[:_MOST_SHOWN]
    access.info("%s %s %s %d %.1f ms", client, scope["method"], path, status, 1e3 * seconds)


def _counted_as(path: str) -> str:
    """Return the name of a path in the metrics, of which there are few for any requests."""
    if path in _PATHS:
        return path
    if path.startswith(_PAGE):
        return _PAGE
    return "/v1/labels/{id}" if path.startswith("/v1/labels/") else "other"
