"""Operations on matrices that may be sparse or dense.

A matrix is float32: a CSR array, or an array in C order.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import reduce
from itertools import product as product_of
from operator import add
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from labelry.arrays import F32
from labelry.checks import refuse_masked
from labelry.linalg import kernels
from labelry.linalg.parallel import balanced_spans, run, spans

Matrix: TypeAlias = Any  # float32, csr_array or ndarray (scipy has no types)

_NO_WEIGHTS = np.empty(0, dtype=np.float32)
_WIDE = 128  # least columns per thread for which columns are split, not rows; not tuned


def as_matrix(A: Any) -> Matrix:
    """Return a float32 CSR array (32-bit indices where they fit), or a float32 array in C order."""
    if not issparse(A):
        refuse_masked("X", A)
        return np.ascontiguousarray(A, dtype=np.float32)
    check_sparse(A)
    # A conversion takes longer than ranking a row.
    if isinstance(A, csr_array) and A.dtype == np.float32 and A.indices.dtype == np.int32:
        csr = A
    else:
        csr = csr_array(A, dtype=np.float32)
        check_sparse(csr)  # of a format that has no pointers
    if not csr.has_canonical_format:
        csr = csr.copy()  # what was given stays as it is
        csr.sum_duplicates()
    return csr


def check_sparse(A: Any) -> None:
    """Raise a ValueError for a sparse matrix whose pointers or indices lead out of its arrays.

    Neither our kernels nor scipy look before they follow them: they would read and write anywhere.
    """
    if A.format in ("csr", "csc", "bsr"):
        major, minor = A.shape[::-1] if A.format == "csc" else A.shape
        height, width = A.data.shape[1:] if A.format == "bsr" else (1, 1)
        right = (
            len(A.indptr) == major // height + 1
            and len(A.indices) == len(A.data)
            and kernels.points_inside(A.indptr, A.indices, minor // width)
        )
        rule = "its indptr must rise from 0 to the number of its indices and entries, and its"
    elif A.format == "coo":
        ends = np.array([0, len(A.data)])
        right = all(
            len(along) == len(A.data) and kernels.points_inside(ends, along, size)
            for along, size in zip(A.coords, A.shape, strict=True)
        )
        rule = "each entry must have its indices, and the"
    else:
        return
    if not right:
        raise ValueError(f"a sparse matrix of shape {A.shape} is broken: {rule} indices be inside")


def scaled_rows(A: Matrix) -> Matrix:
    """Return the rows scaled to unit length; rows of zeros stay."""
    if issparse(A):
        scaled = copy(A)  # entries in the same places
        scaled.data = np.empty_like(A.data)
        kernels.unit_rows(A.indptr, A.data, scaled.data)
        return scaled
    # In double, as above: the square of 1e20 does not fit in float32, nor does that of 1e-25.
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A, dtype=np.float64))[:, None]
    by, out = np.where(lengths > 0, lengths, 1), np.empty_like(A)
    return np.divide(A, by, dtype=np.float64, casting="same_kind", out=out)


def main_rows(A: Matrix, least: float, share: float = 0.8) -> Matrix:
    """Return rows of unit length without the entries below `least`, which are mostly noise.

    A row of very many small entries keeps its largest ones, with at least `share` of its squares.

    >>> main_rows(csr_array([[3.0, 4.0, 0.1], [1.0, 1.0, 1.0]]), least=0.6).nnz
    5
    """
    A = scaled_rows(A)
    if not issparse(A):
        keep = np.empty(A.shape, dtype=np.bool_)
        starts = np.arange(A.shape[0] + 1) * A.shape[1]
        kernels.main_entries(starts, A.reshape(-1), least, share, keep.reshape(-1))
        return np.where(keep, A, np.float32(0))
    keep = np.empty(A.nnz, dtype=np.bool_)
    kernels.main_entries(A.indptr, A.data, least, share, keep)
    before = np.concatenate([[0], np.cumsum(keep, dtype=A.indptr.dtype)])
    kept = csr_array((A.data[keep], A.indices[keep], before[A.indptr]), shape=A.shape)
    kept.sort_indices()
    return kept


def with_constant(A: Matrix, *, unit: bool = False) -> Matrix:
    """Return A with a last column of ones; with `unit`, scale its rows to unit length first."""
    A = scaled_rows(A) if unit else A
    if not issparse(A):
        return np.hstack([A, np.ones((A.shape[0], 1), dtype=np.float32)])
    # numpy allocates in large pages; arrays that a kernel allocates would not be.
    n = A.nnz + A.shape[0]
    indices, data = np.empty(n, dtype=A.indices.dtype), np.empty(n, dtype=A.data.dtype)
    out = kernels.Csr(np.empty_like(A.indptr), indices, data)
    kernels.append_column(kernels.csr_parts(A), A.shape[1], out)
    return csr_array((data, indices, out.indptr), shape=(A.shape[0], A.shape[1] + 1))


def stacked(parts: list[Matrix]) -> Matrix:
    """Return the matrices stacked on top of each other; a single one is not copied."""
    if len(parts) == 1:
        return parts[0]
    return vstack(parts, format="csr") if issparse(parts[0]) else np.concatenate(parts)


def stacked_pairs(pieces: Iterable[tuple[Matrix, Matrix]]) -> tuple[Matrix, Matrix]:
    X, Y = zip(*pieces, strict=True)
    return stacked(list(X)), stacked(list(Y))


def summed(parts: Iterable[Matrix]) -> Matrix:
    """Return the sum of sparse (or dense) matrices that come one after the other.

    Adding copies both terms, so a part is only added to a sum that is not much larger.
    """
    sums: list[Matrix] = []
    for part in parts:
        sums.append(part)
        while len(sums) > 1 and sums[-1].size >= sums[-2].size // 8:  # stored entries, if sparse
            last = sums.pop()
            sums[-1] = sums[-1] + last
    return reduce(add, reversed(sums))


def consecutive_rows(A: csr_array, first: int, last: int) -> csr_array:
    """Return ``A[first:last]`` as a view of the entries of A, which scipy would copy."""
    indptr = A.indptr[first : last + 1]
    entries = slice(indptr[0], indptr[-1])
    parts = (A.data[entries], A.indices[entries], indptr - indptr[0])
    return csr_array(parts, shape=(last - first, A.shape[1]))


def product(A: Matrix, M: F32, n_jobs: int = 1) -> F32:
    """Return A @ M for CSR or dense A and dense M."""
    M = np.ascontiguousarray(M, dtype=np.float32)
    if not issparse(A):
        return A @ M
    out, parts = np.empty((A.shape[0], M.shape[1]), dtype=np.float32), kernels.csr_parts(A)
    tasks = [(parts, M, out, *s, 0, M.shape[1], 0) for s in balanced_spans(A.indptr, n_jobs)]
    run(kernels.multiply_rows, tasks, n_jobs)
    return out


def add_cross(A: Matrix, B: Matrix, weights: F32 | None, M: F32, out: F32, n_jobs: int) -> None:
    """Compute ``out += A.T @ diag(weights) @ (B @ M)``."""
    if issparse(A) and issparse(B):
        # Split columns among threads if each gets enough; otherwise split rows and add the sums.
        n_column_parts = max(1, min(n_jobs, M.shape[1] // _WIDE))
        rows = balanced_spans(A.indptr + B.indptr, max(1, n_jobs // n_column_parts))
        sums = [out] + [np.zeros_like(out) for _ in rows[1:]]
        given = (*map(kernels.csr_parts, (A, B)), _NO_WEIGHTS if weights is None else weights, M)
        pairs = product_of(spans(M.shape[1], n_column_parts), zip(sums, rows, strict=True))
        tasks = [(*given, total, *part, *columns) for columns, (total, part) in pairs]
        run(kernels.cross_rows, tasks, n_jobs)
        for extra in sums[1:]:
            out += extra
        return
    # One factor is dense: BLAS does its half, in row blocks of about 4 MB.
    step = max(256, (1 << 20) // max(M.shape[1], 1))
    for start in range(0, A.shape[0], step):
        part = slice(start, start + step)
        Z = product(B[part], M, n_jobs)
        if weights is not None:
            Z *= weights[part, None]
        if issparse(A):
            scatter(A[part], Z, out, n_jobs)
        else:
            out += A[part].T @ Z


def scatter(A: csr_array, Z: F32, out: F32, n_jobs: int) -> None:
    """Compute ``out += A.T @ Z``; each thread has columns of its own."""
    parts = kernels.csr_parts(A)
    tasks = [(parts, Z, out, 0, A.shape[0], *span, 0) for span in spans(Z.shape[1], n_jobs)]
    run(kernels.scatter_rows, tasks, n_jobs)
