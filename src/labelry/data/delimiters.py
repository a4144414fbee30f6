"""What stands between the cells of a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence

from labelry.data.columns import has_usual_name

_DELIMITERS = ("\t", ";", ",")  # the one that texts hold most comes last
_EXCEL = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # a line that only Excel and others like it read


def find_delimiter(lines: Sequence[str], named: Iterable[str] = ()) -> tuple[int, str]:
    """Return how many lines are before the header, and what stands between the cells.

    The header decides: columns that were `named` count most, then usual names, then the number.

    >>> find_delimiter(["text;labels\\n", "a;b\\n"]), find_delimiter(["sep=;\\n", "a;b\\n"])
    ((0, ';'), (1, ';'))
    """
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return 0, ","
    if said := _EXCEL.fullmatch(lines[first]):
        return first + 1, said[1]
    columns = {d: split_line(lines[first], d) for d in _DELIMITERS}

    def fit(delimiter: str) -> tuple[int, bool, int]:
        found = columns[delimiter]
        return len(set(found).intersection(named)), has_usual_name(found), len(found)

    return 0, max(_DELIMITERS, key=fit)


def split_line(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line that holds a whole row."""
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])
    except csv.Error:  # of a line break within quotes
        return []
