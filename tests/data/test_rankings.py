"""Ranked labels as text: what each format says about the same rows."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from labelry.data.rankings import RankingLines, free_separator

LABELS = ["knee, left", 'the "arm"', "schöner\nhals", "toe"]
IDS = np.array([[3, 0, 1], [2, 1, -1], [-1, -1, -1]])
SCORES = np.array([[0.9, 0.5, 1e-9], [1 / 3, 0.25, -np.inf], [-np.inf] * 3], dtype=np.float32)


def test_jsonl() -> None:
    lines = RankingLines("jsonl", LABELS, 3)
    rows = [json.loads(line) for line in lines(IDS, SCORES).splitlines()]
    assert lines.header == ""
    assert [row["labels"] for row in rows] == [
        ["toe", "knee, left", 'the "arm"'],
        ["schöner\nhals", 'the "arm"'],
        [],
    ]
    assert rows[0]["scores"] == [0.9, 0.5, 1e-9]
    assert np.float32(rows[1]["scores"][0]) == pytest.approx(1 / 3, rel=1e-6)
    noted = lines(IDS, SCORES, known=np.array([True, True, False])).splitlines()
    assert [json.loads(line) for line in noted[:2]] == rows[:2]
    assert json.loads(noted[2]) == {"labels": [], "scores": [], "note": "no known word"}


def test_csv_has_a_line_for_each_row_and_a_pair_of_columns_for_each_place() -> None:
    lines = RankingLines("csv", LABELS, 3)
    rows = list(csv.reader(io.StringIO(lines.header + lines(IDS, SCORES), newline="")))
    assert rows[0] == ["label_1", "score_1", "label_2", "score_2", "label_3", "score_3"]
    assert rows[1] == ["toe", "0.9", "knee, left", "0.5", 'the "arm"', "1e-09"]
    assert rows[2] == ["schöner\nhals", "0.3333333", 'the "arm"', "0.25", "", ""]
    assert rows[3] == [""] * 6


def test_csv_keeps_columns_and_has_one_cell_of_labels_with_a_threshold() -> None:
    labels = ["knee", "arm; left", "toe"]
    lines = RankingLines("csv", labels, 3, 0.3, ";", kept=["id", "labels", "a,b"])
    assert lines.separator == "|"  # a label has the other inside
    text = lines.header + lines(IDS[1:] % 3, SCORES[1:], [["1", "2"], ["x", ""], ['"', "\n"]])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["id", "input_labels", "a,b", "labels"],
        ["1", "x", '"', "toe"],
        ["2", "", "\n", ""],
    ]
    lines = RankingLines("csv", ["a", "b"], 2, 0, ";")
    assert lines(np.array([[1, 0]]), np.array([[2.0, 1.0]])) == "b;a\n"


def test_jsonl_keeps_columns() -> None:
    lines = RankingLines("jsonl", LABELS, 1, kept=["id", "scores"])
    row = json.loads(lines(IDS[:1, :1], SCORES[:1, :1], [["7"], ["é"]]))
    assert row == {"id": "7", "input_scores": "é", "labels": ["toe"], "scores": [0.9]}
    assert list(row) == ["id", "input_scores", "labels", "scores"]


def test_a_separator_that_no_label_has() -> None:
    assert free_separator(["a", "b"]) == "|"
    assert free_separator(["a,b", "c"], ",") == "|"
    assert free_separator(["a|b", "c;d", "e||f"], None) == "json"


def test_xc_has_ascending_columns() -> None:
    assert RankingLines("xc", LABELS, 3)(IDS, SCORES) == (
        "0:0.5 1:1e-09 3:0.9\n1:0.25 2:0.3333333\n\n"
    )


def test_threshold_is_included() -> None:
    assert RankingLines("xc", LABELS, 3, threshold=0.5)(IDS, SCORES) == "0:0.5 3:0.9\n\n\n"


def test_no_more_places_than_labels_and_numbers_as_labels() -> None:
    lines = RankingLines("csv", [7, 8], 5)
    assert lines.header == "label_1,score_1,label_2,score_2\n"
    assert lines(IDS[:1, :0], SCORES[:1, :0]) == ",,,\n"
    text = RankingLines("jsonl", [7, 8], 5)(np.array([[1]]), np.array([[2.0]]))
    assert json.loads(text) == {"labels": [8], "scores": [2]}


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match="format must be one of jsonl, csv, xc; got 'xml'"):
        RankingLines("xml", LABELS, 3)  # type: ignore[arg-type]
