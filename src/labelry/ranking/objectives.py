"""Objectives of a ranking, and the label weights and thresholds that serve them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from labelry.arrays import F32, Bools, Ints
from labelry.metrics import inverse_propensity
from labelry.parameters import Settings, param, settings

Objective = Literal["precision", "propensity", "f1"]
OBJECTIVE_HELP = (
    'What the ranking is for. "precision" ranks the most probable labels first. "propensity" moves '
    'labels up that are rare, and so often forgotten (PSP@k). With "f1" the ranking is that of '
    '"precision", but `predict` takes as many labels as give the best micro F1 on held-out rows.'
)


@settings
class ObjectiveSettings(Settings):
    """What a ranking is for."""

    objective: Objective = param(default="precision", help=OBJECTIVE_HELP)


def label_weights(objective: Objective, counts: Ints, n_rows: int) -> F32 | None:
    """Return a factor on the score of each label, or None if all labels count the same.

    With propensities: of the rows that should have label l, people note it on a share p_l, which is
    smaller for rare labels. If P is the probability that it is noted, P / p_l is the probability
    that it should be.

    Jain, Prabhu, Varma: Extreme multi-label loss functions, 2016.
    """
    if objective != "propensity":
        return None
    return inverse_propensity(counts, n_rows).astype(np.float32)


def weighted(candidates: Ints, S: F32, weights: F32 | None) -> F32:
    """Return the scores times the weights of the candidates; scores of at most 0 stay."""
    if weights is None:
        return S
    return np.where(S > 0, S * weights[candidates], S)


def f1_threshold(scores: F32, hits: Bools, n_true: int) -> float:
    """Return the threshold with the largest micro F1 = 2 tp / (predicted + true).

    For calibrated probabilities it is half of that F1 (Lipton, Elkan, Naryanaswamy: Optimal
    thresholding of classifiers to maximize F1 measure, 2014).

    `scores` and `hits` (n, m) are those of candidates, minus infinity if there is none; `n_true`
    counts the true labels of all rows, including those that are no candidates.
    counts the true labels of all rows, including those that are no candidates.

    >>> scores = np.array([[0.9, 0.4, 0.3, 0.1]], dtype=np.float32)
    >>> round(f1_threshold(scores, np.array([[True, False, True, False]]), n_true=2), 2)
    0.3
    """
    listed = np.isfinite(scores)
    order = np.argsort(-scores[listed], kind="stable")
    score = scores[listed][order]
    f1 = 2 * np.cumsum(hits[listed][order]) / (np.arange(1, len(score) + 1) + n_true)
    f1[:-1][score[:-1] == score[1:]] = 0  # labels of equal scores are predicted together
    return float(score[np.argmax(f1)])
