"""Passes over rows: the only way an algorithm touches the data.

An algorithm is written once against `Rows` and runs on whatever source of row blocks it is
given: arrays in memory here; memory-mapped shards or a cluster elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.linalg import kernels
from labelry.linalg.parallel import balanced_spans, resolve_jobs, run, spans

Matrix: TypeAlias = Any  # float32, csr_array or ndarray (scipy has no types)
F32 = NDArray[np.float32]
Side = Literal["X", "Y"]
T = TypeVar("T")

_NO_WEIGHTS = np.empty(0, dtype=np.float32)
_WIDE = 128  # columns a thread should have to itself before columns are split, not rows


class Block(NamedTuple):
    """Consecutive rows: features, labels (or None), weights (or None), number of the first row."""

    X: Matrix
    Y: Matrix | None
    weights: F32 | None
    start: int

    def side(self, name: Side) -> Matrix:
        matrix = self.X if name == "X" else self.Y
        if matrix is None:
            raise ValueError("these rows have no labels Y")
        return matrix


def as_matrix(A: object) -> Matrix:
    """A float32 CSR array with 32-bit indices where they fit, or a C-ordered float32 array."""
    if not issparse(A):
        return np.ascontiguousarray(A, dtype=np.float32)
    csr = csr_array(A, dtype=np.float32)
    # The kernels do not check: an index out of range would write anywhere.
    if csr.nnz and not 0 <= csr.indices.min() <= csr.indices.max() < csr.shape[1]:
        raise ValueError(f"a sparse matrix of {csr.shape[1]} columns has an index out of range")
    if not csr.has_canonical_format:
        csr = csr.copy()  # what was given stays as it is
        csr.sum_duplicates()
    return csr


def scaled_rows(A: Matrix) -> Matrix:
    """Rows scaled to unit length; rows of zeros stay."""
    if issparse(A):
        return csr_array((kernels.unit_rows(A.indptr, A.data), A.indices, A.indptr), shape=A.shape)
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
    return A / np.where(lengths > 0, lengths, 1)[:, None]


class Rows:
    """Rows in memory: X (n, d) and Y (n, c), each CSR or dense, with optional row weights.

    A source of another kind overrides `blocks` (for example to read ahead from shards) or
    `reduce` and `map_blocks` (to send the work to the data); algorithms use nothing else.

    Parameters
    ----------
    X, Y : CSR or dense
    weights : array (n,), optional
        Importance of each row; every pass then computes A' diag(weights) B M.
    block_rows : int, optional
        Rows per block; all rows in one block when None.
    n_jobs : int, optional
        Threads; all cores when None.

    Examples
    --------
    >>> rows = Rows(np.eye(3), np.eye(3)[:, :2])
    >>> rows.cross("Y", "X", np.ones((3, 1), dtype=np.float32)).ravel().tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        X: object,
        Y: object | None = None,
        *,
        weights: object | None = None,
        block_rows: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self._X = as_matrix(X)
        self._Y = None if Y is None else as_matrix(Y)
        self._weights = None if weights is None else np.asarray(weights, dtype=np.float32)
        self.n_rows, self.n_features = self._X.shape
        self.n_labels = 0 if self._Y is None else self._Y.shape[1]
        if self._Y is not None and self._Y.shape[0] != self.n_rows:
            raise ValueError(f"X has {self.n_rows} rows but Y has {self._Y.shape[0]}")
        if self._weights is not None and self._weights.shape != (self.n_rows,):
            raise ValueError(f"weights must have shape ({self.n_rows},), got {self._weights.shape}")
        if block_rows is not None and block_rows < 1:
            raise ValueError(f"block_rows must be at least 1, got {block_rows}")
        self.block_rows = block_rows or max(self.n_rows, 1)
        self.n_jobs = resolve_jobs(n_jobs)
        self.n_passes = 0

    def swapped(self) -> Rows:
        """The same rows with X and Y in each other's place."""
        if self._Y is None:
            raise ValueError("these rows have no labels Y")
        return Rows(
            self._Y,
            self._X,
            weights=self._weights,
            block_rows=self.block_rows,
            n_jobs=self.n_jobs,
        )

    def weighted(self, weights: NDArray) -> Rows:
        """The same rows with their weights multiplied by these; zero leaves a row out."""
        weights = np.asarray(weights, dtype=np.float32)
        return Rows(
            self._X,
            self._Y,
            weights=weights if self._weights is None else weights * self._weights,
            block_rows=self.block_rows,
            n_jobs=self.n_jobs,
        )

    def blocks(self) -> Iterator[Block]:
        """The blocks of rows, in order."""
        if self.block_rows >= self.n_rows:
            yield Block(self._X, self._Y, self._weights, 0)
            return
        for start in range(0, self.n_rows, self.block_rows):
            part = slice(start, min(start + self.block_rows, self.n_rows))
            yield Block(
                self._X[part],
                None if self._Y is None else self._Y[part],
                None if self._weights is None else self._weights[part],
                start,
            )

    def map_blocks(self, function: Callable[[Block], T]) -> Iterator[T]:
        """``function(block)`` for each block of rows, in order; one pass."""
        self.n_passes += 1
        return map(function, self.blocks())

    def reduce(
        self,
        add: Callable[..., None],
        *shapes: tuple[int, ...],
        dtype: type[np.floating] = np.float32,
    ) -> list[NDArray]:
        """Sums over all rows, in one pass.

        ``add(block, *sums)`` adds what a block has to say to the arrays `sums`, which have the
        given shapes and start at zero.
        """
        sums = [np.zeros(shape, dtype=dtype) for shape in shapes]
        for _ in self.map_blocks(lambda block: add(block, *sums)):
            pass
        return sums

    def cross(self, a: Side, b: Side, M: F32) -> F32:
        """A' diag(weights) B M in one pass, for A, B in {X, Y} and a thin dense M.

        Costs 4 flops and touches 3 floats per nonzero and column of M; forms nothing larger
        than the result (times the number of threads when M has few columns).
        """
        M = np.ascontiguousarray(M, dtype=np.float32)
        width = {"X": self.n_features, "Y": self.n_labels}
        if M.shape[0] != width[b]:
            raise ValueError(f"M must have {width[b]} rows, one per column of {b}, got {M.shape}")

        def add(block: Block, out: F32) -> None:
            add_cross(block.side(a), block.side(b), block.weights, M, out, self.n_jobs)

        return self.reduce(add, (width[a], M.shape[1]))[0]

    def totals(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
        """Weighted column sums of X, of X squared and of Y, and the sum of weights: one pass."""

        def add(block: Block, x: NDArray, xx: NDArray, y: NDArray, w: NDArray) -> None:
            weights = np.ones(block.X.shape[0]) if block.weights is None else block.weights
            x += block.X.T @ weights
            xx += (block.X.multiply(block.X) if issparse(block.X) else block.X**2).T @ weights
            if block.Y is not None:
                y += block.Y.T @ weights
            w += weights.sum()

        d, c = (self.n_features,), (self.n_labels,)
        x, xx, y, w = self.reduce(add, d, d, c, (1,), dtype=np.float64)
        return x, xx, y, float(w[0])


def consecutive_rows(A: csr_array, first: int, last: int) -> csr_array:
    """``A[first:last]`` that shares the entries of A: scipy would copy them."""
    indptr = A.indptr[first : last + 1]
    entries = slice(indptr[0], indptr[-1])
    parts = (A.data[entries], A.indices[entries], indptr - indptr[0])
    return csr_array(parts, shape=(last - first, A.shape[1]))


def product(A: Matrix, M: F32, n_jobs: int = 1) -> F32:
    """A @ M for CSR or dense A and dense M."""
    M = np.ascontiguousarray(M, dtype=np.float32)
    if not issparse(A):
        return A @ M
    out = np.empty((A.shape[0], M.shape[1]), dtype=np.float32)
    tasks = [
        (A.indptr, A.indices, A.data, M, out, row0, row1, 0, M.shape[1], 0)
        for row0, row1 in balanced_spans(A.indptr, n_jobs)
    ]
    run(kernels.multiply_rows, tasks, n_jobs)
    return out


def add_cross(A: Matrix, B: Matrix, weights: F32 | None, M: F32, out: F32, n_jobs: int) -> None:
    """``out += A.T @ diag(weights) @ (B @ M)``."""
    if issparse(A) and issparse(B):
        _add_cross_sparse(A, B, _NO_WEIGHTS if weights is None else weights, M, out, n_jobs)
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


def _add_cross_sparse(
    A: csr_array, B: csr_array, weights: F32, M: F32, out: F32, n_jobs: int
) -> None:
    """Threads take columns where each gets enough of them, otherwise rows with own sums."""
    n_column_parts = max(1, min(n_jobs, M.shape[1] // _WIDE))
    n_row_parts = max(1, n_jobs // n_column_parts)
    columns = spans(M.shape[1], n_column_parts)
    rows = balanced_spans(A.indptr + B.indptr, n_row_parts)
    csr = (A.indptr, A.indices, A.data, B.indptr, B.indices, B.data, weights)
    sums = [out] + [np.zeros_like(out) for _ in rows[1:]]
    tasks = [
        (*csr, M, total, row0, row1, col0, col1)
        for col0, col1 in columns
        for total, (row0, row1) in zip(sums, rows, strict=True)
    ]
    run(kernels.cross_rows, tasks, n_jobs)
    for extra in sums[1:]:
        out += extra


def scatter(A: csr_array, Z: F32, out: F32, n_jobs: int) -> None:
    """``out += A.T @ Z``, each thread with columns of its own."""
    csr = (A.indptr, A.indices, A.data)
    tasks = [
        (*csr, Z, out, 0, A.shape[0], col0, col1, 0) for col0, col1 in spans(Z.shape[1], n_jobs)
    ]
    run(kernels.scatter_rows, tasks, n_jobs)
