"""Linear classifiers for many labels at once, by dual coordinate descent.

For each label, with y_i = +1 or -1 and x_i extended by a constant:

    minimise  1/2 ||w||^2 + C sum_i loss(y_i w'x_i),   loss = max(0, 1 - m)^2  or  log(1 + e^-m)

Each step solves the dual in the one variable of a row. Sixteen labels go through the rows in
lockstep: the row's nonzeros are read once for all of them, and what is a gather for one label
is a load of one whole cache line for sixteen.

References
----------
Hsieh, Chang, Lin, Keerthi, Sundararajan: A dual coordinate descent method for large-scale
linear SVM, ICML 2008 (Algorithm 1). Yu, Huang, Lin: Dual coordinate descent methods for
logistic regression and maximum entropy models, Machine Learning 2011 (Algorithm 5).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelry.linalg.lanes import LANES, add_scaled

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Loss = Literal["squared_hinge", "logistic"]

LOSSES: tuple[Loss, ...] = ("squared_hinge", "logistic")

_FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(nogil=True, cache=True, inline="always")
def _row_scores(indices: Ints, data: F32, p0: int, p1: int, W: F32, m: F32) -> None:
    """``m = x W`` for all lanes; the last row of W is the bias."""
    m[:] = 0.0
    for p in range(p0, p1):
        add_scaled(m, 0, data[p], W, LANES * np.int64(indices[p]))
    add_scaled(m, 0, np.float32(1.0), W, W.size - LANES)


@njit(nogil=True, cache=True, inline="always")
def _row_update(indices: Ints, data: F32, p0: int, p1: int, W: F32, step: F32) -> None:
    """``W += x' step`` for all lanes."""
    add_scaled(W, W.size - LANES, np.float32(1.0), step, 0)
    for p in range(p0, p1):
        add_scaled(W, LANES * np.int64(indices[p]), data[p], step, 0)


@njit(nogil=True, cache=True)
def shuffle(order: Ints, state: np.uint64) -> np.uint64:
    """Fisher-Yates with a xorshift generator whose state is passed along."""
    for i in range(order.size - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64(state % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return state


@njit(nogil=True, cache=True)
def squared_hinge(
    indptr: Ints,
    indices: Ints,
    data: F32,
    signs: NDArray[np.int8],
    energy: F32,
    C: float,
    tolerance: float,
    max_sweeps: int,
    seed: int,
    W: F32,
) -> int:
    """Fill W (d + 1, LANES) for the labels with `signs` (n, LANES); return the sweeps made.

    `energy` is ``||x_i||^2 + 1``. A row rests when its projected gradients are all within half the
    `tolerance` of zero, and stops being visited until no row is left; then all are visited
    again, and if all rest at once the optimum is near enough. A sweep is as many visits as there
    are rows.
    """
    n = signs.shape[0]
    alpha = np.zeros((n, LANES), dtype=np.float32)
    margin = np.empty(LANES, dtype=np.float32)
    step = np.empty(LANES, dtype=np.float32)
    order = np.arange(n)
    state = np.uint64(seed * 2 + 1)
    slack = np.float32(0.5 / C)  # D_ii of the paper
    calm = np.float32(0.5 * tolerance)
    visits, n_active = 0, n
    while visits < n * max_sweeps:
        whole = n_active == n
        visits += n_active
        state = shuffle(order[:n_active], state)
        at = 0
        while at < n_active:
            i = order[at]
            p0, p1 = indptr[i], indptr[i + 1]
            _row_scores(indices, data, p0, p1, W, margin)
            inverse = np.float32(1.0) / (energy[i] + slack)
            violation = _hinge_steps(i, signs, alpha, margin, slack, inverse, step)
            if violation > 0:
                _row_update(indices, data, p0, p1, W, step)
            if violation <= calm:
                n_active -= 1
                order[at], order[n_active] = order[n_active], order[at]
            else:
                at += 1
        if n_active == 0:
            if whole:
                break
            n_active = n
    return -(-visits // max(n, 1))


@njit(nogil=True, cache=True, fastmath=_FAST)
def _hinge_steps(
    i: int,
    signs: NDArray[np.int8],
    alpha: F32,
    margin: F32,
    slack: np.float32,
    inverse: np.float32,
    step: F32,
) -> np.float32:
    """Solve the dual in the variable of row i, for all lanes; the largest projected gradient."""
    zero = np.float32(0.0)
    violation = zero
    for lane in range(LANES):
        y = np.float32(signs[i, lane])
        a = alpha[i, lane]
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
def logistic(
    indptr: Ints,
    indices: Ints,
    data: F32,
    signs: NDArray[np.int8],
    energy: F32,
    C: float,
    tolerance: float,
    max_sweeps: int,
    seed: int,
    W: F32,
) -> int:
    """As `squared_hinge`, for the logistic loss; its dual variables lie within (0, C)."""
    n = signs.shape[0]
    alpha = np.full((n, LANES), min(1e-3 * C, 1e-8), dtype=np.float64)
    margin = np.empty(LANES, dtype=np.float32)
    step = np.empty(LANES, dtype=np.float32)
    order = np.arange(n)
    for i in order:  # W belongs to the starting alpha
        for lane in range(LANES):
            step[lane] = alpha[i, lane] * signs[i, lane]
        _row_update(indices, data, indptr[i], indptr[i + 1], W, step)
    state = np.uint64(seed * 2 + 1)
    for sweep in range(max_sweeps):
        state = shuffle(order, state)
        violation = 0.0
        for i in order:
            p0, p1 = indptr[i], indptr[i + 1]
            _row_scores(indices, data, p0, p1, W, margin)
            for lane in range(LANES):
                a = alpha[i, lane]
                b = signs[i, lane] * margin[lane]
                violation = max(violation, abs(b + np.log(a / (C - a))))
                t = logistic_dual(a, b, energy[i], C)
                alpha[i, lane] = t
                step[lane] = (t - a) * signs[i, lane]
            _row_update(indices, data, p0, p1, W, step)
        if violation <= tolerance:
            return sweep + 1
    return max_sweeps
