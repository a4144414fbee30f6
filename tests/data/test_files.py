"""One way in, one way out: every format through `read`, `read_blocks` and `write`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack

import labelry.data
from labelry.data import FORMATS, Dataset, read, read_blocks, write
from labelry.data.files import read_groups
from labelry.data.formats import FEATURE_FORMATS
from labelry.data.tables import TABLE_FORMATS
from labelry.errors import DataError

X = np.array([[0, 0.5, 0], [1, 0, 0], [0, 0, 0], [2, 0, 3], [0, 0, 1]], dtype=np.float32)
Y = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=np.float32)
NAMES = ["blue", "red", "été"]
TEXTS = ["one", "two  words", "", "d'oh, ü", "five"]

SUFFIX = {
    "xc": ".txt",
    "svmlight": ".svm",
    "npz": ".npz",
    "jsonl": ".jsonl",
    "csv": ".csv",
    "tsv": ".tsv",
    "parquet": ".parquet",
    "fasttext": ".ft",
}


def a_dataset(format: str) -> Dataset:
    if format in TABLE_FORMATS:
        return Dataset(Y=csr_array(Y), texts=TEXTS, label_names=NAMES)
    return Dataset(Y=csr_array(Y), X=csr_array(X))


def assert_same(found: Dataset, expected: Dataset) -> None:
    assert isinstance(found.Y, csr_array)
    assert found.Y.dtype == np.float32
    np.testing.assert_array_equal(found.Y.toarray(), expected.Y.toarray())
    assert found.texts == expected.texts
    assert found.label_names == expected.label_names
    assert (found.X is None) == (expected.X is None)
    if found.X is not None and expected.X is not None:
        np.testing.assert_array_equal(found.X.toarray(), expected.X.toarray())


def test_public_names():
    assert all(hasattr(labelry.data, name) for name in labelry.data.__all__)
    assert {"Dataset", "read", "read_blocks", "write", "recognise", "FORMATS", "TextFeatures"} <= {
        *labelry.data.__all__
    }


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("format", FORMATS)
def test_round_trip(format, compression, tmp_path):
    path = tmp_path / f"data{SUFFIX[format]}{compression}"
    dataset = a_dataset(format)
    write(dataset, path)
    assert_same(read(path), dataset)
    renamed = path.rename(tmp_path / "anything")
    assert_same(read(renamed), dataset)
    assert_same(read(str(renamed), format), dataset)


@pytest.mark.parametrize("format", FORMATS)
def test_the_format_can_be_named(format, tmp_path):
    write(a_dataset(format), tmp_path / "data", format)
    assert_same(read(tmp_path / "data"), a_dataset(format))


@pytest.mark.parametrize("block_rows", [1, 3, 10_000])
@pytest.mark.parametrize("format", FORMATS)
def test_blocks(format, block_rows, tmp_path):
    path = tmp_path / "data"
    dataset = a_dataset(format)
    write(dataset, path, format)
    blocks = list(read_blocks(path, block_rows=block_rows))
    assert [block.n_rows for block in blocks] == [
        min(block_rows, 5 - start) for start in range(0, 5, block_rows)
    ]
    if format in TABLE_FORMATS:
        assert [text for block in blocks for text in block.texts or []] == TEXTS
        named = [[block.label_names[j] for j in row] for block in blocks for row in _rows(block)]
        assert named == [[NAMES[j] for j in row] for row in _rows(dataset)]
        used = [sorted({name for row in _rows(b) for name in row}) for b in blocks]
        assert [list(range(block.n_labels)) for block in blocks] == used
    else:
        stacked = Dataset(Y=vstack([b.Y for b in blocks]), X=vstack([b.X for b in blocks]))
        assert_same(stacked, dataset)


def _rows(dataset: Dataset) -> list[list[int]]:
    return [dataset.Y[[i]].indices.tolist() for i in range(dataset.n_rows)]


def test_labels_are_the_same_however_rows_are_spread(tmp_path):
    """More rows than one block of the reader."""
    path = tmp_path / "many.jsonl"
    n = 10_001
    path.write_text("".join(f'{{"text": "{i}", "labels": [{i % 7}]}}\n' for i in range(n)))
    dataset = read(path)
    assert dataset.texts == [str(i) for i in range(n)]
    assert dataset.label_names == [str(j) for j in range(7)]
    np.testing.assert_array_equal(dataset.Y.indices, np.arange(n) % 7)


def test_column_options(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("abstract;x,year\nt,1999/2000\n")
    options = {"text_column": "abstract;x", "label_column": "year", "label_separator": "/"}
    for dataset in (read(path, **options), *read_blocks(path, **options)):
        assert dataset.texts == ["t"]
        assert dataset.label_names == ["1999", "2000"]
    write(dataset, tmp_path / "u.csv", **options)
    assert (tmp_path / "u.csv").read_text() == path.read_text()


def test_groups_of_rows(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [("a", 7), ("b", "x"), ("c", None), ("d", "x"), ("e", 7), ("f", None)]
    lines = [json.dumps({"text": text, "labels": [], "site": site}) for text, site in rows]
    path.write_text("\n".join([*lines, '{"text": "g"}']) + "\n")
    groups = read_groups(path, "site")
    assert groups.dtype == np.int32
    assert groups[[0, 1]].tolist() == groups[[4, 3]].tolist()
    assert len(set(groups.tolist())) == 5  # two values, and three rows without
    (tmp_path / "none.jsonl").write_text('{"text": "a", "labels": "b"}\n')
    table = tmp_path / "data.csv"
    table.write_text("body,labels,site\na,,x|y\nb,,\nc,,x|y\n")
    groups = read_groups(table, "site", text_column="body")
    assert groups[0] == groups[2] != groups[1]
    path.write_text('{"text": "a", "site": "x"}\n{"text": "b", "site": ["x", "y"]}\n')
    with pytest.raises(DataError, match=r"found \['x', 'y'\] in row 2; expected one value"):
        read_groups(path, "site")
    with pytest.raises(DataError, match="the group column 'page'"):
        read_groups(table, "page")
    with pytest.raises(DataError, match="the group column 'page'"):
        read_groups(tmp_path / "none.jsonl", "page")
    plain = tmp_path / "data.txt"
    plain.write_text("1:1\n")
    with pytest.raises(DataError, match="as group_column is given"):
        read_groups(plain, "site", "svmlight")


def test_shape_options(tmp_path):
    path = tmp_path / "t.svm"
    path.write_text("1,2 1:5\n0 2:6\n")
    options = {"zero_based": True, "n_features": 4, "n_labels": 5, "n_jobs": 1}
    for dataset in (read(path, **options), *read_blocks(path, **options)):
        assert dataset.Y.toarray().tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 0]]
        assert dataset.X.toarray().tolist() == [[0, 5, 0, 0], [0, 0, 6, 0]]


@pytest.mark.parametrize("read", [read, read_blocks])
@pytest.mark.parametrize(
    ("format", "option", "value"),
    [
        ("jsonl", "n_labels", 3),
        ("csv", "n_features", 3),
        ("tsv", "zero_based", True),
        ("parquet", "label_names", "names.txt"),
        ("fasttext", "text_column", "text"),
        ("xc", "label_column", "labels"),
        ("svmlight", "text_column", "text"),
        ("npz", "n_labels", 3),
    ],
)
def test_options_without_effect_are_refused(read, format, option, value, tmp_path):
    path = tmp_path / "data"
    write(a_dataset(format), path, format)
    with pytest.raises(DataError, match=f"data: found the format {format}; .* {option} is given"):
        read(path, **{option: value})


@pytest.mark.parametrize("format", FORMATS)
def test_labels_that_are_not_needed(format, tmp_path):
    write(a_dataset(format), tmp_path / "data", format)
    dataset = read(tmp_path / "data", label_column="")
    assert dataset.texts == a_dataset(format).texts
    assert dataset.n_rows == sum(b.n_rows for b in read_blocks(tmp_path / "data", label_column=""))


@pytest.mark.parametrize("dense", [False, True])
def test_npz_with_more_features(dense, tmp_path):
    path = tmp_path / "data.npz"
    write(Dataset(Y=csr_array(Y), X=X if dense else csr_array(X)), path)
    for dataset in (read(path, n_features=5), *read_blocks(path, n_features=5)):
        found = dataset.X if isinstance(dataset.X, np.ndarray) else dataset.X.toarray()
        np.testing.assert_array_equal(found, np.pad(X, [(0, 0), (0, 2)]))
    with pytest.raises(DataError, match=r"data\.npz: found 3 features; expected 2, as n_features"):
        read(path, n_features=2)


@pytest.mark.parametrize("read", [read, read_blocks])
def test_unknown_format(read, tmp_path):
    with pytest.raises(ValueError, match=r"format must be one of xc, .* got 'json'"):
        read(tmp_path / "data", "json")


def test_block_rows_is_checked(tmp_path):
    with pytest.raises(ValueError, match="block_rows must be at least 1; got 0"):
        read_blocks(tmp_path / "data", block_rows=0)


# Label names in a file of their own


@pytest.mark.parametrize("format", FEATURE_FORMATS)
def test_label_names_round_trip(format, tmp_path):
    dataset = Dataset(Y=csr_array(Y), X=csr_array(X), label_names=NAMES)
    names = tmp_path / "labels.txt.gz"
    write(dataset, tmp_path / "data", format, label_names=names)
    assert_same(read(tmp_path / "data", label_names=names), dataset)
    for block in read_blocks(tmp_path / "data", block_rows=2, label_names=names):
        assert block.label_names == NAMES
        assert block.n_labels == 3


def test_label_names_that_are_numbers(tmp_path):
    """Line numbers and names must not be mixed up, nor labels taken for classes."""
    one_each = csr_array(np.eye(3, dtype=np.float32))
    dataset = Dataset(Y=one_each, X=one_each, label_names=["7", "2", "0"])
    write(dataset, tmp_path / "data.svm", label_names=tmp_path / "names")
    assert_same(read(tmp_path / "data.svm", label_names=tmp_path / "names"), dataset)


@pytest.mark.parametrize("format", FEATURE_FORMATS)
def test_more_names_than_labels(format, tmp_path):
    (tmp_path / "names").write_bytes("\ufeffa b\r\nc\r\nd\r\n\u00e9".encode())
    write(a_dataset(format), tmp_path / "data", format)
    dataset = read(tmp_path / "data", label_names=tmp_path / "names")
    assert dataset.label_names == ["a b", "c", "d", "é"]
    np.testing.assert_array_equal(dataset.Y.toarray(), np.pad(Y, [(0, 0), (0, 1)]))


@pytest.mark.parametrize(
    ("names", "format", "message"),
    [
        ("a\nb\n", "xc", "names: found 2 names; expected at least 3, one for each label"),
        ("a\nb\n", "npz", "names: found 2 names; expected at least 3, one for each label"),
        ("a\nb\n", "svmlight", "data:1: found label '2', expected an integer from 0 to 1"),
        ("a\n\nb\n", "xc", "names:2: found an empty line; expected the name of a label"),
        ("a\nb\na\n", "xc", "names:3: found 'a' as on line 1; expected distinct names"),
        ("a\n\0b\nc\n", "xc", "names:2: found a NUL at byte 0 of the line; expected text"),
    ],
)
def test_bad_label_names(names, format, message, tmp_path):
    (tmp_path / "names").write_text(names)
    write(a_dataset(format), tmp_path / "data", format)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "data", label_names=tmp_path / "names")


def test_label_names_and_n_labels_must_agree(tmp_path):
    (tmp_path / "names").write_text("a\nb\nc\n")
    write(a_dataset("xc"), tmp_path / "data", "xc")
    with pytest.raises(DataError, match="names: found 3 names; expected 4, as n_labels"):
        read(tmp_path / "data", label_names=tmp_path / "names", n_labels=4)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, "found labels without names"),
        (["a", "b", "a"], "found the label 'a' 2 times"),
        (["a", "", "b"], "found an empty label"),
        (["a", "b\nc", "d"], "found a line break .* in the label"),
        (["\ufeffa", "b", "d"], "found .* byte-order mark in the label"),
    ],
)
def test_label_names_that_lines_cannot_hold(names, message, tmp_path):
    dataset = Dataset(Y=csr_array(Y), X=csr_array(X), label_names=names)
    with pytest.raises(DataError, match=f"names: {message}"):
        write(dataset, tmp_path / "data.txt", label_names=tmp_path / "names")
    assert list(tmp_path.iterdir()) == []


# What is not written


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_not_replaced_unless_forced(format, tmp_path):
    path = tmp_path / f"data{SUFFIX[format]}"
    path.write_text("as before")
    with pytest.raises(DataError, match=f"{path.name}: the file already exists"):
        write(a_dataset(format), path)
    assert path.read_text() == "as before"
    write(a_dataset(format), path, force=True)
    assert_same(read(path), a_dataset(format))


def test_label_names_are_not_replaced_unless_forced(tmp_path):
    dataset = Dataset(Y=csr_array(Y), X=csr_array(X), label_names=NAMES)
    names = tmp_path / "names"
    names.write_text("as before")
    with pytest.raises(DataError, match="names: the file already exists"):
        write(dataset, tmp_path / "data.txt", label_names=names)
    assert list(tmp_path.iterdir()) == [names]


@pytest.mark.parametrize("format", TABLE_FORMATS)
def test_features_are_no_texts(format, tmp_path):
    with pytest.raises(DataError, match=f"{format} holds texts.* written as xc, svmlight, npz"):
        write(a_dataset("xc"), tmp_path / "out", format)


@pytest.mark.parametrize("format", FEATURE_FORMATS)
def test_texts_are_no_features(format, tmp_path):
    with pytest.raises(DataError, match=f"{format} holds features.* jsonl, .* or .*TextFeatures"):
        write(a_dataset("jsonl"), tmp_path / "out", format)


def test_both_texts_and_features_go_anywhere(tmp_path):
    dataset = Dataset(Y=csr_array(Y), X=csr_array(X), texts=TEXTS, label_names=NAMES)
    write(dataset, tmp_path / "a.jsonl")
    assert_same(read(tmp_path / "a.jsonl"), a_dataset("jsonl"))
    write(dataset, tmp_path / "a.xc")
    assert_same(read(tmp_path / "a.xc"), a_dataset("xc"))


def test_the_suffix_must_say_something(tmp_path):
    with pytest.raises(
        DataError, match=r"out\.dat: .* suffix '\.dat'; expected one of \.txt, \.xc"
    ):
        write(a_dataset("xc"), tmp_path / "out.dat")
    with pytest.raises(ValueError, match=r"format must be one of xc, .* got 'json'"):
        write(a_dataset("xc"), tmp_path / "out.dat", "json")


# Any bytes


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("files")


pieces = st.sampled_from(
    [
        *(
            b"\n",
            b"\r\n",
            b" ",
            b"\t",
            b",",
            b":",
            b'"',
            b"{",
            b"}",
            b"[",
            b"]",
            b"|",
            b"\0",
            b"\xff",
        ),
        *(b"1", b"2:0.5", b"1,2", b"3 2 2\n", b"nan", b"-1", b"#", b"\xef\xbb\xbf", b"\xc3\xa9"),
        *(b"__label__", b"__label__a", b"text", b"labels", b"text,labels\n", b"text\tlabels\n"),
        *(b'{"text": "t"}', b'"text": ', b'"labels": ', b"PK\x03\x04", b"PAR1", b"\x1f\x8b"),
    ]
)
contents = st.binary(max_size=80) | st.lists(pieces, max_size=12).map(b"".join)


@given(content=contents, format=st.none() | st.sampled_from(FORMATS))
@example(content=b"", format=None)
@settings(deadline=None, max_examples=400)
def test_any_bytes_are_a_dataset_or_an_error(content, format, scratch):
    path = scratch / "any"
    path.write_bytes(content)
    try:
        dataset = read(path, format, n_jobs=1)
    except DataError:
        return
    assert isinstance(dataset, Dataset)
    blocks = list(read_blocks(path, format, block_rows=2, n_jobs=1))
    assert sum(block.n_rows for block in blocks) == dataset.n_rows
    assert sum(block.Y.nnz for block in blocks) == dataset.Y.nnz


@given(format=st.sampled_from(FORMATS), data=st.data())
@settings(deadline=None, max_examples=200)
def test_damaged_files_are_a_dataset_or_an_error(format, data, scratch):
    path = scratch / "damaged"
    write(a_dataset(format), path, format, force=True)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        dataset = read(path, data.draw(st.sampled_from([None, format])), n_jobs=1)
    except DataError:
        return
    assert isinstance(dataset, Dataset)
