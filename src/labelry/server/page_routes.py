"""The page: a few plain files, served by the same process and needing no other host."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from labelry.server.problems import Problem

_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

# Nothing inline, nothing from elsewhere, and no text ever becomes markup: names of labels and
# texts can hold anything.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_routes(front: Callable[[], str]) -> list[Route]:
    """Routes of the page; `front` names the file that the address without a path gives now."""
    folder = files("labelry.server") / "page"
    contents = {
        file.name: (file.read_bytes(), f"{kind}; charset=utf-8")
        for file in folder.iterdir()
        for suffix, kind in _KINDS.items()
        if file.name.endswith(suffix)
    }

    async def give(request: Request) -> Response:
        name = request.path_params.get("name") or front()
        if name not in contents:
            raise Problem(404, "not_found", "the page has no such file")
        return tagged(request, *contents[name], {"content-security-policy": _POLICY})

    return [Route("/", give), Route("/page/{name}", give)]


def tagged(
    request: Request, content: bytes, kind: str, headers: dict[str, str], tag: str | None = None
) -> Response:
    """An answer that a browser may keep, if it asks each time whether it has changed."""
    tag = f'"{tag or f"{zlib.crc32(content):08x}"}"'
    headers = headers | {"etag": tag, "cache-control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
