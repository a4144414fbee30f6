"""Linear classifiers on rows that do not fit in memory: `dual_descent`, block by block.

The rows are kept in a temporary file, cut into blocks, and each sweep is a pass over the file.
Between sweeps the dual variables are in a file too; memory holds one block, its dual variables and
the weights. The blocks are the same as for rows in memory, so the weights are the same too.

Yu, Hsieh, Chang, Lin: Large linear classification when data cannot fit in memory, KDD 2010.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from labelry.arrays import F32
from labelry.linalg import dual_descent as descent
from labelry.linalg.dual_descent import LaneProblem, MarginLoss, Sweeps
from labelry.linalg.kernels import csr_parts
from labelry.linalg.lanes import LANES, lane_zeros
from labelry.linalg.matrices import consecutive_rows, stacked_pairs
from labelry.linalg.matrix_file import MatrixFile
from labelry.linalg.parallel import run

LabelledRows: TypeAlias = tuple[csr_array, csr_array]  # X (n, d) and T (n, n_labels) of some rows


class Group(NamedTuple):
    """Up to sixteen labels that are trained together: columns of T, from `first` to `last`."""

    first: int
    last: int
    seed: int


def train_by_blocks(
    parts: Iterable[LabelledRows],
    groups: Sequence[Group],
    n_features: int,
    *,
    loss: MarginLoss,
    C: float,
    tolerance: float,
    max_sweeps: int,
    rounds: int | None = None,
    memory: int,
    n_jobs: int = 1,
) -> Iterator[tuple[int, F32]]:
    """Yield the number and the weights (n_features + 1, LANES) of each group when it is done.

    `parts` are the rows, in parts of any size: X and an indicator T of labels. The weights may take
    `memory` bytes: a larger bound means fewer passes. At least one group is trained at a time. The
    other options are those of `labelry.linalg.dual_descent`. The temporary files take 8 bytes for
    each nonzero, and 68 (132 with the logistic loss) for each row and group side by side.
    """
    blocks = MatrixFile()
    sizes: list[int] = []
    for X, T in fixed_blocks(parts):
        blocks.append(X, csr_array(T.T), descent.row_energies(X.indptr, X.data))
        sizes.append(X.shape[0])
        del X, T  # their memory is needed for the next
    n_rows, end = np.array(sizes, dtype=np.int64), rounds or descent.NO_END
    side_by_side = max(1, memory // (4 * LANES * (n_features + 1)))
    for begin in range(0, len(groups), side_by_side):
        some = groups[begin : begin + side_by_side]
        sweeps = [descent.new_sweeps(n_rows, max_sweeps, group.seed, end) for group in some]
        W = {g: lane_zeros(n_features + 1) for g in range(len(some))}
        for g, found in _train_groups(blocks, some, sweeps, W, loss, (C, tolerance), n_jobs):
            yield begin + g, found


def fixed_blocks(parts: Iterable[LabelledRows]) -> Iterator[LabelledRows]:
    """Yield consecutive rows, which come in parts of any size, in the blocks of `block_bounds`."""
    for _, pieces in groupby(_pieces(parts), key=itemgetter(0)):
        yield stacked_pairs(rows for _, rows in pieces)


def _pieces(parts: Iterable[LabelledRows]) -> Iterator[tuple[int, LabelledRows]]:
    """Yield the number of a block and the rows of a part that are in it."""
    before = 0
    for X, T in parts:
        bounds = descent.block_bounds(X.indptr, before, descent.BLOCK)
        for first, last in pairwise(bounds.tolist()):
            if first < last:
                number = (before + int(X.indptr[first]) + first) // descent.BLOCK
                yield number, (consecutive_rows(X, first, last), consecutive_rows(T, first, last))
        before += X.nnz + X.shape[0]


def _train_groups(
    blocks: MatrixFile,
    groups: Sequence[Group],
    sweeps: Sequence[Sweeps],
    W: dict[int, F32],
    loss: MarginLoss,
    options: tuple[float, float],
    n_jobs: int,
) -> Iterator[tuple[int, F32]]:
    """Train groups side by side, one pass over the blocks for each sweep; `options`: C, tolerance.

    The number and the weights of a group are yielded, and taken out of W, when it is done.
    """
    states = MatrixFile()  # dual variables and order of visits: blocks of each group
    for n in sweeps[0].sizes.tolist() * len(groups):
        alpha = descent.starting_alpha(loss, n, options[0])
        states.append(alpha, np.arange(n, dtype=np.int32))

    def work(g: int, b: int, start: bool, X: csr_array, rows_of: csr_array, energy: F32) -> None:
        alpha, order = states[g * len(blocks) + b]
        signs = np.full((rows_of.shape[1], LANES), -1, dtype=np.int8)
        for lane, label in enumerate(range(groups[g].first, groups[g].last)):
            signs[rows_of.indices[rows_of.indptr[label] : rows_of.indptr[label + 1]], lane] = 1
        problem = LaneProblem(*csr_parts(X), signs, energy, *options)
        if start:  # the weights that the starting dual variables stand for
            descent.add_start(problem, alpha, W[g])
        else:
            hinge = loss == "squared_hinge"
            descent.sweep_block(sweeps[g], b, hinge, problem, alpha, order, W[g])

    def make_pass(start: bool) -> None:
        for block in range(len(blocks)):
            if active := [g for g in W if sweeps[g].n_active[block]]:
                arrays = blocks[block]
                run(work, [(g, block, start, *arrays) for g in active], n_jobs)

    if loss == "logistic":
        make_pass(start=True)
    while W:
        make_pass(start=False)
        for g in [g for g in W if not descent.go_on(sweeps[g])]:
            yield g, W.pop(g)
