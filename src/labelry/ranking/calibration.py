"""Turn scores between 0 and 1 into probabilities, by a curve that never falls with the score."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.isotonic import isotonic_regression
from sklearn.linear_model import LogisticRegression

from labelry.arrays import F32, F64, Bools
from labelry.linalg.topk import topk

Numbers = NDArray[np.number]

CALIBRATED = 10  # best labels of a row that the curve is fitted to; not tuned
_LEAST = 1e-6  # distance from 0 and 1 below which scores count as equal; not tuned
_MOST_BENDS = 50  # most bends of a curve; not tuned
_PER_BEND = 100  # least number of true labels for each bend, on average; not tuned
# Share of the smooth curve that stays: with equal log odds, labels would lose their order.
_SMOOTH = 0.1  # not tuned
_PRIOR = 50  # labels that the smooth curve counts for, beside those of a bend; not tuned
# Scale of the feature for the rows of a label. A small feature needs a large factor, which the
# penalty keeps down: there are far fewer labels than rows to learn this factor from.
_SMALL = 0.1
_OF_SCORE = 3  # factors of the score, which must not be negative; the fourth is of label rows

_NO_BENDS = np.empty(0)
_NO_ROWS = np.empty((0, 0), dtype=np.float32)


class Calibration(NamedTuple):
    """A smooth curve of five numbers, which needs few rows, with bends where there are many rows.

    For a score s in a row whose best score is `best`, of a label with n training rows, it is

        f(s) = low log s - high log(1 - s) + share log(s / best) + frequency log(1 + n) + intercept

    If rows have few labels, a label that is not the best of its row is less probable than its own
    score suggests; and the same score may mean another probability for a rare label than for a
    frequent one.

    The log odds are f(s), moved by the straight lines between the bends. Before the first bend and
    after the last they are moved by as much as there. No factor of a score is negative, and the
    bends do not fall, so without `frequency` the order of a row stays.

    Kull, Silva Filho, Flach: Beta calibration, 2017. Zadrozny, Elkan: Transforming classifier
    scores into accurate multiclass probability estimates, 2002.
    """

    low: float
    high: float
    intercept: float
    at: Annotated[F64, "n_bends"] = _NO_BENDS  # f(s) of each bend, ascending
    log_odds: Annotated[F64, "n_bends"] = _NO_BENDS  # the log odds there
    share: float = 0.0
    frequency: float = 0.0

    def probabilities(self, scores: F32, n_rows: Numbers | None = None) -> F32:
        """Return the probabilities of scores (n, m), which include the best score of each row.

        Minus infinity (no label) stays. `n_rows` (n, m) are the training rows of the labels; they
        are not used if the curve was fitted without.
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

    `n_rows` has no entries if the rows of labels do not count. This is compiled because for a
    single row NumPy's calls would take most of the time.
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
                f += log_odds[b - 1] - inside  # with a single bend the entry before it is itself
                if at.size > 1:
                    rise, width = log_odds[b] - log_odds[b - 1], at[b] - at[b - 1]
                    f += rise * (inside - at[b - 1]) / width
            p[i, j] = 1 / (1 + np.exp(-f))


def fit_calibration(scores: F32, hits: Bools, n_rows: Numbers | None = None) -> Calibration | None:
    """Fit to the scores (n, m) of the ten best labels of rows that were held out.

    The other labels are left out: they are many, and nearly all are false. `n_rows` (n, m) are the
    training rows of each label, scaled up to the number it would have if none had been held out.
    Return None if all labels or none are true, because there is nothing to learn from.
    """
    rows = np.zeros(scores.shape) if n_rows is None else _SMALL * np.log1p(n_rows)
    places, scores = topk(scores, min(CALIBRATED, scores.shape[1]))
    places = np.maximum(places, 0)
    hits, rows = np.take_along_axis(hits, places, axis=1), np.take_along_axis(rows, places, axis=1)
    listed = np.isfinite(scores)
    s = np.minimum(np.maximum(scores.astype(np.float64), _LEAST), 1 - _LEAST)
    logs = np.log(s)
    below = logs - logs.max(axis=-1, keepdims=True, initial=np.log(_LEAST))
    A, true = np.stack([logs, -np.log1p(-s), below, rows], axis=-1)[listed], hits[listed]
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
        # A factor below zero, by which the curve falls with the score, is noise: fit without it.
        kept[:_OF_SCORE] &= model.coef_[0, :_OF_SCORE] > 0


def calibrated(calibration: Calibration | None, scores: F32, n_rows: Numbers | None = None) -> F32:
    """Return probabilities, or the scores as they are if there is no calibration."""
    return scores if calibration is None else calibration.probabilities(scores, n_rows)


def _bends(f: F64, true: Bools) -> tuple[F64, F64]:
    """Return f and the log odds of groups of labels of similar f; both ascend.

    The more probable labels are, the smaller are their groups: most bends are among the probable.
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
