"""The page and the description of the API; neither needs another host."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from html import escape
from importlib.resources import files
from typing import Any

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
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>labelry API</title>
</head><body><h1>labelry API</h1><p>Machine-readable: <a href="/openapi.json">/openapi.json</a></p>
"""


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
        return tagged(request, *contents[name], {"content-security-policy": _POLICY})

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


def docs_page(openapi: dict[str, Any]) -> str:
    """Return an OpenAPI description as HTML without scripts and styles."""
    parts = [_HEAD]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2>")
            parts.append(f"<p>{escape(operation.get('description', operation['summary']))}</p>")
            parts += _items(
                {
                    f"<code>{escape(p['name'])}</code> ({escape(p['in'])})": p
                    for p in operation.get("parameters", [])
                }
            )
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                fields = schema["properties"].items()
                parts += _items({f"<code>{escape(name)}</code>": field for name, field in fields})
                parts.append(f"<pre>{escape(json.dumps(schema['example']))}</pre>")
    return "".join([*parts, "</body></html>\n"])


def _items(described: dict[str, dict[str, Any]]) -> list[str]:
    """Return a list of things, by their names in HTML, with their descriptions."""
    items = [
        f"<li>{name}: {escape(each.get('description', ''))}</li>"
        for name, each in described.items()
    ]
    return ["<ul>", *items, "</ul>"] if items else []
