"""Matrices in a temporary file, for those that do not fit in memory; mapped while in use."""

from __future__ import annotations

import mmap
import os
from tempfile import TemporaryFile, gettempdir
from typing import Any, TypeAlias
from weakref import finalize

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.linalg.matrices import Matrix

_LARGE_FILES = "/var/tmp"
_ALIGNED = 64  # bytes: where an array may begin

Shape: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[Shape, np.dtype[Any], int]  # of an array: its offset in the item


class MatrixFile:
    """Items, each of some CSR matrices and arrays, in a temporary file.

    The file is deleted together with this object. It is in TMPDIR, or else in /var/tmp, because
    /tmp may be in memory. Reading an item gives views of the file, which may be written to. An item
    is mapped as long as a view of it exists; its memory is the system's cache of the file.

    >>> file = MatrixFile()
    >>> file.append(csr_array(np.eye(2)), np.ones(3))
    >>> A, b = file[0]
    >>> A.toarray().tolist(), b.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0, 1.0])
    """

    def __init__(self) -> None:
        chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
        large = not chosen and os.access(_LARGE_FILES, os.W_OK)
        self._directory = _LARGE_FILES if large else gettempdir()
        self._file = TemporaryFile(buffering=0, dir=self._directory)  # noqa: SIM115
        finalize(self, self._file.close)
        self._bounds = [0]  # where each item begins, and the last one ends
        self._items: list[list[tuple[Shape, list[Place]]]] = []

    def __len__(self) -> int:
        return len(self._items)

    def append(self, *matrices: Matrix) -> None:
        """Write an item after the last."""
        at, item = 0, []
        for A in matrices:
            places = []
            for array in (A.data, A.indices, A.indptr) if issparse(A) else (A,):
                self._write(array, self._bounds[-1] + at)
                places.append((array.shape, array.dtype, at))
                at += -(-array.nbytes // _ALIGNED) * _ALIGNED
            item.append((A.shape, places))
        # Another item begins where a mapping may.
        size = max(1, -(-at // mmap.ALLOCATIONGRANULARITY)) * mmap.ALLOCATIONGRANULARITY
        self._file.truncate(self._bounds[-1] + size)
        self._bounds.append(self._bounds[-1] + size)
        self._items.append(item)

    def __getitem__(self, number: int) -> list[Matrix]:
        begin, end = self._bounds[number : number + 2]
        mapped = mmap.mmap(self._file.fileno(), end - begin, offset=begin)
        if hasattr(os, "posix_fadvise"):  # the system reads the next item while this one is in use
            begin, end = self._bounds[(number + 1) % len(self) :][:2]
            os.posix_fadvise(self._file.fileno(), begin, end - begin, os.POSIX_FADV_WILLNEED)
        matrices = []
        for shape, places in self._items[number]:
            arrays = [np.ndarray(size, dtype, mapped, at) for size, dtype, at in places]
            matrices.append(arrays[0] if len(arrays) == 1 else csr_array(tuple(arrays), shape))
        return matrices

    def _write(self, array: NDArray[Any], offset: int) -> None:
        left = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        while len(left):
            self._file.seek(offset)
            try:
                n = self._file.write(left.data)  # the system may write only some of the bytes
            except OSError as error:
                what = f"cannot write to a temporary file in {self._directory}: {error.strerror}"
                raise OSError(f"{what}; set TMPDIR to a directory with more room") from error
            left, offset = left[n:], offset + n
