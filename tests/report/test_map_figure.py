"""The label map as a drawing: bounded, and its names are where its points are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from labelry.report import map_figure as module
from labelry.report.label_map import LabelMap
from labelry.report.map_figure import map_figure
from labelry.report.markup import rendered


def layout(n: int, seed: int = 0) -> tuple[LabelMap, np.ndarray]:
    rng = np.random.default_rng(seed)
    counts = rng.permutation(n) + 1
    groups = (np.arange(n) % 3).astype(np.uint8)
    order = np.argsort(-counts)
    leaders = np.array([[i for i in order if groups[i] == g][:3] for g in range(3)], dtype=np.int32)
    points = rng.random((n, 2)).astype(np.float32)
    return LabelMap(points, groups, leaders, [""] * 3), counts


def points(svg: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in svg.iter("path"):  # type: ignore[attr-defined]
        found[path.get("class")] = found.get(path.get("class"), 0) + path.get("d").count("h0")
    return found


def test_every_label_is_drawn_in_its_group_and_named_at_its_place() -> None:
    found, counts = layout(60)
    names = [f"label {i}" for i in range(60)]
    drawn = map_figure(found, counts, names)
    assert (drawn.n_drawn, drawn.n_named) == (60, 60)
    assert points(drawn.svg) == {"group-0": 20, "group-1": 20, "group-2": 20}
    shown = (drawn.svg.get("data-names") or "").split("\n")
    assert shown[0] == names[int(np.argmax(counts))]
    places = (drawn.svg.get("data-places") or "").split()
    paths = "".join(path.get("d", "") for path in drawn.svg.iter("path"))
    assert len(places) == 120
    assert all(f"M{x} {y}h0" in paths for x, y in zip(places[::2], places[1::2], strict=True))
    highest = shown.index(names[int(np.argmax(found.points[:, 1]))])
    assert min(map(int, places[1::2])) == int(places[2 * highest + 1])


def test_what_is_too_much_is_left_out_the_rarest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DRAWN", 30)
    monkeypatch.setattr(module, "MOST_NAMED", 20)
    found, counts = layout(60)
    drawn = map_figure(found, counts, [f"{count:03}" for count in counts])
    assert (drawn.n_drawn, drawn.n_named) == (30, 20)
    assert sum(points(drawn.svg).values()) == 30
    assert (drawn.svg.get("data-names") or "").split("\n") == [f"{c:03}" for c in range(60, 40, -1)]


def test_long_names_are_cut_and_have_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NAME_BYTES", 1000)
    found, counts = layout(60)
    drawn = map_figure(found, counts, ["two\nlines and\t" + "é" * 500] * 60)
    shown = drawn.svg.get("data-names") or ""
    lines = shown.split("\n")
    assert {len(line) for line in lines} == {80}
    assert drawn.n_named == len(lines) == 1000 // len(f"{lines[0]}\n".encode())
    assert "two lines and é" in shown
    assert "\t" not in shown


def test_labels_in_one_place() -> None:
    same = LabelMap(np.full((4, 2), 0.5), np.zeros(4, dtype=np.uint8), np.array([[0, 1, -1]]), [""])
    text = rendered(map_figure(same, np.ones(4), list("abcd")).svg)
    assert "nan" not in text
    assert len(set(re.findall(r"M\d+ \d+h0", text))) == 1
