"""The options of a command, from the command line itself.

```{labelry-command} train
```
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from labelry.cli.app import app as cli

_OWN = "Options"
# Panels that several commands have; they are written once, at `train`.
_SHARED = {"Reading the data": "how to read", "Parameters of the systems": "those of the system"}


class CommandDirective(SphinxDirective):
    """What a command does, its examples, its arguments and its options."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in commands():
            raise self.error(f"there is no command {name!r}; there are: {', '.join(commands())}")
        return self.parse_text_to_nodes("\n".join(described(name)))


def commands() -> dict[str, Any]:
    """The commands of `labelry` by name."""
    return dict(typer.main.get_command(cli).commands)  # type: ignore[attr-defined]


def described(name: str) -> Iterator[str]:
    """Lines of Markdown about a command."""
    command = commands()[name]
    prose, examples = [], []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        kind, _, example = paragraph.partition(": ")
        if kind in ("Example", "Or", "Ask"):
            examples.append(example)
        else:
            prose.append(paragraph)
    yield from (line for paragraph in prose for line in (paragraph, ""))
    yield from ("```sh", *examples, "```", "")
    panels: dict[str, list[Any]] = {}
    for parameter in command.get_params(typer.Context(command)):
        if parameter.name not in ("help", "context"):
            panel = getattr(parameter, "rich_help_panel", None) or _OWN
            panels.setdefault(panel, []).append(parameter)
    elsewhere = [] if name == "train" else [p for p in _SHARED if panels.pop(p, None)]
    for panel, parameters in panels.items():
        yield from (f"| {panel} | |", "|---|---|", *map(_row, parameters))
        if panel == _OWN:
            yield from (f"| and {_SHARED[p]} | as of [train](#labelry-train) |" for p in elsewhere)
        yield ""


def _row(parameter: Any) -> str:
    flags = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        flags = [parameter.metavar or parameter.name.upper()]
    said = " ".join((parameter.help or "").split())
    default = _default(parameter)
    cells = (", ".join(f"`{flag}`" for flag in flags), f"{said} {default}".strip())
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def _default(parameter: Any) -> str:
    shown = parameter.show_default
    if parameter.required:
        return "Required."
    if isinstance(shown, str):
        return f"Default: {shown}."
    value = getattr(parameter.default, "value", parameter.default)  # of an enumeration
    if not shown or value is None or value is False:
        return ""
    return f"Default: {' '.join(map(str, value)) if isinstance(value, tuple) else value}."


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("labelry-command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
