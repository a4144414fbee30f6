"""Linear label trees whose scores are probabilities, for hardly more than the trees cost."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from labelry.checks import StoredCheck, check_one_of
from labelry.data.dataset import numbered_groups
from labelry.data.labels import label_counts
from labelry.decoders.calibration import CALIBRATED, Calibration, calibrated, fit_calibration
from labelry.decoders.rerank import best_candidates
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.rows import Rows
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.state import storable
from labelry.systems.hold_out import (
    CALIBRATED_OF_GROUP,
    FEW_LOST,
    few_of_groups,
    held_out_groups_of,
    held_out_of,
    lost_share,
    without_lost_labels,
)
from labelry.systems.linear_tree import LinearLabelTree, fast_options
from labelry.systems.objectives import (
    OBJECTIVES,
    Objective,
    check_objective,
    f1_threshold,
    label_weights,
    weighted,
)
from labelry.trees.structure import Tree

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_SIMILARITY = 0.8  # cosine of rows that are held out together, as in Blend
_ONE_IN = 60  # rows is held out:
_HELD_OUT = (1_000, 5_000)  # at least and at most, but never more than a quarter
_MUCH = 1 / 32  # of the rows of a label: without so many its classifier is worse
_FEW_ROWS = 20  # held out that cannot calibrate anything
_RANKED = 5  # best labels of the trees that are ranked by their probabilities; others come after
_CANDIDATES = 30  # best labels of a row that a threshold or weights choose from
_HALF = 0.5


@storable
class CalibratedTree(LabelRanker):
    """A `LinearLabelTree`, calibrated on rows that its classifiers have not seen.

    It has three trees, or with up to 1,000 labels one of one level. One row in 60 (1,000 to 5,000,
    but at most a quarter) is held out to calibrate on. Then those classifiers are trained again, on
    all rows, that have missed more than 1 in 32 of the rows of their labels: of few rows about
    all, of many those of rare labels. Near-duplicates are held out together; of rows that do not
    fit in memory, those that are read together. The five best labels of the trees are then ranked
    by their probabilities, for which it counts how frequent a label is, unless many have one row.

    Parameters
    ----------
    objective : {"precision", "propensity", "f1"}
        As in `Blend`.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

    Attributes
    ----------
    tree_ : LinearLabelTree
    calibration_ : Calibration or None
        None with too few rows to calibrate on: the scores of the tree stay as they are.
    threshold_ : float
    label_weights_ : array (n_labels,) or None

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> CalibratedTree().fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "calibrated-tree"

    def __init__(
        self,
        *,
        objective: Objective = "precision",
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.objective = objective
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities."""
        return getattr(self, "calibration_", None) is not None and self.objective != "propensity"

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Score from which `predict` says yes in the multilabel case."""
        return getattr(self, "threshold_", _HALF)

    def label_vectors(self) -> F32:
        """As of `LinearLabelTree`."""
        check_is_fitted(self)
        return self.tree_.label_vectors()

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : sparse or dense matrix (n_rows, n_features), list of str, or Rows
        y : sparse or dense indicator (n_rows, n_labels), class vector, or lists of labels
        groups : array (n_rows,), optional
            The group of each row, any values: rows that are held out together, in place of
            near-duplicates.
        """
        return self._fit_given(X, y, groups=groups)

    def _fit_rows(self, rows: Rows, rng: np.random.Generator, groups: Any = None) -> None:
        self._check_parameters()
        given = None if groups is None else numbered_groups(groups, rows.n_rows)
        rows = rows.unit().kept()
        self.calibration_: Calibration | None = None
        self.threshold_ = _HALF
        self.label_weights_ = label_weights(self.objective, self.label_counts_, rows.n_rows)
        most = rows.n_rows // 4
        n_wanted = min(int(np.clip(rows.n_rows // _ONE_IN, *_HELD_OUT)), most)
        if given is not None:
            groups = held_out_of(given, n_wanted, most, rng)
        else:
            with phase("near-duplicates"):
                groups = held_out_groups_of(rows, _SIMILARITY, n_wanted, rng)
        options = fast_options(rows.n_labels)
        self.tree_ = LinearLabelTree(normalize=False, n_jobs=self.n_jobs, **options)
        self.tree_._grow(rows, rng)
        drawn = groups >= 0
        X, Y = rows.only(drawn).gathered("X", "Y")
        few_lost = lost_share(Y, self.label_counts_) < FEW_LOST
        groups = without_lost_labels(groups, Y, self.label_counts_)
        held_out = groups >= 0
        if held_out.sum() < _FEW_ROWS:
            self.tree_._train(rows, rng)
            return
        self.tree_._train(rows.only(~held_out), rng)
        counts = label_counts(Y[held_out[drawn]])
        some = few_of_groups(groups[drawn], CALIBRATED_OF_GROUP)
        # Where many labels of one row are lost with it, those that are left would seem wrong.
        seen = (self.label_counts_ - counts) * (rows.n_rows / (rows.n_rows - held_out.sum()))
        self._calibrate(X[some], Y[some], seen if few_lost else None)
        self.tree_._train(rows, rng, _short_of_rows(self.tree_.tree_, counts, self.label_counts_))

    def _calibrate(self, X: Matrix, Y: csr_array, counts: NDArray[np.number] | None) -> None:
        """Fit to rows held out; `counts` (n_labels,) are training rows by what the others say."""
        with phase("calibration"):
            n_best = _CANDIDATES if self.objective == "f1" else CALIBRATED
            labels, scores = self.tree_._topk(X, min(n_best, Y.shape[1]))
            hits = match(Y, labels).hits
            n_rows = None if counts is None else counts[labels]
            self.calibration_ = fit_calibration(scores, hits, n_rows)
            if self.objective == "f1" and hits.any():
                p = calibrated(self.calibration_, scores, n_rows)
                self.threshold_ = f1_threshold(p, hits, Y.nnz)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.array("label_counts_", self.label_counts_, n_labels, dtype="int32")
        check.kind("tree_", self.tree_, LinearLabelTree)
        self.tree_._check_stored(check, n_features, n_labels)
        check_objective(check, self, n_labels)

    def _check_parameters(self) -> None:
        check_one_of("objective", self.objective, OBJECTIVES)

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        self.tree_.n_jobs = self.n_jobs  # of this call, not of the training
        counts, weights = self.label_counts_, self.label_weights_
        n_best = min(max(k, _RANKED if weights is None else _CANDIDATES), len(counts))
        labels, scores = self.tree_._topk(scaled_rows(X), n_best)
        scores = calibrated(self.calibration_, scores, counts[labels])
        if weights is not None:
            return best_candidates(labels, weighted(labels, scores, weights), k)
        _rank(labels, scores, _RANKED)
        return labels[:, :k], scores[:, :k]


@njit(nogil=True, cache=True)
def _rank(labels: Ints, scores: F32, n: int) -> None:
    """Bring the first n labels of each row into the order of their scores; in place.

    Labels after them stay where they are, and score no more than those before.
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


def _short_of_rows(tree: Tree, held_out: Ints, counts: Ints) -> NDArray[np.bool_]:
    """Nodes (n_nodes,) whose classifiers were trained without many of the rows of their labels.

    `held_out` and `counts` are the rows of each label that were held out, and that there are.

    >>> tree = Tree.from_parents([-1, 0, 0, 1, 1], label=[-1, -1, 2, 0, 1], n_labels=3)
    >>> _short_of_rows(tree, np.array([1, 0, 0]), np.array([2, 90, 0])).tolist()
    [False, False, False, True, False]
    """
    labels = tree.label_sets
    return (labels @ held_out) > _MUCH * (labels @ counts)
