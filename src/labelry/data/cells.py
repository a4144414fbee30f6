"""What a text, a label and a column of them may be, whatever the format that holds them."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from labelry.errors import DataError

FIT_TEXT = "valid Unicode text without NUL"
FIT_NAMES = "distinct, non-empty labels of valid Unicode text without NUL"

_short = reprlib.Repr()  # bounded in length and depth, however large the value
_short.maxstring = _short.maxother = 60


def bad(
    found: str, expected: str, path: str | Path | None = None, line: int | None = None
) -> DataError:
    """Make the error that names the place, what was found and what was expected."""
    return DataError(f"found {found}; expected {expected}", path=path, line=line)


def shown(value: object) -> str:
    """Give a value as an error message can hold it."""
    return _short.repr(value)


def flaw_of_text(text: str) -> str | None:
    """Tell what makes a string unfit for a text or a name, if anything."""
    if "\0" in text:
        return f"a NUL character in {shown(text)}"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"half of a surrogate pair ({text[error.start]!r}) in {shown(text)}"
    return None


def flaw_of_names(names: list[str]) -> str | None:
    """Tell what makes the label names of a row unfit, if anything."""
    if len(set(names)) < len(names):
        name, times = Counter(names).most_common(1)[0]
        return f"the label {shown(name)} {times} times in one row"
    if "" in names:
        return "an empty label"
    return next(filter(None, map(flaw_of_text, names)), None)


def as_text(value: object, path: str | Path, line: int) -> str:
    """Take a text from a JSON or Parquet value."""
    if not isinstance(value, str):
        raise bad(f"the text {shown(value)} ({_kind(value)})", "a string", path, line)
    if flaw := flaw_of_text(value):
        raise bad(flaw, FIT_TEXT, path, line)
    return value


def as_names(
    value: object, split: Callable[[str], list[str]], path: str | Path, line: int
) -> list[str]:
    """Take label names from a cell: null, a label, a text to split into labels, or a list."""
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    for item in items:
        if type(item) is not str and type(item) is not int:  # bool is an int, and no label
            found = f"the label {shown(item)} ({_kind(item)})"
            raise bad(found, "a string, an integer, or a list of these", path, line)
    names = split(value) if isinstance(value, str) else [str(item).strip() for item in items]
    if flaw := flaw_of_names(names):
        raise bad(flaw, FIT_NAMES, path, line)
    return names


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
