"""The label map as bytes, and as a canvas of the page that draws them."""

from __future__ import annotations

import base64
import json

import numpy as np

from labelry.arrays import I64, Ints
from labelry.report.label_map import LabelMap
from labelry.report.markup import Element, element

MOST_DRAWN = 200_000  # most labels on the map of a report, with eight bytes each

_HELP = (
    "Similar labels lie side by side. Groups of them have a colour, and the word that is most "
    "typical of their names; the others are grey. Press a group to dim the rest. Drag to move; "
    "double-click, pinch, or click and turn the wheel to zoom; with the keyboard: arrows, + and −, "
    "0 for all, Enter for the label in the middle."
)
_BUTTONS = {"zoom-in": ("+", "Zoom in"), "zoom-out": ("−", "Zoom out"), "zoom-all": ("⤢", "All")}


def encoded(found: LabelMap, counts: Ints) -> bytes:
    """Encode a map for the page with 6 bytes per label, little-endian.

    Four bytes with the length of the JSON that follows: ``{"labels": n, "leaders": [[ids], ...],
    "words": [...]}`` padded to a multiple of four; then x and y of each label as 16 bits each, its
    group (255: none) and its frequency on a logarithmic scale as 8 bits each.
    """
    leaders = [[label for label in row if label >= 0] for row in found.leaders.tolist()]
    said = {"labels": len(found.points), "leaders": leaders, "words": found.words}
    head = json.dumps(said).encode()
    head += b" " * (-len(head) % 4)
    places = np.rint(found.points * 65535).astype("<u2")
    logarithm = np.log1p(np.asarray(counts, dtype=np.float64))
    frequency = np.rint(255 * logarithm / max(1.0, float(logarithm.max()))).astype(np.uint8)
    parts = (places.tobytes(), found.groups.tobytes(), frequency.tobytes())
    return b"".join((len(head).to_bytes(4, "little"), head, *parts))


def map_canvas(found: LabelMap, counts: Ints, order: I64) -> list[Element]:
    """Return the elements of a map of the first labels of `order`, numbered in that order."""
    order = order[:MOST_DRAWN]
    rank = np.full(len(found.points) + 1, -1, dtype=np.int32)  # the last is that of no leader
    rank[order] = np.arange(len(order))
    shown = LabelMap(found.points[order], found.groups[order], rank[found.leaders], found.words)
    canvas = element(
        "canvas",
        id="map",
        tabindex=0,
        role="application",
        aria_label="Map of labels",
        aria_describedby="map-help",
        data_map=base64.b64encode(encoded(shown, np.asarray(counts)[order])).decode(),
    )
    buttons = [
        element("button", sign, id=name, type="button", aria_label=said)
        for name, (sign, said) in _BUTTONS.items()
    ]
    tip = element("div", id="map-name", role="status", hidden="hidden")
    frame = element("div", canvas, tip, element("div", *buttons, class_="map-buttons"))
    frame.attrib["id"] = "map-frame"
    legend = element("div", id="legend", role="group", aria_label="Groups: press to dim the others")
    return [frame, legend, element("p", _HELP, id="map-help", class_="quiet small")]
