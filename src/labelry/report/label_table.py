"""The table of all labels, which a script sorts and searches."""

from __future__ import annotations

import json

import numpy as np

from labelry.arrays import I64
from labelry.report.markup import Element, element, shortened
from labelry.report.subject import Subject

MOST_NAMED = 20_000  # most labels in the table
_NAME_BYTES = 1_000_000  # most bytes of all names together
_NAME, _DESCRIPTION = 80, 120  # most characters

_ENOUGH = 5  # rows of a label from which it is listed at first
_COLUMNS = {
    "label": "Label",
    "train": "In training",
    "here": "Here",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
}
_CLASSES = {"label": None, "train": "number roomy", "f1": "number roomy"}  # no room on phones


def label_table(subject: Subject, order: I64) -> tuple[list[Element], int]:
    """Return a table of the first labels of `order`, and their number."""
    names, counts = subject.names, subject.counts
    order = order[:MOST_NAMED]
    lines = [shortened(names.names[i], _NAME) for i in order.tolist()]
    described = [shortened(names.descriptions[i], _DESCRIPTION) for i in order.tolist()]
    lengths = [
        len((a + b).encode("utf-8", "replace")) for a, b in zip(lines, described, strict=True)
    ]
    n = int(np.searchsorted(np.cumsum(lengths), _NAME_BYTES, side="right"))
    columns = {
        "names": lines[:n],
        "descriptions": described[:n],
        "train": subject.model.label_counts_[order[:n]].tolist(),
        "here": counts.true[order[:n]].tolist(),
        "predicted": counts.predicted[order[:n]].tolist(),
        "right": counts.both[order[:n]].tolist(),
    }
    heads = [
        element(
            "th",
            element("button", text, type="button"),
            scope="col",
            data_key=key,
            class_=_CLASSES.get(key, "number"),
        )
        for key, text in _COLUMNS.items()
    ]
    content = element(
        "table",
        element("caption", "", id="label-said", aria_live="polite"),
        element("thead", element("tr", *heads)),
        element("tbody"),
        id="label-table",
        data_labels=json.dumps(columns, ensure_ascii=False, separators=(",", ":")),
    )
    search = element("input", id="label-search", type="search", autocomplete="off")
    least = element("input", id="label-rows", type="number", min=0, inputmode="numeric")
    least.attrib["value"] = str(_ENOUGH if (counts.true >= _ENOUGH).any() else 0)
    controls = element(
        "div",
        element("label", "Search ", search),
        element("label", f"At least so many {subject.unit}s here ", least),
        class_="controls",
    )
    frame = element(
        "div", content, class_="scrolled", tabindex=0, role="group", aria_label="Labels"
    )
    more = element("button", "Show more", id="label-more", type="button", hidden="hidden")
    return [controls, frame, more, element("noscript", "The table needs JavaScript.")], n
