"""The label map on the page: its bytes, with the most frequent labels first."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from labelry.report import map_canvas as module
from labelry.report.label_groups import GREY
from labelry.report.label_map import LabelMap
from labelry.report.map_canvas import encoded, map_canvas

POINTS = np.array([[0, 1], [0.5, 0.25], [1, 0], [0.25, 0.5]], dtype=np.float32)
GROUPS = np.array([1, 0, 1, GREY], np.uint8)
LEADERS = np.array([[1, -1, -1], [2, 0, -1]], np.int32)
FOUND = LabelMap(POINTS, GROUPS, LEADERS, ["Cat", ""])
COUNTS = np.array([0, 7, 63, 1])


def decoded(content: bytes) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray]:
    """The parts of a map, as the page reads them."""
    size = int.from_bytes(content[:4], "little")
    assert size % 4 == 0
    head = json.loads(content[4 : 4 + size])
    n = head["labels"]
    rest = content[4 + size :]
    assert len(rest) == 6 * n
    points = np.frombuffer(rest[: 4 * n], "<u2").reshape(n, 2) / 65535
    return head, points, np.frombuffer(rest[4 * n : 5 * n], np.uint8), np.array([*rest[5 * n :]])


def test_a_map_in_bytes() -> None:
    head, points, groups, frequency = decoded(encoded(FOUND, COUNTS))
    assert head == {"labels": 4, "leaders": [[1], [2, 0]], "words": ["Cat", ""]}
    np.testing.assert_allclose(points, POINTS, atol=1e-5)
    assert groups.tolist() == [1, 0, 1, GREY]
    assert frequency.tolist() == [0, 128, 255, 42]  # log 8 is half of log 64


@pytest.mark.parametrize(("most", "leaders"), [(10, [[1], [0, 3]]), (3, [[1], [0]])])
def test_labels_are_numbered_by_frequency_and_the_rarest_are_left_out(
    monkeypatch: pytest.MonkeyPatch, most: int, leaders: list[list[int]]
) -> None:
    monkeypatch.setattr(module, "MOST_DRAWN", most)
    frame, _, _ = map_canvas(FOUND, COUNTS, np.array([2, 1, 3, 0]))
    data = next(frame.iter("canvas")).get("data-map", "")
    head, points, groups, frequency = decoded(base64.b64decode(data))
    n = min(most, 4)
    assert (head["labels"], head["leaders"]) == (n, leaders)
    np.testing.assert_allclose(points, POINTS[[2, 1, 3, 0]][:n], atol=1e-5)
    assert groups.tolist() == [1, 0, GREY, 1][:n]
    assert frequency.tolist() == [255, 128, 42, 0][:n]
