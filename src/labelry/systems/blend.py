"""Candidates from several systems, ranked by a model that has learnt whom to trust when."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from labelry.checks import StoredCheck, check_at_least, check_one_of, check_positive
from labelry.data.dataset import numbered_groups
from labelry.data.labels import label_counts
from labelry.decoders.calibration import Calibration, calibrated, fit_calibration
from labelry.decoders.evidence import PER_JUDGE, known_of_labels
from labelry.decoders.lexical import LabelNames, label_names
from labelry.decoders.rerank import Kind, Reranker, as_probabilities, best_candidates, fit_reranker
from labelry.decoders.strangers import StrangerReranker, fit_with_strangers, mean_with_strangers
from labelry.estimator import LabelRanker
from labelry.linalg.blas import library_threads
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs, run
from labelry.metrics import ndcg_at_k
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.systems.hold_out import (
    CALIBRATED_OF_GROUP,
    FEW_LOST,
    few_of_groups,
    held_out_groups,
    held_out_of,
    lost_share,
    without_lost_labels,
)
from labelry.systems.new_labels import encoded_again, further_classes, name_features
from labelry.systems.objectives import (
    OBJECTIVES,
    Objective,
    check_objective,
    f1_threshold,
    label_weights,
    weighted,
)
from labelry.systems.retrieval import JUDGES, NAMES, Retrievers, fit_retrievers, lost_centroids

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_MOST_ROWS = 7_000  # to hold out: more make no better re-ranker
_FEW_ROWS = 16  # held out that cannot judge anybody
_LITTLE = 0.1  # nDCG beyond that of guesses: nothing to learn from, if many labels were lost
_HALF = 0.5  # probability from which a label is rather true than not


class Blend(LabelRanker):
    """Candidates from a linear label tree and from neighbours in an embedding, re-ranked.

    Both propose labels, and so do the names of labels if there are any; they, the low-rank scores
    of the embedding and the centroids of the labels judge each candidate; and a small model,
    fitted on rows that none of them has seen, turns what they say into a probability. Choose it
    for accuracy: it is at least as good on held-out rows as the best of its parts, or else ranks
    as that part does. Where most labels have a single row, and no name, it learns from rows held
    out whose labels have others; if nothing can be learnt there, the tree ranks.

    Parameters
    ----------
    n_trees : int
        Trees of the linear label tree. More are more accurate and slower.
    embedding_dim : int
        Dimensions of the embedding. Larger is more accurate up to a point.
    n_neighbors : int
        Training rows that vote; more find more labels.
    n_candidates : int
        Labels that the tree, the neighbours and the names propose, each. Larger finds more of the
        labels beyond the first few, and is slower.
    reranker : {"average", "logistic", "boosted"}
        "logistic" is quickest and best with few rows, "boosted" trees with many; "average" of both,
        with three times the weight for the trees.
    objective : {"precision", "propensity", "f1"}
        What the ranking serves. "precision": the most probable labels first. "propensity": labels
        that are rare, and so often forgotten, are moved up (PSP@k). "f1" ranks as "precision", but
        `predict` takes as many labels as give the best micro F1 on held-out rows.
    held_out : float
        Share of the rows that the re-ranker is fitted on, at most 7,000 of them, by judges that
        were fitted on the others. Afterwards the judges are fitted on all rows.
    similarity : float
        Cosine from which rows count as near-duplicates, which are held out together, one of them to
        learn from, ten to calibrate on; sparse rows only. Smaller trusts neighbours less; more than
        1 holds rows out at random, which is right where new rows have near-duplicates in the
        training rows too.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    retrievers_ : Retrievers
    reranker_ : Reranker, StrangerReranker or None
        None where a judge alone is better.
    judge_ : str or None
        That judge.
    calibration_ : Calibration or None
        What makes probabilities of the scores, of the re-ranker or of that judge.
    threshold_ : float
        Score from which `predict` says yes in the multilabel case.
    label_weights_ : array (n_labels,) or None
        Inverse propensities, for that objective.
    held_out_ndcg_ : dict
        nDCG@5 on the held-out rows, of each judge by its name and of their "blend".

    Notes
    -----
    Scores are probabilities, as far as the rows held out are like those to come. With propensities
    a score is the probability over the propensity: an estimate of how likely the label should be
    there, noted or not, which may be above 1. Only candidates are ranked: there may be fewer
    than k of them.

    Labels without rows are known by name only. The re-ranker learns what a name is worth from
    labels all of whose rows were held out, or else from the rarest; where a judge ranks alone, the
    cosine of row and name stands for the score of such a label.

    Training takes two to three times as long as that of the parts: they are fitted twice. Fewer
    than 80 rows are not held out: the tree alone ranks.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> Blend().fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "blend"

    def __init__(
        self,
        *,
        n_trees: int = 3,
        embedding_dim: int = 100,
        n_neighbors: int = 100,
        n_candidates: int = 30,
        reranker: Kind = "average",
        objective: Objective = "precision",
        held_out: float = 0.2,
        similarity: float = 0.8,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.embedding_dim = embedding_dim
        self.n_neighbors = n_neighbors
        self.n_candidates = n_candidates
        self.reranker = reranker
        self.objective = objective
        self.held_out = held_out
        self.similarity = similarity
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities: if rows could be held out, and without weights."""
        fitted = (getattr(self, name, None) for name in ("reranker_", "calibration_"))
        return any(part is not None for part in fitted) and self.objective != "propensity"

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Score from which `predict` says yes in the multilabel case."""
        return getattr(self, "threshold_", _HALF)

    def fit(self, X: Any, y: Any = None, *, label_features: Any = None, groups: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : sparse or dense matrix (n_rows, n_features), list of str, or Rows
        y : sparse or dense indicator (n_rows, n_labels), class vector, or lists of labels
        label_features : sparse or dense matrix (n_labels, n_features), optional
            Names or descriptions of the labels as rows of X would be, in the order of `classes_`;
            zeros for a label without a name. If X are texts, a list of texts is taken too. Labels
            without a single row can be predicted by their names.
        groups : array (n_rows,), optional
            The group of each row, any values: rows that are held out together, in place of
            near-duplicates. Give it where rows belong together, such as pages of a site, and new
            rows will be of other groups.
        """
        return self._fit_given(X, y, label_features=label_features, groups=groups)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Take in further rows, with old labels or new ones, without training anew.

        The rows become neighbours that vote, and count in the centroids and the frequencies of
        their labels. Tree, embedding, re-ranker and text features stay as they are: for a label
        that the tree does not know, the votes stand in. Fit anew when many rows have come.

        Each call copies the rows so far, so give many rows at a time. If the model is not fitted
        yet, this is `fit`.

        Parameters
        ----------
        X, y
            As in `fit`, and in the same forms. Further columns of an indicator are new labels.
        classes
            Not used: new labels may come with any call. scikit-learn's callers give it.
        """
        if not hasattr(self, "retrievers_"):
            return self.fit(X, y)
        matrix = self._features(X)
        Y, new = encoded_again(y, self.classes_, self.form_)
        if Y.shape[0] != matrix.shape[0]:
            raise ValueError(f"X has {matrix.shape[0]} rows but Y has {Y.shape[0]}")
        with self._threads():
            self._partial_fit(matrix, Y)
        self._note_labels(new)
        return self

    def add_labels(self, label_features: Any, classes: Any) -> Self:
        """Take in labels without rows, which can be predicted by their names at once.

        Parameters
        ----------
        label_features : sparse or dense matrix (n_new, n_features)
            As in `fit`, which must have been given some.
        classes : list (n_new,)
            Labels that the model does not have. They are appended to `classes_`; of an indicator
            they are the numbers of the next columns.
        """
        check_is_fitted(self)
        new = further_classes(classes, self.classes_, self.form_)
        self._add_labels(self._checked_names(label_features, len(new), self._n_features()))
        self._note_labels(new)
        return self

    def _note_labels(self, new: NDArray[Any]) -> None:
        if len(new):
            self.classes_ = np.concatenate([self.classes_, new])
        self.label_counts_ = self.retrievers_.counts
        self.n_rows_ = int(self.retrievers_.neighbours.labels.shape[0])

    def label_vectors(self) -> F32:
        """Centroids of the labels in few dimensions (n_labels, k); names where there are no rows.

        On ICD-10-CM they have more labels of the same chapter side by side than the vectors of the
        embedding have.
        """
        check_is_fitted(self)
        return self.retrievers_.label_vectors()

    # Threads of BLAS go on looking for work when they have none, for a tenth of a second, and
    # hinder the kernels, which have most of it.
    @library_threads(1)
    def _fit(
        self,
        X: Matrix,
        Y: csr_array,
        rng: np.random.Generator,
        label_features: Any = None,
        groups: Any = None,
    ) -> None:
        self._check_parameters()
        given = None if groups is None else numbered_groups(groups, X.shape[0])
        X = scaled_rows(X)
        names = None
        if label_features is not None:
            names = label_names(self._checked_names(label_features, Y.shape[1], X.shape[1]))
        self.reranker_: Reranker | StrangerReranker | None = None
        self.calibration_: Calibration | None = None
        self.judge_: str | None = JUDGES[0]
        self.threshold_ = _HALF
        self.held_out_ndcg_: dict[str, float] = {}
        most = int(self.held_out * X.shape[0])
        n_wanted = min(most, _MOST_ROWS)
        if given is not None:
            groups = held_out_of(given, n_wanted, most, rng)
        else:
            with phase("near-duplicates"):
                groups = held_out_groups(X, self.similarity, n_wanted, rng, self.n_jobs)
        many_lost = False
        if names is None:
            drawn = Y[groups >= 0], label_counts(Y)
            many_lost = lost_share(*drawn) > FEW_LOST
            groups = without_lost_labels(groups, *drawn)
        seen, unseen = np.flatnonzero(groups < 0), few_of_groups(groups, CALIBRATED_OF_GROUP)
        judges = None
        if len(unseen) >= _FEW_ROWS:
            further = lost_centroids(X, Y, groups >= 0)
            judges = self._fit_retrievers(X[seen], Y[seen], names, rng, further=further)
            self._fit_reranker(judges, X[unseen], Y[unseen], groups[unseen], many_lost, rng)
        self._set_retrievers(self._fit_retrievers(X, Y, names, rng, before=judges))

    def _partial_fit(self, X: Matrix, Y: csr_array) -> None:
        """`partial_fit` on clean matrices; columns of Y after the known labels are new ones."""
        retrievers = self.retrievers_
        n_more = Y.shape[1] - len(retrievers.counts)
        if n_more:
            retrievers = retrievers.with_labels(n_more)
        self._set_retrievers(retrievers.with_rows(scaled_rows(X), Y, resolve_jobs(self.n_jobs)))

    def _add_labels(self, features: Matrix) -> None:
        """`add_labels` on a clean matrix."""
        if self.retrievers_.names is None:
            raise ValueError("add_labels needs a model that was fitted with label_features")
        self._set_retrievers(self.retrievers_.with_labels(features.shape[0], features))

    def _set_retrievers(self, retrievers: Retrievers) -> None:
        self.retrievers_ = retrievers
        n_rows = retrievers.neighbours.labels.shape[0]
        self.label_weights_ = label_weights(self.objective, retrievers.counts, n_rows)

    def _checked_names(self, label_features: Any, n_labels: int, n_features: int) -> Matrix:
        return name_features(
            label_features, n_labels, n_features, getattr(self, "text_features_", None)
        )

    def _n_features(self) -> int:
        return int(self.retrievers_.centroids.shape[1])

    def _fit_retrievers(
        self,
        X: Matrix,
        Y: csr_array,
        names: LabelNames | None,
        rng: np.random.Generator,
        *,
        further: Matrix | None = None,
        before: Retrievers | None = None,
    ) -> Retrievers:
        return fit_retrievers(
            X,
            Y,
            n_trees=self.n_trees,
            embedding_dim=self.embedding_dim,
            n_neighbors=self.n_neighbors,
            names=names,
            further=further,
            before=before,
            rng=rng,
            n_jobs=self.n_jobs,
        )

    def _fit_reranker(
        self,
        judges: Retrievers,
        X: Matrix,
        Y: csr_array,
        groups: NDArray[np.int32],
        many_lost: bool,
        rng: np.random.Generator,
    ) -> None:
        """Fit the re-ranker to rows that the judges have not seen, if it is better than each.

        `groups` are those of the rows. To learn and to compare there are a few rows of each, of
        near-duplicates as a rule one; probabilities are right for all of them. Where many labels of
        these rows were lost with them, and nobody is much better than to guess frequent labels, the
        tree ranks: new rows may well be of labels that it knows.
        """
        parts = []
        with phase("candidates", X.shape[0], "rows") as advance:
            for _, *part in judges.judged(X, self.n_candidates, resolve_jobs(self.n_jobs)):
                parts.append(part)
                advance(len(part[0]))
        candidates, F = (np.concatenate(part) for part in zip(*parts, strict=True))
        hits = match(Y, candidates).hits
        with phase("re-ranker"):
            first = np.zeros(len(groups), dtype=bool)
            first[few_of_groups(groups)] = True
            if first.sum() < _FEW_ROWS:  # better than nothing
                first[:] = True
            found = self._rerankers(judges, candidates, F, hits, groups, first, rng)
            if found is None:
                return
            reranker, S = found
            scores = {name: _alone(judges, candidates, F, name) for name in judges.judges}
            scores["blend"] = as_probabilities(S)
            k = min(5, candidates.shape[1])
            self.held_out_ndcg_ = {
                name: ndcg_at_k(Y[first], best_candidates(candidates[first], S[first], k)[0], k)
                for name, S in scores.items()
            }
            best = max(scores, key=self.held_out_ndcg_.__getitem__)
            if (
                many_lost
                and self.held_out_ndcg_[best] < _guessed(Y[first], judges.counts) + _LITTLE
            ):
                best = JUDGES[0]
            self.judge_ = None if best == "blend" else best
            self.reranker_ = reranker if best == "blend" else None
            self.calibration_ = fit_calibration(scores[best], hits)
            if self.objective == "f1":
                self.threshold_ = f1_threshold(
                    calibrated(self.calibration_, scores[best]), hits, Y.nnz
                )

    def _rerankers(
        self,
        judges: Retrievers,
        candidates: Ints,
        F: F32,
        hits: NDArray[np.bool_],
        groups: NDArray[np.int32],
        first: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> tuple[Reranker | StrangerReranker, F32] | None:
        """A re-ranker of each half of the groups: their mean, and the log odds of the other half.

        The mean of both is as good as one of all rows would be.
        """
        fit = fit_reranker if judges.names is None else fit_with_strangers
        n_jobs = resolve_jobs(self.n_jobs)
        known, group = np.unique(groups, return_inverse=True)
        if len(known) == 1:  # one of a few large ones that were given: halves of its rows
            group = np.arange(len(groups))
        n_groups = int(group.max()) + 1
        half = (rng.permutation(n_groups) < n_groups // 2)[group]
        tasks = [
            (candidates[rows], F[rows], hits[rows], self.reranker, own)
            for rows, own in zip((half & first, ~half & first), rng.spawn(2), strict=True)
        ]
        halves = [model for model in run(fit, tasks, n_jobs) if model is not None]
        if len(halves) < len(tasks):
            return None
        S = np.empty(candidates.shape, dtype=np.float32)
        for rows, model in zip((~half, half), halves, strict=True):
            S[rows] = model.log_odds(candidates[rows], F[rows], n_jobs)
        return mean_with_strangers(halves), S

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        n_jobs = resolve_jobs(self.n_jobs)
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        blocks = self.retrievers_.judged(scaled_rows(X), self.n_candidates, n_jobs)
        for rows, candidates, F in blocks:
            S = self._scored(candidates, F, n_jobs)
            labels[rows], scores[rows] = best_candidates(candidates, S, k, n_jobs)
        return labels, scores

    def _scored(self, candidates: Ints, F: F32, n_jobs: int) -> F32:
        """Scores (n, m) of the candidates of rows; minus infinity where there is none."""
        if self.reranker_ is None:
            S = _alone(self.retrievers_, candidates, F, self.judge_ or JUDGES[0])
        else:
            S = as_probabilities(self.reranker_.log_odds(candidates, F, n_jobs))
        return weighted(candidates, calibrated(self.calibration_, S), self.label_weights_)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.whole("n_candidates", self.n_candidates, 1)
        check.kind("retrievers_", self.retrievers_, Retrievers)
        self.retrievers_.check_stored(check, n_features, n_labels)
        judges = self.retrievers_.judges
        check.kind("reranker_", self.reranker_, Reranker, StrangerReranker, None)
        if self.reranker_ is not None:
            self.reranker_.check_stored(check, len(judges))
        check_one_of("judge_", self.judge_, (None, *judges))
        check_objective(check, self, n_labels)

    def _check_parameters(self) -> None:
        for name in ("n_trees", "embedding_dim", "n_neighbors", "n_candidates"):
            check_at_least(name, getattr(self, name), 1)
        check_one_of("reranker", self.reranker, ("average", "logistic", "boosted"))
        check_one_of("objective", self.objective, OBJECTIVES)
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out must be at least 0 and below 1, got {self.held_out}")
        check_positive("similarity", self.similarity)


def _guessed(Y: csr_array, counts: Ints) -> float:
    """nDCG@5 of the five most frequent labels, whatever the row.

    >>> round(_guessed(csr_array([[1, 0], [0, 1]]), np.array([3, 7])), 2)
    0.82
    """
    frequent = np.argsort(-counts, kind="stable")[:5]
    return ndcg_at_k(Y, np.tile(frequent, (Y.shape[0], 1)), len(frequent))


def _alone(retrievers: Retrievers, candidates: Ints, F: F32, judge: str) -> F32:
    """Scores of one judge; minus infinity where there is no candidate.

    Of a label without rows only the name is known: it is the score, whoever judges.
    """
    judges = retrievers.judges
    S = F[..., PER_JUDGE * judges.index(judge)]
    if NAMES in judges:
        S = np.where(known_of_labels(F) == 0, F[..., PER_JUDGE * judges.index(NAMES)], S)
    return np.where(candidates >= 0, S, -np.inf)
