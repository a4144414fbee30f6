"""npz archives: exact round trips; any damage is one DataError that names the array."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.data.dataset import Dataset
from labelry.data.npz import read_npz, write_npz
from labelry.errors import DataError

X = csr_array(np.array([[0, 1.5, 0], [0, 0, 0], [-2, 0, 1e-20], [0, 3, 0]], np.float32))
Y = csr_array(np.array([[1, 0], [1, 1], [0, 0], [0, 1]], np.float32))


def assert_csr_equal(left: object, right: csr_array) -> None:
    assert isinstance(left, csr_array)
    assert left.shape == right.shape
    assert left.dtype == np.float32
    assert left.indices.dtype == left.indptr.dtype == np.int32
    for part in ("data", "indices", "indptr"):
        assert_array_equal(getattr(left, part), getattr(right, part))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data.npz{suffix}"
    names = ["a", "ü b"], ["", "f\0g", "longer name"]
    write_npz(Dataset(Y, X, label_names=names[0], feature_names=names[1]), path)
    data = read_npz(path)
    assert_csr_equal(data.X, X)
    assert_csr_equal(data.Y, Y)
    assert (data.label_names, data.feature_names) == names


def test_round_trip_without_names_and_features(tmp_path: Path) -> None:
    write_npz(Dataset(Y), tmp_path / "y.npz")
    data = read_npz(tmp_path / "y.npz")
    assert data.X is data.label_names is data.feature_names is None
    assert_csr_equal(data.Y, Y)


def test_round_trip_dense(tmp_path: Path) -> None:
    write_npz(Dataset(Y, X.toarray()), tmp_path / "dense.npz")
    data = read_npz(tmp_path / "dense.npz")
    assert isinstance(data.X, np.ndarray)
    assert data.X.dtype == np.float32
    assert_array_equal(data.X, X.toarray())


def test_round_trip_of_nothing(tmp_path: Path) -> None:
    empty = csr_array((0, 0), dtype=np.float32)
    write_npz(Dataset(empty, empty, label_names=[]), tmp_path / "empty.npz")
    data = read_npz(tmp_path / "empty.npz")
    assert data.X.shape == data.Y.shape == (0, 0)
    assert data.label_names == []


def test_unsorted_and_wide_arrays_become_canonical(tmp_path: Path) -> None:
    parts = {
        "Y_data": np.array([2.0, 1.0]),
        "Y_indices": np.array([4, 0], np.uint64),
        "Y_indptr": np.array([0, 2]),
        "Y_shape": np.array([1, 5]),
    }
    np.savez(tmp_path / "wide.npz", **parts)
    expected = csr_array(np.array([[1, 0, 0, 0, 2]], np.float32))
    assert_csr_equal(read_npz(tmp_path / "wide.npz").Y, expected)


def parts_of_valid() -> dict[str, np.ndarray]:
    return {
        f"{name}_{part}": np.array(getattr(matrix, part))
        for name, matrix in (("X", X), ("Y", Y))
        for part in ("data", "indices", "indptr", "shape")
    } | {"label_names": np.array(["a", "b"])}


@pytest.mark.parametrize(
    ("array", "value", "message"),
    [
        ("Y_data", None, "the array Y_data is wrong: expected it in the file, found X_data"),
        ("X_indptr", None, "the array X_indptr is wrong: expected it in the file"),
        ("X_data", [1, 2, np.nan, 4], "the array X_data is wrong: expected finite"),
        ("X_data", [1, 2, 1e39, 4], "the array X_data is wrong: expected finite"),
        ("X_data", ["a", "b", "c", "d"], "the array X_data is wrong: expected a vector of numbers"),
        ("X_data", [1.0, 2.0], "the array X_indices is wrong: expected 2 entries"),
        ("X_indices", [1, 0, 3, 1], "the array X_indices is wrong: expected column numbers"),
        ("X_indices", [-1, 0, 2, 1], "the array X_indices is wrong: expected column numbers"),
        ("X_indices", [1, 2, 2, 1], "the array X_indices is wrong: expected each column once"),
        ("X_indices", [1.0, 0, 2, 1], "the array X_indices is wrong: expected a vector of integ"),
        ("X_indptr", [0, 1, 1, 3], "the array X_indptr is wrong: expected 5 entries"),
        ("X_indptr", [0, 2, 1, 3, 4], "the array X_indptr is wrong: expected to rise from 0 to 4"),
        ("X_indptr", [1, 1, 1, 3, 4], "the array X_indptr is wrong: expected to rise"),
        ("X_indptr", [0, 1, 1, 3, 9], "the array X_indptr is wrong: expected to rise"),
        ("X_shape", [4], "the array X_shape is wrong: expected two numbers"),
        ("X_shape", [4, -3], "the array X_shape is wrong: expected two numbers"),
        ("X_shape", [4, 2**40], "the array X_shape is wrong: expected two numbers"),
        ("X_shape", [[4, 3]], "the array X_shape is wrong: expected a vector"),
        ("X", [1.0, 2.0], "the array X is wrong: expected a matrix of numbers"),
        ("X", [[np.inf]], "the array X is wrong: expected finite"),
        ("X", [[1.0]], "found 4 rows of labels, expected 1"),
        ("label_names", ["a"], "the array label_names is wrong: expected 2 texts"),
        ("label_names", [1, 2], "the array label_names is wrong: expected 2 texts"),
        ("feature_names", ["a"], "the array feature_names is wrong: expected 3 texts"),
        ("label_names", np.array([{}, 1], object), "label_names cannot be read: Object arrays"),
    ],
)
def test_illegal_arrays(tmp_path: Path, array: str, value: object, message: str) -> None:
    parts = parts_of_valid()
    if value is None:
        del parts[array]
    else:
        parts[array] = np.array(value)
    np.savez(tmp_path / "bad.npz", **parts)
    with pytest.raises(DataError) as caught:
        read_npz(tmp_path / "bad.npz")
    assert str(caught.value).startswith(f"{tmp_path / 'bad.npz'}: {message}")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x93NUMPY", b"PK", b"PK\x03\x04 and more"])
def test_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.npz: "):
        read_npz(tmp_path / "bad.npz")


def test_truncated_gzip_around_an_archive(tmp_path: Path) -> None:
    write_npz(Dataset(Y, X), tmp_path / "data.npz.gz")
    content = (tmp_path / "data.npz.gz").read_bytes()
    (tmp_path / "data.npz.gz").write_bytes(content[:-10])
    with pytest.raises(DataError, match="the gzip data is truncated"):
        read_npz(tmp_path / "data.npz.gz")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="texts have no place"):
        write_npz(Dataset(Y, texts=["a"] * 4), tmp_path / "out.npz")
    with pytest.raises(DataError, match="label_names has a final NUL"):
        write_npz(Dataset(Y, label_names=["a", "b\0"]), tmp_path / "out.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_value_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    write_npz(Dataset(Y, X), path)
    content = path.read_bytes()
    place = content.index(np.float32(1.5).tobytes())
    path.write_bytes(content[:place] + b"\1" + content[place + 1 :])
    with pytest.raises(DataError, match="X_data cannot be read: Bad CRC-32"):
        read_npz(path)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.booleans())
def test_fuzz_changed_bytes(tmp_path: Path, data: st.DataObject, compress: bool) -> None:
    buffer = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(buffer, **parts_of_valid())
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[place : place + data.draw(st.sampled_from([1, 10, 10_000]))]
            content = content or bytearray(b"P")
    (tmp_path / "fuzz.npz").write_bytes(content)
    try:
        dataset = read_npz(tmp_path / "fuzz.npz")
    except DataError:
        return
    assert_csr_equal(dataset.Y, Y)


def test_archive_is_plain_zip_and_readable_by_numpy(tmp_path: Path) -> None:
    write_npz(Dataset(Y, X), tmp_path / "data.npz.gz")
    inner = gzip.decompress((tmp_path / "data.npz.gz").read_bytes())
    assert zipfile.is_zipfile(io.BytesIO(inner))
    with np.load(io.BytesIO(inner), allow_pickle=False) as arrays:
        assert_array_equal(arrays["X_shape"], [4, 3])
