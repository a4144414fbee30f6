"""Names or descriptions of labels from a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from labelry.data.cells import FIT_TEXT, bad, flaw_of_text, shown
from labelry.data.streams import last_suffix
from labelry.data.tables import read_lines

_HEADER = ["label", "name"]


def read_names(path: str | Path) -> dict[str, str]:
    """Read the name of each label: ``{label: name}``.

    Lines are ``label<TAB>name``, where further fields belong to the name; in a file called .csv
    they are ``label,name`` with quotes as in RFC 4180, in one called .jsonl ``{"label": ...,
    "name": ...}``. A first line of these two words is a header. The file may be compressed.

    A DataError names the line of what is not a label and its name, or of a label named twice.
    """
    suffix = last_suffix(path)
    names: dict[str, str] = {}
    for number, line in read_lines(path):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        try:
            label, name = _pair(text, suffix)
        except (ValueError, KeyError, TypeError, RecursionError, csv.Error):
            raise bad(shown(text), "a label and its name", path, number) from None
        if flaw := flaw_of_text(label) or flaw_of_text(name):
            raise bad(flaw, FIT_TEXT, path, number)
        if number == 1 and [label, name] == _HEADER:
            continue
        if label in names:
            raise bad(f"the label {shown(label)} again", "one name for each label", path, number)
        names[label] = name
    return names


def _pair(text: str, suffix: str) -> tuple[str, str]:
    """Return label and name of a line; raise a ValueError, KeyError or TypeError if none."""
    if suffix == ".jsonl":
        record = json.loads(text)
        label, name = record["label"], record["name"]
        if type(label) not in (str, int) or not isinstance(name, str) or label == "":
            raise TypeError
        return str(label), name
    fields: Iterator[str] = iter(next(csv.reader([text])) if suffix == ".csv" else text.split("\t"))
    label, name = next(fields, "").strip(), " ".join(fields).strip()
    if not (label and name):
        raise ValueError
    return label, name
