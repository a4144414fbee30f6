"""The labels of one cell of a table: what stands between them, splitting them, joining them."""

from __future__ import annotations

import ast
import html
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from labelry.data.cells import bad, shown

AUTO = "auto"  # found by `find_separator`
JSON = "json"  # a cell is a list, as JSON or Python writes it
SEPARATORS = ("|", ";", "\t", ",")  # those that are looked for, the likeliest first
_NAMES = {None: "one per cell", JSON: "as JSON lists", "\t": "separated by tab"}

# Not tuned on one dataset: keywords of papers recur in 0.3 of their cells, tags of a forum in 0.8.
_LEAST_RECURRING = 0.2  # of the parts: those that other cells have too
_LEAST_MOVING = 0.4  # of the recurring parts of commas: those in more than one place
_FEW = 10  # cells with "|", below which there need be no proof: in a name it is rare
_LEAST_LISTS = 0.9  # of the cells: those that are lists


def find_separator(cells: Iterable[str]) -> str | None:
    """Return what separates the labels of cells; None if each cell is one label.

    Splitting must pay. The parts that a separator makes must recur in other cells, or stand alone
    there, because labels do and the halves of a name do not. Commas stand in names too: "Smith,
    John" and "Paris, France" have parts that recur, but always in the same place. So for a comma
    the parts must also be found first, later or alone.

    >>> find_separator(["python;regex", "python", "regex;string", "string;python"])
    ';'
    >>> find_separator(["Smith, John", "Smith, Jane", "Doe, John"]) is None
    True
    """
    whole = list(dict.fromkeys(cell for cell in map(str.strip, cells) if cell))
    if whole and sum(_as_list(cell) is not None for cell in whole) >= _LEAST_LISTS * len(whole):
        return JSON
    n_cells = {sep: sum(sep in html.unescape(cell) for cell in whole) for sep in SEPARATORS}
    paying = [sep for sep in SEPARATORS if n_cells[sep] and _pays(sep, whole, n_cells[sep])]
    return max(paying, key=n_cells.__getitem__, default=None)


def _pays(separator: str, whole: Sequence[str], n_cells: int) -> bool:
    """Return whether the parts of the split cells look like labels."""
    if separator == "|" and n_cells < _FEW:
        return True
    found = [split_cell(cell, separator) for cell in whole]
    n_with = Counter(part for parts in found for part in set(parts))  # distinct cells of a part
    several = [parts for parts in found if len(parts) > 1]
    n_parts = sum(map(len, several))
    recurring = Counter(part for parts in several for part in parts if n_with[part] > 1)
    if recurring.total() < max(_LEAST_RECURRING * n_parts, 1):
        return False
    if separator != ",":
        return True
    places: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for parts in found:
        places[parts[0] if parts else ""]["first" if len(parts) > 1 else "alone"] += 1
        for part in parts[1:]:
            places[part]["later"] += 1
    moving = sum(n for part, n in recurring.items() if _moves(places[part]))
    return moving >= _LEAST_MOVING * recurring.total()


def _moves(places: Counter[str]) -> bool:
    """Return whether a part stands alone, or a tenth of the time in another place than usually."""
    first, later = places["first"], places["later"]
    return bool(places["alone"]) or 10 * min(first, later) >= first + later


def split_cell(cell: str, separator: str | None) -> list[str]:
    """Return the labels of a cell, without blanks around them and without empty ones."""
    if separator == JSON and cell.strip():
        items = _as_list(cell)
        if items is None:
            raise bad(shown(cell), 'a list such as ["a", "b"], as `label_separator` is json')
        return items
    parts = [cell] if separator is None else cell.split(separator)
    return [part for part in map(str.strip, parts) if part]


def join_labels(labels: Sequence[str], separator: str | None) -> str:
    """Return the cell that `split_cell` gives back; a DataError if the labels do not allow it."""
    if separator == JSON:
        return json.dumps(list(labels), ensure_ascii=False)
    if separator is None and len(labels) > 1:
        raise bad(f"{len(labels)} labels", "one label a row, as `label_separator` is None")
    cell = (separator or "").join(labels)
    if split_cell(cell, separator) != list(labels):
        expected = f"labels without the separator {separator!r}; choose another `label_separator`"
        raise bad(f"the labels {shown(labels)}", expected)
    return cell


def separator_words(separator: str | None) -> str:
    """Return a separator in words.

    >>> separator_words(";"), separator_words(None)
    ('separated by ;', 'one per cell')
    """
    return _NAMES.get(separator, f"separated by {separator}")


def _as_list(cell: str) -> list[str] | None:
    """Return the texts of a cell that is a list of texts or whole numbers; None if it is not."""
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    for decode in (json.loads, ast.literal_eval):
        try:
            items = decode(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(items, list) and all(type(item) in (str, int) for item in items):
            return [str(item).strip() for item in items]
        return None
    return None
