"""The one form that sparse matrices have inside labelry.

CSR, float32, indices sorted and distinct in each row, and int32 where they fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.linalg.matrices import check_sparse


class RepeatedEntryError(ValueError):
    """A column stands twice in one row."""

    def __init__(self, row: int, column: int, message: str) -> None:
        super().__init__(message)
        self.row = row
        self.column = column


def canonical_csr(A: Any, name: str) -> csr_array:
    """Bring any sparse matrix into the canonical form; an entry given twice is refused.

    Nothing is copied that need not be, so the result may share memory with `A`. Values are kept
    as they are, stored zeros too, but for the rounding to float32. Errors call the matrix `name`.

    Examples
    --------
    >>> from scipy.sparse import coo_array
    >>> canonical_csr(coo_array(([1, 2], ([1, 0], [0, 1]))), "X").indices
    array([1, 0], dtype=int32)
    """
    if not issparse(A) or A.ndim != 2:
        raise ValueError(f"{name} must be a sparse matrix of 2 dimensions; got {type(A).__name__}")
    if A.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers or bool; got dtype {A.dtype}")
    check_sparse(A)
    if A.format == "csr":
        csr = make_csr(A.data, A.indices, A.indptr, A.shape[1])
    else:  # not A.tocsr(), which would add entries given twice
        coo = A.tocoo()
        order = np.lexsort((coo.col, coo.row))
        indptr = np.zeros(A.shape[0] + 1, dtype=np.int64)
        np.cumsum(np.bincount(coo.row, minlength=A.shape[0]), out=indptr[1:])
        csr = make_csr(coo.data[order], coo.col[order], indptr, A.shape[1])
    if not csr.has_sorted_indices:
        csr = csr.sorted_indices()
    check_no_repeats(csr, name)
    if csr.dtype != np.float32:
        with np.errstate(over="ignore"):  # too large for float32 is inf
            csr = csr.astype(np.float32)
    return csr


def make_csr(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], n_columns: int
) -> csr_array:
    """Put the parts together, with int32 indices where they fit, which scipy leaves to us."""
    index = np.int32 if max(len(data), n_columns) < 2**31 else np.int64
    parts = (data, indices.astype(index, copy=False), indptr.astype(index, copy=False))
    return csr_array(parts, shape=(len(indptr) - 1, n_columns))


def check_no_repeats(csr: csr_array, name: str) -> None:
    """Refuse a matrix with sorted indices that has a column twice in one row."""
    repeats = np.zeros(csr.nnz + 1, dtype=bool)
    repeats[1:-1] = csr.indices[1:] == csr.indices[:-1]
    repeats[csr.indptr] = False  # the first entry of a row repeats nothing
    if repeats.any():
        place = int(repeats.argmax())
        row, column = row_of_entry(csr, place), int(csr.indices[place])
        message = f"row {row} of {name} has column {column} more than once"
        raise RepeatedEntryError(row, column, message)


def row_of_entry(csr: csr_array, place: int) -> int:
    """Find the row of the entry that is stored at `place`."""
    return int(np.searchsorted(csr.indptr, place, side="right")) - 1
