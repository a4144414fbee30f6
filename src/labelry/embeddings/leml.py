"""LEML: a low-rank linear map from features to labels, fitted to the loss itself.

Yu, Jain, Kar, Dhillon: Large-scale multi-label learning with missing labels, 2014.

    minimise  sum over known (i, j) of loss(Y_ij, x_i' W h_j) + lambda/2 (||W||^2 + ||H||^2)

by turns in W (d, k) and H (c, k); each turn is convex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.special import expit

from labelry.linalg.matrices import Matrix, product
from labelry.linalg.rows import Block, Rows
from labelry.linalg.sketch import gram
from labelry.progress import phase

F32 = NDArray[np.float32]
Operator = Callable[[F32], F32]

_BLOCK = 4 << 20  # scores held at a time
_CG_STEPS = 15
_NEWTON_STEPS = 1


class Loss(NamedTuple):
    """A loss of scores S for labels Y in {0, 1}: its value, slope and curvature in S."""

    value: Callable[[NDArray, NDArray], NDArray]
    slope: Callable[[NDArray, NDArray], NDArray]
    curvature: Callable[[NDArray, NDArray], NDArray]


def _signs(Y: F32) -> F32:
    return 2 * Y - 1


LOSSES = {
    "squared": Loss(
        lambda S, Y: (S - Y) ** 2 / 2,
        lambda S, Y: S - Y,
        lambda S, Y: np.ones_like(S),
    ),
    "logistic": Loss(
        lambda S, Y: np.logaddexp(0, -_signs(Y) * S),
        lambda S, Y: expit(S) - Y,
        lambda S, Y: expit(S) * expit(-S),
    ),
    "squared_hinge": Loss(
        lambda S, Y: np.maximum(0, 1 - _signs(Y) * S) ** 2 / 2,
        lambda S, Y: -_signs(Y) * np.maximum(0, 1 - _signs(Y) * S),
        lambda S, Y: (_signs(Y) * S < 1).astype(np.float32),
    ),
}


class Factors(NamedTuple):
    """W (n_features, k) and H (n_labels, k); scores are x'W H'."""

    W: F32
    H: F32


class Objective(Protocol):
    """What the alternation needs of a loss on data."""

    def value(self, factors: Factors) -> float: ...

    def labels_turn(self, factors: Factors) -> F32: ...

    def features_turn(self, factors: Factors) -> F32: ...


def leml(
    objective: Objective,
    start: Factors,
    *,
    n_rounds: int = 10,
    tolerance: float = 1e-3,
) -> tuple[Factors, list[float]]:
    """Factors of small loss, and the objective after each round, which only falls."""
    factors, values = start, [objective.value(start)]
    with phase("alternating minimisation", n_rounds, "rounds") as advance:
        for _ in range(n_rounds):
            factors = Factors(factors.W, objective.labels_turn(factors))
            factors = Factors(objective.features_turn(factors), factors.H)
            values.append(objective.value(factors))
            advance(1)
            if values[-2] - values[-1] <= tolerance * values[-1]:
                break
    return factors, values


class SquaredLoss:
    """Squared loss with every label known: passes over the rows, nothing of n x c.

    A turn in H is a k x k solve and two passes; one in W is conjugate gradients with
    X'X P H'H + lambda P, a pass for each step.
    """

    def __init__(self, rows: Rows, regularization: float) -> None:
        self.rows = rows
        self.regularization = np.float32(regularization)
        self.energy = float(rows.totals()[2].sum())  # ||Y||^2 of an indicator

    def value(self, factors: Factors) -> float:
        W, H = factors
        # ||Y - XWH'||^2 = ||Y||^2 - 2 <Y'XW, H> + <W'X'XW, H'H>
        agree = np.vdot(self.rows.cross("Y", "X", W), H)
        size = np.vdot(W.T @ self.rows.cross("X", "X", W), H.T @ H)
        return float(self.energy / 2 - agree + size / 2) + _penalty(factors, self.regularization)

    def labels_turn(self, factors: Factors) -> F32:
        W = factors.W
        AA = W.T.astype(np.float64) @ self.rows.cross("X", "X", W)
        AA.flat[:: len(AA) + 1] += self.regularization
        YA = self.rows.cross("Y", "X", W)
        return cho_solve(cho_factor(AA), YA.T).T.astype(np.float32)  # H = Y'A (A'A + lambda I)^-1

    def features_turn(self, factors: Factors) -> F32:
        W, H = factors
        HH = gram(H).astype(np.float32)

        def hessian(P: F32) -> F32:
            return self.rows.cross("X", "X", P) @ HH + self.regularization * P

        right = self.rows.cross("X", "Y", H)
        return W + conjugate_gradients(hessian, right - hessian(W))


class KnownLabels:
    """Any loss, with every label known or only some: dense blocks of scores.

    A step of Newton or of conjugate gradients is a pass, and costs 6 flops per row, label and
    dimension.

    Parameters
    ----------
    rows : Rows
        Features and indicator.
    known : csr_array (n, c), optional
        Nonzero where Y is known to be right; everywhere if None.
    """

    def __init__(
        self, rows: Rows, loss: Loss, regularization: float, known: csr_array | None = None
    ) -> None:
        self.rows, self.loss, self.known = rows, loss, known
        self.regularization = np.float32(regularization)

    def value(self, factors: Factors) -> float:
        def add(block: Block, total: NDArray[np.float64]) -> None:
            for X, Y, mask in self._parts(block):
                S = self._product(X, factors.W) @ factors.H.T
                total += (self.loss.value(S, Y) * mask).sum(dtype=np.float64)

        (total,) = self.rows.reduce(add, (1,), dtype=np.float64)
        return float(total[0]) + _penalty(factors, self.regularization)

    def labels_turn(self, factors: Factors) -> F32:
        W = factors.W

        def slopes(H: F32) -> F32:
            def add(block: Block, out: F32) -> None:
                for X, Y, mask in self._parts(block):
                    A = self._product(X, W)
                    out += (self.loss.slope(A @ H.T, Y) * mask).T @ A

            return self.regularization * H + self.rows.reduce(add, H.shape)[0]

        def hessian(H: F32, P: F32) -> F32:
            def add(block: Block, out: F32) -> None:
                for X, Y, mask in self._parts(block):
                    A = self._product(X, W)
                    bend = self.loss.curvature(A @ H.T, Y) * mask
                    out += (bend * (A @ P.T)).T @ A

            return self.regularization * P + self.rows.reduce(add, P.shape)[0]

        return newton(factors.H, slopes, hessian, lambda H: self.value(Factors(W, H)))

    def features_turn(self, factors: Factors) -> F32:
        H = factors.H

        def slopes(W: F32) -> F32:
            def add(block: Block, out: F32) -> None:
                for X, Y, mask in self._parts(block):
                    S = self._product(X, W) @ H.T
                    out += X.T @ ((self.loss.slope(S, Y) * mask) @ H)

            return self.regularization * W + self.rows.reduce(add, W.shape)[0]

        def hessian(W: F32, P: F32) -> F32:
            def add(block: Block, out: F32) -> None:
                for X, Y, mask in self._parts(block):
                    bend = self.loss.curvature(self._product(X, W) @ H.T, Y) * mask
                    out += X.T @ ((bend * (self._product(X, P) @ H.T)) @ H)

            return self.regularization * P + self.rows.reduce(add, P.shape)[0]

        return newton(factors.W, slopes, hessian, lambda W: self.value(Factors(W, H)))

    def _product(self, X: Matrix, M: F32) -> F32:
        return product(X, M, self.rows.n_jobs)

    def _parts(self, block: Block) -> Iterator[tuple[Matrix, F32, F32 | float]]:
        """Some rows at a time: features, labels and what is known of them, the last two dense."""
        Y = block.side("Y")
        step = max(1, _BLOCK // Y.shape[1])
        for start in range(0, block.n_rows, step):
            part = slice(start, min(start + step, block.n_rows))
            known = slice(block.start + part.start, block.start + part.stop)
            mask = 1.0 if self.known is None else (self.known[known].toarray() != 0)
            yield block.X[part], Y[part].toarray(), mask


def newton(
    M: F32,
    slopes: Operator,
    hessian: Callable[[F32, F32], F32],
    value: Callable[[F32], float],
) -> F32:
    """A few Newton steps by conjugate gradients, halved until the value falls."""
    before = value(M)
    for _ in range(_NEWTON_STEPS):
        base = M
        direction = conjugate_gradients(lambda P: hessian(base, P), -slopes(M))  # noqa: B023
        for _halving in range(8):
            after = value(base + direction)
            if after < before:
                break
            direction /= 2
        else:
            return base
        M = base + direction
        if before - after < 1e-4 * after:
            return M
        before = after
    return M


def conjugate_gradients(apply: Operator, right: F32, tolerance: float = 0.01) -> F32:
    """P with ``apply(P)`` close to `right`, matrices taken as one long vector."""
    P, R = np.zeros_like(right), right.copy()
    D, rr = R.copy(), float(np.vdot(R, R))
    target = tolerance**2 * rr
    for _ in range(_CG_STEPS):
        if rr <= target or rr == 0:
            break
        AD = apply(D)
        alpha = np.float32(rr / np.vdot(D, AD))
        P += alpha * D
        R -= alpha * AD
        rr, previous = float(np.vdot(R, R)), rr
        D = R + np.float32(rr / previous) * D
    return P


def _penalty(factors: Factors, regularization: np.float32) -> float:
    return float(regularization * sum(np.vdot(M, M) for M in factors) / 2)
