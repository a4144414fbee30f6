"""Formats are told from the content, whatever the name of the file."""

from __future__ import annotations

import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from labelry.data import read
from labelry.data.formats import FORMATS, format_of_suffix, recognise
from labelry.errors import DataError


def npz_bytes() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.arange(3))
    return file.getvalue()


def parquet_bytes() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["t"], "labels": [["a"]]}), file)
    return file.getvalue()


CONTENT = {
    "xc": b"2 3 4\n1,2 0:0.5\n 1:2\n",
    "svmlight": b"1,2 1:0.5 3:1\n1 2:2.5e-3\n",
    "npz": npz_bytes(),
    "jsonl": b'{"text": "t", "labels": ["a"]}\n',
    "csv": b"text,labels\na,b\n",
    "tsv": b"text\tlabels\na\tb\n",
    "parquet": parquet_bytes(),
    "fasttext": b"__label__a a text\n",
}
COMPRESS = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def recognised(content: bytes | str, folder: Path, name: str = "file") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return recognise(path)


def test_every_format_is_tried():
    assert tuple(CONTENT) == FORMATS


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("format", FORMATS)
def test_recognised_by_content(format, compression, tmp_path):
    content = COMPRESS[compression](CONTENT[format])
    assert recognised(content, tmp_path, "file") == format
    assert recognised(content, tmp_path, "file.txt.gz") == format


CLEAR = {
    "mark": ("file", b"\xef\xbb\xbf" + CONTENT["jsonl"], "jsonl"),
    "blank lines": ("file", "\r\n \n" + '{"text": "t"}', "jsonl"),
    "bad JSON": ("file", "{oops", "jsonl"),
    "long line": ("file", b'{"text": "' + b"x" * 50_000 + b'"}', "jsonl"),
    "bad bytes are for the reader": ("file", b'{"text": "\xff"}', "jsonl"),
    "xc with tabs and CRLF": ("file", "10\t20  30 \r\n1 2:3\r\n", "xc"),
    "xc without rows": ("file", "0 2 3\n", "xc"),
    "svmlight without labels": ("file", " 1:2 3:4\n", "svmlight"),
    "svmlight first row without features": ("file", "3,5\n1 2:1\n", "svmlight"),
    "svmlight comment": ("file", "# made by hand, with care\n+1 2:1 # text here\n", "svmlight"),
    "svmlight long row": ("file", "-1 " + " ".join(f"{i}:1.5" for i in range(9000)), "svmlight"),
    "svmlight bad value": ("file", "1 2:abc 3:nan 4:1\n", "svmlight"),
    "svmlight missing colon": ("file", "1 2:1 3:1 4:1 5:1 61\n", "svmlight"),
    "fasttext label last": ("file", "a text, and __label__a\n", "fasttext"),
    "fasttext label later": ("file", "no label, here\n__label__a a text\n", "fasttext"),
    "fasttext by suffix": ("rows.ft.gz", "no label, here\n", "fasttext"),
    "csv other columns": ("file", 'id,"body",x\n1,2,3\n', "csv"),
    "tsv with commas": ("file", "title, long\tlabels\na\tb\n", "tsv"),
    "csv unknown columns": ("a.csv", "year,abstract\n1999,x\n", "csv"),
    "csv with a tab": ("a.csv.xz", "a\tb,c\n1,2\n", "csv"),
    "tsv with a comma": ("a.tsv", "a\tb,c\n1\t2\n", "tsv"),
    "tsv called csv": ("a.csv", "text\tlabels\na\tb\n", "tsv"),
    "csv one column": ("a.CSV", "abstract\nx\n", "csv"),
}


@pytest.mark.parametrize(("name", "content", "format"), CLEAR.values(), ids=CLEAR)
def test_recognised(name, content, format, tmp_path):
    assert recognised(content, tmp_path, name) == format


UNCLEAR = {
    "empty": b"",
    "blank": b" \n\r\n",
    "prose": b"Hello, world\nhow are you\n",
    "times": b"12:30 we meet at the old station, then walk\n",
    "numbers": b"1 2 3 4\n5 6 7 8\n",
    "two numbers": b"1 2\n",
    "list": b'[{"text": "t"}]',
    "xml": b"<?xml version='1.0'?><text/>",
    "zeros": bytes(20_000),
    "noise": np.random.default_rng(0).bytes(20_000),
    "one word": b"x" * 100_000,
    "bzip2": b"BZh91AY&SY",
}


@pytest.mark.parametrize("content", UNCLEAR.values(), ids=UNCLEAR)
@pytest.mark.parametrize("name", ["file", "file.txt", "file.jsonl"])
def test_not_recognised(content, name, tmp_path):
    with pytest.raises(DataError) as caught:
        recognised(content, tmp_path, name)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name}: the format cannot be told")
    assert ("found an empty file" if not content else "at the start") in message
    assert "expected one of xc, svmlight, npz, jsonl, csv, tsv, parquet, fasttext" in message
    assert message.endswith("say which with the option format")


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("file", b"a sore knee\nan arm, broken\n", "fasttext"),
        ("notes.txt", b"a sore knee\n", "fasttext"),
        ("file", b"[urgent] a sore knee\n", "fasttext"),
        ("file", b"text\na sore knee\n", "csv"),
        ("file", b"2 3 4\n1 0:1\n 1:1\n", "xc"),
        ("file", b'{"text": "a"}\n', "jsonl"),
    ],
)
def test_lines_of_text_where_no_labels_are_needed(name, content, format, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert recognise(tmp_path / name, labelled=False) == format


@pytest.mark.parametrize("name", ["file.jsonl", "file.parquet", "file.npz"])
def test_a_suffix_that_says_otherwise_is_believed(name, tmp_path):
    (tmp_path / name).write_bytes(UNCLEAR["prose"])
    with pytest.raises(DataError, match="the format cannot be told"):
        recognise(tmp_path / name, labelled=False)


@pytest.mark.parametrize("content", [UNCLEAR["list"], UNCLEAR["empty"], UNCLEAR["blank"]])
def test_a_json_list_is_no_text(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match="the format cannot be told"):
        recognise(tmp_path / "file", labelled=False)


def test_missing_and_truncated_files(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        recognise(tmp_path / "none")
    with pytest.raises(DataError, match="the gzip data is truncated"):
        recognised(gzip.compress(CONTENT["csv"])[:-9], tmp_path)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.txt", "xc"),
        ("a.xc.zst", "xc"),
        ("a.svm", "svmlight"),
        ("a.svmlight", "svmlight"),
        ("a.b.libsvm.gz", "svmlight"),
        ("a.npz", "npz"),
        ("a.JSONL.XZ", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.csv", "csv"),
        ("a.tsv.gz", "tsv"),
        ("a.parquet", "parquet"),
        ("a.ft", "fasttext"),
        ("a.fasttext", "fasttext"),
        ("a.csv.bak", None),
        ("jsonl", None),
        ("a.gz", None),
    ],
)
def test_suffix(name, format):
    assert format_of_suffix(Path("some.csv") / name) == format


def test_unknown_format_lists_the_known():
    with pytest.raises(ValueError, match=r"one of xc, svmlight, npz, jsonl, .*; got 'json'"):
        read("some.json", "json")
