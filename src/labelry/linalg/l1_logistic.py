"""Sparse linear separators: L1-regularised logistic regression by coordinate descent.

    minimise  ||w||_1 + sum_i c_i log(1 + exp(-y_i w'x_i)),   y_i = +1 or -1

Each Newton step minimises the quadratic approximation plus ||w||_1, one weight at a time, and is
then shortened until the objective falls. Exponentials are needed only once per step and row.

Yuan, Ho, Lin: An improved GLMNET for L1-regularized logistic regression, 2012
(newGLMNET).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from labelry.arrays import F64, I8, Ints
from labelry.linalg.kernels import Csr

_RIDGE = 1e-12  # added to the curvature of a weight, so that no step is infinite
_ARMIJO = 0.01  # share of the predicted decrease that a step must reach, as in the paper
_HALVINGS = 20  # most times that a step is halved; not tuned


class Problem(NamedTuple):
    """Rows, by columns: the arrays of X', with a row for each feature; signs and costs of rows."""

    columns: Csr
    signs: I8
    costs: F64


class Step(NamedTuple):
    """A step d of the weights, the step X d of the margins, and the derivatives for them."""

    d: F64
    margins: F64
    gradient: F64
    curvature: F64
    bend: F64  # second derivative of the loss of each row


@njit(nogil=True, cache=True)
def l1_logistic(
    problem: Problem, w: F64, margins: F64, tolerance: float, max_steps: int, max_sweeps: int
) -> int:
    """Improve the weights w (n_features,) and ``margins = X w``; return the Newton steps made.

    Stops when the subgradients are `tolerance` times those at the start, in sum, or after
    `max_steps` steps, each of at most `max_sweeps` sweeps over the weights.
    """
    (ptr, rows, data), signs, costs = problem
    slope, bend = np.empty(signs.size), np.empty(signs.size)  # of the loss of each row
    gradient, curvature = np.empty(w.size), np.empty(w.size)
    step = Step(np.empty(w.size), np.empty(signs.size), gradient, curvature, bend)
    active = np.empty(w.size, dtype=np.int32)
    first, largest, enough = 0.0, np.inf, 1.0
    for t in range(max_steps):
        for i in range(signs.size):
            wrong = 1.0 / (1.0 + np.exp(signs[i] * margins[i]))
            slope[i] = -costs[i] * signs[i] * wrong
            bend[i] = costs[i] * wrong * (1.0 - wrong)
        total, n_active, slack, largest = 0.0, 0, largest / signs.size, 0.0
        for j in range(w.size):
            g, h = 0.0, _RIDGE
            for p in range(ptr[j], ptr[j + 1]):
                g += slope[rows[p]] * data[p]
                h += bend[rows[p]] * data[p] * data[p]
            gradient[j], curvature[j] = g, h
            v = subgradient(g, w[j])
            total += v
            largest = max(largest, v)
            if w[j] != 0.0 or abs(g) > 1.0 - slack:  # others will stay at zero in this step
                active[n_active] = j
                n_active += 1
        if t == 0:
            first = total
        if total <= tolerance * first:
            return t
        moving = active[:n_active]
        if _newton_step(problem, w, moving, enough * first, max_sweeps, step) == 1:
            enough *= 0.25  # too easy: ask for more precise steps from here on
        if not _line_search(problem, w, margins, moving, step):
            return t
    return max_steps


@njit(nogil=True, cache=True, inline="always")
def subgradient(g: float, w: float) -> float:
    """Return the smallest absolute subgradient of ``g w + |w|`` at w; it is 0 at the optimum."""
    if w > 0.0:
        return abs(g + 1.0)
    if w < 0.0:
        return abs(g - 1.0)
    return max(abs(g) - 1.0, 0.0)


@njit(nogil=True, cache=True)
def _newton_step(
    problem: Problem, w: F64, active: Ints, enough: float, max_sweeps: int, found: Step
) -> int:
    """Fill in the step d that minimises g'd + d'Hd/2 + ||w + d||_1, and X d; return the sweeps."""
    ptr, rows, data = problem.columns
    step, margin_step, gradient, curvature, bend = found
    step[:] = 0.0
    margin_step[:] = 0.0
    for sweep in range(max_sweeps):
        total = 0.0
        for j in active:
            g = gradient[j] + _RIDGE * step[j]
            for p in range(ptr[j], ptr[j + 1]):
                g += bend[rows[p]] * data[p] * margin_step[rows[p]]
            here = w[j] + step[j]
            total += subgradient(g, here)
            # The minimum in this weight alone: the soft threshold of its Newton step.
            there = here - g / curvature[j]
            shrink = 1.0 / curvature[j]
            there = max(there - shrink, 0.0) + min(there + shrink, 0.0)
            moved = there - here
            if moved != 0.0:
                step[j] += moved
                for p in range(ptr[j], ptr[j + 1]):
                    margin_step[rows[p]] += moved * data[p]
        if total <= enough:
            return sweep + 1
    return max_sweeps


@njit(nogil=True, cache=True)
def _line_search(problem: Problem, w: F64, margins: F64, active: Ints, found: Step) -> bool:
    """Take the step, or half of it, a quarter, ... as soon as the objective falls enough."""
    _, signs, costs = problem
    step, margin_step, gradient, _, _ = found
    before = 0.0
    for i in range(signs.size):
        before += costs[i] * _log_loss(signs[i] * margins[i])
    expected = 0.0
    for j in active:
        expected += gradient[j] * step[j] + abs(w[j] + step[j]) - abs(w[j])
    length = 1.0
    for _ in range(_HALVINGS):
        change = -before
        for i in range(signs.size):
            change += costs[i] * _log_loss(signs[i] * (margins[i] + length * margin_step[i]))
        for j in active:
            change += abs(w[j] + length * step[j]) - abs(w[j])
        if change <= _ARMIJO * length * expected:
            for j in active:
                w[j] += length * step[j]
            for i in range(signs.size):
                margins[i] += length * margin_step[i]
            return True
        length *= 0.5
    return False


@njit(nogil=True, cache=True, inline="always")
def _log_loss(margin: float) -> float:
    """Return ``log(1 + exp(-margin))`` without overflow."""
    return float(max(-margin, 0.0) + np.log1p(np.exp(-abs(margin))))
