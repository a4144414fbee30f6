"""Charts as SVG. Their colours are those of the page, which differ on screen and in print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.report.markup import Element, add, element

Floats = NDArray[np.float64]

WIDTH, HEIGHT = 440, 300  # as wide as a phone, so that text stays legible there
_LEFT, _TOP, _BOTTOM = 52, 14, 46  # margins around the plot
_RIGHT = 18
_MOST_DOTS = 60  # most dots on a line that can be told apart


class Axis(NamedTuple):
    """One axis of a chart; `ticks` are values and their texts."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def place(self, value: float, start: float, end: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return start + (end - start) * (value - low) / (high - low)


class Chart:
    """An SVG with axes; its methods add curves, dots and bars."""

    def __init__(
        self, x: Axis, y: Axis, description: str, right: int = _RIGHT, bottom: int = _BOTTOM
    ) -> None:
        self.x_axis, self.y_axis = x, y
        self.right, self.bottom = WIDTH - right, HEIGHT - bottom
        size = f"0 0 {WIDTH} {HEIGHT}"
        self.svg = element("svg", viewBox=size, role="img", aria_label=description, class_="chart")
        for value, text in y.ticks:
            height = self.y(value)
            self.line((_LEFT, height), (self.right, height), "grid")
            self.text(_LEFT - 7, height + 4.5, text, text_anchor="end")
        for value, text in x.ticks:
            self.text(self.x(value), HEIGHT - 27, text, text_anchor="middle")
        self.line((_LEFT, self.bottom), (self.right, self.bottom), "axis")
        middle = (_TOP + self.bottom) / 2
        self.text((_LEFT + self.right) / 2, HEIGHT - 6, x.title, text_anchor="middle")
        turned = f"rotate(-90 13 {middle:.0f})"
        self.text(13, middle, y.title, text_anchor="middle", transform=turned)

    def x(self, value: float) -> float:
        return self.x_axis.place(value, _LEFT, self.right)

    def y(self, value: float) -> float:
        return self.y_axis.place(value, self.bottom, _TOP)

    def text(self, x: float, y: float, text: str, **attributes: object) -> None:
        add(self.svg, element("text", text, x=x, y=y, **attributes))

    def line(self, start: tuple[float, float], end: tuple[float, float], class_: str) -> None:
        (x1, y1), (x2, y2) = start, end
        add(self.svg, element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_))

    def curve(self, xs: Sequence[float], ys: Sequence[float], class_: str) -> None:
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))
        add(self.svg, element("polyline", points=points, class_=class_))

    def dot(self, x: float, y: float, radius: float, class_: str, hint: str) -> None:
        place = {"cx": self.x(x), "cy": self.y(y), "r": radius}
        add(self.svg, element("circle", element("title", hint), **place, class_=class_))

    def bar(self, left: float, width: float, y: float, class_: str, hint: str) -> None:
        """Add a bar from the bottom up to y; `left` and `width` are in pixels."""
        top = self.y(y)
        place = {"x": left, "y": top, "width": width, "height": self.bottom - top}
        add(self.svg, element("rect", element("title", hint), **place, class_=class_))


def share_chart(x: Axis, xs: Sequence[float], shares: dict[str, Floats]) -> Element:
    """Draw shares in percent against a common scale; each curve is named at its end."""
    said = "; ".join(
        f"{name} from {_said(values[0])} to {_said(values[-1])}" for name, values in shares.items()
    )
    chart = Chart(x, percent_axis("Percent"), f"Line chart, in percent. {said}.", right=96)
    held = {name: values[~np.isnan(values)] for name, values in shares.items()}
    heights = _apart([chart.y(v[-1]) if len(v) else chart.bottom for v in held.values()], 15)
    for i, (name, values) in enumerate(shares.items()):
        class_ = f"series-{i + 1}"
        known = [(at, y) for at, y in zip(xs, values.tolist(), strict=True) if not math.isnan(y)]
        chart.curve([at for at, _ in known], [y for _, y in known], f"line {class_}")
        for at, y in known:
            chart.dot(at, y, 3, f"dot {class_}", f"{name} at {at:g}: {y:.1f} %")
        chart.text(chart.right + 9, heights[i] + 4.5, name, class_=f"name {class_}")
    return chart.svg


def frequency_chart(bins: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Element:
    """Draw groups of bars: for each bin of labels, the recall at some cutoffs, in percent."""
    n_bins = len(bins)
    ticks = [(i + 0.5, name) for i, (name, _) in enumerate(bins)]
    said = "; ".join(
        f"{name}: " + ", ".join(f"{what} {_said(value)}" for what, value in values)
        for name, values in bins
    )
    bottom = Axis("Labels, by their rows in training", 0, n_bins, ticks)
    chart = Chart(
        bottom, percent_axis("Recall, percent"), f"Bar chart, in percent. {said}.", bottom=64
    )
    for i, (name, values) in enumerate(bins):
        width = 0.8 * (chart.x(1) - chart.x(0)) / len(values)
        start = chart.x(i + 0.5) - width * len(values) / 2
        for j, (what, value) in enumerate(values):
            left, height = start + j * width, 0.0 if math.isnan(value) else value
            hint = f"{name}, {what}: {_said(value)} %"
            chart.bar(left + 1, width - 2, height, f"bar tint-{j + 1}", hint)
            x = left + width / 2
            short = "–" if math.isnan(value) else f"{value:.0f}"
            chart.text(x, chart.y(height) - 5, short, class_="value", text_anchor="middle")
            chart.text(x, chart.bottom + 16, what, class_="small", text_anchor="middle")
    return chart.svg


def calibration_chart(totals: Floats) -> Element:
    """Draw the share of hits against predicted probability; larger dots have more predictions."""
    count, probability, hits = totals
    held = np.flatnonzero(count)
    mean, share = 100 * probability[held] / count[held], 100 * hits[held] / count[held]
    said = "; ".join(f"{p:.0f} predicted, {s:.0f} right" for p, s in zip(mean, share, strict=True))
    x, y = percent_axis("Predicted probability, percent"), percent_axis("Right, percent")
    chart = Chart(x, y, f"Calibration curve, in percent. {said}.")
    chart.line((chart.x(0), chart.y(0)), (chart.x(100), chart.y(100)), "ideal")
    chart.text(chart.x(57), chart.y(63), "ideal", text_anchor="end", class_="small")
    chart.curve(mean.tolist(), share.tolist(), "line series-1")
    radius = 3 + 6 * np.sqrt(count[held] / count.max())
    for p, s, r, n in zip(*(a.tolist() for a in (mean, share, radius, count[held])), strict=True):
        hint = f"{n:,.0f} predictions of {p:.1f} % on average: {s:.1f} % right"
        chart.dot(p, s, r, "dot series-1", hint)
    return chart.svg


def spectrum_chart(values: Floats, what: str) -> Element:
    """Draw values by rank on a logarithmic scale, without those that are zero."""
    values = values[values > values.max(initial=0) * 1e-9]
    n = len(values)
    ticks = _log_ticks(float(values[-1]), float(values[0]))
    y = Axis(what, ticks[0], ticks[-1], [(t, f"{t:g}") for t in ticks], log=True)
    ranks = sorted({1, *(round(n * q / 4) for q in (1, 2, 3)), n} - {0})
    x = Axis("Direction, by rank", 1, max(n, 2), [(r, str(r)) for r in ranks])
    ends = f"from {values[0]:.3g} to {values[-1]:.3g}"
    chart = Chart(x, y, f"Line chart on a logarithmic scale of {n} values, {ends}.")
    chart.curve(range(1, n + 1), values.tolist(), "line series-1")
    if n <= _MOST_DOTS:
        for i, value in enumerate(values.tolist(), 1):
            chart.dot(i, value, 2.5, "dot series-1", f"{i}: {value:.3g}")
    return chart.svg


def bar_mark(share: float) -> Element:
    """Draw a share between 0 and 1 as a bar for a table cell."""
    svg = element("svg", viewBox="0 0 100 12", class_="cell", aria_hidden="true")
    return add(
        svg,
        element("rect", x=0, y=2, width=100, height=8, class_="track"),
        element("rect", x=0, y=2, width=max(100 * share, 0.5), height=8, class_="fill"),
    )


def percent_axis(title: str) -> Axis:
    return Axis(title, 0, 100, [(v, str(v)) for v in range(0, 101, 20)])


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers (1, 2, 5, 10, ... or powers of 10) that enclose the values.

    >>> _log_ticks(0.3, 4)
    [0.2, 0.5, 1.0, 2.0, 5.0]
    """
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    digits = (1, 2, 5) if len(powers) < 4 else (1,)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    first = max(i for i, tick in enumerate(ticks) if tick <= low)
    last = min(i for i, tick in enumerate(ticks) if tick >= high and i > first)
    return ticks[first : last + 1 : math.ceil((last - first) / 7)]


def _apart(heights: Sequence[float], least: float) -> list[float]:
    """Move heights apart so that texts there do not overlap.

    >>> _apart([10, 12, 90], 15)
    [10, 25, 90]
    """
    found = list(heights)
    order = sorted(range(len(found)), key=found.__getitem__)
    for above, below in pairwise(order):
        found[below] = max(found[below], found[above] + least)
    return found


def _said(value: float) -> str:
    return "no rows" if math.isnan(value) else f"{value:.1f}"
