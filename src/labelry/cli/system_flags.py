"""Flags of ``labelry train``, made from the parameters of the systems.

A parameter ``embedding_dim: int = 100`` is the flag ``--embedding-dim``; its help comes from the
docstring and its default stays with the estimator, so nothing is written twice.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
import typer.core
import typer.main

TAGGER = "tagger"  # what is trained when no system is named
_ELSEWHERE = {"random_state", "n_jobs"}  # --seed and --jobs
_GIVEN = "labelry.parameters"  # key in the context of the command
_PANEL = "Parameters of the systems"


class SystemCommand(typer.core.TyperCommand):
    """A command that also takes the parameters of every system as flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own parameters, and those of the systems."""
        return [*super().get_params(ctx), *_system_options()]


def given_parameters(ctx: typer.Context) -> dict[str, Any]:
    """The system parameters that the person gave."""
    return dict(ctx.meta.get(_GIVEN, {}))


def check_applies(system: str, given: Mapping[str, Any]) -> None:
    """Refuse flags that belong to other systems."""
    known = parameters_of(system)
    for name in given:
        if name not in known:
            flags = ", ".join(_flag(n) for n in known if n not in _ELSEWHERE)
            raise typer.BadParameter(f"{_flag(name)} is not for {system}; it has: {flags}")


def parameters_of(system: str) -> dict[str, inspect.Parameter]:
    """The constructor's parameters of a system, by name."""
    from labelry.systems import system_class

    parameters = inspect.signature(system_class(system)).parameters
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def _system_options() -> list[Any]:
    """One option for each parameter that any system has, as typer makes them from a signature."""
    from labelry.systems import SYSTEMS, system_class

    defaults: dict[str, dict[str, Any]] = {}  # parameter -> system -> default
    hints: dict[str, list[Any]] = {}
    helps: dict[str, str] = {}
    for system in (TAGGER, *SYSTEMS):
        cls = system_class(system)
        documented = parameter_help(cls.__doc__ or "")
        types_of = get_type_hints(cls.__init__)
        for name, parameter in parameters_of(system).items():
            if name not in _ELSEWHERE:
                defaults.setdefault(name, {})[system] = parameter.default
                hints.setdefault(name, []).append(types_of[name])
                helps.setdefault(name, documented.get(name, ""))

    def flags(**_: Any) -> None:
        pass

    flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(name, defaults[name], hints[name], helps[name]) for name in sorted(defaults)]
    )
    app = typer.Typer(add_completion=False)
    app.command()(flags)
    return list(typer.main.get_command(app).params)


def _parameter(
    name: str, defaults: dict[str, Any], hints: list[Any], text: str
) -> inspect.Parameter:
    def keep(ctx: typer.Context, value: Any) -> None:
        if value is not None:
            ctx.meta.setdefault(_GIVEN, {})[name] = value

    values = {str(value) for value in defaults.values()}
    said = (
        values.pop()
        if len(values) == 1
        else ", ".join(f"{system} {value}" for system, value in defaults.items())
    )
    common: dict[str, Any] = {
        "help": f"{text} Default {said}. For {', '.join(defaults)}.",
        "callback": keep,
        "expose_value": False,
        "show_default": False,
        "rich_help_panel": _PANEL,
    }
    flag = _flag(name)
    if all(hint is bool for hint in hints):
        option = typer.Option(f"{flag}/--no-{flag[2:]}", **common)
        annotation: Any = Annotated[bool | None, option]
    else:
        parse = _parser(hints)
        option = typer.Option(flag, parser=parse, metavar=parse.__name__, **common)
        annotation = Annotated[str | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parser(hints: list[Any]) -> Callable[[str], Any]:
    """A function from text to a value of any of the annotations, tried from narrow to wide."""
    from labelry.trees.hierarchy import Edges, read_hierarchy

    literals: list[str] = []
    kinds: set[Any] = set()

    def collect(hint: Any) -> None:
        if get_origin(hint) is Literal:
            literals.extend(v for v in map(str, get_args(hint)) if v not in literals)
        elif get_origin(hint) in (Union, types.UnionType):
            for part in get_args(hint):
                collect(part)
        elif hint in (int, float, bool, str, Edges):
            kinds.add(hint)

    for hint in hints:
        collect(hint)
    names = [*(t.__name__ for t in (int, float, bool, str) if t in kinds), *literals]
    names += ["FILE"] if Edges in kinds else []

    def parse(text: str) -> Any:
        if text in literals:
            return text
        for kind in (int, float):
            if kind in kinds:
                try:
                    return kind(text)
                except ValueError:
                    continue
        if bool in kinds and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if str in kinds:
            return text
        if Edges in kinds and Path(text).exists():
            return read_hierarchy(text)
        raise typer.BadParameter(f"{text!r} is not one of: {', '.join(names)}")

    parse.__name__ = "|".join(names)
    return parse


def parameter_help(docstring: str) -> dict[str, str]:
    """First sentences of the parameters in a numpydoc docstring.

    >>> parameter_help('''
    ...     Parameters
    ...     ----------
    ...     C : float
    ...         Weight of the losses; larger fits more closely. More words.
    ... ''')
    {'C': 'Weight of the losses; larger fits more closely.'}
    """
    text = inspect.cleandoc(docstring)
    match = re.search(r"Parameters\n-+\n(.*?)(?=\n\n[A-Z]\w*\n-{3,}|\Z)", text, flags=re.DOTALL)
    found: dict[str, str] = {}
    section = match[1] if match else ""
    entry = re.compile(r"^(\w+(?:, \w+)*) :[^\n]*\n((?: {4}[^\n]*\n?|\n)*)", re.MULTILINE)
    for name, body in entry.findall(section):
        words = " ".join(body.split())
        sentence = re.split(r"(?<=[^.])\. ", words, maxsplit=1)[0]
        for each in name.split(", "):
            found[each] = sentence if sentence.endswith(".") or not sentence else sentence + "."
    return found
