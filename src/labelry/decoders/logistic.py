"""The logistic decoder: from an embedded row to label probabilities (Alg. 3, line 5).

Minibatches, in coordinates in which the features are uncorrelated and of like variance, so that
a step along the gradient is the second-order step C^-1 g of the paper, C the covariance of the
features. Steps have momentum, and those of a label are divided by the root mean square of its
gradient: the curvature p (1 - p) of the loss differs a thousandfold between two classes and
many, and between frequent labels and rare ones, and so one rate serves them all. The rate falls
along a cosine, and to a quarter whenever the held-out loss no longer falls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.decoders import logistic_kernels as kernels
from labelry.linalg.parallel import balanced_spans, resolve_jobs, run, spans
from labelry.linalg.solve import LinearMap
from labelry.linalg.topk import topk_blocks
from labelry.progress import phase

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Losses = NDArray[np.float64]
RowSource = Callable[[Ints], F32]  # row numbers -> whitened features

_EXACT = 5000  # labels up to which the loss is over all of them
_NEGATIVES = 64  # labels in a shortlist beside the true ones
_DECORRELATE = 1024  # features up to which they are decorrelated; beyond, only scaled
_BATCH = 1024
_BLOCK_ROWS = 4096
_FASTEST = 0.1  # largest first step of a coefficient
_CROWDED = 1 / 3  # factor on the rate where features are not decorrelated
_PATIENCE = 2  # epochs without a better held-out loss until the rate falls
_SLOWER, _SLOWEST = 0.25, 0.05  # factor of that fall; training stops below the second


class _Kind(NamedTuple):
    """What differs between softmax and sigmoids; the numbers were chosen on held-out training
    rows of ALOI, Bibtex and Delicious."""

    residuals: Callable[..., None]
    rate: float  # first step of a coefficient, times the number of features
    ridge: float  # in the whitening, of the mean variance: lesser directions stay smaller
    penalty: float


_SOFTMAX = _Kind(kernels.softmax_rows, rate=6.0, ridge=1.0, penalty=0.0)
_SIGMOID = _Kind(kernels.sigmoid_rows, rate=1.0, ridge=3.0, penalty=5.0)


def fit_logistic(
    Z: F32,
    Y: csr_array,
    *,
    multiclass: bool,
    features: Callable[[F32], F32] | None = None,
    max_epochs: int | None = None,
    held_out: float = 0.05,
    regularization: float | None = None,
    n_negatives: int | None = None,
    n_jobs: int | None = None,
    rng: np.random.Generator,
) -> LinearMap:
    """Logits ``features(z) @ coef + intercept`` of small log loss, stopped early.

    The held-out rows judge well only if Z is no better on them than on new rows: where the
    regressor that made Z has many features, give predictions of rows that it has not seen.

    Parameters
    ----------
    Z : array (n, k)
        Embedded rows, of any scale.
    Y : csr_array (n, n_labels)
        Nonzero where a row has a label.
    multiclass : bool
        Softmax over the labels; a row with several labels counts as a share of each, and one
        with none does not count. Otherwise independent sigmoids.
    features : function from (b, k) to (b, m), optional
        Feature map, applied to a minibatch at a time: the n x m features are never stored.
    max_epochs : int, optional
        Passes over the rows, along which the rate falls to zero. By default 30, or 15 where
        an epoch is dear: with a feature map or shortlists.
    held_out : float
        Share of the rows (a few thousand at most) that judge when to stop; 0 uses all rows for
        training, and the last coefficients.
    regularization : float, optional
        Weight of half the squared coefficients (of the whitened features) against the sum of the
        losses; larger helps rare labels. By default 5, and 0 if `multiclass`.
    n_negatives : int, optional
        Work on a shortlist for each row: its labels and this many others, three quarters of
        them those that score best. By default all labels up to 5000 labels, 64 beyond.
    n_jobs : int, optional
    rng : numpy.random.Generator

    Returns
    -------
    LinearMap
        coef (k or m, n_labels), intercept (n_labels,).

    Notes
    -----
    An epoch costs 4 flops per row, feature and label (or label of a shortlist). Shortlists are
    found three times, each for 2 flops per row, feature and label. Memory: 4 arrays of the size
    of coef, and n x k floats.

    Examples
    --------
    >>> Z = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]
    >>> Y = csr_array(np.hstack([Z < 0, Z >= 0]).astype(np.float32))
    >>> logits = fit_logistic(Z, Y, multiclass=True, rng=np.random.default_rng(0))
    >>> logits(Z[[0, -1]]).argmax(axis=1).tolist()
    [0, 1]
    """
    Y = _checked_labels(Z, Y)
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out must be at least 0 and below 1, got {held_out}")
    if n_negatives is not None and n_negatives < 1:
        raise ValueError(f"n_negatives must be at least 1, got {n_negatives}")
    if n_negatives is None and Y.shape[1] > _EXACT:
        n_negatives = _NEGATIVES
    if max_epochs is None:
        max_epochs = 30 if features is None and n_negatives is None else 15
    kind = _SOFTMAX if multiclass else _SIGMOID
    if regularization is None:
        regularization = kind.penalty
    order = rng.permutation(len(Z))
    n_judges = min(int(held_out * len(Z)), max(1000, 2_000_000 // Y.shape[1]))
    judges, rows = np.sort(order[:n_judges]), order[n_judges:]
    whitening, source = _whiten(Z, features, np.sort(rows), kind.ridge)
    common = (source, Y, kind.residuals, resolve_jobs(n_jobs))
    loss = _Loss(*common) if n_negatives is None else _ShortlistLoss(*common, n_negatives, rng)
    W = np.zeros((Y.shape[1], len(whitening.mean) + 1), dtype=np.float32)
    W[:, -1] = _prior_logits(Y[rows], multiclass)
    crowding = 1.0 if whitening.transform.ndim == 2 else _CROWDED
    rate = min(_FASTEST, kind.rate * crowding / W.shape[1])
    W = _minimise(loss, W, rows, judges, max_epochs, rate, regularization, rng)
    return whitening.undone(W)


def _checked_labels(Z: F32, Y: csr_array) -> csr_array:
    Y = csr_array(Y)
    if Z.ndim != 2 or Y.shape[0] != len(Z):
        raise ValueError(f"Z and Y must have the same rows, got shapes {Z.shape} and {Y.shape}")
    if 0 in (*Z.shape, Y.shape[1]):
        raise ValueError(f"no rows, features or labels: Z is {Z.shape}, Y is {Y.shape}")
    if not Y.data.all():
        Y = Y.copy()
        Y.eliminate_zeros()
    return Y


def _prior_logits(Y: csr_array, multiclass: bool) -> F32:
    """Intercepts that give each label its frequency."""
    share = (np.bincount(Y.indices, minlength=Y.shape[1]) + 0.5) / (Y.shape[0] + 1.0)
    return np.log(share if multiclass else share / (1.0 - share)).astype(np.float32)


class _Whitening(NamedTuple):
    """f -> [(f - mean) transform, 1]; the transform (m, m), or (m,) for scaling alone."""

    mean: F32
    transform: F32

    def __call__(self, F: F32) -> F32:
        out = np.ones((len(F), F.shape[1] + 1), dtype=np.float32)
        F = F - self.mean
        out[:, :-1] = F * self.transform if self.transform.ndim == 1 else F @ self.transform
        return out

    def undone(self, W: F32) -> LinearMap:
        """The map of f whose logits are those of `W` (n_labels, m + 1) for whitened f."""
        T, M = self.transform, W[:, :-1].T
        coef = np.ascontiguousarray(T[:, None] * M if T.ndim == 1 else T @ M)
        return LinearMap(coef, W[:, -1] - self.mean @ coef)


def _whiten(
    Z: F32, features: Callable[[F32], F32] | None, rows: Ints, ridge: float
) -> tuple[_Whitening, RowSource]:
    """The whitening of the given rows, and where to get whitened minibatches of all rows.

    Few features are whitened once and kept; mapped ones are computed for each minibatch,
    which costs little beside the products with the coefficients.
    """
    phi = features if features is not None else lambda block: block
    m = phi(Z[:1]).shape[1]
    decorrelate = m <= _DECORRELATE
    total, squares = np.zeros(m), np.zeros((m, m) if decorrelate else m)
    for start in range(0, len(rows), _BLOCK_ROWS):
        F = phi(Z[rows[start : start + _BLOCK_ROWS]]).astype(np.float64)
        total += F.sum(axis=0)
        squares += F.T @ F if decorrelate else (F * F).sum(axis=0)
    mean = total / len(rows)
    if decorrelate:
        variance, P = np.linalg.eigh(squares / len(rows) - np.outer(mean, mean))
    else:
        variance, P, ridge = squares / len(rows) - mean**2, np.ones(m), 1e-4
    variance = np.maximum(variance, 0.0)
    T = P / np.sqrt(variance + (ridge * variance.mean() or 1.0))
    whitening = _Whitening(mean.astype(np.float32), T.astype(np.float32))
    if features is not None:
        return whitening, lambda index: whitening(features(Z[index]))
    stored = np.empty((len(Z), m + 1), dtype=np.float32)
    for start in range(0, len(Z), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        stored[block] = whitening(Z[block])
    return whitening, lambda index: stored[index]


class _Loss:
    """Log loss over all labels."""

    def __init__(
        self, source: RowSource, Y: csr_array, residuals: Callable[..., None], n_jobs: int
    ) -> None:
        self.source = source
        self.Y = Y
        self.residuals = residuals
        self.n_jobs = n_jobs

    def prepare(self, W: F32, rows: Ints) -> None:
        """Called before the first epoch and after a quarter and a half of them."""

    def gradient(self, rows: Ints, W: F32) -> tuple[Ints, F32]:
        """Labels that the rows touch, and the gradient of the sum of losses for each."""
        F = self.source(rows)
        S = F @ W.T
        self._to_residuals(S, rows)
        return np.arange(len(W)), np.matmul(S.T, F, dtype=np.float32)

    def mean(self, rows: Ints, W: F32) -> float:
        """Mean loss over all labels."""
        step = max(1, (16 << 20) // len(W))
        total = 0.0
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            total += float(self._to_residuals(self.source(part) @ W.T, part).sum())
        return total / max(len(rows), 1)

    def _to_residuals(self, S: F32, rows: Ints) -> Losses:
        T = self.Y[rows]
        bounds = np.arange(len(rows) + 1) * S.shape[1]
        return self._run_residuals(S.reshape(-1), bounds, T.indptr, T.indices)

    def _run_residuals(self, S: F32, bounds: Ints, indptr: Ints, places: Ints) -> Losses:
        losses = np.empty(len(indptr) - 1)
        args = (S, bounds, indptr.astype(np.int64), places.astype(np.int64), losses)
        tasks = [(*args, *part) for part in spans(len(losses), self.n_jobs)]
        run(self.residuals, tasks, self.n_jobs)
        return losses


class _ShortlistLoss(_Loss):
    """Log loss over a shortlist of each row: its labels, the best of the others, random ones."""

    def __init__(
        self,
        source: RowSource,
        Y: csr_array,
        residuals: Callable[..., None],
        n_jobs: int,
        n_negatives: int,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(source, Y, residuals, n_jobs)
        self.n_random = -(-n_negatives // 4)
        self.n_hard = min(n_negatives - self.n_random, Y.shape[1])
        self.rng = rng
        self.hard: Ints = np.empty((0, 0), dtype=np.int32)  # (n_rows, n_hard) once prepared

    def prepare(self, W: F32, rows: Ints) -> None:
        n_rows, n_labels = self.Y.shape
        if self.n_hard == 0:
            self.hard = np.empty((n_rows, 0), dtype=np.int32)
            return
        if not len(self.hard):
            W = self._least_squares(rows)
        self.hard, _ = topk_blocks(
            lambda part: self.source(np.arange(part.start, part.stop)) @ W.T,
            n_rows,
            n_labels,
            self.n_hard,
            self.n_jobs,
        )

    def _least_squares(self, rows: Ints) -> F32:
        """Y'F / n: what least squares has as coefficients, up to a ridge."""
        W = 0.0
        for start in range(0, len(rows), _BLOCK_ROWS):
            part = rows[start : start + _BLOCK_ROWS]
            W = W + self.Y[part].T @ self.source(part) / np.float32(len(rows))
        return np.ascontiguousarray(W, dtype=np.float32)

    def gradient(self, rows: Ints, W: F32) -> tuple[Ints, F32]:
        F = self.source(rows)
        T = self.Y[rows]
        pairs, bounds, places = self._pairs(rows, T)
        row_of, label_of = np.divmod(pairs, len(W))
        S = np.empty(len(pairs), dtype=np.float32)
        tasks = [(F, W, bounds, label_of, S, *part) for part in spans(len(F), self.n_jobs)]
        run(kernels.pair_scores, tasks, self.n_jobs)
        self._run_residuals(S, bounds, T.indptr, places)
        order = np.argsort(label_of, kind="stable")
        labels, counts = np.unique(label_of, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)])
        G = np.empty((len(labels), W.shape[1]), dtype=np.float32)
        parts = balanced_spans(starts, self.n_jobs)
        run(
            kernels.pair_gradient,
            [(F, S, row_of, order, starts, G, *part) for part in parts],
            self.n_jobs,
        )
        return labels, G

    def _pairs(self, rows: Ints, T: csr_array) -> tuple[Ints, Ints, Ints]:
        """Shortlists as sorted numbers row * n_labels + label, where each row's begin, and the
        places of the true labels in the shortlist of their row."""
        n, c = T.shape
        base = np.arange(n)[:, None] * c
        row_of_true = np.repeat(np.arange(n), np.diff(T.indptr))
        true = row_of_true * c + T.indices
        easy = base + self.rng.integers(0, c, (n, self.n_random))
        pairs = np.unique(np.concatenate([true, (base + self.hard[rows]).ravel(), easy.ravel()]))
        bounds = np.searchsorted(pairs, np.arange(n + 1) * c)
        return pairs, bounds, np.searchsorted(pairs, true) - bounds[row_of_true]


class _Stepper:
    """Coefficients and the running means that their steps depend on."""

    def __init__(self, W: F32, n_jobs: int) -> None:
        self.W = W.copy()
        self.mean, self.square = np.zeros_like(W), np.zeros(len(W), dtype=np.float32)
        self.n_steps = np.zeros(len(W), dtype=np.int64)
        self.n_jobs = n_jobs

    def step(self, labels: Ints, G: F32, rate: float, penalty: float) -> None:
        state = (self.W, self.mean, self.square, self.n_steps, labels, G, rate, penalty)
        tasks = [(*state, *part) for part in spans(len(labels), self.n_jobs)]
        run(kernels.step_rows, tasks, self.n_jobs)


def _minimise(
    loss: _Loss,
    W: F32,
    rows: Ints,
    judges: Ints,
    max_epochs: int,
    first_rate: float,
    regularization: float,
    rng: np.random.Generator,
) -> F32:
    """Coefficients after training, or those of the epoch that the judges liked best."""
    n_batches = -(-len(rows) // int(np.clip(len(rows) // 64, 32, _BATCH)))
    penalty = regularization / n_batches
    prepare_at = {0, max_epochs // 4, max_epochs // 2}
    best, lowest, stale, slowdown = W, loss.mean(judges, W), 0, 1.0
    now = _Stepper(W, loss.n_jobs)
    with phase("logistic decoder", total=max_epochs, unit="epochs") as advance:
        for epoch in range(max_epochs):
            if epoch in prepare_at:
                loss.prepare(now.W, rows)
            for b, batch in enumerate(np.array_split(rng.permutation(rows), n_batches)):
                done = (epoch + b / n_batches) / max_epochs
                rate = slowdown * first_rate * 0.5 * (1.0 + np.cos(np.pi * done))
                now.step(*loss.gradient(batch, now.W), rate, penalty)
            advance(1)
            if not len(judges):
                continue
            value = loss.mean(judges, now.W)
            if value < lowest:
                best, lowest, stale = now.W.copy(), value, 0
                continue
            stale += 1
            if stale >= _PATIENCE:
                slowdown *= _SLOWER
                if slowdown < _SLOWEST:
                    break
                now, stale = _Stepper(best, loss.n_jobs), 0
    return best if len(judges) else now.W
