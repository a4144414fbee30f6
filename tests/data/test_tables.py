"""Tables of texts with labels: what is read, what is refused, and that writing is its inverse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from labelry.data.dataset import Dataset
from labelry.data.labels import indicator
from labelry.data.table_writer import write_table
from labelry.data.tables import TABLE_FORMATS, read_table_blocks
from labelry.errors import DataError, MissingExtraError

Rows = list[tuple[str, list[str]]]


def rows_in(path: Path, format: str, **options) -> Rows:
    return [
        row
        for texts, names, *_ in read_table_blocks(path, format, **options)
        for row in zip(texts, names, strict=True)
    ]


def rows_of(content: bytes | str, format: str, folder: Path, **options) -> Rows:
    path = folder / "file"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return rows_in(path, format, **options)


def dataset_of(rows: Rows) -> Dataset:
    Y, names = indicator([names for _, names in rows])
    return Dataset(Y=Y, texts=[text for text, _ in rows], label_names=names)


def with_sorted_labels(rows: Rows) -> Rows:
    return [(text, sorted(names)) for text, names in rows]


LEGAL = {
    "jsonl keys in any order, others ignored": (
        "jsonl",
        '{"labels": ["b", "a"], "id": {"x": [1.5]}, "text": "t"}\n',
        [("t", ["b", "a"])],
    ),
    "jsonl integers": (
        "jsonl",
        '{"text": "t", "labels": [3, -4, "05"]}',
        [("t", ["3", "-4", "05"])],
    ),
    "jsonl one label": (
        "jsonl",
        '{"text": "t", "labels": "a b|c"}\n{"text": "u", "labels": 7}\n',
        [("t", ["a b", "c"]), ("u", ["7"])],
    ),
    "jsonl null, missing and empty labels": (
        "jsonl",
        '{"text": "t", "labels": null}\n{"text": "u"}\n{"text": "", "labels": []}\n',
        [("t", []), ("u", []), ("", [])],
    ),
    "jsonl aliases": (
        "jsonl",
        '{"body": "t", "Title": "u", "tags": ["a"]}\n{"body": "v"}\n{"Title": "w", "body": null}',
        [("u\nt", ["a"]), ("v", []), ("w", [])],
    ),
    "jsonl blanks around labels": ("jsonl", '{"text": "", "labels": [" a"]}', [("", ["a"])]),
    "jsonl a row without the label key has none, whatever else it has": (
        "jsonl",
        '{"text": "t", "labels": "a"}\n{"text": "u", "category": "x"}\n',
        [("t", ["a"]), ("u", [])],
    ),
    "jsonl mark, CRLF, blank lines, no last newline": (
        "jsonl",
        b'\xef\xbb\xbf{"text": "t"}\r\n\r\n \n{"text": "u\\r\\n"}',
        [("t", []), ("u\r\n", [])],
    ),
    "jsonl escapes": ("jsonl", r'{"text": "\u00e9\ud83d\ude00\n"}', [("é😀\n", [])]),
    "jsonl line separators of Unicode do not end lines": (
        "jsonl",
        '{"text": "a\u2028b\x85c"}\n',
        [("a\u2028b\x85c", [])],
    ),
    "csv": ("csv", "text,labels\nt,a|b\nu,\n,c d\n", [("t", ["a", "b"]), ("u", []), ("", ["c d"])]),
    "csv quotes": (
        "csv",
        'labels,text\n"a,1|b","say ""hi"",\nthen go"\n',
        [('say "hi",\nthen go', ["a,1", "b"])],
    ),
    "csv mark, CRLF, blank lines, other columns": (
        "csv",
        b"\xef\xbb\xbfid,title,category\r\n\r\n1,t,a\r\n2,u,b|c",
        [("t", ["a"]), ("u", ["b", "c"])],
    ),
    "csv blanks around labels": ("csv", "text,labels\nt,a | b|| \n", [("t", ["a", "b"])]),
    "csv semicolons": (
        "csv",
        'body;tags;x\nt;"a;b";1\nu, v;b;2\n',
        [("t", ["a", "b"]), ("u, v", ["b"])],
    ),
    "csv tabs": ("csv", "text\tlabels\nt, u\ta|b\n", [("t, u", ["a", "b"])]),
    "csv of Excel": ("csv", "sep=;\r\ntext;labels\r\nt,u;a\r\n", [("t,u", ["a"])]),
    "csv JSON lists": (
        "csv",
        'text,labels\nt,"[""a"", ""b""]"\nu,\nv,[\'b\']\n',
        [("t", ["a", "b"]), ("u", []), ("v", ["b"])],
    ),
    "csv names of people": (
        "csv",
        'text,labels\nt,"Smith, John"\nu,"Smith, Jane"\nv,"Doe, John"\n',
        [("t", ["Smith, John"]), ("u", ["Smith, Jane"]), ("v", ["Doe, John"])],
    ),
    "tsv": ("tsv", 'text\tlabels\na, b\t"c\td"\n', [("a, b", ["c\td"])]),
    "fasttext": ("fasttext", "__label__a __label__b some text\n", [("some text", ["a", "b"])]),
    "fasttext labels anywhere": (
        "fasttext",
        "one __label__a two __label__b\n__label__c\nx\t__label__d\ty\n",
        [("one two", ["a", "b"]), ("", ["c"]), ("x\ty", ["d"])],
    ),
    "fasttext the rest is kept as it stands": (
        "fasttext",
        "__label__a  two  spaces \nx__label__b \u00a0\u3000\n",
        [(" two  spaces ", ["a"]), ("x__label__b \u00a0\u3000", [])],
    ),
    "fasttext blank lines are rows": (
        "fasttext",
        "\n\n__label__a x",
        [("", []), ("", []), ("x", ["a"])],
    ),
    "fasttext mark and CRLF": (
        "fasttext",
        b"\xef\xbb\xbf__label__a x\r\ny __label__b\r\n",
        [("x", ["a"]), ("y", ["b"])],
    ),
}


@pytest.mark.parametrize(("format", "content", "rows"), LEGAL.values(), ids=LEGAL)
def test_legal(format, content, rows, tmp_path):
    assert rows_of(content, format, tmp_path) == rows


ILLEGAL = {
    # name: format, content, line, found, expected
    "jsonl empty": ("jsonl", "", None, "no rows", "at least one"),
    "jsonl blank": ("jsonl", b"\xef\xbb\xbf\r\n \n", None, "no rows", "at least one"),
    "jsonl syntax": (
        "jsonl",
        '{"text": "t"}\n{"text": t}\n',
        2,
        "Expecting value at column 10",
        "JSON",
    ),
    "jsonl cut": (
        "jsonl",
        '{"text": "t"}\n{"text": "u',
        2,
        "Unterminated string",
        "JSON object a line",
    ),
    "jsonl two on a line": (
        "jsonl",
        '{"text": "t"}{"text": "u"}',
        1,
        "Extra data",
        "one JSON object",
    ),
    "jsonl list": ("jsonl", '["t", "a"]', 1, "['t', 'a']", "JSON object"),
    "jsonl string": ("jsonl", '\n"text"', 2, "'text'", "JSON object"),
    "jsonl nesting": ("jsonl", "[" * 100_000, 1, "nested too deeply", "JSON object"),
    "jsonl deep list": ("jsonl", "[" * 900 + "]" * 900, 1, "[[[", "JSON object"),
    "jsonl endless integer": (
        "jsonl",
        '{"text": ' + "9" * 5000 + "}",
        1,
        "invalid JSON",
        "JSON object",
    ),
    "jsonl no text": ("jsonl", '{"texts": "t"}', 1, "'texts'", "a text column, such as text"),
    "jsonl text number": ("jsonl", '{"text": 3}', 1, "the text 3 (int)", "a string"),
    "jsonl text null": ("jsonl", '{"text": null}', 1, "no text", "a string as 'text'"),
    "jsonl NUL": ("jsonl", r'{"text": "a\u0000"}', 1, "NUL", "without NUL"),
    "jsonl raw NUL": ("jsonl", b'{"text": "t"}\n{"text": "\0"}', 2, "NUL at byte 10", "text"),
    "jsonl surrogate": ("jsonl", r'{"text": "a\ud800"}', 1, r"'\ud800'", "valid Unicode"),
    "jsonl surrogate label": (
        "jsonl",
        r'{"text": "", "labels": ["\udfff"]}',
        1,
        r"'\udfff'",
        "Unicode",
    ),
    "jsonl bytes": (
        "jsonl",
        b'{"text": "t"}\n{"text": "\xe9t\xe9"}\n',
        2,
        "0xe9 at byte 10",
        "UTF-8",
    ),
    "jsonl label float": (
        "jsonl",
        '{"text": "t", "labels": [1.5]}',
        1,
        "1.5 (float)",
        "an integer",
    ),
    "jsonl label bool": ("jsonl", '{"text": "t", "labels": true}', 1, "True (bool)", "a string"),
    "jsonl label object": (
        "jsonl",
        '{"text": "t", "labels": {"a": 1}}',
        1,
        "{'a': 1} (dict)",
        "list",
    ),
    "jsonl label null": ("jsonl", '{"text": "t", "labels": [null]}', 1, "None (null)", "a string"),
    "jsonl label nested": (
        "jsonl",
        '{"text": "t", "labels": [["a"]]}',
        1,
        "['a'] (list)",
        "a string",
    ),
    "jsonl label empty": ("jsonl", '{"text": "t", "labels": [""]}', 1, "empty label", "non-empty"),
    "jsonl label twice": (
        "jsonl",
        '{"text": "", "labels": ["b", 1, "1"]}',
        1,
        "'1' 2 times",
        "distinct",
    ),
    "jsonl text missing": (
        "jsonl",
        '{"text": "t"}\n{"texts": "u", "labels": "b"}\n',
        2,
        "no text",
        "a string as 'text'",
    ),
    "csv empty": ("csv", "", None, "no rows", "at least one"),
    "csv header only": ("csv", "text,labels\n", None, "no rows", "at least one"),
    "csv no text column": (
        "csv",
        "\nlabels,x\na,b\n",
        2,
        "'labels', 'x'",
        "name yours with `text_column`",
    ),
    "csv no label column": (
        "csv",
        "text,x\na,b\n",
        1,
        "'text', 'x'",
        "name yours with `label_column`",
    ),
    "csv two text columns": ("csv", "text,text,tags\na,b,c\n", 1, "several columns 'text'", "one"),
    "csv fields": ("csv", 'text,labels\n"a\nb",c\nd,e,f\n', 4, "3 fields", "2, as in the header"),
    "csv few fields": ("csv", "text,labels\nd\n", 2, "1 fields", "2, as in the header"),
    "csv open quote": ("csv", 'text,labels\na,b\n"c,d\ne,f\n', 3, "unexpected end", "quoted whole"),
    "csv after quote": ("csv", 'text,labels\n"a" b,c\n', 2, "expected after", "quoted whole"),
    "csv old line ends": ("csv", "text,labels\ra,b\r", 1, "new-line character", "quoted whole"),
    "csv bytes": ("csv", b'text,labels\n"a\n\xff",b\n', 3, "0xff at byte 0", "UTF-8"),
    "csv NUL": ("csv", b"text,labels\na\0,b\n", 2, "NUL at byte 1", "text"),
    "csv label twice": ("csv", "text,labels\nt,a|b|a\n", 2, "'a' 2 times", "distinct"),
    "tsv fields": ("tsv", "text\tlabels\na,b\n", 2, "1 fields", "2, as in the header"),
    "fasttext empty": ("fasttext", b"", None, "no rows", "at least one"),
    "fasttext label empty": ("fasttext", "a\n__label__ x\n", 2, "an empty label", "non-empty"),
    "fasttext label twice": ("fasttext", "__label__a x __label__a\n", 1, "'a' 2 times", "distinct"),
    "fasttext bytes": ("fasttext", b"a\nb\n\xc3\n", 3, "0xc3 at byte 0", "UTF-8"),
    "fasttext NUL": ("fasttext", b"__label__a x\0", 1, "NUL at byte 12", "text"),
    "parquet empty": ("parquet", b"", None, "damaged Parquet", "whole Parquet file"),
    "parquet foreign": ("parquet", b"PAR1" + bytes(range(200)) + b"PAR1", None, "damaged", "whole"),
}


@pytest.mark.parametrize(
    ("format", "content", "line", "found", "expected"), ILLEGAL.values(), ids=ILLEGAL
)
def test_illegal(format, content, line, found, expected, tmp_path):
    with pytest.raises(DataError) as caught:
        rows_of(content, format, tmp_path)
    message = str(caught.value)
    where = tmp_path / "file"
    assert message.startswith(f"{where}: " if line is None else f"{where}:{line}: ")
    before, _, after = message.removeprefix(str(where)).partition("expected ")
    # csv's own wording has an "expected" of its own.
    assert "found " in before
    assert found in message
    assert expected in after
    assert len(message) < len(str(where)) + 300


def parquet_of(folder: Path, **columns) -> Path:
    path = folder / "t.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([["a", "7"], None, []]),
        pa.array([["a", "7"], None, []], pa.large_list(pa.large_string())),
        pa.array([["a", "7"], [], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ],
    ids=["list", "large", "dictionary"],
)
def test_parquet_lists(labels, tmp_path):
    path = parquet_of(tmp_path, n=[1, 2, 3], text=["t", "", "v"], labels=labels)
    assert rows_in(path, "parquet") == [("t", ["a", "7"]), ("", []), ("v", [])]


def test_parquet_other_label_columns(tmp_path):
    texts = pa.array(["t", "u"]).dictionary_encode()
    path = parquet_of(tmp_path, title=texts, category=pa.array(["a|b", None]))
    assert rows_in(path, "parquet") == [("t", ["a", "b"]), ("u", [])]
    path = parquet_of(tmp_path, text=texts, labels=pa.array([5, None], pa.uint8()))
    assert rows_in(path, "parquet") == [("t", ["5"]), ("u", [])]
    path = parquet_of(tmp_path, text=texts, labels=pa.array([[3, 2], [1]]))
    assert rows_in(path, "parquet") == [("t", ["3", "2"]), ("u", ["1"])]
    path = parquet_of(tmp_path, text=texts, labels=pa.nulls(2))
    assert rows_in(path, "parquet") == [("t", []), ("u", [])]


BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 3, [None, *(pa.py_buffer(b) for b in (np.arange(4, dtype="<i4"), b"ab\xff"))]
)
BAD_PARQUET = {
    "null text": (
        {"text": ["t", "u", None], "tags": ["a"] * 3},
        3,
        "no text",
        "a string as 'text'",
    ),
    "numbers": ({"text": [1, 2, 3], "tags": ["a"] * 3}, 1, "the text 1 (int)", "a string"),
    "binary": ({"text": [b"x"] * 3, "tags": ["a"] * 3}, 1, "b'x' (bytes)", "a string"),
    "not UTF-8": ({"text": BAD_TEXT, "tags": ["a"] * 3}, 3, "0xff", "UTF-8"),
    "float label": ({"text": ["t"] * 3, "tags": [[], [], [0.5]]}, 3, "0.5 (float)", "an integer"),
    "null in list": ({"text": ["t"] * 3, "tags": [[], [None], ["a"]]}, 2, "(null)", "a string"),
    "twice": ({"text": ["t"] * 3, "tags": [[], [], ["a", "a"]]}, 3, "'a' 2 times", "distinct"),
    "NUL": ({"text": ["t", "\0", "u"], "tags": ["a"] * 3}, 2, "NUL", "without NUL"),
    "no labels": ({"text": ["t"], "x": ["a"]}, None, "'text', 'x'", "such as labels, tags"),
    "no text": ({"texts": ["t"], "tags": ["a"]}, None, "'texts', 'tags'", "such as text, content"),
    "no rows": ({"text": pa.array([], pa.string()), "tags": []}, None, "no rows", "at least one"),
}


@pytest.mark.parametrize(
    ("columns", "row", "found", "expected"), BAD_PARQUET.values(), ids=BAD_PARQUET
)
def test_illegal_parquet(columns, row, found, expected, tmp_path):
    path = parquet_of(tmp_path, **columns)
    with pytest.raises(DataError) as caught:
        rows_in(path, "parquet")
    message = str(caught.value)
    assert message.startswith(f"{path}: " if row is None else f"{path}:{row}: ")
    before, _, after = message.partition("; expected ")
    assert found in before
    assert expected in after


def test_truncated_parquet(tmp_path):
    path = parquet_of(tmp_path, text=["t"], labels=["a"])
    whole = path.read_bytes()
    for length in (4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"t\.parquet: found damaged .* expected a whole"):
            rows_in(path, "parquet")


def test_named_columns_win_over_usual_names(tmp_path):
    content = '{"text": "t", "title": "u", "labels": "a", "year": 1999}'
    options = {"text_column": "title", "label_column": "year"}
    assert rows_of(content, "jsonl", tmp_path, **options) == [("u", ["1999"])]
    csv = "text,title,labels,year\nt,u,a,1999\n"
    assert rows_of(csv, "csv", tmp_path, **options) == [("u", ["1999"])]
    path = parquet_of(tmp_path, text=["t"], title=["u"], labels=["a"], year=[1999])
    assert rows_in(path, "parquet", **options) == [("u", ["1999"])]


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_named_column_must_be_there(format, tmp_path):
    content = {"jsonl": '{"text": "t", "labels": "a"}', "csv": "text,labels\nt,a\n"}[format]
    with pytest.raises(
        DataError, match=r"found the columns 'text', 'labels'; .* column 'abstract'"
    ):
        rows_of(content, format, tmp_path, text_column="abstract")


def test_text_column_is_not_taken_for_labels_too(tmp_path):
    content = '{"label": "t", "category": "a"}'
    assert rows_of(content, "jsonl", tmp_path, text_column="label") == [("t", ["a"])]


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "parquet"])
def test_texts_alone(format, tmp_path):
    contents = {"jsonl": '{"text": "t", "labels": [0.5]}', "csv": "text\nt\n", "tsv": "text\nt\n"}
    if format == "parquet":
        rows = rows_in(parquet_of(tmp_path, text=["t"]), format, label_column="")
    else:
        rows = rows_of(contents[format], format, tmp_path, label_column="")
    assert rows == [("t", [])]


@pytest.mark.parametrize(
    ("separator", "labels"),
    [
        (",", ["a", "b|c;; d"]),
        (";; ", ["a,b|c", "d"]),
        (None, ["a,b|c;; d"]),
        ("auto", ["a,b", "c;; d"]),
    ],
)
def test_label_separator(separator, labels, tmp_path):
    content = 'text,labels\nt,"a,b|c;; d"\nu,\n'
    rows = rows_of(content, "csv", tmp_path, label_separator=separator)
    assert rows == [("t", labels), ("u", [])]


def test_long_documents_are_read(tmp_path):
    text = "word " * 100_000  # beyond the standard limit of the csv module
    assert rows_of(f"text,labels\n{text},a\n", "csv", tmp_path) == [(text, ["a"])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format must be one of jsonl, csv, .* got 'xml'"),
        ({"block_rows": 0}, "block_rows must be at least 1; got 0"),
        ({"label_separator": ""}, "label_separator must not be empty"),
        ({"text_column": ""}, "text_column must not be empty"),
        ({"text_column": "x", "label_column": "x"}, "both 'x'"),
    ],
)
def test_options_are_checked_at_the_call(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_table_blocks(tmp_path / "none", **({"format": "csv"} | options))


def test_pyarrow_is_optional(tmp_path, monkeypatch):
    path = parquet_of(tmp_path, text=["t"], labels=["a"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"Parquet needs .* pip install 'labelry\[formats\]'"
    ):
        rows_in(path, "parquet")
    with pytest.raises(MissingExtraError, match="pyarrow"):
        write_table(dataset_of([("t", ["a"])]), tmp_path / "new.parquet", "parquet")
    assert not (tmp_path / "new.parquet").exists()


# Blocks


@pytest.mark.parametrize("format", TABLE_FORMATS)
@pytest.mark.parametrize("block_rows", [1, 3, 10_000])
def test_blocks_hold_the_same_rows(format, block_rows, tmp_path):
    rows = [(f"text {i}", [str(j) for j in range(i % 4)]) for i in range(11)]
    path = tmp_path / "file"
    write_table(dataset_of(rows), path, format)
    blocks = list(read_table_blocks(path, format, block_rows=block_rows))
    assert [len(block.texts) for block in blocks[:-1]] == [block_rows] * (len(blocks) - 1)
    assert 0 < len(blocks[-1][0]) <= block_rows
    assert [row for block in blocks for row in zip(block.texts, block.labels, strict=True)] == rows


def test_rows_before_a_bad_line_come_first(tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text('{"text": "t"}\n{"text": "u"}\n{"text": 3}\n')
    blocks = read_table_blocks(path, "jsonl", block_rows=2)
    assert next(blocks)[:2] == (["t", "u"], [[], []])
    with pytest.raises(DataError, match=r"file\.jsonl:3: "):
        next(blocks)


def test_a_reader_can_be_left_early(tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text('{"text": "t"}\n' * 100)
    blocks = read_table_blocks(path, "jsonl", block_rows=2)
    next(blocks)
    blocks.close()  # the file is closed too, or a ResourceWarning fails this test


# Round trips

characters = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")
texts = st.text(characters, max_size=20) | st.text(" \t\r\n,|\"'\\é\ufeff\u2028", max_size=8)
names = st.text(characters, min_size=1, max_size=6).map(str.strip).filter(bool)
plain_names = st.text("ab,;\"'é\ufeff", min_size=1, max_size=4)  # every format holds these


def tables(texts, names):
    return st.lists(st.tuples(texts, st.lists(names, max_size=3, unique=True)), min_size=1)


def round_trip(rows: Rows, path: Path, format: str, **options) -> None:
    write_table(dataset_of(rows), path, format, **options)
    assert with_sorted_labels(rows_in(path, format, **options)) == with_sorted_labels(rows)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tables")


@given(rows=tables(texts, names))
@settings(deadline=None)
def test_round_trip_jsonl(rows, scratch):
    round_trip(rows, scratch / "t.jsonl", "jsonl")


@given(rows=tables(texts, names))
@settings(deadline=None)
def test_round_trip_parquet(rows, scratch):
    round_trip(rows, scratch / "t.parquet", "parquet")


@given(rows=tables(texts, names.map(lambda name: name.replace("|", "/"))), data=st.data())
@settings(deadline=None)
def test_round_trip_delimited(rows, data, scratch):
    rows = [(text, list(dict.fromkeys(names))) for text, names in rows]
    format = data.draw(st.sampled_from(["csv", "tsv"]))
    round_trip(rows, scratch / f"t.{format}", format, label_separator="|")


@given(rows=tables(st.text(" \t\v\f\xa0\u2028ab_é", max_size=12), plain_names))
@settings(deadline=None)
def test_round_trip_fasttext(rows, scratch):
    round_trip(rows, scratch / "t.ft", "fasttext")


@given(rows=tables(texts, names), separator=st.sampled_from(["|", "||", ", ", "aa", "json", None]))
@settings(deadline=None)
def test_what_can_be_written_can_be_read(rows, separator, scratch):
    """Whatever the strings are, a table is written faithfully or not at all."""
    for format in ("csv", "fasttext"):
        path = scratch / f"any.{format}"
        path.unlink(missing_ok=True)
        options = {"label_separator": separator} if format == "csv" else {}
        try:
            round_trip(rows, path, format, **options)
        except DataError:
            refused = True
        else:
            refused = False
        assert refused is not path.exists()


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("format", TABLE_FORMATS)
def test_compressed(format, suffix, tmp_path):
    rows = [("one", ["a", "b"]), ("", []), ("drei é", ["b"])]
    path = tmp_path / f"table{suffix}"
    round_trip(rows, path, format)
    if suffix:
        plain = tmp_path / "plain"
        write_table(dataset_of(rows), plain, format)
        assert path.read_bytes()[:4] != plain.read_bytes()[:4]
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(DataError, match=f"{path.name}: the .* data is truncated"):
            rows_in(path, format)


def test_column_numbers_stand_for_names(tmp_path):
    Y = csr_array(np.array([[0, 1, 1], [0, 0, 0]], dtype=np.float32))
    write_table(Dataset(Y=Y, texts=["t", "u"]), tmp_path / "t", "jsonl")
    lines = [json.loads(line) for line in (tmp_path / "t").read_text().splitlines()]
    assert lines == [{"text": "t", "labels": ["1", "2"]}, {"text": "u", "labels": []}]


def test_columns_of_output(tmp_path):
    options = {"text_column": 'the "body"', "label_column": "a,b"}
    for format in ("jsonl", "csv", "tsv", "parquet"):
        round_trip([("t", ["a"])], tmp_path / "t", format, **options)
    write_table(dataset_of([("t", ["a", "b"])]), tmp_path / "t", "csv", **options)
    assert (tmp_path / "t").read_text() == '"the ""body""","a,b"\nt,a|b\n'


UNWRITABLE = {
    # name: format, rows, options, what the message says
    "separator": ("csv", [("t", ["a|b"])], {}, "row 1: found the labels .* separator '|'"),
    "long separator": (
        "tsv",
        [("t", []), ("u", ["a|", "b"])],
        {"label_separator": "||"},
        r"row 2: found the labels \['a\|', 'b'\]; expected .* another `label_separator`",
    ),
    "no separator": (
        "csv",
        [("t", ["a", "b"])],
        {"label_separator": None},
        "row 1: found 2 labels; expected one label",
    ),
    "newline": ("fasttext", [("t", []), ("a\nb", [])], {}, r"row 2: found a line break .*'a\\nb'"),
    "return": ("fasttext", [("a\r", ["b"])], {}, "row 1: found a line break"),
    "space": ("fasttext", [("t", ["a b"])], {}, "row 1: found the label 'a b'; .* white space"),
    "label in text": ("fasttext", [("x __label__y", [])], {}, "row 1: found '__label__y' in a"),
    "mark": ("fasttext", [("\ufeffx", [])], {}, "row 1: found a byte-order mark"),
    "NUL": ("jsonl", [("t", []), ("\0", [])], {}, "row 2: found a NUL"),
    "surrogate": ("parquet", [("t", ["\ud800"])], {}, r"row 1: found half .*ud800"),
    "empty label": ("jsonl", [("t", [""])], {}, "row 1: found an empty label"),
    "blank": ("jsonl", [("t", ["a "])], {}, "row 1: found blanks around the label 'a '"),
    "nothing": ("jsonl", [], {}, "found no rows to write"),
}


@pytest.mark.parametrize(
    ("format", "rows", "options", "message"), UNWRITABLE.values(), ids=UNWRITABLE
)
def test_unwritable(format, rows, options, message, tmp_path):
    path = tmp_path / "out"
    path.write_text("as before")
    with pytest.raises(DataError, match=f"out: {message}"):
        write_table(dataset_of(rows), path, format, **options)
    assert path.read_text() == "as before"
    assert list(tmp_path.iterdir()) == [path]


def test_relevance_is_not_dropped(tmp_path):
    Y = csr_array(np.array([[1, 0.5]], dtype=np.float32))
    with pytest.raises(DataError, match=r"found the relevance 0.5 in Y; expected only 1"):
        write_table(Dataset(Y=Y, texts=["t"]), tmp_path / "out", "jsonl")


def test_texts_are_needed(tmp_path):
    Y = csr_array(np.ones((1, 1), dtype=np.float32))
    with pytest.raises(DataError, match="found a dataset without texts; expected texts for csv"):
        write_table(Dataset(Y=Y, X=Y), tmp_path / "out", "csv")


@given(content=st.binary(max_size=60), format=st.sampled_from(TABLE_FORMATS))
@settings(deadline=None, max_examples=300)
def test_any_bytes_are_rows_or_an_error(content, format, scratch):
    try:
        rows = rows_of(content, format, scratch)
    except DataError:
        return
    assert rows
    assert all(isinstance(text, str) and "" not in names for text, names in rows)
