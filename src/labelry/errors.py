"""The errors that a user meets. Each is one sentence that names the place."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

_MOST_COMPARED = 20_000  # names; difflib takes about a second for so many


class LabelryError(Exception):
    """Base of every error that labelry raises on purpose."""


class DataError(LabelryError, ValueError):
    """Input that cannot be read: names the file, the line, what was found and what was expected."""

    def __init__(
        self, message: str, *, path: str | Path | None = None, line: int | None = None
    ) -> None:
        path = "standard input" if str(path) == "-" else path
        where = "" if path is None else f"{path}:{line}: " if line is not None else f"{path}: "
        super().__init__(where + message)
        self.path = path
        self.line = line


class ParameterError(LabelryError, ValueError):
    """A parameter value that is not allowed: names the parameter, the rule and the value."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter} {problem}")
        self.parameter = parameter
        self.problem = problem


class ModelError(LabelryError, ValueError):
    """A model directory that is damaged, foreign, of a newer format, or at the path of a save."""


class MissingExtraError(LabelryError, ImportError):
    """An optional dependency is not installed; the message says how to get it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'labelry[{extra}]'")


class MemoryBudgetError(LabelryError, MemoryError):
    """A job that would not fit in memory; the message says what would make it fit."""


def did_you_mean(word: object, known: Collection[object]) -> str:
    """Return the end of an error message, which suggests the most similar name, or "".

    >>> did_you_mean("tittle", ["title", "body"]), did_you_mean("x", ["title"])
    ("; did you mean 'title'?", '')
    """
    text = str(word).lower()
    names = {str(name).lower(): str(name) for name in known}
    if len(names) > _MOST_COMPARED:
        names = {lower: name for lower, name in names.items() if lower[:2] == text[:2]}
    found = difflib.get_close_matches(text, list(names)[:_MOST_COMPARED], n=1)
    return f"; did you mean {names[found[0]]!r}?" if found else ""
