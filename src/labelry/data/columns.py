"""Which columns of a table are the texts and the labels: those named, or else the usual ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from labelry.data.cells import bad
from labelry.errors import DataError, did_you_mean
from labelry.storage.about import Source

# The usual names in lower case, the likeliest first. A title comes before the text.
_TITLES = ("title", "headline", "subject", "heading")
_TEXTS = ("text", "content", "body", "description", "abstract", "document", "message", "question")
_LABELS = ("labels", "tags", "label", "tag", "categories", "category", "topics", "topic", "classes")


def has_usual_name(columns: Iterable[str]) -> bool:
    """Return whether one of these may be the column of texts or of labels."""
    return not {*_TITLES, *_TEXTS, *_LABELS}.isdisjoint(map(_plain, columns))


def is_usual_text(column: str) -> bool:
    """Return whether a column with this name may be that of the texts."""
    return _plain(column) in (*_TITLES, *_TEXTS)


def _plain(name: str) -> str:
    return name.strip().lower()


@dataclass(frozen=True)
class Wanted:
    """The columns that the caller asks for.

    Attributes
    ----------
    text : tuple of str
        Names of the columns of the text; empty: the usual ones.
    label : str or None
        Name of the column of the labels; None: a usual one; "": labels are not needed.
    role : str
        What an error calls the labels, and, with ``_column``, the parameter.
    like : Source or None
        How another file was read for the same model.
    keep : tuple of str, or "all"
        Columns that are kept as they are, beside texts and labels.
    """

    text: tuple[str, ...] = ()
    label: str | None = None
    role: str = "label"
    like: Source | None = None
    keep: tuple[str, ...] | Literal["all"] = ()

    def check(self) -> None:
        """Raise a ValueError if the names cannot be those of columns."""
        if "" in self.text:
            raise ValueError("text_column must not be empty")
        if len(set(self.text)) < len(self.text):
            raise ValueError(f"text_column names a column twice: {', '.join(self.text)}")
        if self.label in self.text:
            raise ValueError(
                f"text_column and {self.role}_column are both {self.label!r}; they must differ"
            )

    def found_in(
        self, header: Sequence[str], path: str | Path, line: int | None, *, optional: bool
    ) -> tuple[tuple[str, ...], str | None]:
        """Return the columns of the text, and the column of the labels, from those of the file.

        `optional`: there need be no labels, if no column was named for them.
        """
        text = self._texts(header)
        if not text or not set(text) <= set(header):
            lacking = next((name for name in text if name not in header), None)
            raise missing(lacking, "text", header, path, line)
        label = self._label([name for name in header if name not in text])
        needed = self.label if optional else self.label != ""
        if needed and label not in header:
            raise missing(self.label, self.role, header, path, line)
        for name in (*text, label):
            if header.count(name or "") > 1:
                raise bad(f"several columns {name!r}", "one column of that name", path, line)
        return text, label

    def kept_of(self, header: Sequence[str], path: str | Path, line: int | None) -> tuple[str, ...]:
        """Return the columns of the file that are to be kept."""
        if self.keep == "all":
            return tuple(dict.fromkeys(header))
        lacking = next((name for name in self.keep if name not in header), None)
        if lacking is not None:
            raise missing(lacking, "kept", header, path, line)
        return self.keep

    def _texts(self, header: Sequence[str]) -> tuple[str, ...]:
        if self.text:
            return self.text
        if self.like and self.like.text_columns and set(self.like.text_columns) <= set(header):
            return self.like.text_columns
        others = [name for name in header if name != self.label]
        found = (_first(_TITLES, others), _first(_TEXTS, others))
        return tuple(name for name in found if name is not None)

    def _label(self, others: Sequence[str]) -> str | None:
        if self.label is not None:
            return self.label or None
        if self.like and self.like.label_column in others:
            return self.like.label_column
        return _first(_LABELS, others)


def _first(usual: Sequence[str], header: Sequence[str]) -> str | None:
    """Return the column with the first of the usual names, whatever its case."""
    named = {_plain(name): name for name in reversed(header)}
    return next((named[name] for name in usual if name in named), None)


def missing(
    name: str | None, role: str, header: Iterable[str], path: str | Path, line: int | None
) -> DataError:
    """Return the error for a header or a row without a column that is needed."""
    names = list(islice(header, 50))
    found = ", ".join(map(repr, names[:20])) or "none"
    if name:
        expected = f"the {role} column {name!r}{did_you_mean(name, names)}"
    else:
        usual = ", ".join((_TEXTS if role == "text" else _LABELS)[:4])
        expected = f"a {role} column, such as {usual}; name yours with `{role}_column`"
    return bad(f"the columns {found}", expected, path, line)
