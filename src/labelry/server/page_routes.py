"""The files of the page, which need no other host."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from labelry.server.problems import Problem

OF_REPORT = ("base.css", "map.js", "map-painter.js")  # files that the report has, too

_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

# Nothing inline, nothing from other hosts, and no text becomes markup: labels and texts can hold
# anything.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_routes(front: Callable[[], str]) -> list[Route]:
    """Return the routes of the page; `front` names the file at the address without a path."""
    report = files("labelry.report") / "page"
    own = (files("labelry.server") / "page").iterdir()
    contents = {
        file.name: (file.read_bytes(), f"{kind}; charset=utf-8")
        for file in (*own, *(report / name for name in OF_REPORT))
        for suffix, kind in _KINDS.items()
        if file.name.endswith(suffix)
    }

    async def give(request: Request) -> Response:
        name = request.path_params.get("name") or front()
        if name not in contents:
            raise Problem(404, "not_found", "the page has no such file")
        return tagged(request, *contents[name], {"content-security-policy": POLICY})

    return [Route("/", give), Route("/page/{name}", give)]


def tagged(
    request: Request, content: bytes, kind: str, headers: dict[str, str], tag: str | None = None
) -> Response:
    """Return an answer that a browser may cache and must revalidate."""
    tag = f'"{tag or f"{zlib.crc32(content):08x}"}"'
    headers = headers | {"etag": tag, "cache-control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
