"""Linear label trees with calibrated scores, for little more than the cost of the trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numba import njit
from numpy.typing import NDArray

from labelry.arrays import F32, I32, Bools, Ints, Rng
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.rows import Rows
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.ranking.calibration import CALIBRATED, Calibration, calibrated, fit_calibration
from labelry.ranking.evidence import best_candidates
from labelry.ranking.hold_out import FEW_LOST, hold_out
from labelry.ranking.objectives import (
    Objective,
    ObjectiveSettings,
    f1_threshold,
    label_weights,
    weighted,
)
from labelry.ranking.ranker import Contributions, Ranker
from labelry.tagging.time_budget import Choice
from labelry.trees import linear
from labelry.trees.structure import Tree

_SIMILARITY = 0.8  # cosine of rows that are held out together, as in `BlendSettings`
_ONE_IN = 60  # one row in so many is held out; not tuned
_HELD_OUT = (1_000, 5_000)  # least and most rows, but never more than a quarter; not tuned
# Share of the rows of a label. A classifier that missed more of them is worse, which no table
# shows.
_MUCH = 1 / 32
_FEW_ROWS = 20  # held-out rows below which nothing is calibrated; not tuned
_RANKED = 5  # best labels of the trees that probabilities rank; see docs/results/calibration.md
_CANDIDATES = 30  # best labels of a row that a threshold or weights choose from; not tuned
_HALF = 0.5  # threshold of probabilities, unless the objective is f1


@dataclass(frozen=True, eq=False)
class CalibratedTrees(Ranker):
    """Linear label trees, calibrated on rows that were held out.

    The five best labels of the trees are ranked by their probabilities, which depend on how
    frequent a label is, unless many labels have a single row.
    """

    trees: linear.LinearTrees
    # None if there were too few rows to calibrate on: the scores of the trees stay as they are.
    calibration: Calibration | None
    least_score: float  # the threshold
    label_weights: Annotated[F32, "n_labels"] | None  # inverse propensities, for that objective
    label_counts: Annotated[I32, "n_labels"]  # training rows of each label
    chosen: Choice | None = None  # for a tagger: what was fitted

    @property
    def threshold(self) -> float:
        return self.least_score

    @property
    def probabilities(self) -> bool:
        """Return True if rows could be held out, unless the objective is propensity."""
        return self.calibration is not None and self.label_weights is None

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k best labels of the trees, the first of them by their probabilities."""
        counts, weights = self.label_counts, self.label_weights
        n_best = min(max(k, _RANKED if weights is None else _CANDIDATES), len(counts))
        labels, scores = self.trees.topk(scaled_rows(X), n_best, n_jobs)
        scores = calibrated(self.calibration, scores, counts[labels])
        if weights is not None:
            return best_candidates(labels, weighted(labels, scores, weights), k)
        _rank(labels, scores, _RANKED)
        return labels[:, :k], scores[:, :k]

    def label_vectors(self) -> F32:
        return self.trees.label_vectors()

    def contributions(self, x: Matrix, label: int) -> Contributions:
        return self.trees.contributions(x, label)

    def scored(
        self, x: Matrix, label: int, n_jobs: int = 1
    ) -> tuple[float | None, dict[str, float]]:
        """Return the score of a label for one row, None if the search does not find it."""
        return linear.score_of(self, x, label, n_jobs), {}


def fit_calibrated_trees(rows: Rows, settings: ObjectiveSettings, rng: Rng) -> CalibratedTrees:
    """Train trees without a few rows, calibrate on these, and train some classifiers again.

    A classifier is trained again, on all rows, if it missed more than 1 in 32 of the rows of its
    labels. These are nearly all classifiers if there are few rows, otherwise those of rare labels.
    """
    rows = rows.unit().kept()
    n, counts = rows.n_rows, rows.label_counts()
    most = n // 4
    held = hold_out(rows, min(int(np.clip(n // _ONE_IN, *_HELD_OUT)), most), most, _SIMILARITY, rng)
    tree_settings = linear.LinearTreeSettings(normalize=False, **linear.fast_options(rows.n_labels))
    tree, roots = linear.grow_trees(rows, tree_settings, rng)
    weights = label_weights(settings.objective, counts, n)
    n_held_out = int(np.count_nonzero(~held.seen))
    if n_held_out < _FEW_ROWS:
        trees = linear.train_linear_trees(rows, tree_settings, tree, roots, rng)
        return CalibratedTrees(trees, None, _HALF, weights, counts)
    trees = linear.train_linear_trees(rows.only(held.seen), tree_settings, tree, roots, rng)
    # A label with a single row is lost with that row. If such labels are many, the held-out rows
    # make rare labels seem worse than they are, so frequencies are not used.
    scaled = (counts - held.counts) * (n / (n - n_held_out)) if held.lost < FEW_LOST else None
    calibration, threshold = _calibrate(trees, held.unseen, scaled, settings.objective)
    again = _short_of_rows(tree, held.counts, counts)
    trees = linear.retrain_nodes(trees, rows, tree_settings, again, rng)
    return CalibratedTrees(trees, calibration, threshold, weights, counts)


def _calibrate(
    trees: linear.LinearTrees, unseen: Rows, counts: NDArray[np.number] | None, objective: Objective
) -> tuple[Calibration | None, float]:
    """Return the calibration and the threshold, by rows that were held out.

    `counts` (n_labels,) are the training rows of labels, without the rows that were held out.
    """
    with phase("calibrating probabilities"):
        X, Y = unseen.gathered("X", "Y")
        n_best = _CANDIDATES if objective == "f1" else CALIBRATED
        labels, scores = trees.topk(X, min(n_best, Y.shape[1]), unseen.n_jobs)
        hits = match(Y, labels).hits
        n_rows = None if counts is None else counts[labels]
        calibration = fit_calibration(scores, hits, n_rows)
        if objective != "f1" or not hits.any():
            return calibration, _HALF
        return calibration, f1_threshold(calibrated(calibration, scores, n_rows), hits, Y.nnz)


@njit(nogil=True, cache=True)
def _rank(labels: Ints, scores: F32, n: int) -> None:
    """Bring the first n labels of each row into the order of their scores; in place.

    Later labels keep their places. Their scores are lowered to that of the label before.
    """
    for i in range(scores.shape[0]):
        for j in range(1, scores.shape[1]):
            label, score = labels[i, j], scores[i, j]
            if j >= n:
                scores[i, j] = min(score, scores[i, j - 1])
                continue
            at = j
            while at > 0 and scores[i, at - 1] < score:
                labels[i, at], scores[i, at] = labels[i, at - 1], scores[i, at - 1]
                at -= 1
            labels[i, at], scores[i, at] = label, score


def _short_of_rows(tree: Tree, held_out: Ints, counts: Ints) -> Bools:
    """Return the nodes (n_nodes,) whose classifiers were trained without many rows of their labels.

    `held_out` and `counts` are the held-out rows and all rows of each label.

    >>> tree = Tree.from_parents([-1, 0, 0, 1, 1], label=[-1, -1, 2, 0, 1], n_labels=3)
    >>> _short_of_rows(tree, np.array([1, 0, 0]), np.array([2, 90, 0])).tolist()
    [False, False, False, True, False]
    """
    labels = tree.label_sets
    return (labels @ held_out) > _MUCH * (labels @ counts)
