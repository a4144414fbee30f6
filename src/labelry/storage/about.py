"""What a model knows of its training: when, from which file and how it was read; and its card."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labelry._version import __version__
from labelry.checks import StoredCheck
from labelry.errors import ModelError
from labelry.storage.sealed import read_sealed, seal
from labelry.storage.values import pack, unpack

ABOUT = "about.json"
_FORMAT, _FORMAT_VERSION = "labelry-about", 1


@dataclass(frozen=True)
class Source:
    """A file of rows, and how it was read; each field is None or empty where it is not known.

    Attributes
    ----------
    file : str or None
        Name of the file, without its directory.
    sha256 : str or None
        Hash of its bytes; None for a pipe, which cannot be read twice.
    format : str or None
    text_columns : tuple of str
        Columns or keys of the text, in the order in which they are joined.
    label_column : str or None
    label_separator : str or None
        What stands between the labels of a cell; None if a cell is one label, or if the format
        has lists of labels.
    """

    file: str | None = None
    sha256: str | None = None
    format: str | None = None
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    label_separator: str | None = None

    def hashed(self, path: Path) -> Source:
        """Return the same with the hash of a file's bytes, if `path` is a file."""
        if not path.is_file():
            return self
        with open(path, "rb") as stream:
            return replace(self, sha256=hashlib.file_digest(stream, "sha256").hexdigest())


@dataclass(frozen=True)
class Card:
    """The description of a model for people: the page of the server and `labelry inspect` show it.

    Attributes
    ----------
    title, description : str
    examples : tuple of str
        Documents that one may want to try.
    """

    title: str = ""
    description: str = ""
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("title", "description"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a text, got {getattr(self, name)!r}")
        if isinstance(self.examples, str) or not all(isinstance(e, str) for e in self.examples):
            raise ValueError(f"examples must be a list of texts, got {self.examples!r}")
        object.__setattr__(self, "examples", tuple(self.examples))


def _now() -> str:
    """Return the time in UTC; that of SOURCE_DATE_EPOCH, if it is set, for builds to repeat."""
    seconds = float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class About:
    """When a model was trained and from what, and its card.

    Attributes
    ----------
    trained : str
        When the training ended, in UTC, as in 2026-01-31T13:45:00+00:00.
    rows : int
        Training rows.
    labelry_version : str
        The labelry that trained it.
    source : Source
    card : Card
    """

    trained: str = field(default_factory=_now)
    rows: int = 0
    labelry_version: str = __version__
    source: Source = Source()
    card: Card = Card()

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)

    def encoded(self) -> bytes:
        """Return the content of about.json."""
        header = {"format": _FORMAT, "format_version": _FORMAT_VERSION}
        return seal(header | {"about": pack(self, "about", {})})


def read_about(directory: Path) -> About:
    """Return what about.json of a model says; a ModelError if it is missing or damaged."""
    header = read_sealed(directory / ABOUT, _FORMAT, _FORMAT_VERSION, "a labelry model")
    try:
        found: About = unpack(About, header["about"], "about", {}, {}, StoredCheck())
    except (LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{directory / ABOUT} is damaged: {error}") from error
    return found
