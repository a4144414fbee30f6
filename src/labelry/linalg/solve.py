"""Ridge regression of thin label projections Y Q on X, for many Q.

    minimise  sum_i w_i ||y_i Q - x_i Z - b||^2 + r ||Z||^2,   r = regularization * tr(X'WX) / d

`regularization` is in units of mean feature energy, so that one value suits many datasets; d counts
the features that some row has, so that unused columns change nothing. The intercept b is not
penalised and is eliminated exactly: with m the mean of the rows of X, centring is the rank-one
correction

    (X'WX - W m m' + r I) Z = X'W Y Q - m (1'W Y Q),    b = mean(Y Q) - m'Z

so sparse rows stay sparse.
"""

from __future__ import annotations

from math import isqrt
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyr
from scipy.sparse import issparse

from labelry.arrays import F32, F64
from labelry.linalg import kernels
from labelry.linalg.blas import library_threads
from labelry.linalg.matrices import Matrix, product, stacked
from labelry.linalg.parallel import run, spans
from labelry.linalg.rows import Block, Rows

RidgeMethod = Literal["auto", "cholesky", "dual", "cg"]

_NO_WEIGHTS = np.empty(0, dtype=np.float32)
_DIRECT = 4096  # most features (Cholesky) or rows (dual) for a dense factor; not tuned
_MINIMUM = 1e-9  # smallest ridge, of mean feature energy, for which a double Cholesky is safe
_MOST_ITERATIONS = 100  # of the conjugate gradients; not tuned
_ROOM = 4 << 30  # bytes for the columns that they solve at a time; not tuned
_STILL_MANY = 0.75  # share of active columns below which converged ones are dropped; not tuned


class LinearMap(NamedTuple):
    """The map x -> x coef + intercept, with coef (d, k) and intercept (k,)."""

    coef: Annotated[F32, "n_features", "n_outputs"]
    intercept: Annotated[F32, "n_outputs"]

    def __call__(self, X: Matrix, n_jobs: int = 1) -> F32:
        return product(X, self.coef, n_jobs) + self.intercept


class Ridge:
    """Solves the ridge problem above for any number of right-hand sides Q.

    Feature means and energies are computed once (one pass), and so is the Gram matrix of the direct
    methods (one more pass).

    Parameters
    ----------
    method : {"auto", "cholesky", "dual", "cg"}
        "auto" takes the Cholesky factor of X'X when there are few features, that of XX' ("dual")
        when there are few rows, and otherwise conjugate gradients on all columns in lockstep, with
        one pass per iteration.
    tolerance : float
        Relative residual at which a column of the conjugate gradients stops. The direct methods
        work in single precision where that is as exact.
    """

    def __init__(
        self, rows: Rows, *, method: RidgeMethod = "auto", tolerance: float = 1e-4
    ) -> None:
        if rows.n_rows == 0:
            raise ValueError("ridge regression needs at least one row, got none")
        self.rows, self.tolerance = rows, tolerance
        self.method = self._choose(rows) if method == "auto" else method
        if self.method not in ("cholesky", "dual", "cg"):
            raise ValueError(f"method must be auto, cholesky, dual or cg, got {method!r}")
        self.n_iterations = 0
        x, xx, self.label_sums, self.total = rows.totals()
        if self.total <= 0:
            raise ValueError(f"the sum of the row weights must be positive, got {self.total}")
        self.mean = x / self.total
        self.n_used = int(np.count_nonzero(xx))  # features that some row has
        self.energy = float(xx.sum()) / max(self.n_used, 1)
        # Diagonal of the centred Gram matrix; rounding must not make it negative.
        self.diagonal = np.maximum(xx - self.total * self.mean**2, 0.0)
        self._gram: F64 | None = None
        self._factor: tuple[float, Any] | None = None  # the last ridge, and the factor with it
        self._stacked: tuple[Matrix, Matrix, F64] | None = None

    @staticmethod
    def _choose(rows: Rows) -> RidgeMethod:
        # Half the bound must hold a Gram matrix in double, its factor, and temporary copies.
        most = _DIRECT if rows.memory is None else min(_DIRECT, isqrt(rows.memory // 64))
        if rows.n_features <= most:
            return "cholesky"
        return "dual" if rows.n_rows <= most else "cg"

    def solve(self, Q: F32, regularization: float, *, start: F32 | None = None) -> LinearMap:
        """Return the regressor of Y Q on X, for Q (n_labels, k).

        A larger `regularization` shrinks the predictions towards the mean. The conjugate gradients
        begin at `start` (n_features, k).
        """
        Q = np.ascontiguousarray(Q, dtype=np.float32)
        if Q.ndim != 2 or len(Q) != self.rows.n_labels:
            raise ValueError(f"Q must have {self.rows.n_labels} rows, one per label: {Q.shape}")
        if not regularization >= 0:
            raise ValueError(f"regularization must be at least 0, got {regularization}")
        solver = {"cholesky": self._cholesky, "dual": self._dual, "cg": self._cg}[self.method]
        Z = solver(Q, max(regularization, _MINIMUM) * self.energy or 1.0, start)
        intercept = self.label_sums @ Q / self.total - self.mean @ Z
        # In C order, because a prediction reads a few rows.
        return LinearMap(np.ascontiguousarray(Z), intercept.astype(np.float32))

    def gram_times(self, P: F32, regularization: float) -> F32:
        """Return ``(Xc'Xc + r I) P`` for the centred features Xc, in one pass."""
        out = self.rows.cross("X", "X", P)
        out -= np.outer(self.total * self.mean, self.mean @ P).astype(np.float32)
        out += np.float32(regularization * self.energy) * P
        return out

    def _right_hand_side(self, Q: F32) -> F32:
        R = self.rows.cross("X", "Y", Q)
        R -= np.outer(self.mean.astype(np.float32), (self.label_sums @ Q).astype(np.float32))
        return R

    def _cholesky(self, Q: F32, r: float, _: F32 | None) -> F32:
        if self._gram is None:
            d, n_jobs = self.rows.n_features, self.rows.n_jobs
            (G,) = self.rows.reduce(lambda b, G: _add_gram(b, G, n_jobs), (d, d), dtype=np.float64)
            # In place, on the filled triangle, which is the lower one for BLAS (columns first).
            if d:  # BLAS refuses vectors without entries
                G = dsyr(-self.total, self.mean, a=G.T, lower=1, overwrite_a=1).T
            self._gram = G
        return cho_solve(self._factored(r), self._right_hand_side(Q)).astype(np.float32)

    def _factored(self, r: float) -> Any:
        """Return the Cholesky factor of the Gram matrix plus r I; keep the last one."""
        if self._factor is None or self._factor[0] != r:
            self._factor = None  # its memory is needed
            condition = 1 + self.diagonal.sum() / r  # a bound: no eigenvalue is above the trace
            single = condition * np.finfo(np.float32).eps <= self.tolerance
            # In the order of LAPACK (columns first), so that it can be factored in place.
            dtype = np.float32 if single else np.float64
            G: NDArray[Any] = np.array(self._gram.T, dtype, order="F")  # type: ignore[union-attr]
            G.flat[:: len(G) + 1] += r
            # One thread: two would wait for each other so often that they take longer, above all
            # when other threads are busy.
            with library_threads(1):
                self._factor = r, cho_factor(G, lower=True, overwrite_a=True, check_finite=False)
        return self._factor[1]

    def _dual(self, Q: F32, r: float, _: F32 | None) -> F32:
        """Return Z = Xc' a with (Xc Xc' + r I) a = centred targets; rows are scaled by sqrt(w)."""
        if self._stacked is None:
            blocks = list(self.rows.map_blocks(lambda block: block))
            X, Y = (stacked([block.side(s) for block in blocks]) for s in ("X", "Y"))
            scale = np.sqrt(np.concatenate([_row_weights(b) for b in blocks]))
            self._stacked = X, Y, scale
            K = X @ X.T
            K = K.toarray().astype(np.float64) if issparse(K) else K.astype(np.float64)
            xm = X @ self.mean
            K += float(self.mean @ self.mean) - xm[:, None] - xm[None, :]
            self._gram = K * np.outer(scale, scale)
        X, Y, scale = self._stacked
        T = (Y @ Q - self.label_sums @ Q / self.total) * scale[:, None]
        factor = self._factored(r)
        a = cho_solve(factor, T.astype(factor[0].dtype)) * scale[:, None]
        return (X.T @ a - np.outer(self.mean, a.sum(axis=0))).astype(np.float32)

    def _cg(self, Q: F32, r: float, start: F32 | None) -> F32:
        """Return the solution by preconditioned conjugate gradients, all columns in step."""
        d, k = self.rows.n_features, Q.shape[1]
        Z = np.zeros((d, k), dtype=np.float32) if start is None else start.astype(np.float32)
        # A chunk holds Z, R, P and AP, and `cross` needs a sum for each thread.
        memory = _ROOM if self.rows.memory is None else min(_ROOM, self.rows.memory // 2)
        chunk = max(1, memory // (4 * d * (4 + self.rows.n_jobs)))
        for c0 in range(0, k, chunk):
            columns = slice(c0, c0 + chunk)
            Z[:, columns] = self._cg_chunk(Q[:, columns], r, Z[:, columns], start is not None)
        return Z

    def _cg_chunk(self, Q: F32, r: float, Z: F32, warm: bool) -> F32:
        d, n_jobs = self.rows.n_features, self.rows.n_jobs
        Z = np.ascontiguousarray(Z)
        ridge = np.full(d, r, dtype=np.float32)
        inverse = (1.0 / (self.diagonal + r)).astype(np.float32)
        mean = self.mean.astype(np.float32)
        parts = spans(d, n_jobs)

        def sums(kernel: Any, *arrays: F32) -> F64:
            totals = np.zeros((len(parts), 2, arrays[0].shape[1]))
            pairs = zip(totals, parts, strict=True)
            run(kernel, [(*arrays, total, *part) for total, part in pairs], n_jobs)
            return totals.sum(axis=0)

        def gram_times(P: F32) -> tuple[F32, F64]:
            AP = self.rows.cross("X", "X", P)
            shift = (self.total * (mean @ P)).astype(np.float32)
            return AP, sums(kernels.cg_curvature, P, AP, ridge, mean, shift)[0]

        R = self._right_hand_side(Q)
        scale = np.einsum("ij,ij->j", R, R, dtype=np.float64)  # residual of Z = 0
        if warm:
            R -= gram_times(Z)[0]
        P = R * inverse[:, None]
        rz = np.einsum("ij,ij->j", R, P, dtype=np.float64)
        active = np.einsum("ij,ij->j", R, R, dtype=np.float64) > self.tolerance**2 * scale
        found, columns = Z, np.arange(Z.shape[1])  # from now on Z has these columns of `found`
        for _ in range(_MOST_ITERATIONS):
            if active.sum() <= _STILL_MANY * len(active):
                found[:, columns] = Z
                columns, scale, rz = columns[active], scale[active], rz[active]
                Z, R, P = (np.ascontiguousarray(A[:, active]) for A in (Z, R, P))
                active = active[active]
            if not len(active):
                break
            self.n_iterations += 1
            AP, curvature = gram_times(P)
            # The step of a column that has converged is zero.
            alpha = np.where(active & (curvature > 0), rz / np.maximum(curvature, 1e-300), 0.0)
            rr, rz_new = sums(kernels.cg_step, Z, R, P, AP, alpha.astype(np.float32), inverse)
            active &= (rr > self.tolerance**2 * scale) & (alpha > 0)
            beta = np.where(active, rz_new / np.maximum(rz, 1e-300), 0.0).astype(np.float32)
            run(kernels.cg_direction, [(P, R, beta, inverse, *part) for part in parts], n_jobs)
            rz = rz_new
        found[:, columns] = Z
        return found


def usual_ridge(ridge: Ridge) -> float:
    """Return a ridge for predictions: a half, less for many rows, which have less noise."""
    return 0.5 * min(1.0, 10 * ridge.n_used / ridge.rows.n_rows)


def _row_weights(block: Block) -> F32:
    return np.ones(block.X.shape[0], np.float32) if block.weights is None else block.weights


def _add_gram(block: Block, G: F64, n_jobs: int) -> None:
    """Add X' diag(w) X to the upper triangle of G: by entries if X is sparse, otherwise by BLAS."""
    X = block.X
    if issparse(X) and X.nnz <= 0.1 * X.shape[0] * X.shape[1]:
        weights = _NO_WEIGHTS if block.weights is None else block.weights
        given = (kernels.csr_parts(X), weights, G)
        run(kernels.add_gram, [(*given, *span) for span in spans(len(G), n_jobs)], n_jobs)
        return
    step = max(256, (1 << 22) // max(X.shape[1], 1))
    for start in range(0, X.shape[0], step):
        part = X[start : start + step]
        weights = _row_weights(block)[start : start + part.shape[0]].astype(np.float64)
        D = (part.toarray() if issparse(part) else part).astype(np.float64)
        G += D.T @ (D * weights[:, None])
