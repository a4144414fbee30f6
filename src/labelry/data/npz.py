"""Datasets as numpy archives, ``.npz``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.data.canonical import make_csr
from labelry.data.dataset import Dataset, Features
from labelry.data.streams import open_output, seekable_input
from labelry.errors import DataError, LabelryError
from labelry.memory import watch

Arrays = dict[str, NDArray[Any]]

_PARTS = ("data", "indices", "indptr", "shape")


def write_npz(dataset: Dataset, path: str | Path) -> None:
    """Write X, Y and the names; compressed only if the suffix of `path` asks for it.

    A sparse matrix M becomes the arrays ``M_data``, ``M_indices``, ``M_indptr`` and
    ``M_shape``; a dense X is the array ``X``. Names are arrays of text.

    Texts, and names that end with a NUL character, which numpy would cut, are a DataError.
    """
    if dataset.texts is not None:
        raise DataError("cannot be written: texts have no place in an npz file", path=path)
    arrays: Arrays = {}
    for name, matrix in (("X", dataset.X), ("Y", dataset.Y)):
        if issparse(matrix):
            arrays |= {f"{name}_{part}": np.asarray(getattr(matrix, part)) for part in _PARTS}
        elif matrix is not None:
            arrays[name] = matrix
    for name in ("label_names", "feature_names"):
        names = getattr(dataset, name)
        if names is not None:
            if any(text.endswith("\0") for text in names):
                raise DataError(f"cannot be written: {name} has a final NUL character", path=path)
            arrays[name] = np.array(names, dtype=np.str_)
    with open_output(path) as out:
        np.savez(_Sequential(out), **arrays)  # type: ignore[arg-type]


def read_npz(path: str | Path) -> Dataset:
    """Read what `write_npz` wrote; X and the names may be missing.

    A DataError names the array that is damaged or does not fit to the others.
    """
    arrays = _load(path)
    Y = _csr(arrays, "Y_", path)
    X: Features | None = None
    if "X" in arrays:
        X = _dense(arrays["X"], path)
    elif any(name.startswith("X_") for name in arrays):
        X = _csr(arrays, "X_", path)
    if X is not None and X.shape[0] != Y.shape[0]:
        raise DataError(
            f"found {Y.shape[0]} rows of labels, expected {X.shape[0]} as of features", path=path
        )
    return Dataset(
        Y,
        X,
        label_names=_names(arrays, "label_names", Y.shape[1], path),
        feature_names=_names(arrays, "feature_names", 0 if X is None else X.shape[1], path),
    )


class _Sequential(io.RawIOBase):
    """A stream that admits that it cannot seek, as compressed ones do not."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._out.write(data)


def _load(path: str | Path) -> Arrays:
    remedy = "write it as another format, which can be read in blocks"
    with seekable_input(path, remedy) as stream:
        if stream.read(2) != b"PK":
            raise DataError("is not an npz file: expected a zip archive", path=path)
        stream.seek(0)
        name, arrays = "the archive", {}
        try:
            with np.load(stream, allow_pickle=False) as archive:
                take = watch(f"reading {path}", remedy)
                take(sum(entry.file_size for entry in archive.zip.infolist()))
                for name in archive.files:
                    arrays[name] = archive[name]
        except LabelryError:
            raise
        # Damage shows as any of a dozen exceptions of zipfile, zlib and numpy.
        except Exception as error:
            raise DataError(f"{name} cannot be read: {error}", path=path) from error
    return arrays


def _csr(arrays: Arrays, prefix: str, path: str | Path) -> csr_array:
    """Put a matrix together after checking that its arrays are one."""

    def check(part: str, is_right: bool, expected: str) -> None:
        if not is_right:
            raise DataError(f"the array {prefix + part} is wrong: expected {expected}", path=path)

    for part in _PARTS:
        check(
            part, prefix + part in arrays, "it in the file, found " + (", ".join(arrays) or "none")
        )
    data, indices, indptr, shape = (arrays[prefix + part] for part in _PARTS)
    for part, array in (("indices", indices), ("indptr", indptr), ("shape", shape)):
        check(part, array.ndim == 1 and array.dtype.kind in "iu", "a vector of integers")
    limits = len(shape) == 2 and shape.min() >= 0 and shape.max() < 2**31
    check("shape", bool(limits), "two numbers from 0 to 2147483647")
    n_rows, width = (int(size) for size in shape)
    check("data", data.ndim == 1 and data.dtype.kind in "biuf", "a vector of numbers")
    check("indices", len(indices) == len(data), f"{len(data)} entries, as in the data")
    check("indptr", len(indptr) == n_rows + 1, f"{n_rows + 1} entries, one more than rows")
    ends = indptr[0] == 0 and indptr[-1] == len(data) and (indptr[1:] >= indptr[:-1]).all()
    check("indptr", bool(ends), f"to rise from 0 to {len(data)}")
    in_range = not len(indices) or (indices.min() >= 0 and indices.max() < width)
    check("indices", bool(in_range), f"column numbers from 0 to {width - 1}")
    data = _float32(data)
    check("data", bool(np.isfinite(data).all()), "finite numbers that fit in float32")
    matrix = make_csr(data, indices, indptr, width)
    matrix.sort_indices()
    check("indices", bool(matrix.has_canonical_format), "each column once in a row")
    return matrix


def _dense(array: NDArray[Any], path: str | Path) -> NDArray[np.float32]:
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError("the array X is wrong: expected a matrix of numbers", path=path)
    array = _float32(array)
    if not np.isfinite(array).all():
        raise DataError("the array X is wrong: expected finite float32 numbers", path=path)
    return np.ascontiguousarray(array)


def _float32(array: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # becomes infinite, which is checked after it
        return array.astype(np.float32, copy=False)


def _names(arrays: Arrays, name: str, size: int, path: str | Path) -> list[str] | None:
    if name not in arrays:
        return None
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind != "U" or len(array) != size:
        raise DataError(f"the array {name} is wrong: expected {size} texts", path=path)
    try:
        return [str(text) for text in array]
    except ValueError as error:  # code points beyond Unicode
        raise DataError(f"the array {name} is wrong: {error}", path=path) from error
