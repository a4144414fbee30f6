"""Compiled loops of the logistic decoder: residuals of a minibatch, and the step.

Each kernel works on the span it is given and releases the GIL. numba's own exponential is
scalar; the one here vectorises and is right to a few units in the last place.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from labelry.arrays import F32, F64, I32, Ints

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # few bits, so that a multiple of it is exact
_LN2_LOW = np.float32(-2.12194440e-4)
# exp(x) below 2^-64 counts as zero: no probability needs it, and the denormal numbers further
# down would slow a matrix product tenfold.
_LOWEST = np.float32(-64.0)
_HALF = np.float32(0.5)
_ONE = np.float32(1.0)
_C2, _C3, _C4 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24)
_C5, _C6 = np.float32(1 / 120), np.float32(1 / 720)

# Not tuned, any of them.
MOMENTUM = 0.9  # share of the running mean of the gradient that a step keeps
MEMORY = 0.99  # share of the running mean of its square that a step keeps
_TINY = 1e-6  # gradients far below this do not matter


@njit(nogil=True, cache=True, fastmath=_FAST)
def exp_row(x: F32, shift: np.float32, bits: I32, powers: F32) -> None:
    """Set ``x[:] = exp(x - shift)`` for x <= shift.

    exp(x) = 2^k e^f with k the nearest integer to x / ln 2. `bits` is scratch space of the size
    of x, and `powers` the same memory seen as float32: 2^k is made by placing k in its exponent.
    """
    for j in range(x.size):
        t = x[j] - shift
        k = t * _LOG2E
        k = k if k > _LOWEST else _LOWEST - _ONE
        whole = np.int32(k - _HALF)  # truncation goes up: k is not positive
        w = np.float32(whole)
        t = t if k >= _LOWEST else np.float32(0.0)
        f = (t - w * _LN2_HIGH) - w * _LN2_LOW
        e = f * f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6)))) + f + _ONE
        x[j] = e if k >= _LOWEST else np.float32(0.0)
        bits[j] = (whole + np.int32(127)) << np.int32(23)
    for j in range(x.size):
        x[j] *= powers[j]


@njit(nogil=True, cache=True, fastmath=_FAST)
def residual_rows(
    S: F32,
    bounds: Ints,
    indptr: Ints,
    places: Ints,
    weights: F32,
    losses: F64,
    multiclass: bool,
    row0: int,
    row1: int,
) -> None:
    """Set ``s = w (p(s) - t)``, and `losses` to w times the log loss, for each row of the span.

    Row i has the scores ``s = S[bounds[i]:bounds[i+1]]``, of all labels or of a shortlist, the
    labels ``places[indptr[i]:indptr[i+1]]`` of them, and the weight w. p is a softmax if
    `multiclass`, sigmoids otherwise.
    """
    longest = 0
    for i in range(row0, row1):
        longest = max(longest, bounds[i + 1] - bounds[i])
    bits = np.empty(longest, dtype=np.int32)
    powers = bits.view(np.float32)
    e = np.empty(longest, dtype=np.float32)
    for i in range(row0, row1):
        s = S[bounds[i] : bounds[i + 1]]
        targets = places[indptr[i] : indptr[i + 1]]
        if multiclass:
            losses[i] = _softmax_row(s, targets, bits, powers)
        else:
            losses[i] = _sigmoid_row(s, targets, e[: s.size], bits, powers)
        if weights[i] != _ONE:
            losses[i] *= weights[i]
            for j in range(s.size):
                s[j] *= weights[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _softmax_row(s: F32, targets: Ints, bits: I32, powers: F32) -> float:
    """Return ``-sum(t * log softmax(s))``, where t shares one among the targets.

    A row without targets has no residual and no loss.
    """
    if targets.size == 0:
        s[:] = 0.0
        return 0.0
    top = s[0]
    for j in range(1, s.size):
        top = s[j] if s[j] > top else top
    share = _ONE / np.float32(targets.size)
    loss = 0.0
    for j in targets:
        loss += share * (top - s[j])
    exp_row(s, top, bits, powers)
    total = np.float32(0.0)
    for j in range(s.size):
        total += s[j]
    scale = _ONE / total
    for j in range(s.size):
        s[j] *= scale
    for j in targets:
        s[j] -= share
    return loss + np.log(total)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _sigmoid_row(s: F32, targets: Ints, e: F32, bits: I32, powers: F32) -> float:
    """Return ``sum(log(1 + exp(s)) - t * s)``, where t is one at each target."""
    loss = 0.0
    for j in targets:
        loss -= s[j]
    for j in range(s.size):
        e[j] = -abs(s[j])
    exp_row(e, np.float32(0.0), bits, powers)
    for start in range(0, s.size, 64):
        # log(1 + exp(s)) = max(s, 0) + log(1 + e): one logarithm for 64 factors in (1, 2].
        product = _ONE
        positive = np.float32(0.0)
        for j in range(start, min(start + 64, s.size)):
            product *= _ONE + e[j]
            positive += max(s[j], np.float32(0.0))
        loss += positive + np.log(product)
    for j in range(s.size):
        s[j] = (_ONE if s[j] > 0 else e[j]) / (_ONE + e[j])
    for j in targets:
        s[j] -= _ONE
    return loss


@njit(nogil=True, cache=True, fastmath=_FAST)
def pair_scores(F: F32, W: F32, bounds: Ints, labels: Ints, S: F32, row0: int, row1: int) -> None:
    """Set ``S[p] = F[i] @ W[labels[p]]`` for pairs ``bounds[i] <= p < bounds[i+1]`` of row i."""
    for i in range(row0, row1):
        f = F[i]
        for p in range(bounds[i], bounds[i + 1]):
            w = W[labels[p]]
            total = np.float32(0.0)
            for q in range(f.size):
                total += f[q] * w[q]
            S[p] = total


@njit(nogil=True, cache=True, fastmath=_FAST)
def pair_gradient(
    F: F32, S: F32, rows: Ints, order: Ints, starts: Ints, G: F32, first: int, last: int
) -> None:
    """Set ``G[t] = sum of S[p] * F[rows[p]]`` over pairs p of label t in ``first <= t < last``.

    They are ``order[starts[t]:starts[t+1]]``. A thread has labels of its own: no races.
    """
    for t in range(first, last):
        g = G[t]
        g[:] = 0.0
        for p in order[starts[t] : starts[t + 1]]:
            f = F[rows[p]]
            r = S[p]
            for q in range(g.size):
                g[q] += r * f[q]


@njit(nogil=True, cache=True, fastmath=_FAST)
def step_rows(
    W: F32,
    mean: F32,
    square: F32,
    n_steps: Ints,
    labels: Ints,
    G: F32,
    rate: float,
    penalty: float,
    first: int,
    last: int,
) -> None:
    """Make a step of the rows ``labels[first:last]`` of W, whose gradients are ``G[first:last]``.

    A step goes along the running mean of the gradient (momentum), divided by the root of the
    running mean of its square: `mean` (of a row) and `square` (one number), over the `n_steps`
    that a label had. The penalty spares the intercept, which is the last column.
    """
    b1 = np.float32(MOMENTUM)
    pull = np.float32(penalty)
    for t in range(first, last):
        j = labels[t]
        n_steps[j] += 1
        w, m, g = W[j], mean[j], G[t]
        for q in range(w.size - 1):
            g[q] += pull * w[q]
        energy = np.float32(0.0)
        for q in range(w.size):
            m[q] = b1 * m[q] + (_ONE - b1) * g[q]
            energy += g[q] * g[q]
        square[j] = MEMORY * square[j] + (1.0 - MEMORY) * energy / w.size
        # Both means start at zero: divide by the weight that they have seen so far.
        root = np.sqrt(square[j] / (1.0 - MEMORY ** n_steps[j])) + _TINY
        scale = np.float32(rate / (1.0 - MOMENTUM ** n_steps[j]) / root)
        for q in range(w.size):
            w[q] -= scale * m[q]
