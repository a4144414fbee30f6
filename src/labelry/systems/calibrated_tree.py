"""Linear label trees whose scores are probabilities, for hardly more than the trees cost."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from labelry.checks import StoredCheck, check_one_of
from labelry.data.labels import label_counts
from labelry.decoders.calibration import Calibration, calibrated, fit_calibration
from labelry.decoders.rerank import best_candidates
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.rows import Rows
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.state import storable
from labelry.systems.hold_out import held_out_groups_of
from labelry.systems.linear_tree import LinearLabelTree, fast_options
from labelry.systems.objectives import (
    OBJECTIVES,
    Objective,
    check_objective,
    f1_threshold,
    label_weights,
    weighted,
)

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_SIMILARITY = 0.8  # cosine of rows that are held out together, as in Blend
_MANY_ROWS = 20_000  # from which some can be spared for good
_SPARED = (700, 3_000)  # fewer make worse curves; 1,000 cost 0.1 to 0.3 points of P@1
_FEW_ROWS = 20  # held out that cannot calibrate anything
_CANDIDATES = 30  # best labels of a row that a threshold or weights choose from
_HALF = 0.5


@storable
class CalibratedTree(LabelRanker):
    """A `LinearLabelTree`, calibrated on rows that its classifiers have not seen.

    It has three trees, or with up to 1,000 labels one of one level. Of 20,000 rows or more one in
    75 (700 to 3,000) is only calibrated on, but never the last rows of a label; with fewer the
    classifiers are trained once more, on all of them. Near-duplicates are held out together; of
    rows that do not fit in memory, those that are read together.

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
        None with too few rows to hold out: the scores of the tree stay as they are.
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

    def _fit_rows(self, rows: Rows, rng: np.random.Generator) -> None:
        self._check_parameters()
        rows = rows.unit().kept()
        self.calibration_: Calibration | None = None
        self.threshold_ = _HALF
        self.label_weights_ = label_weights(self.objective, self.label_counts_, rows.n_rows)
        many = rows.n_rows >= _MANY_ROWS
        n_wanted = int(np.clip(rows.n_rows // 75, *_SPARED)) if many else rows.n_rows // 4
        with phase("near-duplicates"):
            held_out = held_out_groups_of(rows, _SIMILARITY, n_wanted, rng) >= 0
        if many:
            held_out = _without_lost_labels(rows, held_out, self.label_counts_)
        calibrates = held_out.sum() >= _FEW_ROWS
        options = fast_options(rows.n_labels)
        self.tree_ = LinearLabelTree(normalize=False, n_jobs=self.n_jobs, **options)
        self.tree_._grow(rows, rng)
        if calibrates:
            self.tree_._train(rows.only(~held_out), rng)
            self._calibrate(*rows.only(held_out).gathered("X", "Y"))
        if not (calibrates and many):
            self.tree_._train(rows, rng)

    def _calibrate(self, X: Matrix, Y: csr_array) -> None:
        with phase("calibration"):
            labels, scores = self.tree_._topk(X, min(_CANDIDATES, Y.shape[1]))
            hits = match(Y, labels).hits
            self.calibration_ = fit_calibration(scores, hits)
            if self.objective == "f1" and hits.any():
                self.threshold_ = f1_threshold(calibrated(self.calibration_, scores), hits, Y.nnz)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.kind("tree_", self.tree_, LinearLabelTree)
        self.tree_._check_stored(check, n_features, n_labels)
        check_objective(check, self, n_labels)

    def _check_parameters(self) -> None:
        check_one_of("objective", self.objective, OBJECTIVES)

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        self.tree_.n_jobs = self.n_jobs  # of this call, not of the training
        weights = self.label_weights_
        n_best = k if weights is None else min(max(k, _CANDIDATES), len(weights))
        labels, scores = self.tree_._topk(scaled_rows(X), n_best)
        scores = calibrated(self.calibration_, scores)
        if weights is None:
            return labels, scores
        return best_candidates(labels, weighted(labels, scores, weights), k)


def _without_lost_labels(
    rows: Rows, held_out: NDArray[np.bool_], counts: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Rows held out, but for those with a label of which no other row would be left."""
    (Y,) = rows.only(held_out).gathered("Y")
    here = label_counts(Y)
    lost = ((here > 0) & (here == counts)).astype(np.float32)
    kept = held_out.copy()
    kept[held_out] = (Y @ lost) == 0
    return kept
