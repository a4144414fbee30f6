"""All measures at once, over any number of blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labelry.arrays import F64
from labelry.metrics.labelwise import LabelCounts
from labelry.metrics.matching import Matched, check_cutoff, keep_above, match
from labelry.metrics.ranking import (
    BIN_NAMES,
    binned_totals,
    frequency_bins,
    inverse_propensity,
    ranking_totals,
    ratio,
)
from labelry.metrics.scoring import (
    CALIBRATION_BINS,
    auc_totals,
    calibration_error,
    calibration_totals,
)

RANKING_MEASURES = ("P", "nDCG", "R", "PSP", "PSnDCG")


@dataclass(eq=False, repr=False)
class Evaluation:
    """Adds up blocks of predictions; gives every measure in percent.

    Memory: 24 bytes for each label and each of `ks`, whatever the number of rows.

    Parameters
    ----------
    ks : sequence of int
        Cutoffs of the measures "...@k".
    train_counts, n_train : (c,) and int, optional
        Training rows of each label, and of all; for PSP, PSnDCG and `by_frequency`. Labels of the
        test that come after these count as never seen.
    propensity : (float, float)
        A and B of `inverse_propensity`.
    bins : (int, int)
        Largest counts of tail and torso labels, as in `frequency_bins`.
    threshold : float, optional
        Also F1 of the predictions whose score is at least this.
    probabilities : bool
        The scores are probabilities: also the expected calibration error.

    Examples
    --------
    >>> evaluation = Evaluation(ks=(1, 2))
    >>> evaluation.update([[1, 0, 1], [0, 1, 0]], [[0, 1], [1, 0]])
    >>> result = evaluation.result()
    >>> result["P@1"], result["P@2"], result["R@2"], result["rows"]
    (100.0, 50.0, 75.0, 2)
    """

    ks: Sequence[int] = (1, 3, 5)
    _: KW_ONLY
    train_counts: ArrayLike | None = None
    n_train: int | None = None
    propensity: tuple[float, float] = (0.55, 1.5)
    bins: tuple[int, int] = (5, 50)
    threshold: float | None = None
    probabilities: bool = False

    def __post_init__(self) -> None:
        ks = self.ks
        if not ks or min(ks) < 1:
            raise ValueError(f"ks must be one or more cutoffs, each at least 1; got {tuple(ks)}")
        if (self.train_counts is None) != (self.n_train is None):
            raise ValueError("train_counts and n_train must be given together; got one of them")
        self.ks = tuple(sorted(set(ks)))
        self._totals: dict[str, F64] = {}  # by measure; each may be added over blocks
        self._counts: dict[str, LabelCounts] = {}  # by cutoff or threshold

    def update(
        self,
        Y: Any,
        labels: ArrayLike,
        scores: ArrayLike | None = None,
        dense_scores: ArrayLike | None = None,
    ) -> None:
        """Add a block of rows: the truth Y (n, c), and at least ``max(ks)`` predicted labels each.

        `scores` of these labels are needed with `threshold` or `probabilities`. The scores of all
        labels, `dense_scores` (n, c_model), are for the AUC: with all blocks or with none.
        """
        block = match(Y, labels)
        check_cutoff(self.ks[-1], block.labels)
        if scores is None and (self.threshold is not None or self.probabilities):
            raise ValueError("scores must be given when threshold or probabilities is; got None")
        if not self._totals:
            self._prepare(block.n_labels)
        elif block.n_labels != self._n_labels:
            rule = f"{self._n_labels} columns, as before"
            raise ValueError(f"Y must have {rule}; got {block.n_labels}")
        elif (dense_scores is None) == ("AUC" in self._totals):
            raise ValueError("dense_scores must be given with all blocks or with none")
        # Everything that may fail comes before anything is added: a refused block leaves no trace.
        totals = self._block_totals(block, scores, dense_scores)
        parts = self._block_parts(block, scores)
        for name, value in totals.items():
            self._totals[name] = self._totals.get(name, 0.0) + value
        for name, part in parts.items():
            self._counts[name].add(part)

    def result(self) -> dict[str, float]:
        """Return every measure in percent, and the number of "rows".

        For each k: "P@k", "nDCG@k", "R@k", "micro-F1@k", "macro-F1@k", "coverage@k"; with
        `train_counts` "PSP@k" and "PSnDCG@k"; with `threshold` t "micro-F1@t=..." and so on;
        "error", the share of rows whose first prediction is wrong; with dense scores "AUC" and
        "AUC-excluded", the number of rows that have none; with `probabilities` "ECE".
        """
        if not self._totals:
            raise ValueError("there is no result before the first update")
        rows = self._totals["rows"]
        values = self._at_cutoffs("")
        for name, counts in self._counts.items():
            values[f"micro-F1@{name}"] = 100.0 * counts.micro_f1()
            values[f"macro-F1@{name}"] = 100.0 * counts.macro_f1()
            values[f"coverage@{name}"] = 100.0 * counts.coverage()
        values["error"] = 100.0 - 100.0 * float(ratio(self._totals["P"])[0])
        if "AUC" in self._totals:
            values["AUC"] = 100.0 * float(ratio(self._totals["AUC"]))
            values["AUC-excluded"] = int(rows - self._totals["AUC"][1])
        if "ECE" in self._totals:
            values["ECE"] = 100.0 * calibration_error(self._totals["ECE"])
        values["rows"] = int(rows)
        return values

    def by_frequency(self) -> dict[str, dict[str, float]]:
        """Return P, nDCG, R, PSP and PSnDCG of tail, torso and head labels, in percent.

        R is the recall within the bin: the share of a row's true labels of the bin that is found,
        averaged over the rows that have any. The other values of the bins add up to the whole.
        """
        if self.train_counts is None:
            raise ValueError("by_frequency needs train_counts and n_train; got None")
        if not self._totals:
            raise ValueError("there is no result before the first update")
        return {name: self._at_cutoffs(f"{name}/") for name in BIN_NAMES}

    def _prepare(self, n_labels: int) -> None:
        """Set what depends on the number of labels, which is known from the first block on."""
        self._n_labels, counts = n_labels, self.train_counts
        self._weights = self._label_bins = None
        if counts is not None and self.n_train is not None:
            a, b = self.propensity
            self._weights = inverse_propensity(counts, self.n_train, a=a, b=b, n_labels=n_labels)
            self._label_bins = frequency_bins(counts, self.bins, n_labels=n_labels)
        thresholds = [] if self.threshold is None else [f"t={self.threshold:g}"]
        self._counts = {name: LabelCounts(n_labels) for name in [*map(str, self.ks), *thresholds]}

    def _block_totals(
        self, block: Matched, scores: ArrayLike | None, dense_scores: ArrayLike | None
    ) -> dict[str, F64]:
        top = block.first(self.ks[-1])
        totals = {"rows": np.array(float(block.n_rows))} | ranking_totals(top, self._weights)
        if self._weights is not None and self._label_bins is not None:
            for name, mine in binned_totals(top, self._weights, self._label_bins).items():
                totals |= {f"{name}/{measure}": value for measure, value in mine.items()}
        if dense_scores is not None:
            totals["AUC"] = np.array(auc_totals(block.Y, dense_scores))
        if self.probabilities and scores is not None:
            totals["ECE"] = calibration_totals(block, scores, CALIBRATION_BINS)
        return totals

    def _block_parts(self, block: Matched, scores: ArrayLike | None) -> dict[str, Matched]:
        parts = {str(k): block.first(k) for k in self.ks}
        if self.threshold is not None and scores is not None:
            labels = keep_above(block.labels, scores, self.threshold)
            parts[f"t={self.threshold:g}"] = Matched(block.Y, labels, block.hits & (labels >= 0))
        return parts

    def _at_cutoffs(self, prefix: str) -> dict[str, float]:
        values: dict[str, float] = {}
        for measure in RANKING_MEASURES:
            if prefix + measure in self._totals:
                at = 100.0 * ratio(self._totals[prefix + measure])
                values |= {f"{measure}@{k}": float(at[k - 1]) for k in self.ks}
        return values
