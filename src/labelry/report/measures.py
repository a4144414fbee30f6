"""What a report says about the predictions of a model, as data."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.data.dataset import Dataset
from labelry.data.labels import align
from labelry.estimator import LabelRanker, rows_of
from labelry.metrics import Evaluation, inverse_propensity
from labelry.metrics.matching import Matched, match
from labelry.metrics.ranking import Totals, best_gains, ranking_totals, ratio
from labelry.metrics.scoring import CALIBRATION_BINS, calibration_totals
from labelry.progress import phase
from labelry.systems.blend import Blend
from labelry.systems.tagger import Tagger

Floats = NDArray[np.float64]
Interval = tuple[float, float]

CUTOFFS = (1, 3, 5)
LONGEST = 20  # best labels of a row that are looked at
RESAMPLES = 1_000
CONFIDENCE = 95  # percent

_BLOCK_ROWS = 10_000
_TIMED_ROWS = 100  # with which kernels are loaded before time is taken


class Ranked(NamedTuple):
    """Labelled rows and what a model says of them.

    Attributes
    ----------
    truth : Matched
        True labels, those that the model never saw last; the best `LONGEST` labels; hits.
    scores : array (n_rows, LONGEST)
        Minus infinity where there is no label.
    seconds : float
        That ranking took.
    """

    truth: Matched
    scores: NDArray[np.float32]
    seconds: float


class Measures(NamedTuple):
    """How good the predictions are; everything but `calibration` is in percent.

    Attributes
    ----------
    values : dict
        By name, as `labelry.evaluation.evaluate` has them.
    intervals : dict
        Of P@k and PSP@k, where 95 of 100 sets of as many rows would have the value.
    by_frequency : dict of dict
        Measures of tail, torso and head labels.
    curve : dict
        P and R at the cutoffs 1, 2, ..., `LONGEST`, or as many as there are labels.
    calibration : array (3, n_bins), or None where scores are no probabilities
        By probability: predictions, sum of their probabilities, hits.
    """

    values: dict[str, float]
    intervals: dict[str, Interval]
    by_frequency: dict[str, dict[str, float]]
    curve: dict[str, Floats]
    calibration: Floats | None


def rank(model: LabelRanker, dataset: Dataset) -> Ranked:
    """The best labels of each row, beside the true ones."""
    if not dataset.n_rows:
        raise ValueError("the data must have at least one row, got none")
    Y = align(dataset.Y, dataset.label_names, model.classes_.tolist())
    X = rows_of(dataset)
    labels = np.full((dataset.n_rows, LONGEST), -1, dtype=np.int32)
    scores = np.full(labels.shape, -np.inf, dtype=np.float32)
    model.topk_ids(X[:_TIMED_ROWS], LONGEST)
    seconds = 0.0
    with phase("ranking", dataset.n_rows, "rows") as advance:
        for start in range(0, dataset.n_rows, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            begin = time.perf_counter()
            found, values = model.topk_ids(X[rows], LONGEST)
            seconds += time.perf_counter() - begin
            labels[rows, : found.shape[1]] = found
            scores[rows, : found.shape[1]] = values
            advance(len(found))
    return Ranked(match(Y, labels), scores, seconds)


def measure(model: LabelRanker, ranked: Ranked, rng: np.random.Generator) -> Measures:
    """Every measure of the ranked rows."""
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
    )


def row_gains(block: Matched, weights: Floats) -> Floats:
    """What each row adds to P@k, and to PSP@k above and below the line: (3, n_rows, cutoffs)."""
    gains = (block.hits, block.hits * weights[block.labels], best_gains(block, weights))
    ks = np.array(CUTOFFS)
    return np.stack([gain.cumsum(axis=1)[:, ks - 1] / ks for gain in gains])


def intervals(gains: Floats, rng: np.random.Generator) -> dict[str, Interval]:
    """Intervals of P@k and PSP@k by the bootstrap, in percent.

    As many rows are drawn with replacement, `RESAMPLES` times; an interval holds the middle
    95 percent of what the measure then is. Rows are not ranked again.
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
        # A sample of rows without labels has no PSP.
        held = values[~np.isnan(values).any(axis=1)]
        if len(held):
            low, high = 100 * np.percentile(held, [tail, 100 - tail], axis=0)
            found |= {f"{name}@{k}": (float(low[i]), float(high[i])) for i, k in enumerate(CUTOFFS)}
    return found


def spectrum(model: LabelRanker, vectors: NDArray[np.float32] | None) -> tuple[Floats, str] | None:
    """How much each direction of a model's label embedding counts, and what the values are.

    The eigenvalues that training kept; otherwise singular values of the label `vectors`; None
    without these. Of a blend, those of the embedding in which it looks for neighbours.
    """
    inner = model.model_ if isinstance(model, Tagger) else model
    inner = inner.retrievers_.embedding if isinstance(inner, Blend) else inner
    kept = getattr(inner, "spectrum_", None)
    if kept is not None:
        return np.asarray(kept, dtype=np.float64), "Eigenvalue"
    if vectors is None:
        return None
    V = np.asarray(vectors, dtype=np.float64)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(V.T @ V)[::-1], 0)), "Singular value"
