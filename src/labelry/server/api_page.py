"""The description of the API as a page: a form, an example of an answer and curl for each path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

# First contents of the forms, by path and name. Other fields begin empty.
_TRIED = {
    ("/v1/labels", "limit"): "3",
    ("/v1/labels/{label_id}/similar", "label_id"): "0",
    ("/v1/labels/{label_id}/similar", "k"): "3",
    ("/v1/labels/{label_id}/words", "label_id"): "0",
    ("/v1/labels/{label_id}/words", "k"): "3",
}

# An answer for each path that gives JSON. A test compares their form with what a server answers.
ANSWERS: dict[str, Any] = {
    "/v1/predict": {
        "model": "914896a6",
        "predictions": [
            [
                {"id": 889, "label": "M79", "description": "Soft tissue disorders", "score": 0.525},
                {"id": 853, "label": "M25", "description": "Other joint disorder", "score": 0.163},
            ]
        ],
        "no_known_word": [],
    },
    "/v1/labels": {
        "labels": [
            {"id": 844, "label": "M17", "description": "Osteoarthritis of knee", "rows": 14},
            {"id": 851, "label": "M23", "description": "Derangement of knee", "rows": 124},
        ],
        "more": True,
    },
    "/v1/labels/{label_id}/similar": {
        "label": {"id": 853, "label": "M25", "description": "Other joint disorder"},
        "similar": [
            {"id": 852, "label": "M24", "description": "Joint derangements", "similarity": 0.8}
        ],
    },
    "/v1/labels/{label_id}/words": {
        "label": {"id": 853, "label": "M25", "description": "Other joint disorder", "rows": 234},
        "supporting": [{"word": "stiffness", "weight": 6.13}],
        "opposing": [{"word": "rheumatoid", "weight": -0.89}],
    },
    "/v1/model": {
        "name": "icd10.labelry",
        "title": "ICD-10-CM codes of medical phrases",
        "description": "Finds the categories that a medical phrase belongs to.",
        "examples": ["pain in the left knee"],
        "trained_at": "2026-11-19T13:45:00+00:00",
        "trained_on": "phrases.jsonl",
        "trained_with": "0.1.0",
        "model": "914896a6",
        "system": "tagger",
        "labelry_version": "0.1.0",
        "input": "text",
        "features": None,
        "labels": 1918,
        "rows": 42593,
        "frequent_labels": [
            {"id": 820, "label": "L89", "description": "Pressure ulcer", "rows": 347}
        ],
        "scores": "probabilities",
        "threshold": 0.5,
        "explains": True,
        "compares_labels": True,
        "has_words": True,
        "filters_all_labels": False,
        "loaded_at": 1795129220.58,
        "limits": {"max_batch": 256, "max_body": 1048576, "timeout": 10.0, "max_k": 1000},
        "failed_reload": None,
    },
    "/health/live": {"status": "live"},
    "/health/ready": {"status": "ready", "needs_key": False, "model": "914896a6"},
}

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API · labelry</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/base.css">
<link rel="stylesheet" href="/page/style.css">
<script type="module" src="/page/docs.js"></script>
</head>
<body class="docs">
<header><a class="brand" href="/">labelry</a><nav><a href="/">Page</a>
<a href="/openapi.json">openapi.json</a></nav></header>
<main>
<section class="intro">
<h1>API</h1>
<p id="description">Ask this server for labels from any program. Requests and answers are JSON.</p>
<p class="quiet">Each form below sends its request to this server. Programs that make clients read
<a href="/openapi.json">openapi.json</a>.</p>
<noscript><p class="notice">The forms need JavaScript; the commands do not.</p></noscript>
<p id="key-field" class="together" hidden><label for="key">API key</label>
<input id="key" type="password" autocomplete="off"></p>
</section>
"""


def api_page(openapi: dict[str, Any]) -> str:
    """Return the page. Only its forms need JavaScript."""
    operations = [
        (path, method.upper(), operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    links = (
        f'<li><a href="#{_anchor(path)}"><code>{method} {escape(path)}</code></a></li>'
        for path, method, _ in operations
    )
    parts = [_HEAD, '<ul class="paths">', *links, "</ul>"]
    for path, method, operation in operations:
        parts += _operation(path, method, operation)
    return "".join([*parts, _errors(), "</main></body></html>\n"])


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f'<section class="operation" id="{_anchor(path)}">'
    yield f"<h2><code>{method} {escape(path)}</code></h2>"
    yield f"<p>{escape(operation['description'])}</p>"
    yield f'<form data-method="{method}" data-path="{escape(path)}">'
    for parameter in operation.get("parameters", []):
        yield _field(path, parameter)
    body = operation.get("requestBody")
    if body is not None:
        yield from _body(path, body["content"]["application/json"]["schema"])
    yield '<p><button class="main" type="submit">Send</button> <span class="said quiet"></span></p>'
    yield "<h3>With curl</h3>"
    yield f'<pre class="curl">{escape(_curl(path, body))}</pre>'
    if path in ANSWERS:
        answer = json.dumps(ANSWERS[path], indent=2)
        yield f'<h3>An answer</h3><pre class="answer">{escape(answer)}</pre>'
    else:
        (kind,) = operation["responses"]["200"]["content"]
        yield f'<h3>An answer</h3><pre class="answer">{escape(kind)}</pre>'
    yield "</form></section>\n"


def _field(path: str, parameter: dict[str, Any]) -> str:
    name, schema = parameter["name"], parameter["schema"]
    kind = "number" if schema.get("type") == "integer" else "text"
    value = _TRIED.get((path, name), "")
    hint = schema.get("default", "")
    needed = " required" if parameter["required"] else ""
    field = f"{_anchor(path)}-{name}"
    return (
        f'<p class="field"><label for="{field}"><code>{escape(name)}</code></label>'
        f'<input id="{field}" name="{escape(name)}" data-in="{parameter["in"]}" type="{kind}"'
        f' value="{value}" placeholder="{escape(str(hint))}"{needed}>'
        f'<span class="quiet small">{escape(parameter.get("description", ""))}</span></p>'
    )


def _body(path: str, schema: dict[str, Any]) -> Iterator[str]:
    field = f"{_anchor(path)}-body"
    example = json.dumps(schema["example"])
    yield f'<p class="field wide"><label for="{field}">Body</label>'
    yield f'<textarea id="{field}" name="body" rows="3" spellcheck="false">{escape(example)}'
    yield "</textarea></p><dl>"
    for name, each in schema["properties"].items():
        yield f"<dt><code>{escape(name)}</code></dt><dd>{escape(each['description'])}</dd>"
    yield "</dl>"


def _curl(path: str, body: dict[str, Any] | None) -> str:
    """Return a command; the script of the page keeps it in step with the form."""
    filled = path.replace("{label_id}", "0")
    address = f"curl 'http://localhost:8000{filled}'"
    if body is None:
        return address
    example = json.dumps(body["content"]["application/json"]["schema"]["example"])
    return f"{address} --json '{example}'"


def _errors() -> str:
    example = {
        "error": {
            "code": "wrong_width",
            "message": "this model takes 4 features, got 2",
            "where": "features",
        }
    }
    return (
        '<section class="operation" id="errors"><h2>Errors</h2><p>Every error has this form: '
        "<code>code</code> for programs, <code>message</code> for people, <code>where</code> for "
        "the part of the request that is wrong. After a 503, try again in a second.</p>"
        f'<pre class="answer">{escape(json.dumps(example, indent=2))}</pre></section>'
    )


def _anchor(path: str) -> str:
    return path.strip("/").replace("/", "-").replace("{", "").replace("}", "")
