"""The options of a command, from the command line itself.

```{labelry-command} train
```

```{labelry-system-flags}
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
from labelry.cli.system_flags import PANEL, TAGGER, system_options
from labelry.estimators import SYSTEMS

_OWN = "Options"
# Panels that several commands have; they are written once, elsewhere on the page.
_SHARED = {
    "Reading the data": ("how to read", "[train](#labelry-train)"),
    PANEL: ("those of the system", "[Parameters of the systems](#parameters-of-the-systems)"),
}


class CommandDirective(SphinxDirective):
    """What a command does, its examples, its arguments and its options."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in commands():
            raise self.error(f"there is no command {name!r}; there are: {', '.join(commands())}")
        return self.parse_text_to_nodes("\n".join(described(name)))


class SystemFlagsDirective(SphinxDirective):
    """The flags of every system, each with its own heading."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for system in (TAGGER, *SYSTEMS):
            rows = map(_row, system_options(system))
            lines += [f"### --system {system}", "", "| Flags | |", "|---|---|", *rows, ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


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
            panel = parameter.rich_help_panel or _OWN
            panels.setdefault(PANEL if panel.startswith(PANEL) else panel, []).append(parameter)
    shared = [PANEL] if name == "train" else list(_SHARED)
    if any(parameter.name == "system" for parameter in panels[_OWN]):
        panels.setdefault(PANEL, [])
    elsewhere = [_SHARED[p] for p in shared if panels.pop(p, None) is not None]
    for panel, parameters in panels.items():
        yield from (f"| {panel} | |", "|---|---|", *map(_row, parameters))
        if panel == _OWN:
            yield from (f"| and {what} | see {where} |" for what, where in elsewhere)
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
    app.add_directive("labelry-system-flags", SystemFlagsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
