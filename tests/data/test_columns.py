"""Columns that are named, remembered, or have a usual name."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from labelry.data import read, read_blocks
from labelry.data.columns import Wanted
from labelry.data.delimiters import find_delimiter
from labelry.errors import DataError, did_you_mean
from labelry.storage.about import Source


def found(*header: str, optional: bool = False, **wanted: object) -> object:
    return Wanted(**wanted).found_in(header, "f", 1, optional=optional)


def test_usual_names() -> None:
    assert found("id", "Title", "Body", "tags") == (("Title", "Body"), "tags")
    assert found("body", "title", "label") == (("title", "body"), "label")
    assert found("description", "text", "category", "labels") == (("text",), "labels")
    assert found("title", " topics") == (("title",), " topics")
    assert found("text", label="") == (("text",), None)
    assert found("text", optional=True) == (("text",), None)
    assert found("text", "title", label="title") == (("text",), "title")


def test_named_columns_are_taken_in_their_order() -> None:
    header = ("title", "body", "tags", "labels")
    assert found(*header, text=("body", "title"), label="tags") == (("body", "title"), "tags")
    assert found(*header, text=("tags",)) == (("tags",), "labels")


def test_the_columns_of_the_training_come_before_usual_ones() -> None:
    like = Source(text_columns=("q", "a"), label_column="code")
    assert found("text", "q", "a", "code", "tags", like=like) == (("q", "a"), "code")
    assert found("text", "q", "tags", like=like) == (("text",), "tags")
    assert found("text", "q", "a", "code", like=like, text=("text",)) == (("text",), "code")


@pytest.mark.parametrize(
    ("header", "wanted", "message"),
    [
        (("titel", "x"), {"text": ("title",)}, "the text column 'title'; did you mean 'titel'?"),
        (("text", "tag"), {"label": "tags"}, "the label column 'tags'; did you mean 'tag'?"),
        (("x", "tags"), {}, "a text column, such as text, content, .*; name yours with `text_col"),
        (("text", "x"), {}, "a label column, such as labels, tags, .*; name yours with `label_c"),
        (("text", "text", "tags"), {}, "several columns 'text'"),
    ],
)
def test_columns_that_are_not_there(header: tuple, wanted: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        found(*header, **wanted)


def test_did_you_mean() -> None:
    assert did_you_mean("Knee", ["knee", "arm"]) == "; did you mean 'knee'?"
    assert did_you_mean("xyz", [30, 5]) == ""
    many = [f"label{i}" for i in range(30_000)]
    assert did_you_mean("label29999x", many).startswith("; did you mean 'label")


@pytest.mark.parametrize(
    ("lines", "delimiter"),
    [
        (["text,labels\n"], (0, ",")),
        (["id;title, long;tags\n"], (0, ";")),
        (['"a;b",text,tags\n'], (0, ",")),
        (["\n", "SEP=;\r\n", "a,b\n"], (2, ";")),
        (["sep=\t\n"], (1, "\t")),
        (["x\n"], (0, "\t")),
        ([], (0, ",")),
    ],
)
def test_delimiters(lines: list[str], delimiter: tuple[int, str]) -> None:
    assert find_delimiter(lines) == delimiter


def test_what_was_found_is_said_and_what_was_given_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "posts.csv"
    path.write_text("id;title;body;tags\n1;a;b;x|y\n2;;c;x\n")
    options = {"text_column": ["title", "body"], "label_column": "tags", "label_separator": "|"}
    with caplog.at_level(logging.INFO):
        whole = read(path)
        assert caplog.messages.pop() == (
            "text: title + body; labels: tags, separated by | (to change: `text_column`, "
            "`label_column`, `label_separator`)"
        )
        caplog.clear()
        again = read(path, **options)
        assert caplog.messages == []
        like = Source(text_columns=("body", "question"))
        read(path, like=like)
        assert "the model was trained on body + question" in caplog.text
    assert whole.texts == again.texts == ["a\nb", "c"]
    assert whole.label_names == ["x", "y"]
    assert whole.source == again.source
    (block,) = read_blocks(path)
    assert block.source == whole.source


def test_encodings_that_are_not_utf_8_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("text,labels\ncafé,a\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r"latin\.csv:2: .* 0xe9 .*expected UTF-8: save the file as"
    ):
        read(path)
    for name in ("utf-16", "utf-16-be"):
        mark = b"" if name == "utf-16" else b"\xfe\xff"
        path.write_bytes(mark + "text,labels\ncafé,a\n".encode(name))
        for format in (None, "csv"):
            with pytest.raises(DataError, match="found UTF-16 text; expected UTF-8: save"):
                read(path, format)


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04....[Content_Types].xml....",
        b"PK\x03\x04....xl/workbook.xml",
        b"\xd0\xcf\x11\xe0....",
    ],
)
def test_workbooks_are_refused_with_the_remedy(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "book.xlsx").write_bytes(content)
    with pytest.raises(DataError, match=r"found an Excel workbook; .* save the sheet as CSV UTF-8"):
        read(tmp_path / "book.xlsx")
