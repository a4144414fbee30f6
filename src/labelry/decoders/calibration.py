"""Scores between 0 and 1 to probabilities, by a curve that never falls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from labelry.state import storable

F32 = NDArray[np.float32]

_LEAST = 1e-6  # distance from 0 and 1 below which scores say nothing more


@storable
class Calibration(NamedTuple):
    """``log odds = low log s - high log(1 - s) + intercept`` for a score s.

    `low` and `high` are not negative, so the order of the scores stays. With three numbers it
    needs few rows, and unlike Platt's curve it may bend differently near 0 and near 1.

    Kull, Silva Filho, Flach: Beta calibration, 2017.
    """

    low: float
    high: float
    intercept: float

    def probabilities(self, scores: F32) -> F32:
        """Of scores; minus infinity (no label) stays."""
        log_odds = _logarithms(scores) @ np.array([self.low, self.high]) + self.intercept
        return np.where(np.isneginf(scores), scores, expit(log_odds)).astype(np.float32)


def fit_calibration(scores: F32, hits: NDArray[np.bool_]) -> Calibration | None:
    """Fit to scores of labels of rows that the model has not seen.

    None where all labels are true, or none is: there is nothing to learn from.

    Parameters
    ----------
    scores, hits : arrays (n, m)
        Scores, minus infinity where there is no label, and which of the labels are true.
    """
    listed = np.isfinite(scores)
    A, true = _logarithms(scores[listed]), hits[listed]
    if true.all() or not true.any():
        return None
    kept = np.ones(2, dtype=bool)
    while True:
        model = LogisticRegression(solver="newton-cholesky").fit(A * kept, true)
        if (model.coef_ >= 0).all():
            low, high = model.coef_[0].tolist()
            return Calibration(low, high, float(model.intercept_[0]))
        kept &= model.coef_[0] > 0  # a curve that falls is noise: without that part of it


def _logarithms(scores: F32) -> NDArray[np.float64]:
    s = np.clip(scores.astype(np.float64), _LEAST, 1 - _LEAST)
    return np.stack([np.log(s), -np.log1p(-s)], axis=-1)
