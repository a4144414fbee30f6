"""Measures of the order of the predictions: P@k, nDCG@k, recall and their propensity forms.

Each is a sum over rows, divided by another such sum. So each is kept as `Totals`, which may be
added over blocks of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelry.arrays import F64, I64, Bools
from labelry.metrics.matching import Matched, check_cutoff, match

# By measure, (2, k): numerators above denominators, for the cutoffs 1, 2, ..., k.
Totals = dict[str, F64]

BIN_NAMES = ("tail", "torso", "head")


def precision_at_k(Y: Any, labels: ArrayLike, k: int) -> float:
    """Return the share of true labels among the best `k` predictions, averaged over rows.

    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[0, 1], [1, 0]], k=2)
    0.5
    """
    return _at_k("P", Y, labels, k)


def recall_at_k(Y: Any, labels: ArrayLike, k: int) -> float:
    """Return the share of a row's true labels among its best `k`, averaged over rows."""
    return _at_k("R", Y, labels, k)


def ndcg_at_k(Y: Any, labels: ArrayLike, k: int) -> float:
    """Return the discounted gain as a share of that of a perfect ranking, averaged over rows.

    The gain of a row is the sum of 1 / log2(place + 1) over its hits.
    """
    return _at_k("nDCG", Y, labels, k)


def psp_at_k(Y: Any, labels: ArrayLike, k: int, weights: ArrayLike) -> float:
    """Return the propensity-scored precision, over the best possible.

    A hit counts with the weight of its label; `weights` (c,) are from `inverse_propensity`.

    References
    ----------
    Jain, Prabhu, Varma (2016), Extreme multi-label loss functions for recommendation, tagging,
    ranking and other missing label applications.
    """
    return _at_k("PSP", Y, labels, k, weights)


def psndcg_at_k(Y: Any, labels: ArrayLike, k: int, weights: ArrayLike) -> float:
    """Return the propensity-scored nDCG, over the best possible; `weights` as in `psp_at_k`."""
    return _at_k("PSnDCG", Y, labels, k, weights)


def error_rate(Y: Any, labels: ArrayLike) -> float:
    """Return the share of rows whose first prediction is wrong: the multiclass error."""
    return 1.0 - precision_at_k(Y, labels, k=1)


def inverse_propensity(
    train_counts: ArrayLike,
    n_train: int,
    *,
    a: float = 0.55,
    b: float = 1.5,
    n_labels: int | None = None,
) -> F64:
    """Return a weight of each label, 1 / p_l = 1 + C (N_l + B)^-A, C = (ln n - 1) (B + 1)^A.

    `train_counts` are N_l, the training rows of each label, and n is `n_train`; where n < 3 would
    give propensities above one, C is zero. Up to `n_labels`, further labels have N_l = 0. For a and
    b take the defaults, but 0.5 and 0.4 for Wikipedia sets, 0.6 and 2.6 for Amazon sets.

    >>> inverse_propensity([1, 100], n_train=1000, n_labels=3).round(2)
    array([6.91, 1.77, 8.82])
    """
    if n_train < 1:
        raise ValueError(f"n_train must be at least 1; got {n_train}")
    counts = pad_counts(train_counts, n_labels)
    c = max(np.log(n_train) - 1.0, 0.0) * (b + 1.0) ** a
    return 1.0 + c * (counts + b) ** -a


def frequency_bins(
    train_counts: ArrayLike, limits: tuple[int, int] = (5, 50), *, n_labels: int | None = None
) -> I64:
    """Return a bin of each label by its number of training rows: 0 tail, 1 torso, 2 head.

    The tail goes up to ``limits[0]`` rows, and the torso up to ``limits[1]``.

    >>> frequency_bins([0, 5, 6, 50, 51])
    array([0, 0, 1, 1, 2])
    """
    if not 0 <= limits[0] < limits[1]:
        raise ValueError(f"limits must be two ascending numbers, 0 or more; got {limits}")
    return np.searchsorted(limits, pad_counts(train_counts, n_labels), side="left")


def pad_counts(train_counts: ArrayLike, n_labels: int | None) -> F64:
    """Check `train_counts`; return them with zeros for labels that training did not know."""
    counts = np.asarray(train_counts, dtype=np.float64)
    if counts.ndim != 1 or (counts < 0).any():
        got = f"shape {counts.shape} with minimum {counts.min(initial=0):g}"
        raise ValueError(f"train_counts must be one number, 0 or more, for each label; got {got}")
    n = len(counts)
    if n_labels is not None and n > n_labels:
        rule = f"at most {n_labels} entries, the number of labels"
        raise ValueError(f"train_counts must have {rule}; got {n}")
    return counts if n_labels is None else np.pad(counts, (0, n_labels - n))


def ranking_totals(block: Matched, weights: F64 | None = None) -> Totals:
    """Return the totals of P, nDCG and R, and with `weights` of PSP and PSnDCG."""
    return _stacked(_numerators(block, block.hits, weights), _denominators(block, weights))


def binned_totals(block: Matched, weights: F64, bins: I64) -> dict[str, Totals]:
    """Return, for each bin, the totals of its labels, as `Evaluation.by_frequency` describes them.

    P, nDCG, PSP and PSnDCG keep the denominators of the whole.
    """
    denominators = _denominators(block, weights)
    true_bins, true_rows = bins[block.Y.indices], block.true_rows
    by_bin: dict[str, Totals] = {}
    for number, name in enumerate(BIN_NAMES):
        hits = block.hits & (bins[block.labels] == number)
        n_true = np.bincount(true_rows[true_bins == number], minlength=block.n_rows)
        rows_with = np.full(hits.shape[1], float(np.count_nonzero(n_true)))
        numerators = _numerators(block, hits, weights) | {"R": _recall(hits, n_true)}
        by_bin[name] = _stacked(numerators, denominators | {"R": rows_with})
    return by_bin


def _stacked(numerators: Totals, denominators: Totals) -> Totals:
    return {name: np.stack([over, denominators[name]]) for name, over in numerators.items()}


def ratio(totals: F64) -> F64:
    """Return numerators over denominators; nan where the denominator is zero."""
    numerator, denominator = totals
    nothing = np.full(numerator.shape, np.nan)
    return np.divide(numerator, denominator, out=nothing, where=denominator != 0)


def _at_k(
    measure: str, Y: Any, labels: ArrayLike, k: int, weights: ArrayLike | None = None
) -> float:
    block = match(Y, labels)
    check_cutoff(k, block.labels)
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64)
        if weights.shape != (block.n_labels,):
            rule = f"shape ({block.n_labels},), one for each column of Y"
            raise ValueError(f"weights must have {rule}; got shape {weights.shape}")
    return float(ratio(ranking_totals(block.first(k), weights)[measure])[-1])


def _numerators(block: Matched, hits: Bools, weights: F64 | None) -> Totals:
    n_true = block.n_true
    sums = {"P": _precision(hits), "nDCG": _ndcg(hits, n_true), "R": _recall(hits, n_true)}
    if weights is not None:
        gains = hits * weights[block.labels]  # a label of -1 takes some weight, but is no hit
        sums |= {"PSP": _precision(gains), "PSnDCG": _ndcg(gains, n_true)}
    return sums


def _denominators(block: Matched, weights: F64 | None) -> Totals:
    rows = np.full(block.hits.shape[1], float(block.n_rows))
    sums = {"P": rows, "nDCG": rows, "R": rows}
    if weights is not None:
        best = best_gains(block, weights)
        sums |= {"PSP": _precision(best), "PSnDCG": _ndcg(best, block.n_true)}
    return sums


# Each takes gains (n, k), which are zero where there is no hit, and sums over rows: (k,).


def _precision(gains: NDArray[Any]) -> F64:
    return gains.sum(axis=0).cumsum() / np.arange(1, gains.shape[1] + 1)


def _recall(gains: NDArray[Any], n_true: I64) -> F64:
    return (gains / np.maximum(n_true, 1)[:, None]).sum(axis=0).cumsum()


def _ndcg(gains: NDArray[Any], n_true: I64) -> F64:
    places = np.arange(gains.shape[1])
    discount = 1.0 / np.log2(places + 2)
    # ideal[i, j]: all of row i's true labels first, up to place j
    ideal = discount.cumsum()[np.minimum(places, np.maximum(n_true, 1)[:, None] - 1)]
    return ((gains * discount).cumsum(axis=1) / ideal).sum(axis=0)


def best_gains(block: Matched, weights: F64) -> F64:
    """Return the largest weights of each row's true labels, best first: (n, k)."""
    gains, rows = np.zeros(block.hits.shape), block.true_rows
    weight = weights[block.Y.indices]
    weight = weight[np.lexsort((-weight, rows))]
    place = np.arange(len(rows)) - block.Y.indptr[rows]
    kept = place < block.hits.shape[1]
    gains[rows[kept], place[kept]] = weight[kept]
    return gains
