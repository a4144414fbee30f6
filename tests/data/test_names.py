"""Files of label names."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from labelry.data.names import read_names
from labelry.errors import DataError

NAMES = {"M25": "joint, other", "a b": "two words"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("n.tsv", "M25\tjoint, other\n\na b\ttwo words\n"),
        ("n.txt", "label\tname\r\nM25\tjoint, other\r\na b\ttwo\twords"),
        ("n.csv", 'label,name\nM25,"joint, other"\na b,two words\n'),
        (
            "n.jsonl",
            '{"label": "M25", "name": "joint, other"}\n{"label": "a b", "name": "two words"}\n',
        ),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_forms(name: str, text: str, compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / (name + ".gz" * compressed)
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    assert read_names(path) == NAMES


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("n.tsv", "a\tx\nb\n", 2),
        ("n.tsv", "a\tx\n\ty\n", 2),
        ("n.tsv", "a\tx\na\ty\n", 2),
        ("n.jsonl", '{"label": "a", "name": 3}', 1),
        ("n.jsonl", '{"label": "a"}', 1),
        ("n.jsonl", "[1]", 1),
        ("n.csv", "a", 1),
    ],
)
def test_errors_name_the_line(name: str, text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=rf"{name}:{line}: found "):
        read_names(tmp_path / name)
