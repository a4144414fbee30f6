"""The API as a plain page: no script, no style, nothing from any other host."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>labelry API</title>
</head><body><h1>labelry API</h1><p>Machine-readable: <a href="/openapi.json">/openapi.json</a></p>
"""


def docs_page(openapi: dict[str, Any]) -> str:
    """HTML of an OpenAPI description."""
    parts = [_HEAD]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2>")
            parts.append(f"<p>{escape(operation.get('description', operation['summary']))}</p>")
            parts += _parameters(operation)
            parts += _body(operation)
    return "".join([*parts, "</body></html>\n"])


def _parameters(operation: dict[str, Any]) -> list[str]:
    lines = [
        f"<li><code>{escape(p['name'])}</code> ({escape(p['in'])}): "
        f"{escape(p.get('description', ''))}</li>"
        for p in operation.get("parameters", [])
    ]
    return ["<ul>", *lines, "</ul>"] if lines else []


def _body(operation: dict[str, Any]) -> list[str]:
    if "requestBody" not in operation:
        return []
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    lines = [
        f"<li><code>{escape(name)}</code>: {escape(value.get('description', ''))}</li>"
        for name, value in schema["properties"].items()
    ]
    example = json.dumps(schema.get("example", {}))
    return ["<ul>", *lines, f"</ul><pre>{escape(example)}</pre>"]
