"""Flags of a system, made from the declarations of its parameters.

The parameter ``embedding_dim`` of an estimator is the flag ``--embedding-dim``. A command with
``--system`` takes and shows the flags of the system that it is given, and of no other.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Container, Sequence
from contextlib import suppress
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import typer.main
from typer import Option

from labelry.cli.options import CheckedCommand
from labelry.errors import ParameterError
from labelry.parameters import Parameter, parameters_of

TAGGER = "tagger"  # the system that is trained when none is named
PANEL = "Parameters of"  # the panel of these flags in the help begins with these words

_OPTIONS = {"random_state": "--seed", "n_jobs": "--jobs"}  # parameters that every command has
# Parameters of readers and writers in a message: in backticks, as "the option x", or as they are.
_OF_PYTHON = re.compile(
    r"`(\w+)`|\bthe option (\w+)|\b((?:text|label|group)_column|label_separator|label_names)\b"
)
_SYSTEM = "labelry.system"  # keys in the context of the command
_GIVEN = "labelry.parameters"
# How the help and a message write what can be typed; a list is edges, read from a file.
_KINDS = {
    int: ("<int>", "a whole number"),
    float: ("<float>", "a number"),
    bool: ("true|false", "true or false"),
    str: ("<str>", "a text"),
    list: ("FILE", "FILE"),
}


class SystemCommand(CheckedCommand):
    """A command that takes the parameters of one system as flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the system that is named, and refuse flags of other systems."""
        words = args[: args.index("--")] if "--" in args else args
        ctx.meta[_SYSTEM] = _named_system(words)
        if not ctx.resilient_parsing:  # as while a shell completes
            self._refuse_foreign(ctx, words)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters, then those of the system; its own come first."""
        own = super().get_params(ctx)
        taken = _flags(own)
        found = system_options(_system(ctx, own))
        return [*own, *(option for option in found if taken.isdisjoint(_flags([option])))]

    def _refuse_foreign(self, ctx: Any, words: list[str]) -> None:
        parameters = self.get_params(ctx)
        known, system = _flags(parameters), _system(ctx, parameters)
        given = [word.partition("=")[0] for word in words if word.startswith("--")]
        unknown = [flag for flag in given if flag not in known]
        foreign = next((flag for flag in unknown if flag in _flags_of_all_systems()), None)
        if foreign is None:
            return
        if system is None:
            raise typer.BadParameter(f"{foreign} is for a system: name one with --system", ctx=ctx)
        # This also refuses a name that no system has.
        flags = ", ".join(parameter.flag for parameter in parameters_of_system(system).values())
        raise typer.BadParameter(f"{foreign} is not for {system}; it has: {flags}", ctx=ctx)


def _system(ctx: Any, parameters: Sequence[Any]) -> str | None:
    """Return the system of a command: the one that is named, or else the command's default."""
    return ctx.meta.get(_SYSTEM) or next(p.default for p in parameters if p.name == "system")


def system_option(help: str, **options: Any) -> Any:
    """Return the option --system of a command."""
    help = f"{help}; with --help also shows the parameters of that system."
    return Option("--system", help=help, autocompletion=_names, **options)


def _names(incomplete: str) -> list[str]:
    from labelry.estimators import SYSTEMS

    return [name for name in SYSTEMS if name.startswith(incomplete)]


def given_parameters(ctx: typer.Context) -> dict[str, Any]:
    """Return the parameters of the system that were given as flags, by name."""
    return dict(ctx.meta.get(_GIVEN, {}))


def parameters_of_system(system: str) -> dict[str, Parameter]:
    """Return the parameters of a system, by name, but for those that every command has."""
    from labelry.estimators import system_class

    found = parameters_of(system_class(system))
    return {name: parameter for name, parameter in found.items() if name not in _OPTIONS}


def flag_of(parameter: str) -> str:
    """Return the flag of a parameter.

    >>> flag_of("embedding_dim"), flag_of("random_state")
    ('--embedding-dim', '--seed')
    """
    return _OPTIONS.get(parameter, "--" + parameter.replace("_", "-"))


def as_flags(message: str) -> str:
    """Return a message with flags in place of the names of parameters.

    >>> as_flags("name it with `text_column`, or the option force")
    'name it with --text-column, or --force'
    """
    return _OF_PYTHON.sub(lambda found: flag_of(found[1] or found[2] or found[3]), message)


def typed(name: str, value: object) -> list[str]:
    """Return a parameter as words of the command line.

    >>> typed("n_trees", 3), typed("normalize", False)
    (['--n-trees', '3'], ['--no-normalize'])
    """
    flag = flag_of(name)
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, str(value)]


@cache
def system_options(system: str | None) -> list[Any]:
    """Return one option per parameter of a system; none if there is no such system."""
    from labelry.estimators.registry import SYSTEMS

    if system not in (TAGGER, *SYSTEMS):
        return []
    panel = f"{PANEL} {'the tagger' if system == TAGGER else system}"
    parameters = parameters_of_system(system)

    def flags(**_: Any) -> None:
        pass

    # typer makes options from a signature.
    flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_option(each, panel, parameters) for each in parameters.values()]
    )
    app = typer.Typer(add_completion=False)
    app.command()(flags)
    return list(typer.main.get_command(app).params)


def _option(parameter: Parameter, panel: str, parameters: Container[str]) -> inspect.Parameter:
    def keep(ctx: typer.Context, given: Any) -> None:
        if given is not None:
            value = _parsed(parameter, given) if isinstance(given, str) else given
            parameter.check(value)
            ctx.meta.setdefault(_GIVEN, {})[parameter.name] = value

    help, default, flag = (
        _first_sentence(parameter.help, parameters),
        parameter.default,
        parameter.flag,
    )
    if isinstance(default, bool):
        (default,) = typed(parameter.name, default)
    common: dict[str, Any] = {
        "help": help if default is None else f"{help} Default: {default}.",
        "callback": keep,
        "expose_value": False,
        "show_default": False,  # it is in the text; typer would put it into parentheses
        "rich_help_panel": panel,
    }
    if parameter.kinds == (bool,) and not parameter.named:
        annotation: Any = Annotated[bool | None, Option(f"{flag}/--no-{flag[2:]}", **common)]
    else:
        option = Option(flag, metavar="|".join(_allowed(parameter, 0)), **common)
        annotation = Annotated[str | None, option]
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _allowed(parameter: Parameter, form: int) -> list[str]:
    return [*map(str, parameter.named), *(_KINDS[k][form] for k in parameter.kinds if k in _KINDS)]


def _first_sentence(text: str, parameters: Container[str]) -> str:
    """Return the first sentence, with flags in place of the names of parameters.

    >>> _first_sentence("Trees of `max_depth`, e.g. ten. More words.", ["max_depth"])
    'Trees of --max-depth, e.g. ten.'
    """
    sentence = re.split(r"(?<=[^.]\.)\s+(?=[^a-z])", text, maxsplit=1)[0]

    def as_flag(found: re.Match[str]) -> str:
        return flag_of(found[1]) if found[1] in parameters else found[0]

    return re.sub(r"`(\w+)`", as_flag, sentence)


def _parsed(parameter: Parameter, text: str) -> Any:
    """Return the value that a text stands for: a named one, or of the narrowest type that fits."""
    from labelry.trees.hierarchy import read_hierarchy

    for name in parameter.named:
        if text == str(name):
            return name
    for kind in (int, float):
        if kind in parameter.kinds:
            with suppress(ValueError):
                return kind(text)
    if bool in parameter.kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if str in parameter.kinds:
        return text
    if list in parameter.kinds and Path(text).exists():
        return read_hierarchy(text)
    words = _allowed(parameter, 1)
    allowed = f"one of {', '.join(words)};" if len(words) > 1 else f"{words[0]},"
    raise ParameterError(parameter.name, f"must be {allowed} got {text!r}")


def _named_system(words: Sequence[str]) -> str | None:
    """Return the value of the last --system."""
    found = None
    for word, following in zip_longest(words, words[1:]):
        if word == "--system":
            found = following
        elif word.startswith("--system="):
            found = word.partition("=")[2]
    return found


def _flags(parameters: Sequence[Any]) -> set[str]:
    return {flag for p in parameters for flag in (*p.opts, *p.secondary_opts)}


def _flags_of_all_systems() -> set[str]:
    from labelry.estimators import SYSTEMS

    return {flag for system in (TAGGER, *SYSTEMS) for flag in _flags(system_options(system))}
