"""Compute the measures of a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.data.dataset import Dataset
from labelry.data.labels import align
from labelry.estimators.base import LabelRanker
from labelry.evaluation.evaluate import best_labels
from labelry.metrics import Evaluation, inverse_propensity
from labelry.metrics.matching import Matched, match
from labelry.metrics.ranking import Totals, best_gains, ranking_totals, ratio
from labelry.metrics.scoring import CALIBRATION_BINS, calibration_totals
from labelry.progress import phase
from labelry.ranking.ranker import HasSpectrum, supports

Floats = NDArray[np.float64]
Interval = tuple[float, float]

CUTOFFS = (1, 3, 5)
LONGEST = 20  # labels that are ranked for each row
RESAMPLES = 1_000  # bootstrap samples
CONFIDENCE = 95  # percent
THRESHOLDS = tuple(i / 20 for i in range(1, 20))  # of probabilities, in the curve of thresholds

_BLOCK_ROWS = 10_000  # rows ranked at a time
_TIMED_ROWS = 100  # rows that are ranked before timing, so that kernels are loaded


class Ranked(NamedTuple):
    """Labelled rows, and the best `LONGEST` labels of a model for each; unseen labels are last."""

    truth: Matched
    scores: NDArray[np.float32]  # (n_rows, LONGEST); minus infinity where there is no label
    known: NDArray[np.bool_]  # (n_rows,); a document without a known word gets no label
    seconds: float  # of ranking


class Measures(NamedTuple):
    """Measures of the predictions; all but `calibration` are in percent."""

    values: dict[str, float]  # by name, as `labelry.evaluation.evaluate.evaluate` has them
    intervals: dict[str, Interval]  # of P@k and PSP@k
    by_frequency: dict[str, dict[str, float]]  # of tail, torso and head labels
    curve: dict[str, Floats]  # P and R at 1, 2, ..., `LONGEST`, or as many as there are labels
    # For each bin of probabilities: predictions, sum of their probabilities, hits. None if the
    # scores are no probabilities.
    calibration: Floats | None  # (3, n_bins)
    baseline: dict[str, float]  # P@1 and R@5 of always giving the most frequent labels
    by_threshold: Floats | None  # (4, n): threshold, precision, recall, share of rows with a label


def rank(model: LabelRanker, dataset: Dataset) -> Ranked:
    """Rank labels for each row and compare them with the true ones."""
    if not dataset.n_rows:
        raise ValueError("the data must have at least one row, got none")
    Y = align(dataset.Y, dataset.label_names, model.classes_.tolist())
    X = dataset.rows
    labels = np.empty((dataset.n_rows, LONGEST), dtype=np.int32)
    scores = np.empty(labels.shape, dtype=np.float32)
    known = np.empty(dataset.n_rows, dtype=np.bool_)
    model.topk_ids(X[:_TIMED_ROWS], LONGEST)
    seconds = 0.0
    with phase("ranking", dataset.n_rows, "rows") as advance:
        for start in range(0, dataset.n_rows, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            begin = time.perf_counter()
            labels[rows], scores[rows] = best_labels(model, X[rows], LONGEST)
            seconds += time.perf_counter() - begin
            known[rows] = model.known_words(X[rows], labels[rows])
            advance(len(labels[rows]))
    return Ranked(match(Y, labels), scores, known, seconds)


def measure(model: LabelRanker, ranked: Ranked, rng: np.random.Generator) -> Measures:
    """Compute every measure of the ranked rows."""
    truth, scores = ranked.truth, ranked.scores
    counts, n_train = model.label_counts_, model.n_rows_
    weights = inverse_propensity(counts, n_train, n_labels=truth.n_labels)
    total = Evaluation(
        CUTOFFS, train_counts=counts, n_train=n_train, probabilities=model.probabilities
    )
    curve: Totals = {}
    rows = []
    calibration = np.zeros((3, CALIBRATION_BINS))
    for start in range(0, truth.n_rows, _BLOCK_ROWS):
        at = slice(start, start + _BLOCK_ROWS)
        block = Matched(truth.Y[at], truth.labels[at], truth.hits[at])
        best = block.first(CUTOFFS[-1])
        best_scores = scores[at, : CUTOFFS[-1]]
        total.update(block.Y, best.labels, best_scores)
        if model.probabilities:
            calibration += calibration_totals(best, best_scores, CALIBRATION_BINS)
        for name, sums in ranking_totals(block).items():
            curve[name] = curve.get(name, 0.0) + sums
        rows.append(row_gains(best, weights))
    n_places = min(LONGEST, len(model.classes_))
    return Measures(
        values=total.result(),
        intervals=intervals(np.concatenate(rows, axis=1), rng),
        by_frequency=total.by_frequency(),
        curve={name: 100 * ratio(curve[name])[:n_places] for name in ("P", "R")},
        calibration=calibration if model.probabilities else None,
        baseline=_baseline(truth, counts),
        by_threshold=by_threshold(ranked, THRESHOLDS) if model.probabilities else None,
    )


def _baseline(truth: Matched, counts: NDArray[np.integer]) -> dict[str, float]:
    """Return P@1 and R@5 of a model that always gives the most frequent labels of the training."""
    frequent = np.argsort(-counts, kind="stable")[: CUTOFFS[-1]]
    always = match(truth.Y, np.tile(frequent, (truth.n_rows, 1)))
    totals = ranking_totals(always)
    return {
        "P@1": float(100 * ratio(totals["P"])[0]),
        f"R@{CUTOFFS[-1]}": float(100 * ratio(totals["R"])[-1]),
    }


def by_threshold(ranked: Ranked, thresholds: Sequence[float]) -> Floats:
    """Return what taking labels from a threshold on gives, in percent: (4, n_thresholds).

    The rows are the threshold, the share of the labels taken that are right, the share of the right
    labels that are taken, and the share of the rows with a label. A label is taken from the best
    `LONGEST` of a row.
    """
    truth, scores = ranked.truth, ranked.scores
    columns = []
    for threshold in thresholds:
        taken = (scores >= threshold) & (truth.labels >= 0)
        right = float((taken & truth.hits).sum())
        of = np.array([taken.sum(), truth.Y.nnz, truth.n_rows], dtype=np.float64)
        shares = ratio(np.stack([[right, right, taken.any(axis=1).sum()], of]))
        columns.append([threshold, *shares])
    return 100 * np.array(columns, dtype=np.float64).T


def row_gains(block: Matched, weights: Floats) -> Floats:
    """Return what each row adds to P@k, and to PSP@k above and below: (3, n_rows, cutoffs)."""
    gains = (block.hits, block.hits * weights[block.labels], best_gains(block, weights))
    ks = np.array(CUTOFFS)
    return np.stack([gain.cumsum(axis=1)[:, ks - 1] / ks for gain in gains])


def intervals(gains: Floats, rng: np.random.Generator) -> dict[str, Interval]:
    """Return bootstrap confidence intervals of P@k and PSP@k, in percent.

    Rows are drawn with replacement `RESAMPLES` times; an interval holds the middle 95 percent of
    the values of the measure. Rows are not ranked again.
    """
    n_rows = gains.shape[1]
    resampled = np.empty((RESAMPLES, 3, len(CUTOFFS)))
    with phase("confidence intervals", RESAMPLES, "samples") as advance:
        for sample in resampled:
            drawn = np.bincount(rng.integers(n_rows, size=n_rows), minlength=n_rows)
            sample[:] = drawn @ gains  # (3, cutoffs)
            advance(1)
    P, above, below = resampled.transpose(1, 0, 2)
    measures = {"P": P / n_rows, "PSP": ratio(np.stack([above, below]))}
    tail = (100 - CONFIDENCE) / 2
    found: dict[str, Interval] = {}
    for name, values in measures.items():
        # PSP is undefined for a sample of rows without labels.
        held = values[~np.isnan(values).any(axis=1)]
        if len(held):
            low, high = 100 * np.percentile(held, [tail, 100 - tail], axis=0)
            found |= {f"{name}@{k}": (float(low[i]), float(high[i])) for i, k in enumerate(CUTOFFS)}
    return found


def label_spectrum(
    model: LabelRanker, vectors: NDArray[np.float32] | None
) -> tuple[Floats, str] | None:
    """Return one value per direction of a model's label embedding, and what the values are.

    They are the eigenvalues that training kept, or else the singular values of the label `vectors`.
    Without vectors the result is None. A blend has the values of its embedding for neighbours.
    """
    fitted: Any = model.fitted_
    if supports(fitted, HasSpectrum) and fitted.spectrum is not None:
        return np.asarray(fitted.spectrum, dtype=np.float64), "Eigenvalue"
    if vectors is None:
        return None
    V = np.asarray(vectors, dtype=np.float64)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(V.T @ V)[::-1], 0)), "Singular value"
