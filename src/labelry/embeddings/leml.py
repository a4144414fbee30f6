"""LEML: a low-rank linear map from features to labels, fitted to the loss itself.

Yu, Jain, Kar, Dhillon: Large-scale multi-label learning with missing labels, 2014.

    minimise  sum over known (i, j) of loss(Y_ij, x_i' W h_j) + lambda/2 (||W||^2 + ||H||^2)

by turns in W (d, k) and in H (c, k); each turn is a convex problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit

from labelry.arrays import F32, F64, Ints, Rng
from labelry.checks import refuse_masked
from labelry.linalg.matrices import Matrix, product, with_constant
from labelry.linalg.rows import Block, Rows
from labelry.linalg.sketch import gram
from labelry.parameters import Between, OneOf, Settings, param, settings
from labelry.progress import phase
from labelry.ranking.linear import LinearDecoder, Link
from labelry.ranking.ranker import Ranker

LossName = Literal["squared", "logistic", "squared_hinge"]
Operator = Callable[[F32], F32]

_BLOCK = 4 << 20  # most scores that are held at a time; not tuned
_CG_STEPS = 15  # most steps of conjugate gradients in a turn; not tuned
_HALVINGS = 8  # most times that a Newton step is halved; not tuned
_ROUGHLY = 0.01  # relative fall at which the first, cheap problem ends; not tuned


class Loss(NamedTuple):
    """A loss of scores S for labels Y in {0, 1}: its value, slope and curvature in S."""

    value: Callable[[NDArray, NDArray], NDArray]
    slope: Callable[[NDArray, NDArray], NDArray]
    curvature: Callable[[NDArray, NDArray], NDArray]


LOSSES: dict[LossName, Loss] = {
    "squared": Loss(
        lambda S, Y: (S - Y) ** 2 / 2, lambda S, Y: S - Y, lambda S, Y: np.ones_like(S)
    ),
    "logistic": Loss(
        lambda S, Y: np.logaddexp(0, -(2 * Y - 1) * S),
        lambda S, Y: expit(S) - Y,
        lambda S, Y: expit(S) * expit(-S),
    ),
    "squared_hinge": Loss(
        lambda S, Y: np.maximum(0, 1 - (2 * Y - 1) * S) ** 2 / 2,
        lambda S, Y: -(2 * Y - 1) * np.maximum(0, 1 - (2 * Y - 1) * S),
        lambda S, Y: ((2 * Y - 1) * S < 1).astype(np.float32),
    ),
}


class Factors(NamedTuple):
    """W (n_features, k) and H (n_labels, k); scores are x'W H'."""

    W: F32
    H: F32


class SquaredLoss:
    """Squared loss with every label known: passes over the rows, and no matrix of n x c.

    A turn in H is a k x k solve and two passes. A turn in W is conjugate gradients with
    X'X P H'H + lambda P, one pass for each step.
    """

    def __init__(self, rows: Rows, regularization: float) -> None:
        self.rows = rows
        self.regularization = np.float32(regularization)
        self.energy = float(rows.totals()[2].sum())  # ||Y||^2 of an indicator

    def value(self, factors: Factors) -> float:
        """Return the objective."""
        W, H = factors
        # ||Y - XWH'||^2 = ||Y||^2 - 2 <Y'XW, H> + <W'X'XW, H'H>
        agree = np.vdot(self.rows.cross("Y", "X", W), H)
        size = np.vdot(W.T @ self.rows.cross("X", "X", W), H.T @ H)
        return float(self.energy / 2 - agree + size / 2) + _penalty(factors, self.regularization)

    def labels_turn(self, factors: Factors) -> F32:
        """Return the best H for this W."""
        W = factors.W
        AA = W.T.astype(np.float64) @ self.rows.cross("X", "X", W)
        AA.flat[:: len(AA) + 1] += self.regularization
        YA = self.rows.cross("Y", "X", W)
        return cho_solve(cho_factor(AA), YA.T).T.astype(np.float32)  # H = Y'A (A'A + lambda I)^-1

    def features_turn(self, factors: Factors) -> F32:
        """Return a better W for this H."""
        W, H = factors
        HH = gram(H).astype(np.float32)

        def hessian(P: F32) -> F32:
            return self.rows.cross("X", "X", P) @ HH + self.regularization * P

        right = self.rows.cross("X", "Y", H)
        return W + conjugate_gradients(hessian, right - hessian(W))


class KnownLabels:
    """Any loss, with every label known or only some: dense blocks of scores.

    A step of Newton or of conjugate gradients is one pass, and costs 6 flops per row, label and
    dimension. `known` (n, c) is nonzero where Y is known to be right; None: everywhere.
    """

    def __init__(
        self, rows: Rows, loss: Loss, regularization: float, known: csr_array | None = None
    ) -> None:
        self.rows, self.loss, self.known = rows, loss, known
        self.regularization = np.float32(regularization)

    def value(self, factors: Factors) -> float:
        """Return the objective."""
        W, H = factors

        def losses(X: Matrix, Y: F32, mask: Any) -> np.float64:
            S = self._product(X, W) @ H.T
            return (self.loss.value(S, Y) * mask).sum(dtype=np.float64)

        (total,) = self._sum(losses, (1,), np.float64)
        return float(total) + _penalty(factors, self.regularization)

    def labels_turn(self, factors: Factors) -> F32:
        """Return a better H for this W."""
        W, H = factors
        return self._newton(
            H,
            lambda X: self._product(X, W),  # A = XW, the features of a linear problem in H
            lambda A, H: A @ H.T,
            lambda A, G: G.T @ A,
            lambda H: self.value(Factors(W, H)),
        )

    def features_turn(self, factors: Factors) -> F32:
        """Return a better W for this H."""
        W, H = factors
        return self._newton(
            W,
            lambda X: X,
            lambda X, W: self._product(X, W) @ H.T,
            lambda X, G: X.T @ (G @ H),
            lambda W: self.value(Factors(W, H)),
        )

    def _newton(
        self,
        M: F32,
        features: Callable[[Matrix], Matrix],
        scores: Callable[[Matrix, F32], F32],
        gradient: Callable[[Matrix, F32], F32],
        value: Callable[[F32], float],
    ) -> F32:
        """Take a Newton step in one factor, by its scores and their gradient in it."""

        def slopes(X: Matrix, Y: F32, mask: Any) -> F32:
            A = features(X)
            return gradient(A, self.loss.slope(scores(A, M), Y) * mask)

        def hessian(P: F32) -> F32:
            def part(X: Matrix, Y: F32, mask: Any) -> F32:
                A = features(X)
                bend = self.loss.curvature(scores(A, M), Y) * mask
                return gradient(A, bend * scores(A, P))

            return self.regularization * P + self._sum(part, P.shape)

        slope = self.regularization * M + self._sum(slopes, M.shape)
        direction, before = conjugate_gradients(hessian, -slope), value(M)
        for _ in range(_HALVINGS):  # until the value falls
            if value(M + direction) < before:
                return M + direction
            direction /= 2
        return M

    def _product(self, X: Matrix, M: F32) -> F32:
        return product(X, M, self.rows.n_jobs)

    def _sum(
        self, part: Callable[..., Any], shape: tuple[int, ...], dtype: type = np.float32
    ) -> NDArray[Any]:
        """Return the sum of ``part(X, Y, mask)`` over parts of the rows, dense but X; one pass."""

        def add(block: Block, total: NDArray[Any]) -> None:
            Y = block.side("Y")
            for start in range(0, block.n_rows, step):
                rows = slice(start, min(start + step, block.n_rows))
                known = slice(block.start + rows.start, block.start + rows.stop)
                mask = 1.0 if self.known is None else (self.known[known].toarray() != 0)
                total += part(block.X[rows], Y[rows].toarray(), mask)

        step = max(1, _BLOCK // self.rows.n_labels)
        return self.rows.reduce(add, shape, dtype=dtype)[0]


def conjugate_gradients(apply: Operator, right: F32, tolerance: float = 0.01) -> F32:
    """Return P with ``apply(P)`` close to `right`; matrices count as one long vector."""
    shape, n = right.shape, right.size
    A = LinearOperator((n, n), lambda p: apply(p.reshape(shape)).ravel(), dtype=right.dtype)
    P, _ = cg(A, right.ravel(), rtol=tolerance, maxiter=_CG_STEPS)
    return P.reshape(shape)


def _penalty(factors: Factors, regularization: np.float32) -> float:
    return float(regularization * sum(np.vdot(M, M) for M in factors) / 2)


@settings
class LowRankSettings(Settings):
    """The rank, penalty and rounds of a low-rank map."""

    embedding_dim: int = param(
        default=100,
        least=1,
        help="Rank of the map. Larger is more accurate up to a point, and slower.",
        tune=Between(30, 200, log=True),
    )
    regularization: float = param(
        default=0.03,
        above=0,
        help="Weight of half the squared factors, in units of the root of the number of rows that "
        "a map is fitted to. Larger fits the training rows less closely.",
        tune=Between(0.001, 1.0, log=True),
    )
    n_rounds: int = param(
        default=10,
        least=1,
        help="Most turns of each factor. More come closer to the optimum; training stops before "
        "when the objective falls by less than a thousandth.",
        tune=Between(5, 20),
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")


@settings
class LEMLSettings(LowRankSettings):
    """How to fit one low-rank map from features to labels."""

    loss: LossName = param(
        default="squared",
        help='"squared" needs only passes over the nonzeros while all labels are known. The '
        "others, and unknown labels, cost time for each row and label.",
        tune=OneOf(("squared", "logistic", "squared_hinge")),
    )


@dataclass(frozen=True, eq=False)
class LowRankMap(Ranker):
    """A linear map of low rank from features to the scores of labels: x'W H'."""

    regressor: Annotated[F32, "n_features + 1", "embedding_dim"]  # W; last row: the intercept
    label_embedding: Annotated[F32, "n_labels", "embedding_dim"]  # H
    objective: Annotated[F64, "n_rounds + 1"]  # before the first round and after each
    loss: LossName  # that the map was fitted to; with "logistic" the scores are probabilities
    normalize: bool

    @property
    def threshold(self) -> float:
        return 0.0 if self.loss == "squared_hinge" else 0.5  # a margin, or about a probability

    @property
    def probabilities(self) -> bool:
        return self.loss == "logistic"

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        return self._decoder().topk(self.embed(X, n_jobs), k, n_jobs)

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        return self._decoder().scores(self.embed(X, n_jobs))

    def embed(self, X: Matrix, n_jobs: int = 1) -> F32:
        return product(with_constant(X, unit=self.normalize), self.regressor, n_jobs)

    def label_vectors(self) -> F32:
        return self.label_embedding

    def _decoder(self) -> LinearDecoder:
        H = self.label_embedding
        link: Link = "sigmoid" if self.probabilities else "identity"
        return LinearDecoder(H.T, np.zeros(len(H), dtype=np.float32), link)


def fit_leml(rows: Rows, settings: LEMLSettings, rng: Rng, known: Any = None) -> LowRankMap:
    """Fit a low-rank map by turns in its two factors; `known` is nonzero where Y is known."""
    unit = settings.normalize
    rows = rows.mapped(
        lambda block: block._replace(X=with_constant(block.X, unit=unit)),
        n_features=rows.n_features + 1,
    )
    n, d, c = rows.n_rows, rows.n_features, rows.n_labels
    dim = min(settings.embedding_dim, n, c, d)
    W = rng.standard_normal((d, dim), dtype=np.float32) / np.sqrt(np.float32(dim))
    start = Factors(W, np.zeros((c, dim), dtype=np.float32))
    ridge = settings.regularization * float(np.sqrt(n))
    objective: SquaredLoss | KnownLabels = SquaredLoss(rows, ridge)
    if settings.loss != "squared" or known is not None:
        refuse_masked("known", known)
        mask = None if known is None else csr_array(known)
        if mask is not None and mask.shape != (n, c):
            raise ValueError(f"known must have the shape of the labels {(n, c)}, got {mask.shape}")
        # The squared loss with all labels known is cheap, and its factors are a good start.
        start, _ = leml(objective, start, n_rounds=settings.n_rounds, tolerance=_ROUGHLY)
        objective = KnownLabels(rows, LOSSES[settings.loss], ridge, mask)
    factors, values = leml(objective, start, n_rounds=settings.n_rounds)
    return LowRankMap(*factors, np.array(values), settings.loss, unit)


def leml(
    objective: SquaredLoss | KnownLabels,
    start: Factors,
    *,
    n_rounds: int = 10,
    tolerance: float = 1e-3,
) -> tuple[Factors, list[float]]:
    """Return factors of small loss, and the objective after each round; it only falls."""
    factors, values = start, [objective.value(start)]
    with phase("fitting the factors", n_rounds, "rounds") as advance:
        for _ in range(n_rounds):
            factors = Factors(factors.W, objective.labels_turn(factors))
            factors = Factors(objective.features_turn(factors), factors.H)
            values.append(objective.value(factors))
            advance(1)
            if values[-2] - values[-1] <= tolerance * values[-1]:
                break
    return factors, values
