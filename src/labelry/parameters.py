"""Settings: dataclasses that declare each parameter once.

A parameter is one field: name, type, default, allowed range, range worth tuning and help text. The
constructor, the check, the error message, the command-line flag and its help, the values that
`tune` tries and the reference entry all come from that field.

    @settings
    class RidgeSettings(Settings):
        regularization: float = param(default=1.0, least=0, tune=Between(0.1, 10.0, log=True),
                                      help="Weight of the penalty. Larger shrinks more.")
"""

from __future__ import annotations

import math
import re
import reprlib
import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from labelry.checks import is_among
from labelry.errors import ParameterError

T = TypeVar("T")

_DECLARED = "labelry.parameter"  # key in the metadata of a dataclass field
_LARGEST_INT = 2**31 - 1  # a count has to fit into 32 bits
_LARGEST_FLOAT = 1e30  # its square still fits into a double, and it into float32
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    list: "a list of pairs",
}


@dataclass(frozen=True)
class Between:
    """Numbers from `low` to `high`; whole ones if both are.

    >>> Between(1, 100, log=True).draw(np.random.default_rng(0))
    19
    """

    low: float
    high: float
    log: bool = False  # True: uniform in the logarithm

    def draw(self, rng: np.random.Generator) -> float:
        """Return a random value, rounded to three digits so that it is short to type."""
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return round(value) if whole else float(f"{value:.3g}")


@dataclass(frozen=True)
class OneOf:
    """Some values that are equally likely."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Return a random one of the values."""
        return self.values[rng.integers(len(self.values))]


Range = Between | OneOf


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """The declaration of a parameter, without name, type and default."""

    help: str
    least: float | None
    above: float | None
    most: float | None
    below: float | None
    tune: Range | None
    rule: Callable[[Any], str | None] | None


def param(
    *,
    default: Any = MISSING,
    help: str,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    tune: Range | None = None,
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """Declare a parameter of a settings class.

    Parameters
    ----------
    help : str
        The first sentence is the help of the flag; the whole text is the reference entry. Say what
        a larger value does.
    least, above, most, below : float, optional
        The range of numbers: at least, more than, at most, less than.
    tune : Between or OneOf, optional
        The values that are worth trying.
    check : callable, optional
        A rule that is not a range: a function that returns what the value must be, or None if the
        value is allowed.
    """
    declared = _Declared(
        help=help, least=least, above=above, most=most, below=below, tune=tune, rule=check
    )
    return field(default=default, metadata={_DECLARED: declared})


@dataclass(frozen=True, kw_only=True)
class Parameter(_Declared):
    """A parameter with its type resolved.

    Attributes
    ----------
    kinds : tuple of types
        int, float, bool, str or another class. None and named values are not among them.
    named : tuple
        Values that may be given by name, such as "auto".
    optional : bool
        Whether None is allowed.
    """

    name: str
    default: Any
    hint: Any
    kinds: tuple[Any, ...]
    named: tuple[Any, ...]
    optional: bool

    @property
    def flag(self) -> str:
        """Return the option of the command line, such as ``--embedding-dim``."""
        return "--" + self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """Raise a ParameterError unless the parameter may have this value."""
        problem = self._problem(value)
        if problem:
            got = reprlib.repr(value) if isinstance(value, int) else repr(value)  # 400 digits
            separator = ";" if ", " in problem else ","
            raise ParameterError(self.name, f"must be {problem}{separator} got {got}")

    def _problem(self, value: Any) -> str | None:
        """Return what the value must be, or None if it is allowed."""
        if (value is None and self.optional) or is_among(value, self.named):
            return None
        kind = next((kind for kind in self.kinds if _is_of(value, kind)), None)
        if kind is None:
            return self._allowed()
        if kind in (int, float) and (problem := self._range_problem(kind, value)):
            return problem
        return None if self.rule is None else self.rule(value)

    def _range_problem(self, kind: type, value: Any) -> str | None:
        # Whole numbers are finite; a large one would overflow in `isfinite`.
        if not isinstance(value, int) and not math.isfinite(value):
            return "a finite number"
        inside = (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )
        if not inside:
            return " or ".join([self._bounds(), *map(repr, self.named)])
        largest = _LARGEST_INT if kind is int else _LARGEST_FLOAT
        return None if abs(value) <= largest else f"at most {largest:g} in size"

    def _bounds(self) -> str:
        bounds = {
            "at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        said = [f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None]
        return "positive" if said == ["above 0"] else " and ".join(said)

    def _allowed(self) -> str:
        words = ["None"] if self.optional else []
        words += map(str, self.named)
        words += (_WORDS.get(kind) or f"a {getattr(kind, '__name__', kind)}" for kind in self.kinds)
        return f"one of {', '.join(words)}" if len(words) > 1 else words[0]


class Settings:
    """Base of all settings; a subclass declares its parameters with `param`."""

    def check_parameters(self) -> None:
        """Raise a ParameterError for the first parameter that is out of its range."""
        for name, parameter in parameters_of(type(self)).items():
            parameter.check(getattr(self, name))
        self.check_together()

    def check_together(self) -> None:
        """Raise a ParameterError if parameters do not fit each other."""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(param,))
def settings(cls: type[T]) -> type[T]:
    """Make a dataclass with keyword-only parameters, and list them in its docstring."""
    made = dataclass(kw_only=True, eq=False, repr=not hasattr(cls, "get_params"))(cls)
    made.__doc__ = _with_parameters(made)
    return made


# Cached, because evaluating the annotations again for each subclass is slow.
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def _parameters_of(cls: Any) -> dict[str, Parameter]:
    """Return the parameters of a settings class, by name."""
    bases = [base for base in reversed(cls.__mro__) if is_dataclass(base)]
    found = {}
    for each in fields(cls):
        if (declared := each.metadata.get(_DECLARED)) is not None:
            # The hint is evaluated in the module of the class that declares the field.
            hint = _hints(next(base for base in bases if each in fields(base)))[each.name]
            kinds, named, optional = _resolved(hint)
            found[each.name] = Parameter(
                name=each.name,
                default=each.default,
                hint=hint,
                kinds=kinds,
                named=named,
                optional=optional,
                **vars(declared),
            )
    return found


parameters_of: Callable[[Any], dict[str, Parameter]] = cache(_parameters_of)


def _resolved(hint: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], bool]:
    """Split a type into classes, named values, and whether it may be None."""
    origin = get_origin(hint)
    if origin is Literal:
        return (), get_args(hint), False
    if origin in (Union, types.UnionType):
        parts = [_resolved(part) for part in get_args(hint)]
        kinds = tuple(dict.fromkeys(kind for part in parts for kind in part[0]))
        named = tuple(dict.fromkeys(name for part in parts for name in part[1]))
        return kinds, named, any(part[2] for part in parts)
    if hint is type(None):
        return (), (), True
    return (origin or hint,), (), False


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of this type; numpy's numbers count as Python's."""
    is_bool = isinstance(value, bool | np.bool_)
    if kind is bool:
        return is_bool
    if kind is int:
        return isinstance(value, int | np.integer) and not is_bool
    if kind is float:
        return isinstance(value, int | float | np.integer | np.floating) and not is_bool
    return kind is Any or isinstance(value, kind)


def _with_parameters(cls: Any) -> str | None:
    """Return the docstring with a section for the parameters, before the other sections."""
    if cls.__doc__ is None or "\n    Parameters\n    ---" in cls.__doc__:
        return cls.__doc__
    entries = []
    for each in parameters_of(cls).values():
        default = f'"{each.default}"' if isinstance(each.default, str) else each.default
        entries.append(f"{each.name} : {_shown(each.hint)}, default {default}")
        entries.append(f"    {each.help}")
    return with_section(cls.__doc__, "Parameters", entries) if entries else cls.__doc__


def with_section(doc: str, title: str, lines: list[str]) -> str:
    """Return the docstring of a class with a further section, before the sections that it has."""
    section = "\n".join(f"    {line}" for line in [title, "-" * len(title), *lines])
    found = re.search(r"\n    [A-Z]\w+( \w+)*\n    -{3,}\n", doc)
    if found is None:
        return f"{doc.rstrip()}\n\n{section}\n    "
    return f"{doc[: found.start()]}\n{section}\n{doc[found.start() :]}"


def _shown(hint: Any) -> str:
    """Return a type as numpydoc writes it: {'a', 'b'} for named values, "or" for a union."""
    origin = get_origin(hint)
    if origin is Literal:
        return f"{{{', '.join(map(repr, get_args(hint)))}}}"
    if origin in (Union, types.UnionType):
        return " or ".join(map(_shown, get_args(hint)))
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
