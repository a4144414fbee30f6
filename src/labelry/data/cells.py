"""What a text, a label and a column of them may be, whatever the format that holds them."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from labelry.errors import DataError

TEXT_COLUMNS = ("text", "content", "body", "description", "title")
LABEL_COLUMNS = ("labels", "tags", "label", "categories", "category")

FIT_TEXT = "valid Unicode text without NUL"
FIT_NAMES = "distinct, non-empty labels of valid Unicode text without NUL"

_short = reprlib.Repr()  # bounded in length and depth, however large the value
_short.maxstring = _short.maxother = 60


class Column:
    """The column of the texts or of the labels: the one named, or the first alias there is."""

    def __init__(
        self, role: str, name: str | None, aliases: tuple[str, ...], besides: str | None
    ) -> None:
        self.role = role
        names = aliases if name is None else (name,) if name else ()
        self.names = tuple(alias for alias in dict.fromkeys(names) if alias != besides)
        self.wanted = name != ""
        self.taken: str | None = None  # the name that the first rows have

    def find(self, present: Collection[str], path: str | Path, line: int | None) -> str | None:
        """Name the column, if this row has it; the first row with a candidate decides."""
        name = next((name for name in self.names if name in present), None)
        if self.taken is None:
            self.taken = name
        if name is None or name == self.taken:
            return name
        if self.names.index(name) > self.names.index(self.taken):
            return None  # the row lacks the column; a lesser candidate is something else
        found = f"{name!r}, where rows before have {self.taken!r} as the {self.role}"
        expected = f"the same key in every row; name it with {self.role}_column"
        raise bad(found, expected, path, line)

    def missing(self, present: Collection[str], path: str | Path, line: int | None) -> DataError:
        """Make the error for a row or header without the column."""
        names = " or ".join(repr(name) for name in self.names)
        found = ", ".join(repr(name) for name in islice(present, 20)) or "none"
        expected = f"a {self.role} column {names}; another can be named with {self.role}_column"
        return bad(f"the columns {found}", expected, path, line)

    def position(self, header: list[str], path: str | Path, line: int | None) -> int:
        """Find the column in a header."""
        name = self.find(header, path, line)
        if name is None:
            raise self.missing(header, path, line)
        if header.count(name) > 1:
            raise bad(f"several columns {name!r}", "one column of that name", path, line)
        return header.index(name)


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


def as_names(value: object, path: str | Path, line: int) -> list[str]:
    """Take label names from a JSON or Parquet value: null, a label, or a list of labels."""
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    for item in items:
        if type(item) is not str and type(item) is not int:  # bool is an int, and no label
            found = f"the label {shown(item)} ({_kind(item)})"
            raise bad(found, "a string, an integer, or a list of these", path, line)
    names = [str(item) for item in items]
    if flaw := flaw_of_names(names):
        raise bad(flaw, FIT_NAMES, path, line)
    return names


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
