"""Warnings about labelled rows: one line for each flaw, with a count and an example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from labelry.data.cells import shown
from labelry.data.dataset import Dataset
from labelry.data.separators import SEPARATORS, separator_words

_BETWEEN = re.compile(r"[\s_-]+")
_UNSPLIT = 0.5  # of the labels: those with a separator inside, if rows have one label; not tuned


def flaws_of(dataset: Dataset) -> list[str]:
    """Return what is probably wrong with a dataset in memory.

    >>> from scipy.sparse import csr_array
    >>> flaws_of(Dataset(csr_array([[1, 0], [0, 1]]), texts=["a", "a"], label_names=["X", "x"]))[0]
    "1 label differs from another only by case, blanks, hyphens or plural, such as 'X' and 'x'"
    """
    names = dataset.label_names or []
    rows = np.bincount(dataset.Y.indices, minlength=dataset.n_labels)
    found = [_few_labels(dataset, names, rows), _unsplit(dataset, names), _alike(names, rows)]
    if dataset.texts is not None:
        found += [*_duplicates(dataset, dataset.texts), _on_one_row(names, rows)]
    return [flaw for flaw in found if flaw]


def _few_labels(dataset: Dataset, names: Sequence[str], rows: np.ndarray) -> str | None:
    used = np.flatnonzero(rows)
    if len(used) > 1 or not dataset.n_rows:
        return None
    if not len(used):
        return "no row has a label: there is nothing to learn"
    return f"all rows have one label, {_name(names, used[0])}: every document will get it"


def _unsplit(dataset: Dataset, names: Sequence[str]) -> str | None:
    if not names or np.diff(dataset.Y.indptr).max(initial=0) != 1:
        return None
    with_it = {sep: [name for name in names if sep in name] for sep in SEPARATORS}
    sep = max(SEPARATORS, key=lambda each: len(with_it[each]))
    if len(with_it[sep]) < _UNSPLIT * len(names):
        return None
    how = separator_words(sep).removeprefix("separated by ")
    return (
        f"{_many(len(with_it[sep]), 'label has', 'labels have')} {how!r} inside and no row has "
        f"several labels, such as {shown(with_it[sep][0])}: if it separates labels, say so with "
        "`label_separator`"
    )


def _alike(names: Sequence[str], rows: np.ndarray) -> str | None:
    """Find labels that are probably one, by `spelling_key`."""
    keys = [_BETWEEN.sub("", name).lower() for name in names]
    keys = [key[:-1] if len(key) > 3 and key.endswith("s") else key for key in keys]
    counts = Counter(keys)
    n = len(keys) - len(counts)
    if not n:
        return None
    weight: Counter[str] = Counter()  # the example with the most rows
    for key, n_rows in zip(keys, rows.tolist(), strict=True):
        if counts[key] > 1:
            weight[key] += n_rows
    best = weight.most_common(1)[0][0]
    a, b = [repr(name) for key, name in zip(keys, names, strict=True) if key == best][:2]
    verb = _many(n, "label differs", "labels differ")
    return f"{verb} from another only by case, blanks, hyphens or plural, such as {a} and {b}"


def _duplicates(dataset: Dataset, texts: Sequence[str]) -> list[str | None]:
    first: dict[str, int] = {}
    again = [
        (i, before) for i, text in enumerate(texts) if (before := first.setdefault(text, i)) != i
    ]
    if not again:
        return []
    indptr, indices = dataset.Y.indptr, dataset.Y.indices

    def differ(i: int, j: int) -> bool:
        a, b = (indices[indptr[r] : indptr[r + 1]] for r in (i, j))
        return not np.array_equal(a, b)

    i, before = again[0]
    said = [
        f"{_many(len(again), 'document is a copy', 'documents are copies')} of another, such as "
        f"row {i + 1} of row {before + 1}: measure on other documents than these"
    ]
    other = [(i, before) for i, before in again if differ(i, before)]
    if other:
        i, before = other[0]
        verb = _many(len(other), "copy has", "copies have")
        said.append(f"{verb} other labels than the first, such as row {i + 1} and row {before + 1}")
    return [*said]


def _on_one_row(names: Sequence[str], rows: np.ndarray) -> str | None:
    once = np.flatnonzero(rows == 1)
    if not len(once):
        return None
    share = f"{len(once):,} of {len(rows):,} labels are on one row only"
    return f"{share}, such as {_name(names, once[0])}: they can hardly be learnt"


def _many(n: int, one: str, several: str) -> str:
    return f"{n:,} {one if n == 1 else several}"


def _name(names: Sequence[str], column: int) -> str:
    return repr(names[column]) if names else str(column)
