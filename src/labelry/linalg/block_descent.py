"""Linear classifiers on rows that are not in memory: `dual_descent`, one block after the other.

The rows are kept in a temporary file, cut into blocks, and each sweep is a pass over it. Between
sweeps the dual variables lie in a file too; memory holds one block, its dual variables, and the
weights. The blocks are those that rows in memory are visited in too, so the weights are the same.

References
----------
Yu, Hsieh, Chang, Lin: Large linear classification when data cannot fit in memory, KDD 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.linalg import dual_descent
from labelry.linalg.dual_descent import (
    Loss,
    Problem,
    Sweeps,
    add_start,
    block_bounds,
    go_on,
    new_sweeps,
    row_energies,
    starting_alpha,
    visit,
)
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import consecutive_rows, stacked
from labelry.linalg.matrix_file import MatrixFile
from labelry.linalg.parallel import run

F32 = NDArray[np.float32]
Part: TypeAlias = tuple[csr_array, csr_array]  # X (n, d) and T (n, n_labels) of some rows


class Group(NamedTuple):
    """Up to sixteen labels that are trained together: columns of T, from `first` to `last`."""

    first: int
    last: int
    seed: int


def train_by_blocks(
    parts: Iterable[Part],
    groups: Sequence[Group],
    n_features: int,
    *,
    loss: Loss,
    C: float,
    tolerance: float,
    max_sweeps: int,
    rounds: int | None = None,
    memory: int,
    n_jobs: int = 1,
) -> Iterator[tuple[int, F32]]:
    """The number and the weights (n_features + 1, LANES) of each group, as they are done.

    `parts` are the rows, in parts of any size: X and an indicator T of labels. Weights may take
    `memory` bytes: a larger bound means fewer passes, and at least one group is trained. The other
    options are those of `labelry.linalg.dual_descent`. The temporary files have 8 bytes for each
    nonzero, and 68 (with the logistic loss 132) for each row and group side by side.
    """
    blocks = MatrixFile()
    sizes: list[int] = []
    for X, T in fixed_blocks(parts):
        blocks.append(X, csr_array(T.T), row_energies(X.indptr, X.data))
        sizes.append(X.shape[0])
        del X, T  # their memory is needed for the next
    side_by_side = max(1, memory // (4 * LANES * (n_features + 1)))
    for begin in range(0, len(groups), side_by_side):
        chosen = groups[begin : begin + side_by_side]
        sweeps = [new_sweeps(sizes, max_sweeps, group.seed, rounds) for group in chosen]
        descent = _Descent(blocks, chosen, n_features, sizes, loss, (C, tolerance), sweeps)
        for place, W in descent.run(n_jobs):
            yield begin + place, W


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
    pieces.clear()
    return X, T


class _Descent:
    """Groups that are trained side by side."""

    def __init__(
        self,
        blocks: MatrixFile,
        groups: Sequence[Group],
        n_features: int,
        sizes: list[int],
        loss: Loss,
        options: tuple[float, float],
        sweeps: Sequence[Sweeps],
    ) -> None:
        self._blocks, self._groups, self._loss, self._options = blocks, groups, loss, options
        self._W = {g: lane_zeros(n_features + 1) for g in range(len(groups))}
        self._sweeps = sweeps
        self._states = MatrixFile()  # dual variables and order of visits: blocks of each group
        for n in sizes * len(groups):
            self._states.append(starting_alpha(loss, n, options[0]), np.arange(n, dtype=np.int32))

    def run(self, n_jobs: int) -> Iterator[tuple[int, F32]]:
        """Sweep until all groups are done; the weights of each when it is."""
        if self._loss == "logistic":
            self._pass(self._start, n_jobs)
        while self._W:
            self._pass(self._visit, n_jobs)
            for g in [g for g in self._W if not go_on(self._sweeps[g])]:
                yield g, self._W.pop(g)

    def _pass(self, function: Callable[..., None], n_jobs: int) -> None:
        """``function(group, block, X, rows of each label, energy)`` for active groups of blocks."""
        for block in range(len(self._blocks)):
            active = [g for g in self._W if self._sweeps[g].n_active[block]]
            if active:
                arrays = self._blocks[block]
                run(function, [(g, block, *arrays) for g in active], n_jobs)

    def _start(self, g: int, block: int, X: csr_array, rows_of: csr_array, energy: F32) -> None:
        """Add what the starting dual variables of a block come to."""
        alpha, _ = self._states[g * len(self._blocks) + block]
        add_start(self._problem(g, X, rows_of, energy), alpha, self._W[g])

    def _visit(self, g: int, block: int, X: csr_array, rows_of: csr_array, energy: F32) -> None:
        """One sweep of a group over a block."""
        alpha, order = self._states[g * len(self._blocks) + block]
        problem = self._problem(g, X, rows_of, energy)
        hinge = self._loss == "squared_hinge"
        visit(self._sweeps[g], block, hinge, problem, alpha, order, self._W[g])

    def _problem(self, g: int, X: csr_array, rows_of: csr_array, energy: F32) -> Problem:
        signs = np.full((rows_of.shape[1], LANES), -1, dtype=np.int8)
        for lane, label in enumerate(range(self._groups[g].first, self._groups[g].last)):
            signs[rows_of.indices[rows_of.indptr[label] : rows_of.indptr[label + 1]], lane] = 1
        return Problem(X.indptr, X.indices, X.data, signs, energy, *self._options)
