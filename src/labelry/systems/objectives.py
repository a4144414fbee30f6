"""What a ranking of labels serves, and what follows for its scores."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelry.checks import StoredCheck
from labelry.decoders.calibration import Calibration
from labelry.metrics import inverse_propensity

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Objective = Literal["precision", "propensity", "f1"]

OBJECTIVES = ("precision", "propensity", "f1")


def label_weights(objective: Objective, counts: Ints, n_rows: int) -> F32 | None:
    """Factor on the score of each label; None where all are alike.

    With propensities: of the labels that a row should have, people note a share p_l, smaller for
    rare labels. If P is the probability that a label is noted, P / p_l is that it should be.

    Jain, Prabhu, Varma: Extreme multi-label loss functions, 2016.
    """
    if objective != "propensity":
        return None
    return inverse_propensity(counts, n_rows).astype(np.float32)


def check_objective(check: StoredCheck, model: Any, n_labels: int) -> None:
    """A ValueError unless what a model has for its objective, read from a file, is right."""
    check.kind("calibration_", model.calibration_, Calibration, None)
    if model.calibration_ is not None:
        model.calibration_.check_stored(check)
    check.number("threshold_", model.threshold_)
    if model.label_weights_ is not None:
        check.array("label_weights_", model.label_weights_, n_labels)


def weighted(candidates: Ints, S: F32, weights: F32 | None) -> F32:
    """Scores times the weights of the candidates; those that are not positive stay."""
    if weights is None:
        return S
    return np.where(S > 0, S * weights[candidates], S)


def f1_threshold(scores: F32, hits: NDArray[np.bool_], n_true: int) -> float:
    """The least score of a label to predict, for the largest micro F1 = 2 tp / (predicted + true).

    Of calibrated probabilities it is half that F1 (Lipton, Elkan, Naryanaswamy: Optimal
    thresholding of classifiers to maximize F1 measure, 2014).

    Parameters
    ----------
    scores, hits : arrays (n, m)
        Scores of candidates, minus infinity where there is none, and which of them are true.
    n_true : int
        True labels of all rows, also of those that are no candidates.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.4, 0.3, 0.1]], dtype=np.float32)
    >>> round(f1_threshold(scores, np.array([[True, False, True, False]]), n_true=2), 2)
    0.3
    """
    listed = np.isfinite(scores)
    order = np.argsort(-scores[listed], kind="stable")
    score = scores[listed][order]
    f1 = 2 * np.cumsum(hits[listed][order]) / (np.arange(1, len(score) + 1) + n_true)
    f1[:-1][score[:-1] == score[1:]] = 0  # equal scores are predicted together
    return float(score[np.argmax(f1)])
