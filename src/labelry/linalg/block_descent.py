"""Linear classifiers on rows that are not in memory: `dual_descent`, one block after the other.

Each sweep is a pass over the rows. Between sweeps the dual variables of a block lie in a temporary
file; memory holds one block, its dual variables, and the weights. The blocks are those that rows
in memory are visited in too, so the weights are the same.

References
----------
Yu, Hsieh, Chang, Lin: Large linear classification when data cannot fit in memory, KDD 2010.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from operator import itemgetter
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from labelry.linalg import dual_descent
from labelry.linalg.dual_descent import (
    Loss,
    Sweeps,
    add_start,
    block_bounds,
    row_energies,
    starting_alpha,
)
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import consecutive_rows, stacked
from labelry.linalg.parallel import run

F32 = NDArray[np.float32]
Part: TypeAlias = tuple[csr_array, csr_array]  # X (n, d) and T (n, n_labels) of some rows
Passes: TypeAlias = Callable[[], Iterable[Part]]  # each call begins one over all rows


class Group(NamedTuple):
    """Up to sixteen labels that are trained together: columns of T, from `first` to `last`."""

    first: int
    last: int
    seed: int


def train_by_blocks(
    passes: Passes,
    groups: Sequence[Group],
    n_features: int,
    *,
    loss: Loss,
    C: float,
    tolerance: float,
    max_sweeps: int,
    memory: int,
    n_jobs: int = 1,
) -> Iterator[tuple[int, F32]]:
    """The number and the weights (n_features + 1, LANES) of each group, as they are done.

    A pass for each sweep of the groups that are trained side by side, and one or two more. The
    temporary file has 68 bytes (with the logistic loss 132) for each row and group side by side.

    Parameters
    ----------
    passes
        Each call begins a pass over the rows, in parts of any size: X and an indicator T of labels.
    loss, C, tolerance, max_sweeps
        As of `labelry.linalg.dual_descent`.
    memory : int
        Bytes that weights may take; more of them is fewer passes. At least one group is trained.
    """
    numbers = [(number, X.shape[0]) for number, X, _ in _pieces(passes())]
    sizes = np.array([sum(n for _, n in block) for _, block in groupby(numbers, itemgetter(0))])
    side_by_side = max(1, memory // (4 * LANES * (n_features + 1)))
    for begin in range(0, len(groups), side_by_side):
        chosen = groups[begin : begin + side_by_side]
        with TemporaryFile() as file:
            states = _RowStates(file.fileno(), int(sizes.sum()), loss)
            descent = _Descent(chosen, n_features, sizes, loss, (C, tolerance), max_sweeps, states)
            for place, W in descent.run(passes, n_jobs):
                yield begin + place, W


@contextmanager
def kept_parts(passes: Passes) -> Iterator[Passes]:
    """Passes over parts of rows that are costly to choose: the first keeps them for the others.

    A temporary file has 8 bytes for each nonzero of X and T.
    """
    with TemporaryFile() as file:
        yield _KeptParts(passes, file)


class _KeptParts:
    def __init__(self, passes: Passes, file: IO[bytes]) -> None:
        self._passes, self._file = passes, file
        self._widths: list[tuple[int, int]] = []  # columns of X and T of each part that is there

    def __call__(self) -> Iterator[Part]:
        return self._read() if self._widths else self._write()

    def _write(self) -> Iterator[Part]:
        widths = []
        for part in self._passes():
            for A in part:
                for array in (A.data, A.indices, A.indptr):
                    np.save(self._file, array, allow_pickle=False)
            widths.append((part[0].shape[1], part[1].shape[1]))
            yield part
        self._widths = widths

    def _read(self) -> Iterator[Part]:
        self._file.seek(0)
        for widths in self._widths:
            X, T = (self._matrix(width) for width in widths)
            yield X, T

    def _matrix(self, width: int) -> csr_array:
        data, indices, indptr = (np.load(self._file, allow_pickle=False) for _ in range(3))
        return csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))


def fixed_blocks(parts: Iterable[Part]) -> Iterator[Part]:
    """Consecutive rows, however they come, in the blocks of `block_bounds`."""
    pieces: list[Part] = []
    last = 0
    for number, X, T in _pieces(parts):
        if pieces and number > last:
            yield _joined(pieces)
        pieces.append((X, T))
        last = number
    if pieces:
        yield _joined(pieces)


def _pieces(parts: Iterable[Part]) -> Iterator[tuple[int, csr_array, csr_array]]:
    """The rows of each part that are of the same block, after its number."""
    before = 0
    for X, T in parts:
        for first, last in pairwise(block_bounds(X.indptr, before).tolist()):
            if first < last:
                number = (before + int(X.indptr[first]) + first) // dual_descent.BLOCK
                yield number, consecutive_rows(X, first, last), consecutive_rows(T, first, last)
        before += X.nnz + X.shape[0]


def _joined(pieces: list[Part]) -> Part:
    """The pieces below one another; the list is empty then, for their memory is needed."""
    X, T = (stacked(list(side)) for side in zip(*pieces, strict=True))
    if len(pieces) == 1:
        X = X.copy()  # it may be mapped from a file, and kernels want arrays that can be written to
    pieces.clear()
    return X, T


class _Descent:
    """Groups that are trained side by side."""

    def __init__(
        self,
        groups: Sequence[Group],
        n_features: int,
        sizes: NDArray[np.int64],
        loss: Loss,
        options: tuple[float, float],
        max_sweeps: int,
        states: _RowStates,
    ) -> None:
        self._groups, self._loss, self._options = groups, loss, options
        self._begin = np.concatenate([[0], np.cumsum(sizes)])  # first row of each block
        self._W = {g: lane_zeros(n_features + 1) for g in range(len(groups))}
        self._sweeps = [Sweeps(sizes, max_sweeps, group.seed) for group in groups]
        self._states, self._fresh = states, True

    def run(self, passes: Passes, n_jobs: int) -> Iterator[tuple[int, F32]]:
        """Sweep until all groups are done; the weights of each when it is."""
        if self._loss == "logistic":
            self._pass(passes, self._start, n_jobs)
        while self._W:
            self._pass(passes, self._visit, n_jobs)
            self._fresh = False
            for g in [g for g in self._W if not self._sweeps[g].go_on()]:
                yield g, self._W.pop(g)

    def _pass(self, passes: Passes, function: Callable[..., None], n_jobs: int) -> None:
        """``function(group, block, X, columns of T, energy)`` for the active groups of blocks."""
        blocks = fixed_blocks(passes())
        for block in range(len(self._begin) - 1):
            # Under no name here: the memory of a block is needed for the next.
            self._on_block(function, block, *next(blocks), n_jobs)

    def _on_block(
        self, function: Callable[..., None], block: int, X: csr_array, T: csr_array, n_jobs: int
    ) -> None:
        active = [g for g in self._W if self._sweeps[g].n_active[block]]
        if active:
            columns, energy = T.tocsc(), row_energies(X.indptr, X.data)
            run(function, [(g, block, X, columns, energy) for g in active], n_jobs)

    def _start(self, g: int, block: int, X: csr_array, T: csc_array, energy: F32) -> None:
        """Add what the starting dual variables of a block come to."""
        signs = self._signs(g, T)
        alpha = starting_alpha(self._loss, len(signs), self._options[0])
        add_start(X.indptr, X.indices, X.data, signs, alpha, self._W[g])

    def _visit(self, g: int, block: int, X: csr_array, T: csc_array, energy: F32) -> None:
        """One sweep of a group over a block."""
        n, begin = X.shape[0], int(self._begin[block])
        if self._fresh:
            alpha = starting_alpha(self._loss, n, self._options[0])
            order = np.arange(n, dtype=np.int32)
        else:
            alpha, order = self._states.read(g, begin, n)
        problem = (X.indptr, X.indices, X.data, self._signs(g, T), energy, *self._options)
        self._sweeps[g].visit(block, self._loss, *problem, alpha, order, self._W[g])
        self._states.write(g, begin, alpha, order)

    def _signs(self, g: int, T: csc_array) -> NDArray[np.int8]:
        signs = np.full((T.shape[0], LANES), -1, dtype=np.int8)
        for lane, column in enumerate(range(self._groups[g].first, self._groups[g].last)):
            signs[T.indices[T.indptr[column] : T.indptr[column + 1]], lane] = 1
        return signs


class _RowStates:
    """Dual variables and order of visits of the rows of each group, in a file."""

    def __init__(self, descriptor: int, n_rows: int, loss: Loss) -> None:
        self._descriptor, self._n_rows = descriptor, n_rows
        self._dtype = starting_alpha(loss, 0, 1.0).dtype

    def read(self, group: int, begin: int, n: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
        arrays = np.empty((n, LANES), dtype=self._dtype), np.empty(n, dtype=np.int32)
        offset = self._offset(group, begin, *arrays)
        _check_all(os.preadv(self._descriptor, _views(arrays), offset), *arrays)
        return arrays

    def write(self, group: int, begin: int, *arrays: NDArray[Any]) -> None:
        n_bytes = os.pwritev(self._descriptor, _views(arrays), self._offset(group, begin, *arrays))
        _check_all(n_bytes, *arrays)

    def _offset(self, group: int, begin: int, *arrays: NDArray[Any]) -> int:
        per_row = sum(array.nbytes // len(array) for array in arrays)
        return (group * self._n_rows + begin) * per_row


def _views(arrays: Sequence[NDArray[Any]]) -> list[memoryview]:
    return [array.data for array in arrays]


def _check_all(n_bytes: int, *arrays: NDArray[Any]) -> None:
    if n_bytes != sum(array.nbytes for array in arrays):
        raise OSError("the temporary file for dual variables is incomplete: is the disk full?")
