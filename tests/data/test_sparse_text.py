"""XC and svmlight text: every legal oddity, every illegal line, round trips and fuzz."""

from __future__ import annotations

import gzip
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, random_array, vstack
from sklearn.datasets import load_svmlight_file

from labelry.data import parse_kernels, sparse_text
from labelry.data.dataset import Dataset
from labelry.data.sparse_text import read_sparse_text, read_sparse_text_blocks, write_sparse_text
from labelry.errors import DataError

FLOAT32_MAX = float(np.finfo(np.float32).max)
many = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One folder for all examples of a property; files in it are overwritten."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def read(folder: Path, content: str | bytes, **options: object) -> Dataset:
    path = folder / "data.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_sparse_text(path, **options)


def assert_same(left: Dataset, right: Dataset) -> None:
    assert left.label_names == right.label_names
    for a, b in ((left.X, right.X), (left.Y, right.Y)):
        assert isinstance(a, csr_array)
        assert isinstance(b, csr_array)
        assert a.shape == b.shape
        assert_array_equal(a.indptr, b.indptr)
        assert_array_equal(a.indices, b.indices)
        assert_array_equal(a.data.view(np.int32), b.data.view(np.int32))  # zeros have signs


# ---------------------------------------------------------------- legal


def test_xc(tmp_path: Path) -> None:
    data = read(tmp_path, "3 4 5\n0,4 0:1.5 3:-2\n2 1:1e-3\n1 2:7\n")
    assert data.X.toarray().tolist() == [
        [1.5, 0, 0, -2],
        [0, np.float32(0.001), 0, 0],
        [0, 0, 7, 0],
    ]
    assert data.Y.toarray().tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    assert data.X.dtype == data.Y.dtype == np.float32
    assert data.X.indices.dtype == data.Y.indices.dtype == data.X.indptr.dtype == np.int32
    assert data.label_names is None


def test_xc_rows_without_labels_or_features(tmp_path: Path) -> None:
    data = read(tmp_path, "5 2 2\n 0:1\n1:2\n1\n\n0,1 0:3 1:4\n")
    assert data.X.toarray().tolist() == [[1, 0], [0, 2], [0, 0], [0, 0], [3, 4]]
    assert data.Y.toarray().tolist() == [[0, 0], [0, 0], [0, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize(
    "content",
    [
        "2 3 2\r\n1 0:1 2:2\r\n0 1:3\r\n",  # CRLF
        "\ufeff2 3 2\n1 0:1 2:2\n0 1:3\n",  # byte-order mark
        "\ufeff2 3 2\r\n1 0:1 2:2\r\n0 1:3",  # both, and no newline at the end
        "2\t3\t2\n1\t0:1\t2:2\n0\t1:3\n",  # tabs
        "2 3 2 \n 1  0:1\t 2:2 \n0 1:3  \n",  # blanks everywhere
        "2 3 2\n1 2:2 0:1\n0 1:3\n",  # not in order
        "2 3 2\n1 0:+1 2:2.\n0 1:.3e1\n\n \n\r\n",  # spellings; empty lines after the last row
        "2 3 2\n01 00:1.0 2:20E-1\n0 0000000000000000000001:3\n",  # leading zeros
    ],
)
def test_legal_spellings_of_the_same_rows(tmp_path: Path, content: str) -> None:
    assert_same(read(tmp_path, content), read(tmp_path, "2 3 2\n1 0:1 2:2\n0 1:3\n"))


def test_explicit_zeros_are_kept(tmp_path: Path) -> None:
    data = read(tmp_path, "1 3 1\n0 0:0 2:-0.0\n")
    assert data.X.nnz == 2
    assert np.signbit(data.X.data).tolist() == [False, True]


def test_header_without_rows(tmp_path: Path) -> None:
    data = read(tmp_path, "0 4 5\n")
    assert data.X.shape == (0, 4)
    assert data.Y.shape == (0, 5)


def test_header_may_be_widened(tmp_path: Path) -> None:
    data = read(tmp_path, "1 2 3\n2 1:1\n", n_features=7, n_labels=9)
    assert data.X.shape == (1, 7)
    assert data.Y.shape == (1, 9)


def test_header_with_features_from_one(tmp_path: Path) -> None:
    data = read(tmp_path, "1 2 1\n0 1:5 2:6\n", zero_based=False)
    assert data.X.toarray().tolist() == [[5, 6]]


def test_svmlight_multiclass(tmp_path: Path) -> None:
    data = read(tmp_path, "# made by hand\n+1 1:1 3:2 # a: comment, 5:6\n\n-1 2:1#\n3.0\n-1 1:4\n")
    assert data.label_names == ["-1", "1", "3"]
    assert data.Y.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert data.X.toarray().tolist() == [[1, 0, 2], [0, 1, 0], [0, 0, 0], [4, 0, 0]]


def test_svmlight_multilabel(tmp_path: Path) -> None:
    data = read(tmp_path, "3,1 1:1\n 2:1\n2\n")
    assert data.label_names is None
    assert data.Y.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_svmlight_with_n_labels_has_columns_by_number(tmp_path: Path) -> None:
    data = read(tmp_path, "3 1:1\n1 2:1\n", n_labels=4)
    assert data.label_names is None
    assert data.Y.toarray().tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]


@pytest.mark.parametrize(
    ("content", "zero_based", "expected"),
    [
        ("1 1:5 2:6\n", None, [[5, 6]]),
        ("1 0:5 2:6\n", None, [[5, 0, 6]]),
        ("1 1:5 2:6\n", True, [[0, 5, 6]]),
        ("1 1:5 2:6\n", False, [[5, 6]]),
        ("1 1:5\n1 0:6\n", None, [[0, 5], [6, 0]]),
    ],
)
def test_svmlight_first_feature(
    tmp_path: Path, content: str, zero_based: bool | None, expected: list[list[float]]
) -> None:
    assert read(tmp_path, content, zero_based=zero_based).X.toarray().tolist() == expected


@pytest.mark.parametrize("content", ["1 1:5\n", "1\n"])
def test_svmlight_widths_given(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content, n_features=5).X.shape == (1, 5)


def test_largest_numbers(tmp_path: Path) -> None:
    data = read(tmp_path, "1 2147483647:3.4028235e38\n1,2147483646 1:1e-50\n")
    assert data.X.shape[1] == data.Y.shape[1] == 2**31 - 1
    assert data.X.data.tolist() == [FLOAT32_MAX, 0.0]


# ---------------------------------------------------------------- illegal

XC = "2 3 4\n0 0:1\n"  # lines 1 and 2 of each case below

ILLEGAL_ROWS = [
    ("0 3:1", "found feature '3', expected an integer from 0 to 2"),
    ("0 -1:1", "found feature '-1', expected an integer from 0 to 2"),
    ("0 99999999999999999999999:1", "found feature '99999999999999999999999', expected"),
    ("4 0:1", "found label '4', expected an integer from 0 to 3"),
    ("-1 0:1", "found label '-1', expected an integer from 0 to 3"),
    ("1,x 0:1", "found label 'x', expected an integer"),
    ("1,,2 0:1", "found label '', expected an integer"),
    ("1, 0:1", "found label '', expected an integer"),
    ("1.5 0:1", "found label '1.5', expected an integer"),
    ("2,1,02 0:1", "found label '02' twice, expected each label once"),
    ("1 2:1 0:3 02:1", "found feature '02' twice, expected each feature once"),
    ("1 0:1 0:1", "found feature '0' twice"),
    ("1 0:nan", "found '0:nan', expected a finite number"),
    ("1 0:-Inf", "found '0:-Inf', expected a finite number"),
    ("1 0:1e39", "found '0:1e39', expected a number that fits in float32"),
    ("1 0:1e99999999999999999999", "expected a number that fits in float32"),
    ("1 0:1.2.3", "found '0:1.2.3', expected a decimal number"),
    ("1 0:", "found '0:', expected a decimal number"),
    ("1 0:e5", "found '0:e5', expected a decimal number"),
    ("1 0:1e", "found '0:1e', expected a decimal number"),
    ("1 0:-", "found '0:-', expected a decimal number"),
    ("1 0:.", "found '0:.', expected a decimal number"),
    ("1 0:1_0", "found '0:1_0', expected a decimal number"),
    ("1 0:0x10", "found '0:0x10', expected a decimal number"),
    ("1 0:1\r2:1", "found '0:1\\r2:1', expected a decimal number"),
    ("1 0:1 2", "found '2' without a colon, expected feature:value"),
    ("1 2", "found '2' without a colon, expected feature:value"),
    ("1 a:1", "found 'a:1', expected an integer before the colon"),
    ("1 1.0:1", "found '1.0:1', expected an integer before the colon"),
    ("1 :1", "found ':1', expected an integer before the colon"),
    ("1 qid:3 0:1", "found 'qid:3', expected feature:value; query ids are not supported"),
    ("1 0:1 # note", "found '#' without a colon"),
    ("1 0:\x001", "found '0:\\x001', expected a decimal number"),
    ("\x00\x01\x02", "found label '\\x00\\x01\\x02', expected an integer"),
    ("1 " + "y" * 100, "found '" + "y" * 37 + "...' without a colon"),
    ("1 é:1", "found 'é:1', expected an integer"),
]


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
@pytest.mark.parametrize(("row", "message"), ILLEGAL_ROWS)
def test_illegal_row(tmp_path: Path, row: str, message: str, ending: str) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, XC + row + ending)
    assert str(caught.value).startswith(f"{tmp_path / 'data.txt'}:3: ")
    assert message in str(caught.value)
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("", None, "the file is empty"),
        ("\ufeff", None, "the file is empty"),
        ("3 2\n", 1, "found '3 2', expected a header of three integers"),
        ("3 2 1 0\n0 0:1\n", 1, "found '3 2 1 0', expected a header of three integers"),
        ("3 2 -1\n", 1, "found '3 2 -1', expected a header"),
        ("3 x 1\n", 1, "found '3 x 1', expected a header"),
        ("3 9999999999 1\n", 1, "found '3 9999999999 1', expected a header"),
        ("2 3 4\n0 0:1\n", 3, "found the end of the file after 1 rows, expected 2"),
        ("2 3 4", 2, "found the end of the file after 0 rows, expected 2"),
        ("1 3 4\n0 0:1\n\n1 0:1\n", 4, "found another row, expected only 1"),
        ("1 3 4\n0 0:1\nnonsense\n", 3, "found another row, expected only 1"),
        ("0 3 4\n0 0:1\n", 2, "found another row, expected only 0"),
        ("1 0 4\n0 0:1\n", 2, "found feature '0', expected none"),
        ("# only comments\n\n \n", None, "found no rows"),
        (
            "1 1:1\n\n# c\n1 qid:7 1:1\n",
            4,
            "found 'qid:7', expected feature:value; query ids are not supported",
        ),
        ("1 1:1\n1.5 1:1\n", 2, "found label '1.5', expected an integer"),
        ("1 1:1\n99999999999 1:1\n", 2, "found label '99999999999', expected an integer from"),
        ("1 1:1\n1 2147483648:1\n", 2, "found feature '2147483648', expected an integer from"),
        ("1 1:1\n# c\n-1 2:1\n1,2 1:1\n-3 1:1\n", 3, "found a negative label, expected column"),
        ("+1,1.0 1:1\n", 1, "found label '1.0' twice"),
    ],
)
def test_illegal_file(tmp_path: Path, content: str, line: int | None, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, content)
    place = "" if line is None else f":{line}"
    assert str(caught.value).startswith(f"{tmp_path / 'data.txt'}{place}: {message}")


@pytest.mark.parametrize(
    ("content", "options", "line", "message"),
    [
        ("1 1:1\n", {"header": True}, 1, "found '1 1:1', expected a header of three integers"),
        ("3 3 3\n", {"header": False}, 1, "found '3' without a colon"),
        (
            "1 1:1\n2 0:1\n",
            {"zero_based": False},
            2,
            "found feature '0', expected an integer from 1",
        ),
        ("1 3:1\n", {"n_features": 2}, 1, "found feature '3', expected an integer from 0 to 2"),
        (
            "1 2:1\n1 0:1\n",
            {"n_features": 2},
            1,
            "found feature 2, expected an integer from 0 to 1",
        ),
        (
            "1 1:1\n-1 1:1\n",
            {"n_labels": 2},
            2,
            "found label '-1', expected an integer from 0 to 1",
        ),
        ("1 3 4\n0 0:1\n", {"n_features": 2}, 1, "found 3 features, expected at most 2"),
        ("1 3 4\n0 0:1\n", {"n_labels": 2}, 1, "found 4 labels, expected at most 2"),
    ],
)
def test_illegal_with_options(
    tmp_path: Path, content: str, options: dict[str, object], line: int, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, content, **options)
    assert f"data.txt:{line}: {message}" in str(caught.value)


def test_illegal_width(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="n_features must be between 0 and 2147483647; got -1"):
        read(tmp_path, "1 1:1\n", n_features=-1)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_first_error_in_the_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_jobs: int
) -> None:
    monkeypatch.setattr(sparse_text, "_CHUNK_BYTES", 16)
    lines = ["1 1:1"] * 300
    lines[150] = "1 1:bad"
    lines[151] = lines[290] = "1 x:1"
    with pytest.raises(DataError, match=":151: found '1:bad'"):
        read(tmp_path, "\n".join(lines), n_jobs=n_jobs)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_before_the_truncation_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_jobs: int
) -> None:
    monkeypatch.setattr(sparse_text, "_CHUNK_BYTES", 16)
    lines = ["1 1:1\n"] * 300
    lines[290] = "1 x:1\n"  # so near to the end that the truncation is met while this waits
    content = gzip.compress("".join(lines).encode())[:-1]
    with pytest.raises(DataError, match=":291: found 'x:1'"):
        read(tmp_path, content, n_jobs=n_jobs)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_truncated_file(tmp_path: Path, n_jobs: int) -> None:
    content = gzip.compress(b"1 1:1\n" * 10_000)[:-20]
    with pytest.raises(DataError, match=r"data\.txt: the gzip data is truncated"):
        read(tmp_path, content, n_jobs=n_jobs)


# ---------------------------------------------------------------- numbers


def parsed_number(folder: Path, text: str) -> np.float32:
    return read(folder, f"1 1:{text}\n").X.data[0]


@many
@given(
    st.integers(-(10**15) + 1, 10**15 - 1), st.integers(-22, 22), st.sampled_from(["e", "E", "e+"])
)
def test_short_numbers_are_exact(folder: Path, mantissa: int, exponent: int, letter: str) -> None:
    text = f"{mantissa}{letter if exponent >= 0 else 'e'}{exponent}"
    assert parsed_number(folder, text) == np.float32(float(text))


@many
@given(st.integers(0, 10**15 - 1), st.integers(0, 22))
def test_short_decimals_are_exact(folder: Path, mantissa: int, places: int) -> None:
    digits = str(mantissa).zfill(places + 1)
    text = f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}"
    assert parsed_number(folder, text) == np.float32(float(text))


@many
@given(
    st.from_regex(
        r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?", fullmatch=True
    )
)
@example("0." + "0" * 60 + "1e60")
@example("1" + "0" * 60 + "e-60")
@example("123456789012345678901234567890e-25")
@example("1e-9999999999999999999999")
@example("0e99999999999999999999999")
def test_any_number_is_within_one_ulp(folder: Path, text: str) -> None:
    with np.errstate(over="ignore"):
        expected = np.float32(float(text))
    if math.isinf(expected):
        with pytest.raises(DataError, match="fits in float32"):
            parsed_number(folder, text)
    else:
        assert abs(float(parsed_number(folder, text)) - expected) <= np.spacing(abs(expected))


@many
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(FLOAT32_MAX)
@example(1.401298464324817e-45)
@example(9.999999e-4)
@example(1e7)
def test_written_numbers_are_the_shortest(folder: Path, value: float) -> None:
    number = np.float32(value)
    dataset = Dataset(csr_array(np.ones((1, 1), np.float32)), csr_array(([number], ([0], [0]))))
    write_sparse_text(dataset, folder / "out.txt")
    text = (folder / "out.txt").read_text().split(":")[1].strip()
    assert np.float32(float(text)).tobytes() == number.tobytes()  # for any reader
    shortest = np.format_float_scientific(number, unique=True, trim="-").split("e")[0]
    digits = text.split("e")[0].replace(".", "").strip("-0")
    assert len(digits) <= len(shortest.replace(".", "").strip("-0"))


# ---------------------------------------------------------------- round trips


@st.composite
def datasets(draw: st.DrawFn, *, empty_rows: bool = True) -> Dataset:
    n_rows, n_features, n_labels = (draw(st.integers(1, 8)) for _ in range(3))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    row_of_x = st.dictionaries(st.integers(0, n_features - 1), values, max_size=n_features)
    row_of_y = st.sets(st.integers(0, n_labels - 1), max_size=n_labels)
    rows = draw(st.lists(st.tuples(row_of_x, row_of_y), min_size=n_rows, max_size=n_rows))
    if not empty_rows:
        rows = [(x, y) if x or y else ({0: 1.0}, y) for x, y in rows]
    X = _matrix([dict(sorted(x.items())) for x, _ in rows], n_features)
    Y = _matrix([dict.fromkeys(sorted(y), 1.0) for _, y in rows], n_labels)
    return Dataset(Y, X)


def _matrix(rows: list[dict[int, float]], width: int) -> csr_array:
    indptr = np.cumsum([0] + [len(row) for row in rows]).astype(np.int32)
    indices = np.array([i for row in rows for i in row], np.int32)
    data = np.array([v for row in rows for v in row.values()], np.float32)
    return csr_array((data, indices, indptr), shape=(len(rows), width))


@many
@given(datasets(), st.sampled_from(["", ".gz"]))
def test_xc_round_trip(folder: Path, dataset: Dataset, suffix: str) -> None:
    path = folder / f"trip.txt{suffix}"
    write_sparse_text(dataset, path)
    assert_same(read_sparse_text(path), dataset)


@many
@given(datasets(empty_rows=False), st.sampled_from(["", ".gz"]))
def test_svmlight_round_trip(folder: Path, dataset: Dataset, suffix: str) -> None:
    path = folder / f"trip.svm{suffix}"
    write_sparse_text(dataset, path, header=False)
    widths = {"n_features": dataset.n_features, "n_labels": dataset.n_labels}
    assert_same(read_sparse_text(path, **widths), dataset)


@many
@given(datasets(), st.randoms(use_true_random=False))
def test_rows_in_any_order_are_read_sorted(folder: Path, dataset: Dataset, random: object) -> None:
    path = folder / "order.txt"
    write_sparse_text(dataset, path)
    lines = path.read_text().split("\n")
    for i, line in enumerate(lines[1:], 1):
        labels, *features = line.split(" ")
        names = labels.split(",")
        random.shuffle(names)
        random.shuffle(features)
        lines[i] = " ".join([",".join(names), *features])
    path.write_text("\n".join(lines))
    assert_same(read_sparse_text(path), dataset)


def test_long_unsorted_row(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(20_000)
    labels, features = ",".join(map(str, order)), " ".join(f"{i}:{i}" for i in order)
    data = read(tmp_path, f"1 20000 20000\n{labels} {features}\n")
    assert_array_equal(data.X.indices, np.arange(20_000))
    assert_array_equal(data.X.data, np.arange(20_000))
    assert_array_equal(data.Y.indices, np.arange(20_000))


def test_multiclass_names_round_trip(tmp_path: Path) -> None:
    dataset = read(tmp_path, "-1 1:1\n7 2:1\n-1 1:2\n")
    write_sparse_text(dataset, tmp_path / "again", header=False)
    assert (tmp_path / "again").read_text() == "-1 1:1\n7 2:1\n-1 1:2\n"
    assert_same(read_sparse_text(tmp_path / "again"), dataset)


@pytest.mark.parametrize(
    ("Y", "text"),
    [
        ([[1, 0], [0, 1]], "-3 1:1\n7 1:1\n"),  # one label each: names
        ([[1, 0], [1, 1]], "0 1:1\n0,1 1:1\n"),  # otherwise columns
        ([[0, 0], [0, 1]], " 1:1\n1 1:1\n"),
    ],
)
def test_names_of_both_signs_are_written_as_they_can_be_read(
    tmp_path: Path, Y: list[list[int]], text: str
) -> None:
    X = csr_array(np.ones((2, 1), np.float32))
    data = Dataset(csr_array(Y, dtype=np.float32), X, label_names=["-3", "7"])
    write_sparse_text(data, tmp_path / "out", header=False)
    assert (tmp_path / "out").read_text() == text
    again = read_sparse_text(tmp_path / "out")
    assert_array_equal(again.Y.toarray()[:, -2:], Y)


def test_names_that_are_no_numbers_are_written_as_columns(tmp_path: Path) -> None:
    Y, X = csr_array(np.eye(2, dtype=np.float32)), csr_array(np.ones((2, 1), np.float32))
    for names in (["a", "1"], ["01", "2"]):
        write_sparse_text(Dataset(Y, X, label_names=names), tmp_path / "out", header=False)
        assert (tmp_path / "out").read_text() == "0 1:1\n1 1:1\n"


def test_writes_dense_and_unsorted_matrices(tmp_path: Path) -> None:
    unsorted = csr_array(([1.0, 1.0], [2, 0], [0, 2]), shape=(1, 3))
    dense = np.array([[0.0, 2.5, 1e-20, 1500, -12.25, 1e7]], np.float32)
    write_sparse_text(Dataset(unsorted, dense), tmp_path / "out")
    assert (tmp_path / "out").read_text() == "1 6 3\n0,2 1:2.5 2:1e-20 3:1500 4:-12.25 5:1e7\n"
    assert unsorted.indices.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (None, [[1]], "no features"),
        ([[np.nan]], [[1]], "not finite"),
        ([[1]], [[0.5]], "Y has values other than 1"),
        ([[1], [0]], [[1], [0]], "row 1 has neither labels nor features"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, X: object, Y: object, message: str) -> None:
    features = None if X is None else csr_array(np.array(X, np.float32))
    dataset = Dataset(csr_array(np.array(Y, np.float32)), features)
    with pytest.raises(DataError, match=f"out: cannot be written: .*{message}"):
        write_sparse_text(dataset, tmp_path / "out", header=False)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- chunks, threads, other readers


@pytest.fixture(scope="module")
def large() -> Dataset:
    rng = np.random.default_rng(1)
    X = random_array((600, 300), density=0.05, random_state=rng, dtype=np.float32, format="csr")
    Y = random_array((600, 50), density=0.04, random_state=rng, dtype=np.float32, format="csr")
    Y.data[:] = 1
    for matrix in (X, Y):
        matrix.sort_indices()
    return Dataset(Y, X)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("chunk", [1, 16, 5000, 1 << 22])
def test_chunks_and_threads_do_not_matter(
    folder: Path, large: Dataset, monkeypatch: pytest.MonkeyPatch, chunk: int, n_jobs: int
) -> None:
    path = folder / f"large-{chunk}-{n_jobs}.txt"
    write_sparse_text(large, path, n_jobs=n_jobs)
    monkeypatch.setattr(sparse_text, "_CHUNK_BYTES", chunk)
    assert_same(read_sparse_text(path, n_jobs=n_jobs), large)


@pytest.mark.parametrize("block_bytes", [16, 5000, 1 << 22])
@pytest.mark.parametrize("content", ["multilabel", "multiclass", "header"])
def test_blocks_below_each_other_are_the_whole(
    folder: Path, large: Dataset, content: str, block_bytes: int
) -> None:
    path = folder / "blocks.txt"
    if content == "multiclass":
        Y = csr_array(np.eye(7, dtype=np.float32)[np.arange(600) % 7])
        large = Dataset(Y, large.X, label_names=["-3", "0", "1", "2", "5", "8", "13"])
    elif content == "multilabel":
        keep = np.flatnonzero((np.diff(large.X.indptr) > 0) | (np.diff(large.Y.indptr) > 0))
        large = large.take(keep)
    write_sparse_text(large, path, header=content == "header")
    whole = read_sparse_text(path)
    blocks = list(read_sparse_text_blocks(path, block_bytes=block_bytes))
    assert (len(blocks) > 1) == (block_bytes < 1 << 22)
    assert all(block.label_names == whole.label_names for block in blocks)
    X = vstack([block.X for block in blocks], format="csr")
    Y = vstack([block.Y for block in blocks], format="csr")
    assert_same(Dataset(Y, X, label_names=whole.label_names), whole)


def test_blocks_of_a_known_shape_are_read_once(
    folder: Path, large: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "once.txt"
    write_sparse_text(large.take(range(100)), path, header=False)
    opened = []
    original = sparse_text.open_input
    monkeypatch.setattr(sparse_text, "open_input", lambda p: opened.append(p) or original(p))
    known = {"zero_based": False, "n_features": 300, "n_labels": 50}
    blocks = list(read_sparse_text_blocks(path, block_bytes=1000, **known))
    assert len(opened) == 1
    assert {block.X.shape[1] for block in blocks} == {300}
    assert sum(block.n_rows for block in blocks) == 100
    list(read_sparse_text_blocks(path, block_bytes=1000))
    assert len(opened) == 3


def test_agrees_with_scikit_learn(folder: Path, large: Dataset) -> None:
    path = folder / "sklearn.txt"
    write_sparse_text(large.take(np.flatnonzero(np.diff(large.X.indptr))), path, header=False)
    X, labels = load_svmlight_file(str(path), multilabel=True, dtype=np.float32)
    ours = read_sparse_text(path)
    assert_array_equal(ours.X.toarray(), X.toarray())
    assert [tuple(row) for row in np.split(ours.Y.indices, ours.Y.indptr[1:-1])] == labels


# ---------------------------------------------------------------- fuzz

VALID = b"3 4 5\n0,4 0:1.5 3:-2e-3\n\n2 1:1e3 2:7\r\n"
VALID_SVMLIGHT = b"# c\n1,3 1:1.5 3:-2 # d\n-2 2:1e3\n\n 4:0.25\n"


def outcome(path: Path, n_jobs: int) -> Dataset | str:
    try:
        return read_sparse_text(path, n_jobs=n_jobs)
    except DataError as error:
        return str(error)


def read_or_refuse(path: Path) -> None:
    one, two = outcome(path, 1), outcome(path, 2)
    if isinstance(one, str) or isinstance(two, str):
        assert one == two
        assert one.startswith(str(path))
        return
    assert_same(one, two)
    for matrix in (one.X, one.Y):
        csr_array(matrix, copy=True).check_format(full_check=True)
        assert np.isfinite(matrix.data).all()


@many
@given(st.binary(max_size=200))
def test_fuzz_any_bytes(folder: Path, content: bytes) -> None:
    (folder / "fuzz").write_bytes(content)
    read_or_refuse(folder / "fuzz")


@many
@given(st.text(alphabet="0123456789:., \n\t\r#-+e\0xq", max_size=80))
def test_fuzz_nearly_right_text(folder: Path, content: str) -> None:
    (folder / "fuzz").write_text(content, newline="")
    read_or_refuse(folder / "fuzz")


@many
@given(st.data(), st.sampled_from([VALID, VALID_SVMLIGHT, gzip.compress(VALID, mtime=0)]))
def test_fuzz_changed_bytes(folder: Path, data: st.DataObject, valid: bytes) -> None:
    content = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        change = data.draw(st.sampled_from(["flip", "delete", "insert", "cut"]))
        if change == "flip":
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        elif change == "insert":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=3))
        elif change == "delete" and len(content) > 1:
            del content[place]
        else:
            del content[max(1, place) :]
    (folder / "fuzz").write_bytes(content)
    read_or_refuse(folder / "fuzz")


def test_counted_marks() -> None:
    text = np.frombuffer(b"a:b,c\n:,\n\n", np.uint8)
    assert parse_kernels.count_marks(text) == (3, 2, 2)
