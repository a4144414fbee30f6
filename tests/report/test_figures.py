"""Charts: things are where their values are, and a text says the same."""

from __future__ import annotations

import numpy as np
import pytest

from labelry.report import figures
from labelry.report.figures import Axis, Chart
from labelry.report.markup import Element, rendered


def texts(svg: Element) -> list[str]:
    return [found.text or "" for found in svg.iter("text")]


def test_every_chart_has_axis_titles_and_a_text_alternative() -> None:
    nan = np.array([np.nan, 20.0, np.nan])
    curve = {
        "Nothing": nan * np.nan,
        "Some": nan,
        "P": np.array([90.0, 50.0, 30.0]),
        "R": np.array([40.0, 60.0, 70.0]),
    }
    charts = {
        ("k", "Percent"): figures.share_chart(Axis("k", 1, 3, []), [1, 2, 3], curve),
        ("Labels, by their rows in training", "Recall, percent"): figures.frequency_chart(
            [("tail", [("R@1", 12.34), ("R@3", float("nan"))])]
        ),
        ("Predicted probability, percent", "Right, percent"): figures.calibration_chart(
            np.array([[10.0, 0, 30], [1, 0, 27], [2, 0, 24]])
        ),
        ("Direction, by rank", "Value"): figures.spectrum_chart(np.array([4.0, 2.0, 1.0]), "Value"),
    }
    said = ["Some from no rows to no rows; P from 90.0 to 30.0", "R@1 12.3, R@3 no rows"]
    said += ["90 predicted, 80 right", "3 values, from 4 to 1"]
    for (axes, svg), alternative in zip(charts.items(), said, strict=True):
        assert set(axes) <= set(texts(svg))
        assert svg.get("role") == "img"
        assert alternative in (svg.get("aria-label") or "")
        assert "nan" not in rendered(svg).replace("R@3 nan", "")


def test_points_are_where_their_values_are() -> None:
    chart = Chart(Axis("x", 0, 10, []), Axis("y", 1, 100, [(10, "ten")], log=True), "about points")
    chart.dot(5, 10, 3, "dot", "half way")
    dot = next(chart.svg.iter("circle"))
    assert float(dot.get("cx", 0)) == pytest.approx((chart.x(0) + chart.x(10)) / 2, abs=0.1)
    assert float(dot.get("cy", 0)) == pytest.approx((chart.y(1) + chart.y(100)) / 2, abs=0.1)
    assert chart.y(100) < chart.y(1)  # up is less in a drawing
    chart.bar(20, 10, 100, "bar", "full")
    bar = next(chart.svg.iter("rect"))
    assert float(bar.get("height", 0)) == pytest.approx(chart.y(1) - chart.y(100), abs=0.1)


@pytest.mark.parametrize(
    "values", [[1.0], [3.0, 3.0], [5.0, 0.0], [1e6, 1e-2], [7.3, 0.99], list(range(300, 0, -1))]
)
def test_any_spectrum_can_be_drawn(values: list[float]) -> None:
    svg = figures.spectrum_chart(np.array(values, dtype=np.float64), "Value")
    line = next(svg.iter("polyline")).get("points", "").split()
    heights = [float(point.split(",")[1]) for point in line]
    assert len(line) == np.count_nonzero(values)
    assert heights == sorted(heights)
    assert 0 <= min(heights) <= max(heights) <= figures.HEIGHT
    assert len(list(svg.iter("line"))) >= 3  # two ticks at least, and the axis


def test_names_at_the_ends_of_lines_do_not_touch() -> None:
    same = {name: np.array([50.0, 50.0]) for name in ("one", "two", "three")}
    chart = figures.share_chart(Axis("x", 0, 1, []), [0, 1], same)
    ends = sorted(float(text.get("y", 0)) for text in chart.iter("text") if text.text in same)
    assert (np.diff(ends) >= 15).all()
    assert len(ends) == 3


def test_a_bar_in_a_table_is_as_long_as_its_share() -> None:
    widths = [float(rect.get("width", 0)) for rect in figures.bar_mark(0.25).iter("rect")]
    assert widths == [100, 25]
