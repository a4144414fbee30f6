"""Scores between 0 and 1 to probabilities, by a curve that never falls with the score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.isotonic import isotonic_regression
from sklearn.linear_model import LogisticRegression

from labelry.checks import StoredCheck
from labelry.linalg.topk import topk
from labelry.state import storable

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Numbers = NDArray[np.number]

CALIBRATED = 10  # best labels of a row that the curve is fitted to
_LEAST = 1e-6  # distance from 0 and 1 below which scores say nothing more
_MOST_BENDS = 50
_PER_BEND = 100  # true labels for each bend of the curve, on average, at least
_SMOOTH = 0.1  # of the smooth curve that stays: equal log odds would lose the order of scores
_PRIOR = 50  # labels that the smooth curve counts for, beside those of a bend
# Small features need large factors, which regularised models avoid: the labels of all rows are
# few beside the rows, and say less about frequent and rare ones than so many rows could.
_SMALL = 0.1
_OF_SCORE = 3  # factors, which do not fall; the fourth is that of the rows of a label

_NO_BENDS = np.empty(0)
_NO_ROWS = np.empty((0, 0), dtype=np.float32)


@storable
class Calibration(NamedTuple):
    """A smooth curve of five numbers, which needs few rows, bent to what many rows say.

    For a score s in a row whose best score is `best`, of a label with n training rows, it is

        f(s) = low log s - high log(1 - s) + share log(s / best) + frequency log(1 + n) + intercept

    Where a row has one label or a few, those that are behind another are less probable than their
    own score says; and a score may mean more, or less, of a rare label than of a frequent one. The
    log odds are f(s), moved by the straight lines between the bends; before the first bend and
    after the last they are moved as there. No factor of a score is negative and the bends do not
    fall: without `frequency` the order of a row stays.

    Attributes
    ----------
    low, high, intercept : float
    at, log_odds : array (n_bends,)
        f(s) of each bend, ascending, and the log odds there.
    share, frequency : float

    References
    ----------
    Kull, Silva Filho, Flach: Beta calibration, 2017. Zadrozny, Elkan: Transforming classifier
    scores into accurate multiclass probability estimates, 2002.
    """

    low: float
    high: float
    intercept: float
    at: F64 = _NO_BENDS
    log_odds: F64 = _NO_BENDS
    share: float = 0.0
    frequency: float = 0.0

    def check_stored(self, check: StoredCheck) -> None:
        """A ValueError unless it is a curve."""
        for name in ("low", "high", "intercept", "share", "frequency"):
            check.number(name, getattr(self, name))
        check.kind("at", self.at, np.ndarray)
        for name in ("at", "log_odds"):
            check.array(name, getattr(self, name), self.at.size, dtype="float64")

    def probabilities(self, scores: F32, n_rows: Numbers | None = None) -> F32:
        """Of scores (n, m), the best of each row among them; minus infinity (no label) stays.

        `n_rows` (n, m) are the training rows of the labels; not used if it was not fitted to any.
        """
        scores = np.ascontiguousarray(scores, dtype=np.float32)
        rows = _NO_ROWS if n_rows is None else n_rows.astype(np.float32)
        p = np.empty(scores.shape, dtype=np.float32)
        factors = (self.low, self.high, self.share, self.frequency, self.intercept)
        _follow(scores, rows, factors, self.at, self.log_odds, p)
        return p


@njit(nogil=True, cache=True, error_model="numpy")  # a forged curve makes wrong scores, no errors
def _follow(
    scores: F32,
    n_rows: F32,
    factors: tuple[float, float, float, float, float],
    at: F64,
    log_odds: F64,
    p: F32,
) -> None:
    """Fill `p` with the probabilities of a `Calibration`.

    `n_rows` has no entries where the rows of labels do not count. Compiled for the sake of single
    rows, of which NumPy's calls would take most of the time.
    """
    low, high, share, frequency, intercept = factors
    for i in range(scores.shape[0]):
        largest = _LEAST
        for s in scores[i]:
            largest = max(largest, min(s, 1 - _LEAST))
        best = np.log(largest)
        for j in range(scores.shape[1]):
            if scores[i, j] == -np.inf:
                p[i, j] = -np.inf
                continue
            s = min(max(np.float64(scores[i, j]), _LEAST), 1 - _LEAST)
            own = np.log(s)
            f = low * own - high * np.log1p(-s) + share * (own - best) + intercept
            if n_rows.size:
                f += frequency * np.log1p(n_rows[i, j])
            if at.size:
                b = min(max(np.searchsorted(at, f), 1), at.size - 1)
                inside = min(max(f, at[0]), at[-1])
                f += _line(at, log_odds, b, inside) - inside
            p[i, j] = 1 / (1 + np.exp(-f))


@njit(nogil=True, cache=True, inline="always", error_model="numpy")
def _line(x: F64, y: F64, b: int, at: float) -> float:
    """The straight line through points b - 1 and b; through one point it is level."""
    if x.size == 1:
        return y[0]
    return y[b - 1] + (y[b] - y[b - 1]) * (at - x[b - 1]) / (x[b] - x[b - 1])


def fit_calibration(
    scores: F32, hits: NDArray[np.bool_], n_rows: Numbers | None = None
) -> Calibration | None:
    """Fit to scores of the ten best labels of each row; the others are many, and all but false.

    The rows are such that the model has not seen. None where all labels are true, or none is:
    there is nothing to learn from.

    Parameters
    ----------
    scores, hits : arrays (n, m)
        Scores, minus infinity where there is no label, and which of the labels are true.
    n_rows : array (n, m), optional
        Training rows of each label, as many as it would have if none had been held out. Without
        them these do not count.
    """
    rows = np.zeros(scores.shape) if n_rows is None else _SMALL * np.log1p(n_rows)
    places, scores = topk(scores, min(CALIBRATED, scores.shape[1]))
    places = np.maximum(places, 0)
    hits, rows = np.take_along_axis(hits, places, axis=1), np.take_along_axis(rows, places, axis=1)
    listed = np.isfinite(scores)
    A, true = np.stack([*_logarithms(scores), rows], axis=-1)[listed], hits[listed]
    if true.all() or not true.any():
        return None
    kept = np.ones(A.shape[1], dtype=bool)
    while True:
        model = LogisticRegression(solver="newton-cholesky").fit(A * kept, true)
        low, high, share, frequency = model.coef_[0].tolist()
        if min(low, high, share) >= 0:
            bends = _bends(model.decision_function(A), true)
            intercept = float(model.intercept_[0])
            return Calibration(low, high, intercept, *bends, share, _SMALL * frequency)
        # A curve that falls with the score is noise: without that part of it.
        kept[:_OF_SCORE] &= model.coef_[0, :_OF_SCORE] > 0


def calibrated(calibration: Calibration | None, scores: F32, n_rows: Numbers | None = None) -> F32:
    """Probabilities, or the scores as they are."""
    return scores if calibration is None else calibration.probabilities(scores, n_rows)


def _bends(f: F64, true: NDArray[np.bool_]) -> tuple[F64, F64]:
    """Log odds of groups of labels alike in f, and f of each group; both ascend.

    The more probable labels are, the smaller are their groups: most bends are where it matters.
    """
    order = np.argsort(f, kind="stable")
    f, true = f[order], true[order]
    n_groups = int(np.clip(np.count_nonzero(true) // _PER_BEND, 1, _MOST_BENDS))
    weight = np.cumsum(np.sqrt(expit(f)))
    cuts = np.searchsorted(weight, weight[-1] * np.arange(1, n_groups) / n_groups)
    first = np.unique(np.concatenate([[0], cuts]))
    size = np.diff(np.append(first, len(f)))
    smooth = np.add.reduceat(expit(f), first) / size
    at = logit(smooth)
    share = (np.add.reduceat(true, first, dtype=np.float64) + _PRIOR * smooth) / (size + _PRIOR)
    log_odds = (1 - _SMOOTH) * logit(isotonic_regression(share, sample_weight=size)) + _SMOOTH * at
    at, different = np.unique(at, return_index=True)
    return at, log_odds[different]


def _logarithms(scores: F32) -> tuple[F64, F64, F64]:
    """Of scores (n, m), of what is left to 1 (negative), and of the share of the row's best."""
    s = np.minimum(np.maximum(scores.astype(np.float64), _LEAST), 1 - _LEAST)
    low = np.log(s)
    return low, -np.log1p(-s), low - low.max(axis=-1, keepdims=True, initial=np.log(_LEAST))
