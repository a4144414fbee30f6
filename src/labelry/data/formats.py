"""The formats that can be read and written, and how one is told from another."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from labelry.data.cells import bad, shown
from labelry.data.columns import has_usual_name, is_usual_text
from labelry.data.delimiters import find_delimiter, split_line
from labelry.data.shards import is_shards
from labelry.data.streams import last_suffix, read_head
from labelry.data.tables import DELIMITERS, LABEL_WORD, TABLE_FORMATS, TO_UTF8
from labelry.errors import DataError

FEATURE_FORMATS = ("xc", "svmlight", "npz")
FORMATS = (*FEATURE_FORMATS, *TABLE_FORMATS)  # of files
SHARDS = "shards"  # a directory, which only `write_shards` writes

_SUFFIXES_OF = {
    "xc": (".txt", ".xc"),
    "svmlight": (".svm", ".svmlight", ".libsvm"),
    "npz": (".npz",),
    "jsonl": (".jsonl", ".ndjson"),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "parquet": (".parquet",),
    "fasttext": (".ft", ".fasttext"),
}
SUFFIXES = {suffix: format for format, found in _SUFFIXES_OF.items() for suffix in found}

_EXCEL = re.compile(rb"\[Content_Types\]\.xml|xl/|\A\xd0\xcf")  # within .xlsx; all of .xls
_HEAD_BYTES = 1 << 14
_XC_HEADER = re.compile(r"\d+[ \t]+\d+[ \t]+\d+")
_PAIR = re.compile(r"[-+]?\d+:\S*")  # loose: what is wrong with it is for the reader to say
_JSON_LIST = re.compile(r'\s*\[\s*["{\[]')
_NUMBERS = re.compile(r"[-+.,eE\d]*")


def recognise(path: str | Path, *, labelled: bool = True) -> str:
    """Tell the format of a file from its first few kilobytes, after decompression.

    The suffix counts only where the content leaves a choice: a comma- or tab-separated header
    without any usual column name, or fastText lines without labels. Where labels are not needed
    (`labelled` is False), lines that are nothing else are texts: fastText without labels.
    """
    if is_shards(path):
        return SHARDS
    head = read_head(path, _HEAD_BYTES)
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")) and _EXCEL.search(head):
        remedy = "a text format: in Excel, save the sheet as CSV UTF-8"
        raise bad("an Excel workbook", remedy, path)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise bad("UTF-16 text", f"UTF-8: {TO_UTF8}", path)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "npz"
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.removeprefix(codecs.BOM_UTF8).decode(errors="replace")
    if len(head) == _HEAD_BYTES:
        text = text[: max(map(text.rfind, " \t\n"))]  # the last word may be cut
    lines = [line for line in text.split("\n") if line.strip()]
    suffix = format_of_suffix(path)
    format = _text_format(lines, suffix) if lines else None
    others = suffix not in (None, "xc", "fasttext") or _JSON_LIST.match(text)
    if format is None and lines and not labelled and not others:
        # A table of one column has no separator: a header alone tells.
        format = "csv" if is_usual_text(lines[0]) else "fasttext"
    if format is None:
        found = f"{shown(head[:40])} at the start" if head else "an empty file"
        raise DataError(
            f"the format cannot be told from the content: found {found}; expected one of "
            f"{', '.join(FORMATS)}. If it is one of these, say which with the option format",
            path=path,
        )
    return format


def format_of_suffix(path: str | Path) -> str | None:
    """Tell the format from the name alone, a suffix of compression left aside."""
    return SUFFIXES.get(last_suffix(path))


def _text_format(lines: list[str], suffix: str | None) -> str | None:
    """Tell the format of lines that are not blank."""
    first = lines[0].strip()
    if first.startswith("{"):
        return "jsonl"
    if _XC_HEADER.fullmatch(first):
        return "xc"
    if _looks_sparse(lines):
        return "svmlight"
    if suffix == "fasttext" or any(LABEL_WORD.search(line) for line in lines):
        return "fasttext"
    return _delimited_format(lines, suffix)


def _looks_sparse(lines: list[str]) -> bool:
    """Return whether most words are ``feature:value`` or labels; a few may be malformed."""
    rows = [line.partition("#")[0].split() for line in lines]
    words = [word for row in rows for word in row]
    pairs = sum(_PAIR.fullmatch(word) is not None for word in words)
    numbers = sum(_NUMBERS.fullmatch(row[0]) is not None for row in rows if row)
    return pairs > 0 and pairs + numbers >= 0.8 * len(words)


def _delimited_format(lines: list[str], suffix: str | None) -> str | None:
    before, delimiter = find_delimiter(lines)
    if before:  # only a table has such a line
        return "csv"
    columns = split_line(lines[0], delimiter)
    if suffix in DELIMITERS and DELIMITERS[suffix] in lines[0]:
        return suffix
    if len(columns) > 1 and has_usual_name(columns):
        return "tsv" if delimiter == "\t" else "csv"
    return suffix if suffix in DELIMITERS else None
