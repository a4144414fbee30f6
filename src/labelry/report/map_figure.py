"""Draw the label map as SVG: a few paths for any number of labels, and names on hover."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.report.label_groups import GREY
from labelry.report.label_map import LabelMap
from labelry.report.markup import Element, add, element, shortened

MOST_DRAWN = 60_000  # most labels that are drawn, with about ten bytes each
MOST_NAMED = 20_000  # most labels whose names are in the file

_NAME_BYTES = 1_000_000  # most bytes of all names together
_NAME = 80  # most characters of a name
_SIZE = np.array([1000, 620])  # of the map, in the units of the drawing
_EDGE = 25  # width of the border around the map
_SIZES = 3  # number of point sizes, by the frequency of a label
_LETTER, _LINE = 7.4, 18  # width and height of the names on the map


class MapFigure(NamedTuple):
    """The drawing, and the number of labels that it shows and that it can name."""

    svg: Element
    n_drawn: int
    n_named: int


def map_figure(found: LabelMap, counts: NDArray[np.integer], names: list[str]) -> MapFigure:
    """Draw a map; `names` are the shown names of the labels."""
    order = np.argsort(-np.asarray(counts), kind="stable")[:MOST_DRAWN]
    places = _frame_places(found.points)
    width, height = (_SIZE + 2 * _EDGE).tolist()
    named = _named(order, names)
    svg = element(
        "svg",
        id="map",
        viewBox=f"0 0 {width} {height}",
        tabindex=0,
        role="application",
        aria_label=f"Map of {len(order):,} labels. Arrow keys go from label to label.",
        data_names="\n".join(named),
        data_places=" ".join(map(str, places[order[: len(named)]].ravel().tolist())),
    )
    _add_points(svg, found, places, order, 0.2 * np.sqrt(width * height / len(order)))
    _add_leaders(svg, found, places, names, width)
    add(svg, element("circle", id="map-ring", r=9, visibility="hidden"))
    return MapFigure(svg, len(order), len(named))


def _frame_places(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """Stretch the points to fill the frame, because directions and distances mean little."""
    low, high = points.min(axis=0), points.max(axis=0)
    share = (points - low) / np.where(high > low, high - low, 1)
    share[:, 1] = 1 - share[:, 1]  # y grows downwards in a drawing
    return np.rint(_EDGE + _SIZE * share).astype(np.int64)


def _named(order: NDArray[np.intp], names: list[str]) -> list[str]:
    """Return the names of the first labels, one line each, up to `_NAME_BYTES` in all."""
    lines = [shortened(" ".join(names[i].split()), _NAME) for i in order[:MOST_NAMED].tolist()]
    lengths = np.cumsum([len(line.encode("utf-8", "replace")) + 1 for line in lines])
    return lines[: int(np.searchsorted(lengths, _NAME_BYTES, side="right"))]


def _add_points(
    svg: Element, found: LabelMap, places: NDArray[np.int64], order: NDArray[np.intp], radius: float
) -> None:
    """Add a path of dots for each size and group; rare labels are small and below the others."""
    radius = float(np.clip(radius, 1.2, 9))
    size = _SIZES - 1 - np.arange(len(order)) * _SIZES // len(order)
    for s in range(_SIZES):
        for group in np.unique(found.groups).tolist():
            chosen = order[(size == s) & (found.groups[order] == group)]
            if len(chosen):
                path = "".join(f"M{x} {y}h0" for x, y in places[chosen].tolist())
                wide = radius * (1.3 + 0.5 * s)
                add(
                    svg,
                    element(
                        "path",
                        d=path,
                        class_="grey" if group == GREY else f"group-{group % 12}",
                        stroke_width=wide,
                    ),
                )


def _add_leaders(
    svg: Element, found: LabelMap, places: NDArray[np.int64], names: list[str], width: int
) -> None:
    """Write the names of the most frequent labels of each group, where they do not overlap."""
    boxes: list[tuple[float, float, float]] = []
    for label in found.leaders.T.ravel().tolist():
        if label < 0:
            continue
        text = shortened(" ".join(names[label].split()), 26)
        x, y = places[label].tolist()
        half = _LETTER * len(text) / 2
        x = float(np.clip(x, half + 4, width - half - 4))
        y -= 11
        if any(abs(x - a) < half + b and abs(y - c) < _LINE for a, b, c in boxes):
            continue
        boxes.append((x, half + 6, y))
        add(svg, element("text", text, x=x, y=float(y), text_anchor="middle"))
