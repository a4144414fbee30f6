"""Linear classifiers for many labels at once, by dual coordinate descent.

For each label, with y_i = +1 or -1 and x_i extended by a constant:

    minimise  1/2 ||w||^2 + C sum_i loss(y_i w'x_i),   loss = max(0, 1 - m)^2  or  log(1 + e^-m)

Each step solves the dual problem in the variable of one row. Sixteen labels (lanes) are trained in
lockstep: the nonzeros of a row are read once for all of them, and the weights of a feature for the
sixteen labels are one cache line.

Rows are visited block by block, in random order within a block. Rows that are read from files, one
block after the other, therefore give the same weights as rows in memory.

Hsieh, Chang, Lin, Keerthi, Sundararajan: A dual coordinate descent method for large-scale
linear SVM, ICML 2008 (Algorithm 1). Yu, Huang, Lin: Dual coordinate descent methods for
logistic regression and maximum entropy models, Machine Learning 2011 (Algorithm 5). Yu, Hsieh,
Chang, Lin: Large linear classification when data cannot fit in memory, KDD 2010 (Algorithm 1).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelry.arrays import F32, F64, I8, I32, I64, Ints
from labelry.linalg.lanes import LANES, LINE, add_scaled, prefetch

MarginLoss = Literal["squared_hinge", "logistic"]
Alpha: TypeAlias = NDArray[Any]  # dual variables: float32 with the hinge, otherwise float64

BLOCK = 1 << 22  # nonzeros and rows of a block, which takes 32 MiB; not tuned
_ROUNDS_LEFT, _VISITS, _MOST, _LAST = range(4)  # places in `Sweeps.counts`
NO_END = 1 << 62  # a number of rounds that is never reached
_FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def row_energies(indptr: Ints, data: F32) -> F32:
    """Return ``||x_i||^2 + 1`` for each row: the 1 is that of the constant feature."""
    energies = np.empty(indptr.size - 1, dtype=np.float32)
    for i in range(energies.size):
        total = 1.0
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            total += np.float64(data[p]) * np.float64(data[p])
        energies[i] = total
    return energies


@njit(nogil=True, cache=True)
def block_bounds(indptr: Ints, before: int, block: int) -> I64:
    """Return the first row of each block, and the end of the last block.

    A row has a place: the number of nonzeros in the rows before it, plus one for the constant of
    each of those rows. Rows whose places fall into the same stretch of `block` numbers form a
    block. `before` is the place of the first of these rows.

    >>> block_bounds(np.array([0, 3, 6, 9]), before=5, block=10).tolist()
    [0, 2, 3]
    """
    n = indptr.size - 1
    number = (before + indptr[:-1] + np.arange(n)) // block  # of the block of each row
    first = 1 + np.flatnonzero(number[1:] != number[:-1])
    return np.concatenate((np.zeros(1, np.int64), first, np.full(1, n)))


class LaneProblem(NamedTuple):
    """Rows, the signs of sixteen labels, and the objective: what one descent minimises.

    With the squared hinge, a row rests when all its projected gradients are within half the
    `tolerance` of zero. With the logistic loss, whose dual variables lie in (0, C), the rows of a
    block rest together, when the gradients of all of them are within the tolerance.
    """

    indptr: Ints
    indices: Ints
    data: F32
    signs: I8  # (n_rows, LANES): 1 where the row has the label, otherwise -1
    energy: F32  # (n_rows,): ||x_i||^2 + 1
    C: float
    tolerance: float


class Sweeps(NamedTuple):
    """The state of a descent: the rows that are still visited, and the limits that end it.

    A round ends when all rows rest; the next round visits all rows once more, and if all still
    rest, the descent is done. A descent that is stopped after one round takes half the time, after
    two rounds three fifths, and ranks as well. A sweep is as many visits as there are rows.
    """

    sizes: I64  # rows of each block
    n_active: I64  # rows of each block that do not rest: the first in the order of the block
    counts: I64  # rounds that are left, visits so far, most visits, visits of the last sweep
    state: NDArray[np.uint64]  # (1,): of the generator of random numbers


@njit(nogil=True, cache=True)
def new_sweeps(sizes: I64, max_sweeps: int, seed: int, rounds: int) -> Sweeps:
    """Return the state before the first visit; with `NO_END` rounds it goes on to the optimum."""
    counts = np.array([rounds, 0, sizes.sum() * max_sweeps, 0])  # at the places above
    state = np.full(1, seed * 2 + 1, dtype=np.uint64)
    return Sweeps(sizes, sizes.copy(), counts, state)


@njit(nogil=True, cache=True)
def go_on(sweeps: Sweeps) -> bool:
    """Return whether another sweep follows; call it after a sweep over all blocks."""
    counts = sweeps.counts
    whole = counts[_LAST] == sweeps.sizes.sum()
    counts[_LAST] = 0
    if not sweeps.n_active.any():
        counts[_ROUNDS_LEFT] -= 1
        if whole or counts[_ROUNDS_LEFT] <= 0:
            return False
        for block in range(sweeps.sizes.size):
            sweeps.n_active[block] = sweeps.sizes[block]
    return counts[_VISITS] < counts[_MOST]


def train_lanes(
    loss: MarginLoss, problem: LaneProblem, max_sweeps: int, seed: int, W: F32, rounds: int = 0
) -> int:
    """Train the labels of a problem: fill W (d + 1, LANES) and return the number of sweeps.

    The descent ends after so many `rounds` (see `Sweeps`); with 0 it goes on to the optimum.
    """
    bounds = block_bounds(problem.indptr, 0, BLOCK)
    sweeps = new_sweeps(np.diff(bounds), max_sweeps, seed, rounds or NO_END)
    alpha = starting_alpha(loss, len(problem.signs), problem.C)
    descend_blocks(sweeps, bounds, loss == "squared_hinge", problem, alpha, W)
    return -(-int(sweeps.counts[_VISITS]) // max(len(alpha), 1))


@njit(nogil=True, cache=True)
def descend_blocks(
    sweeps: Sweeps, bounds: I64, hinge: bool, problem: LaneProblem, alpha: Alpha, W: F32
) -> None:
    """Descend to the end, from `starting_alpha`, over the blocks that begin at `bounds`."""
    if not hinge:
        add_start(problem, alpha, W)
    order = np.arange(bounds[-1]).astype(np.int32)
    more = True
    while more:
        for block in range(bounds.size - 1):
            if sweeps.n_active[block]:
                rows = order[bounds[block] : bounds[block + 1]]
                sweep_block(sweeps, block, hinge, problem, alpha, rows, W)
        more = go_on(sweeps)


def starting_alpha(loss: MarginLoss, n_rows: int, C: float) -> Alpha:
    """Return the dual variables (n_rows, LANES) that a descent begins with."""
    if loss == "squared_hinge":
        return np.zeros((n_rows, LANES), dtype=np.float32)
    return np.full((n_rows, LANES), min(1e-3 * C, 1e-8), dtype=np.float64)


@njit(nogil=True, cache=True, inline="always")
def _row_scores(indices: Ints, data: F32, p0: int, p1: int, W: F32, m: F32) -> None:
    """Compute ``m = x W`` for all lanes; the last row of W is the bias."""
    m[:] = 0.0
    for p in range(p0, p1):
        add_scaled(m, 0, data[p], W, LANES * np.int64(indices[p]))
    add_scaled(m, 0, np.float32(1.0), W, W.size - LANES)


@njit(nogil=True, cache=True, inline="always")
def _row_update(indices: Ints, data: F32, p0: int, p1: int, W: F32, step: F32) -> None:
    """Compute ``W += x' step`` for all lanes."""
    add_scaled(W, W.size - LANES, np.float32(1.0), step, 0)
    for p in range(p0, p1):
        add_scaled(W, LANES * np.int64(indices[p]), data[p], step, 0)


@njit(nogil=True, cache=True)
def shuffle(order: Ints, state: np.uint64) -> np.uint64:
    """Shuffle in place (Fisher-Yates); return the next state of the xorshift generator."""
    for i in range(order.size - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@njit(nogil=True, cache=True)
def sweep_block(
    sweeps: Sweeps, block: int, hinge: bool, problem: LaneProblem, alpha: Alpha, order: I32, W: F32
) -> None:
    """Sweep over the rows of one block, which are in `order`; those that rest move to its end.

    If it is the only block, the sweeps go on until its rows rest. One of several blocks gets as
    many visits as it has rows: when few of its rows are left, these are visited several times
    before the next block is read.
    """
    indptr, indices, data, signs, energy, C, tolerance = problem
    counts, n_active, state = sweeps.counts, sweeps.n_active[block], sweeps.state[0]
    most = counts[_MOST] - counts[_VISITS] if sweeps.sizes.size == 1 else sweeps.sizes[block]
    margin, step = np.empty(LANES, dtype=np.float32), np.empty(LANES, dtype=np.float32)
    slack = np.float32(0.5 / C)  # D_ii of the paper
    calm = np.float32(0.5 * tolerance)
    visits, last = 0, 0
    violation: Any
    while n_active > 0 and visits < most:
        last = n_active
        visits += n_active
        state = shuffle(order[:n_active], state)
        at, largest = 0, 0.0
        while at < n_active:
            i = order[at]
            p0, p1 = indptr[i], indptr[i + 1]
            # Fetch the weights that the next row needs, and the nonzeros of a later row. This
            # saves a third of the time, but not in a function of its own, even an inlined one.
            if at + 1 < n_active:
                j = order[at + 1]
                for p in range(indptr[j], indptr[j + 1]):
                    prefetch(W, LINE * np.int64(indices[p]))
                prefetch(alpha, LANES * alpha.itemsize * np.int64(j))
                prefetch(signs, LANES * np.int64(j))
            if at + 3 < n_active:
                p = indptr[order[at + 3]]
                prefetch(indices, indices.itemsize * p)
                prefetch(data, data.itemsize * p)
            _row_scores(indices, data, p0, p1, W, margin)
            if hinge:
                inverse = np.float32(1.0) / (energy[i] + slack)
                violation = _hinge_steps(i, signs, alpha, margin, slack, inverse, step)
            else:
                violation = _logistic_steps(i, signs, alpha, margin, energy[i], C, step)
            if violation > 0:
                _row_update(indices, data, p0, p1, W, step)
            largest = max(largest, violation)
            if hinge and violation <= calm:
                n_active -= 1
                order[at], order[n_active] = order[n_active], order[at]
            else:
                at += 1
        if not hinge and largest <= tolerance:
            n_active = 0
    sweeps.n_active[block], sweeps.state[0] = n_active, state
    counts[_VISITS] += visits
    counts[_LAST] += last


@njit(nogil=True, cache=True, fastmath=_FAST)
def _hinge_steps(
    i: int, signs: I8, alpha: F32, margin: F32, slack: np.float32, inverse: np.float32, step: F32
) -> np.float32:
    """Solve the dual in row i for all lanes; return the largest absolute projected gradient."""
    zero = violation = np.float32(0.0)
    for lane in range(LANES):
        y, a = np.float32(signs[i, lane]), alpha[i, lane]
        G = y * margin[lane] - np.float32(1.0) + slack * a
        # The gradient that points out of the feasible set does not count.
        projected = min(G, zero) if a == zero else G
        b = max(a - G * inverse, zero)
        alpha[i, lane] = b
        step[lane] = (b - a) * y
        violation = max(violation, abs(projected))
    return violation


@njit(nogil=True, cache=True)
def logistic_dual(a0: float, b: float, q: float, C: float) -> float:
    """Minimise q/2 (a - a0)^2 + b (a - a0) + a log a + (C - a) log(C - a) over 0 < a < C.

    Newton from the current point, kept inside by halving the distance to the bound.
    """
    a = a0
    for _ in range(20):
        gradient = q * (a - a0) + b + np.log(a / (C - a))
        if abs(gradient) < 1e-3:
            break
        t = a - gradient / (q + C / (a * (C - a)))
        if t <= 0.0:
            t = 0.5 * a
        elif t >= C:
            t = 0.5 * (a + C)
        a = t
    return a


@njit(nogil=True, cache=True)
def _logistic_steps(
    i: int, signs: I8, alpha: Alpha, margin: F32, energy: float, C: float, step: F32
) -> float:
    """Do the same as `_hinge_steps` for the logistic loss."""
    violation = 0.0
    for lane in range(LANES):
        a = alpha[i, lane]
        b = signs[i, lane] * margin[lane]
        violation = max(violation, abs(b + np.log(a / (C - a))))
        t = logistic_dual(a, b, energy, C)
        alpha[i, lane] = t
        step[lane] = (t - a) * signs[i, lane]
    return violation


@njit(nogil=True, cache=True)
def add_start(problem: LaneProblem, alpha: F64, W: F32) -> None:
    """Add to W the weights that the starting `alpha` of some rows stands for."""
    indptr, indices, data, signs, _, _, _ = problem
    step = np.empty(LANES, dtype=np.float32)
    for i in range(alpha.shape[0]):
        for lane in range(LANES):
            step[lane] = alpha[i, lane] * signs[i, lane]
        _row_update(indices, data, indptr[i], indptr[i + 1], W, step)
