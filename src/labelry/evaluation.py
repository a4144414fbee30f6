"""Measuring a fitted model on labelled rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelry.data.dataset import Dataset
from labelry.data.labels import align
from labelry.data.shards import Shards
from labelry.estimator import LabelRanker, rows_of
from labelry.metrics import Evaluation
from labelry.progress import phase

_BLOCK_ROWS = 10_000
_THRESHOLD_LABELS = 100  # labels of a row that a threshold chooses from
_AUC_SCORES = 2_000_000_000  # rows x labels up to which the AUC is worth its time


def evaluate(
    model: LabelRanker,
    dataset: Dataset | Shards,
    *,
    ks: Sequence[int] = (1, 3, 5),
    propensity: tuple[float, float] = (0.55, 1.5),
    threshold: float | None = None,
    by_frequency: bool = False,
) -> dict[str, Any]:
    """Every measure of a model on labelled rows, in percent, by its name ("P@1", ...).

    Labels that the model never saw count as missed. "AUC" is there when the model scores all
    labels and there are not too many to score; "ECE" when its scores are probabilities.
    "seconds" is the time that ranking took, but for a first row with which kernels are loaded.
    Of shards, one at a time is in memory.

    Parameters
    ----------
    propensity : (float, float)
        A and B of the propensity model; (0.5, 0.4) for Wikipedia, (0.6, 2.6) for Amazon.
    threshold : float, optional
        Also F1 of the labels whose score is at least this, among the best 100 of each row.
    by_frequency : bool
        Also the measures of head, torso and tail labels, under "by_frequency".
    """
    names = model.classes_.tolist()
    n_labels = len(model.classes_)
    scores_all = type(model)._scores is not LabelRanker._scores
    auc = scores_all and dataset.n_rows * n_labels <= _AUC_SCORES
    total = Evaluation(
        ks,
        train_counts=model.label_counts_,
        n_train=model.n_rows_,
        propensity=propensity,
        threshold=threshold,
        probabilities=model.probabilities,
    )
    n_best = max(ks) if threshold is None else max(*ks, _THRESHOLD_LABELS)
    seconds = 0.0
    # Scores of all labels, where wanted, bound the rows of a block.
    step = max(1, min(_BLOCK_ROWS, 50_000_000 // n_labels)) if auc else _BLOCK_ROWS
    with phase("evaluating", dataset.n_rows, "rows") as advance:
        for number, (X, Y) in enumerate(_blocks(dataset, names, step)):
            if number == 0:
                model.topk_ids(X[:1], n_best)
            begin = time.perf_counter()
            labels, scores = model.topk_ids(X, n_best)
            seconds += time.perf_counter() - begin
            if n_best > n_labels:  # places that no label can fill
                wide = ((0, 0), (0, n_best - n_labels))
                labels = np.pad(labels, wide, constant_values=-1)
                scores = np.pad(scores, wide, constant_values=-np.inf)
            total.update(Y, labels, scores, model.score_all(X) if auc else None)
            advance(len(labels))
    result: dict[str, Any] = _rounded(total.result())
    if by_frequency:
        result["by_frequency"] = {k: _rounded(v) for k, v in total.by_frequency().items()}
    result["seconds"] = round(seconds, 4)
    return result


def _blocks(
    dataset: Dataset | Shards, names: Sequence[Any], step: int
) -> Iterator[tuple[Any, csr_array]]:
    """`step` rows at a time, with labels in the order of a model's names."""
    for part in dataset.datasets():
        X, Y = rows_of(part), align(part.Y, part.label_names, names)
        for start in range(0, part.n_rows, step):
            yield X[start : start + step], Y[start : start + step]


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
