"""Measure a fitted model on labelled rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.data.dataset import Dataset
from labelry.data.labels import align
from labelry.data.shards import Shards
from labelry.estimators.base import LabelRanker
from labelry.metrics import Evaluation
from labelry.progress import phase
from labelry.ranking.ranker import ScoresAll, supports

# Not tuned, any of them.
_BLOCK_ROWS = 10_000  # rows that are ranked at a time
_THRESHOLD_LABELS = 100  # best labels of a row that a threshold chooses from
_AUC_SCORES = 2_000_000_000  # rows times labels up to which the AUC is measured


def evaluate(
    model: LabelRanker,
    dataset: Dataset | Shards,
    *,
    ks: Sequence[int] = (1, 3, 5),
    propensity: tuple[float, float] = (0.55, 1.5),
    threshold: float | None = None,
    by_frequency: bool = False,
) -> dict[str, Any]:
    """Return every measure of a model on labelled rows, in percent, by name ("P@1", ...).

    Labels that the model never saw count as missed. "AUC" is present if the model scores all
    labels and there are not too many to score, "ECE" if its scores are probabilities. "seconds" is
    the time that ranking takes, after a first row that loads the kernels. "rows without a known
    word" is there for a model of texts: such rows get no labels. One shard at a time is in memory.

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
    auc = supports(model, ScoresAll) and dataset.n_rows * n_labels <= _AUC_SCORES
    total = Evaluation(
        ks,
        train_counts=model.label_counts_,
        n_train=model.n_rows_,
        propensity=propensity,
        threshold=threshold,
        probabilities=model.probabilities,
    )
    n_best = max(ks) if threshold is None else max(*ks, _THRESHOLD_LABELS)
    seconds, n_unknown = 0.0, 0
    # The AUC needs the scores of all labels, which bounds the rows of a block.
    step = max(1, min(_BLOCK_ROWS, 50_000_000 // n_labels)) if auc else _BLOCK_ROWS
    with phase("evaluating", dataset.n_rows, "rows") as advance:
        for number, (X, Y) in enumerate(_blocks(dataset, names, step)):
            if number == 0:
                model.topk_ids(X[:1], n_best)
            begin = time.perf_counter()
            labels, scores = best_labels(model, X, n_best)
            seconds += time.perf_counter() - begin
            n_unknown += int(np.count_nonzero(~model.known_words(X, labels)))
            total.update(Y, labels, scores, model.score_all(X) if auc else None)
            advance(len(labels))
    result: dict[str, Any] = _rounded(total.result())
    if by_frequency:
        result["by_frequency"] = {k: _rounded(v) for k, v in total.by_frequency().items()}
    if model.text_features_ is not None:
        result["rows without a known word"] = n_unknown
    result["seconds"] = round(seconds, 4)
    return result


def best_labels(
    model: LabelRanker, X: Any, k: int
) -> tuple[NDArray[np.integer], NDArray[np.float32]]:
    """Return ids and scores of the k best labels of each row; -1 and -inf if there are fewer."""
    labels, scores = model.topk_ids(X, k)
    missing = ((0, 0), (0, k - labels.shape[1]))
    padded = np.pad(labels, missing, constant_values=-1)
    return padded, np.pad(scores, missing, constant_values=-np.inf)


def _blocks(
    dataset: Dataset | Shards, names: Sequence[Any], step: int
) -> Iterator[tuple[Any, csr_array]]:
    """Yield `step` rows at a time, with labels in the order of a model's names."""
    for part in dataset.datasets():
        X, Y = part.rows, align(part.Y, part.label_names, names)
        for start in range(0, part.n_rows, step):
            yield X[start : start + step], Y[start : start + step]


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
