"""The logistic decoder: from an embedded row to label probabilities (Alg. 3, line 5).

Training takes minibatches. The features are first scaled so that their leading directions have
similar variance. A step along the gradient is then the second-order step C^-1 g of the paper, where
C is the covariance of the features. Steps have momentum, and those of a label are divided by the
root mean square of its gradient. The curvature p (1 - p) of the loss differs a thousandfold between
two classes and many, and between frequent and rare labels, so without that division no rate would
fit all labels. The rate falls along a cosine, and to a quarter whenever the held-out loss no longer
falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from labelry.arrays import F32, F64, I64, Ints, Rng
from labelry.linalg.balanced_clusters import Sets
from labelry.linalg.clusters import nearest_centre, unit_centres
from labelry.linalg.parallel import balanced_spans, resolve_jobs, run, run_spans
from labelry.linalg.sketch import randomized_eigh
from labelry.linalg.solve import LinearMap
from labelry.linalg.topk import topk
from labelry.progress import phase
from labelry.ranking import logistic_kernels as kernels
from labelry.ranking.hold_out import validation_split

Losses = F64
RowSource = Callable[[Ints], F32]  # row numbers -> whitened features

# None of these was tuned; the numbers of `_Kind` were.
_EXACT = 5000  # most labels for which the loss is over all of them
_NEGATIVES = 64  # labels in a shortlist beside the true ones
_CELL_ROWS = 256  # rows of a cell on average; they lie close together and share candidates
_MOST_CELLS = 1024
_CANDIDATES = 512  # most labels of a cell from which a row's best are chosen
_WHITENED = 512  # leading directions of the features that are scaled to similar variance
_SAMPLE = 16_384  # rows from which these directions are found
_BATCH = 1024  # most rows of a minibatch
_BLOCK_ROWS = 4096  # rows that are whitened, or put on shortlists, at a time
_FASTEST = 0.1  # largest first step of a coefficient
_PATIENCE = 2  # epochs without a better held-out loss until the rate falls
_SLOWER = 0.25  # factor of that fall
_SLOWEST = 0.05  # training stops when the product of these factors is below this


class _Kind(NamedTuple):
    """The differences between softmax and sigmoids, chosen on held-out rows that no table shows."""

    rate: float  # first step of a coefficient, times the number of features
    ridge: float  # in the whitening, of the mean variance: lesser directions stay smaller
    penalty: float


_SOFTMAX = _Kind(rate=6.0, ridge=1.0, penalty=0.0)
_SIGMOID = _Kind(rate=1.0, ridge=3.0, penalty=5.0)


def fit_logistic(
    Z: F32,
    Y: csr_array,
    *,
    multiclass: bool,
    features: Callable[[F32], F32] | None = None,
    max_epochs: int | None = None,
    held_out: float = 0.05,
    regularization: float | None = None,
    weights: F32 | None = None,
    n_negatives: int | None = None,
    groups: Ints | None = None,
    n_jobs: int | None = None,
    rng: Rng,
) -> LinearMap:
    """Fit logits ``features(z) @ coef + intercept`` of small log loss, with early stopping.

    Z (n, k) are embedded rows of any scale, Y (n, n_labels) their labels, `weights` the importance
    of each row; rows of one of the `groups` are held out together. The held-out loss is meaningful
    only if Z is no better on these rows than on new ones. If the regressor that made Z has many
    features, give predictions of rows that it has not seen.

    `multiclass` is a softmax over the labels: a row with several labels counts as a share of each,
    one without does not count. Otherwise there are independent sigmoids. `features` are computed
    for a minibatch at a time. The rate falls to zero along `max_epochs`: 30, or 15 where an epoch
    is slow, with features or shortlists. The loss of a share `held_out` of the rows, a few thousand
    at most, says when to stop; with 0 the last coefficients are kept. `regularization` weighs half
    the squared coefficients of the whitened features, 5 by default and 0 if `multiclass`: larger
    helps rare labels. Beyond 5000 labels each row has a shortlist: its labels and `n_negatives`
    others, 64 by default. Three quarters of these are the best scores among the labels of nearby
    rows, the rest is random.

    An epoch costs 4 flops per row, feature and label, or label of a shortlist; a feature map adds
    its own and up to 2000 per row and feature for their whitening. Shortlists are
    found three times, each for 2 flops per row, feature and candidate (512 at most): time does
    not grow with the number of labels. Memory: 4 arrays of the size of coef, and n x k floats.

    The paper's start from least squares and its gradient of less variance (the label term of all
    rows, the prediction term of a minibatch) were tried on held-out rows of ALOI, 10 epochs: error
    9.6 % with neither, 9.8 % with the start, 10.3 % with the gradient.

    >>> Z = np.linspace(-1, 1, 200, dtype=np.float32)[:, None]
    >>> Y = csr_array(np.hstack([Z < 0, Z >= 0]).astype(np.float32))
    >>> logits = fit_logistic(Z, Y, multiclass=True, rng=np.random.default_rng(0))
    >>> logits(Z[[0, -1]]).argmax(axis=1).tolist()
    [0, 1]
    """
    Y = csr_array(Y)
    if Z.ndim != 2 or Y.shape[0] != len(Z):
        raise ValueError(f"Z and Y must have the same rows, got shapes {Z.shape} and {Y.shape}")
    if 0 in (*Z.shape, Y.shape[1]):
        raise ValueError(f"no rows, features or labels: Z is {Z.shape}, Y is {Y.shape}")
    if not Y.data.all():  # without stored zeros
        Y = Y.copy()
        Y.eliminate_zeros()
    w = np.ones(len(Z), dtype=np.float32) if weights is None else np.float32(weights)
    if w.shape != (len(Z),) or not (w >= 0).all():
        raise ValueError(f"weights must be {len(Z)} numbers of at least 0, got {weights!r}")
    if n_negatives is None and Y.shape[1] > _EXACT:
        n_negatives = _NEGATIVES
    if max_epochs is None:
        max_epochs = 30 if features is None and n_negatives is None else 15
    kind = _SOFTMAX if multiclass else _SIGMOID
    if regularization is None:
        regularization = kind.penalty
    n_unseen = min(int(held_out * len(Z)), max(1000, 2_000_000 // (n_negatives or Y.shape[1])))
    rows, unseen = validation_split(len(Z), n_unseen, rng, groups=groups)
    unseen = np.sort(unseen)
    whitening, source = _whiten(Z, features, np.sort(rows[:_SAMPLE]), kind.ridge, rng)
    common = (source, Y, w, multiclass, resolve_jobs(n_jobs))
    loss = _Loss(*common)
    if n_negatives is not None:
        loss = _ShortlistLoss(*common, n_negatives, _cells(Z, loss.n_jobs, rng), rng)
    W = np.zeros((Y.shape[1], len(whitening.mean) + 1), dtype=np.float32)
    # Intercepts that give each label its frequency.
    T, total = Y[rows], w[rows].sum(dtype=np.float64)
    counts = np.bincount(T.indices, np.repeat(w[rows], np.diff(T.indptr)), minlength=Y.shape[1])
    share = (counts + 0.5) / (total + 1.0)
    W[:, -1] = np.log(share if multiclass else share / (1.0 - share))
    rate = min(_FASTEST, kind.rate / W.shape[1])
    return whitening.undone(_minimise(loss, W, rows, unseen, max_epochs, rate, regularization, rng))


class _Whitening(NamedTuple):
    """f -> [T (f - mean), 1] with T = scale (I + P diag(change) P'), near C^-1/2.

    The columns of P are the leading directions of the features. The others, which vary little and
    alike, all have one scale: for thousands of features T costs a fraction of a full matrix.
    """

    mean: F32
    scale: np.float32
    basis: F32  # P (m, r)
    change: F32  # (r,)

    def __call__(self, F: F32) -> F32:
        out = np.ones((len(F), F.shape[1] + 1), dtype=np.float32)
        out[:, :-1] = self._turned(F - self.mean)
        return out

    def undone(self, W: F32) -> LinearMap:
        """Return the map of f whose logits are those of W (n_labels, m + 1) for whitened f."""
        coef = np.ascontiguousarray(self._turned(W[:, :-1]).T)  # T is its own transpose
        return LinearMap(coef, W[:, -1] - self.mean @ coef)

    def _turned(self, A: F32) -> F32:
        """Return A T."""
        out = np.matmul((A @ self.basis) * self.change, self.basis.T, dtype=np.float32)
        out += A
        out *= self.scale
        return out


def _whiten(
    Z: F32, features: Callable[[F32], F32] | None, sample: Ints, ridge: float, rng: Rng
) -> tuple[_Whitening, RowSource]:
    """Return the whitening of a sample of rows, and the source of whitened minibatches.

    Features of Z are whitened once and kept; mapped ones are computed for each minibatch, which
    costs little beside the products with the coefficients.
    """
    F = Z[sample] if features is None else features(Z[sample])
    n, m = F.shape
    mean = F.mean(axis=0, dtype=np.float64).astype(np.float32)
    F = F - mean
    energy = float(np.einsum("ij,ij->", F, F, dtype=np.float64)) / n
    P, variance = randomized_eigh(
        lambda Q: F.T @ (F @ Q) / np.float32(n), m, min(m, _WHITENED), rng=rng
    )
    rest = max(energy - float(variance.sum()), 0.0) / max(m - len(variance), 1)
    added = ridge * energy / m or 1.0
    scale = 1.0 / np.sqrt(added + rest)
    change = (1.0 / np.sqrt(added + variance) / scale - 1.0).astype(np.float32)
    whitening = _Whitening(mean, np.float32(scale), P, change)
    if features is not None:
        return whitening, lambda index: whitening(features(Z[index]))
    stored = np.empty((len(Z), m + 1), dtype=np.float32)
    for block in _blocks(np.arange(len(Z))):
        stored[block] = whitening(Z[block])
    return whitening, lambda index: stored[index]


def _blocks(rows: Ints, size: int = _BLOCK_ROWS) -> Iterator[Ints]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


@dataclass
class _Loss:
    """Log loss over all labels."""

    source: RowSource
    Y: csr_array
    weights: F32
    multiclass: bool
    n_jobs: int

    def prepare(self, W: F32, rows: Ints) -> None:
        """Get ready for epochs: called before the first, and after a quarter and a half of them."""

    def gradient(self, rows: Ints, W: F32) -> tuple[Ints, F32]:
        """Return the labels that the rows touch, and the gradient of the sum of losses for each."""
        F = self.source(rows)
        S = F @ W.T
        self._to_residuals(S, rows)
        return np.arange(len(W)), np.matmul(S.T, F, dtype=np.float32)

    def mean(self, rows: Ints, W: F32) -> float:
        """Return the weighted mean of the losses of the rows."""
        total = sum(float(losses.sum()) for losses in self._losses(rows, W))
        return total / max(float(self.weights[rows].sum()), 1e-30)

    def _losses(self, rows: Ints, W: F32) -> Iterator[Losses]:
        for part in _blocks(rows, max(1, (16 << 20) // len(W))):
            yield self._to_residuals(self.source(part) @ W.T, part)

    def _to_residuals(self, S: F32, rows: Ints) -> Losses:
        T = self.Y[rows]
        bounds = np.arange(len(rows) + 1) * S.shape[1]
        return self._run_residuals(S.reshape(-1), rows, bounds, T.indptr, T.indices)

    def _run_residuals(
        self, S: F32, rows: Ints, bounds: Ints, indptr: Ints, places: Ints
    ) -> Losses:
        """Turn the scores S into residuals, in place, and return the loss of each row."""
        losses = np.empty(len(rows))
        labels = (indptr.astype(np.int64), places.astype(np.int64))
        args = (S, bounds, *labels, self.weights[rows], losses, self.multiclass)
        run_spans(kernels.residual_rows, args, len(rows), self.n_jobs)
        return losses


@dataclass
class _ShortlistLoss(_Loss):
    """Log loss over a shortlist of each row: its labels, likely others, and random ones."""

    n_negatives: int
    cells: list[Ints]
    rng: Rng
    likely: Ints = field(init=False)  # (n_rows, n_likely); no rows until it is prepared

    def __post_init__(self) -> None:
        self.n_random = -(-self.n_negatives // 4)
        self.n_likely = min(self.n_negatives - self.n_random, self.Y.shape[1])
        self.seed_of_mean = int(self.rng.integers(1 << 32))
        self.likely = np.empty((0, 0), dtype=np.int32)

    def prepare(self, W: F32, rows: Ints) -> None:
        """Choose the likely labels: the best, by W, of those of training rows nearby."""
        first = not len(self.likely)
        if first:
            W = self._least_squares(rows)
            self.likely = np.zeros((self.Y.shape[0], self.n_likely), dtype=np.int32)
        training = np.zeros(self.Y.shape[0], dtype=bool)
        training[rows] = True
        for cell in self.cells if self.n_likely else []:
            members = cell[training[cell]]
            labels, counts = np.unique(self.Y[members].indices, return_counts=True)
            labels = labels[np.argsort(-counts, kind="stable")[:_CANDIDATES]]
            if not len(labels):
                continue
            # Held-out rows keep their first list, so that their losses can be compared.
            for part in _blocks(cell if first else members):
                best, _ = topk(self.source(part) @ W[labels].T, self.n_likely, self.n_jobs)
                self.likely[part] = labels[best]  # where labels run out, -1 repeats the last

    def _least_squares(self, rows: Ints) -> F32:
        """Return Y'F / n: the coefficients of least squares, up to a ridge."""
        W = np.zeros((self.Y.shape[1], self.source(rows[:1]).shape[1]), dtype=np.float32)
        for part in _blocks(rows):
            T = self.Y[part]
            labels, columns = np.unique(T.indices, return_inverse=True)
            T = csr_array((T.data, columns, T.indptr), shape=(len(part), len(labels)))
            W[labels] += T.T @ self.source(part) / np.float32(len(rows))
        return W

    def gradient(self, rows: Ints, W: F32) -> tuple[Ints, F32]:
        """Return the labels on the shortlists of the rows, and the gradient for each of them."""
        F = self.source(rows)
        S, row_of_pair, label_of_pair, _ = self._residuals(rows, F, W, self.rng)
        order = np.argsort(label_of_pair, kind="stable")
        by_label = label_of_pair[order]
        starts = np.flatnonzero(np.diff(by_label, prepend=-1, append=-1))
        labels = by_label[starts[:-1]]
        G = np.empty((len(labels), W.shape[1]), dtype=np.float32)
        args = (F, S, row_of_pair, order, starts, G)
        tasks = [(*args, *part) for part in balanced_spans(starts, self.n_jobs)]
        run(kernels.pair_gradient, tasks, self.n_jobs)
        return labels, G

    def _losses(self, rows: Ints, W: F32) -> Iterator[Losses]:
        rng = np.random.default_rng(self.seed_of_mean)  # the same random labels at each call
        for part in _blocks(rows):
            yield self._residuals(part, self.source(part), W, rng)[-1]

    def _residuals(self, rows: Ints, F: F32, W: F32, rng: Rng) -> tuple[F32, Ints, Ints, Losses]:
        """Return residuals, rows and labels of the pairs of shortlists, and the losses of rows."""
        T = self.Y[rows]
        n, c = T.shape
        base = np.arange(n)[:, None] * c
        row_of_true = np.repeat(np.arange(n), np.diff(T.indptr))
        true = row_of_true * c + T.indices
        easy = base + rng.integers(0, c, (n, self.n_random))
        likely = base + self.likely[rows]
        # Sorted numbers row * c + label: a label that was chosen twice counts once.
        pairs = np.unique(np.concatenate([true, likely.ravel(), easy.ravel()]))
        bounds = np.searchsorted(pairs, np.arange(n + 1) * c)
        places = np.searchsorted(pairs, true) - bounds[row_of_true]
        row_of_pair, labels = np.divmod(pairs, c)
        S = np.empty(len(pairs), dtype=np.float32)
        run_spans(kernels.pair_scores, (F, W, bounds, labels, S), n, self.n_jobs)
        losses = self._run_residuals(S, rows, bounds, T.indptr, places)
        return S, row_of_pair, labels, losses


def _cells(Z: F32, n_jobs: int, rng: Rng) -> list[Ints]:
    """Return groups of rows that lie close together: spherical k-means, of a sample of them.

    The number of groups does not depend on the labels, and is bounded.
    """
    n_cells = int(np.clip(len(Z) // _CELL_ROWS, 1, _MOST_CELLS))
    sample = Z[rng.choice(len(Z), min(len(Z), 16 * n_cells), replace=False)]
    cell = np.arange(len(sample), dtype=np.int32) % n_cells
    centres = unit_centres(sample[:n_cells], cell[:n_cells], n_cells)
    for _ in range(5):
        cell = nearest_centre(sample, centres, n_jobs)
        centres = unit_centres(sample, cell, n_cells)
    cells = Sets.of(nearest_centre(Z, centres, n_jobs), n_cells)
    return np.split(cells.members, cells.bounds[1:-1])


def _minimise(
    loss: _Loss,
    W: F32,
    rows: Ints,
    unseen: Ints,
    max_epochs: int,
    first_rate: float,
    regularization: float,
    rng: Rng,
) -> F32:
    """Return the coefficients of the epoch of the least held-out loss, or else the last."""
    n_batches = -(-len(rows) // int(np.clip(len(rows) // 64, 32, _BATCH)))
    penalty = regularization / n_batches
    prepare_at = {max_epochs // 4, max_epochs // 2}
    loss.prepare(W, rows)
    best, lowest, stale, slowdown = W, loss.mean(unseen, W), 0, 1.0
    now, means = _fresh(W)
    with phase("training the decoder", total=max_epochs, unit="epochs") as advance:
        for epoch in range(max_epochs):
            if epoch and epoch in prepare_at:
                loss.prepare(now, rows)
            for b, batch in enumerate(np.array_split(rng.permutation(rows), n_batches)):
                done = (epoch + b / n_batches) / max_epochs
                rate = slowdown * first_rate * 0.5 * (1.0 + np.cos(np.pi * done))
                labels, G = loss.gradient(batch, now)
                arguments = (now, *means, labels, G, rate, penalty)
                run_spans(kernels.step_rows, arguments, len(labels), loss.n_jobs)
            advance(1)
            if not len(unseen):
                continue
            value = loss.mean(unseen, now)
            if value < lowest:
                best, lowest, stale = now.copy(), value, 0
                continue
            stale += 1
            if stale >= _PATIENCE:
                slowdown *= _SLOWER
                if slowdown < _SLOWEST:
                    break
                (now, means), stale = _fresh(best), 0
    return best if len(unseen) else now


def _fresh(W: F32) -> tuple[F32, tuple[F32, F32, I64]]:
    """Return a copy of the coefficients, and the running means that their steps depend on."""
    n_steps = np.zeros(len(W), dtype=np.int64)
    return W.copy(), (np.zeros_like(W), np.zeros(len(W), dtype=np.float32), n_steps)
