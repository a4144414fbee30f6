"""Candidates from several retrievers, ranked by a model that is fitted on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from scipy.sparse import csr_array

from labelry.arrays import F32, Bools, Ints, Rng
from labelry.checks import StoredCheck, check_one_of
from labelry.linalg.blas import library_threads
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import run
from labelry.linalg.rows import Rows, in_memory
from labelry.metrics import ndcg_at_k
from labelry.metrics.matching import match
from labelry.parameters import Between, OneOf, param, settings
from labelry.progress import phase
from labelry.ranking.calibration import Calibration, calibrated, fit_calibration
from labelry.ranking.evidence import as_probabilities, best_candidates, known_of_labels
from labelry.ranking.hold_out import FEW_LOST, HeldOut, few_of_groups, hold_out
from labelry.ranking.lexical import label_names
from labelry.ranking.objectives import ObjectiveSettings, f1_threshold, label_weights, weighted
from labelry.ranking.ranker import Contributions, Ranker
from labelry.ranking.rerank import Kind, Reranker, fit_reranker
from labelry.ranking.zero_shot import ZeroShotReranker, fit_with_zero_shot, mean_with_zero_shot
from labelry.storage.values import AtLeast
from labelry.tagging.retrieval import (
    NAMES,
    SCORERS,
    Retrievers,
    RetrieverSettings,
    fit_retrievers,
    lost_centroids,
)
from labelry.tagging.time_budget import Choice

AnyReranker = Reranker | ZeroShotReranker

# Most rows that are held out. More make no better re-ranker, which no table shows.
_MOST_ROWS = 7_000
_FEW_ROWS = 16  # held-out rows below which nothing is fitted or compared; not tuned
# If many labels were lost: by how much the nDCG of a scorer must be above that of the most frequent
# labels. Not tuned.
_LITTLE = 0.1
_HALF = 0.5  # threshold of probabilities, unless the objective is f1


@settings
class BlendSettings(ObjectiveSettings, RetrieverSettings):
    """How to find candidates and how to rank them."""

    n_candidates: int = param(
        default=30,
        least=1,
        help="Labels that trees, neighbours and descriptions propose, each. Larger finds more of "
        "the labels beyond the first few, and is slower.",
        tune=Between(10, 60, log=True),
    )
    reranker: Kind = param(
        default="average",
        help='The model that ranks the candidates. "logistic" is quickest and best with few rows, '
        '"boosted" trees with many; "average" is the mean of both, with three times the weight for '
        "the trees.",
        tune=OneOf(("average", "logistic", "boosted")),
    )
    held_out: float = param(
        default=0.2,
        least=0,
        below=1,
        help="Share of the rows that the re-ranker is fitted on, at most 7,000 rows. Larger "
        "leaves fewer rows for the first fit of trees and embedding; afterwards these are fitted "
        "on all rows.",
    )
    similarity: float = param(
        default=0.8,
        above=0,
        help="Cosine from which sparse rows are near-duplicates, which are held out together: one "
        "of them to fit the re-ranker, ten to calibrate. Smaller relies less on neighbours. More "
        "than 1 holds rows out at random, which is right if new rows will have near-duplicates in "
        "the training rows too.",
    )


@dataclass(frozen=True, eq=False)
class BlendModel(Ranker):
    """Candidates of several retrievers, ranked by a re-ranker or by one of the scorers."""

    retrievers: Retrievers
    reranker: Reranker | ZeroShotReranker | None  # None if a scorer alone is better
    scorer: str | None  # the name of that scorer
    # Turns the scores of the re-ranker, or of that scorer, into probabilities.
    calibration: Calibration | None
    least_score: float  # the threshold
    label_weights: Annotated[F32, "n_labels"] | None  # inverse propensities, for that objective
    n_candidates: Annotated[int, AtLeast(1)]  # labels that each retriever proposes
    # nDCG@5 on the held-out rows, of each scorer by its name and of the re-ranker as "blend".
    held_out_ndcg: dict[str, float]
    chosen: Choice | None = None  # for a tagger: what was fitted

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless what ranks the candidates takes the scores that there are."""
        scorers = self.retrievers.scorers
        if self.reranker is None:
            check_one_of("scorer", self.scorer, scorers)
        else:
            self.reranker.check_fits(check, len(scorers))

    @property
    def threshold(self) -> float:
        return self.least_score

    @property
    def probabilities(self) -> bool:
        """Return True if rows could be held out, unless the objective is propensity."""
        fitted = self.reranker is not None or self.calibration is not None
        return fitted and self.label_weights is None

    @property
    def spectrum(self) -> F32:
        """Return the eigenvalues of the embedding in which neighbours are found."""
        return self.retrievers.embedding.spectrum

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        blocks = self.retrievers.candidates(scaled_rows(X), self.n_candidates, n_jobs)
        for rows, candidates, F in blocks:
            S = self._scores(candidates, F, n_jobs)
            labels[rows], scores[rows] = best_candidates(candidates, S, k, n_jobs)
        return labels, scores

    def _scores(self, candidates: Ints, F: F32, n_jobs: int) -> F32:
        """Return the scores (n, m) of candidates; minus infinity where there is none."""
        if self.reranker is None:
            S = _alone(self.retrievers, candidates, F, self.scorer or SCORERS[0])
        else:
            S = as_probabilities(self.reranker.log_odds(candidates, F, n_jobs))
        return weighted(candidates, calibrated(self.calibration, S), self.label_weights)

    def label_vectors(self) -> F32:
        """Return centroids in few dimensions (n_labels, k); descriptions of labels without rows.

        On ICD-10-CM they have more labels of the same chapter side by side than the vectors of the
        embedding have.
        """
        return self.retrievers.label_vectors()

    def contributions(self, x: Matrix, label: int) -> Contributions:
        return self.retrievers.trees.contributions(x, label)

    def scored(
        self, x: Matrix, label: int, n_jobs: int = 1
    ) -> tuple[float | None, dict[str, float]]:
        """Return the score of a label for one row, and those of the scorers; None: no candidate."""
        _, candidates, F = next(self.retrievers.candidates(x, self.n_candidates, n_jobs))
        place = np.flatnonzero(candidates[0] == label)
        if not len(place):
            return None, {}
        score = self._scores(candidates, F, n_jobs)[0, place[0]]
        features, scorers = F[0, place[0]], self.retrievers.scorers
        return float(score), {s: float(self.retrievers.scores_of(features, s)) for s in scorers}

    def with_rows(self, X: Matrix, Y: csr_array, n_jobs: int = 1) -> BlendModel:
        """Return a model with further rows among neighbours, centroids and label counts.

        Trees, embedding and re-ranker stay. Further columns of Y are new labels.
        """
        retrievers = self.retrievers
        n_more = Y.shape[1] - len(retrievers.counts)
        if n_more:
            retrievers = retrievers.with_labels(n_more)
        return self._with(retrievers.with_rows(scaled_rows(X), Y, n_jobs))

    def with_labels(self, features: Matrix) -> BlendModel:
        if self.retrievers.names is None:
            raise ValueError("add_labels needs a model that was fitted with label_features")
        return self._with(self.retrievers.with_labels(features.shape[0], features))

    def _with(self, retrievers: Retrievers) -> BlendModel:
        """Return a model with these retrievers, and with weights of their labels."""
        weights = self.label_weights
        if weights is not None:
            n_rows = retrievers.neighbours.labels.shape[0]
            weights = label_weights("propensity", retrievers.counts, n_rows)
        return replace(self, retrievers=retrievers, label_weights=weights)


# The fields of a `BlendModel` that held-out rows choose, where there are too few of them.
_TREES_ALONE: dict[str, Any] = {"reranker": None, "scorer": SCORERS[0], "calibration": None}
_TREES_ALONE |= {"least_score": _HALF, "held_out_ndcg": {}}


# Threads of BLAS go on looking for work when they have none, for a tenth of a second, and slow the
# kernels down, which have most of it.
@library_threads(1)
def fit_blend(rows: Rows, settings: BlendSettings, rng: Rng) -> BlendModel:
    """Fit retrievers without some rows, a re-ranker on these, and the retrievers to all rows.

    The re-ranker is left out if a scorer alone is better on the held-out rows. Descriptions of
    labels are ``rows.known.label_features``; groups of rows to hold out ``rows.known.groups``.
    """
    X, Y = in_memory(rows, "blend")
    rows = Rows(scaled_rows(X), Y, n_jobs=rows.n_jobs, known=rows.known)
    features = rows.known.label_features
    names = None if features is None else label_names(features)
    most = int(settings.held_out * rows.n_rows)
    n_wanted = min(most, _MOST_ROWS)
    keep_labels = names is None  # a label that has a description can be found without rows
    held = hold_out(rows, n_wanted, most, settings.similarity, rng, keep_labels=keep_labels)
    ranking, before = _TREES_ALONE, None
    if len(held.chosen) >= _FEW_ROWS:
        further = lost_centroids(rows, held.seen)
        before = fit_retrievers(rows.only(held.seen), settings, names, rng, further=further)
        ranking = _fit_ranking(before, held, settings, rng)
    retrievers = fit_retrievers(rows, settings, names, rng, before=before)
    return BlendModel(
        retrievers=retrievers,
        **ranking,
        label_weights=label_weights(settings.objective, retrievers.counts, rows.n_rows),
        n_candidates=settings.n_candidates,
    )


def _fit_ranking(
    retrievers: Retrievers, held: HeldOut, settings: BlendSettings, rng: Rng
) -> dict[str, Any]:
    """Fit the re-ranker to held-out rows, and keep it if it is better than each scorer.

    One row of each group of near-duplicates is used to fit and to compare, or a few rows if groups
    are large. Probabilities are calibrated on all rows of `held`. If many labels of these rows have
    no other row, the scores on them can be as bad as a guess of frequent labels. Then the trees
    rank, because new rows may well have labels that the trees know.
    """
    X, Y = held.unseen.gathered("X", "Y")
    groups, n_jobs = held.groups[held.chosen], held.unseen.n_jobs
    parts = []
    with phase("ranking held-out rows", X.shape[0], "rows") as advance:
        for _, *part in retrievers.candidates(X, settings.n_candidates, n_jobs):
            parts.append(part)
            advance(len(part[0]))
    candidates, F = (np.concatenate(part) for part in zip(*parts, strict=True))
    hits = match(Y, candidates).hits
    with phase("learning to re-rank"):
        first = np.zeros(len(groups), dtype=np.bool_)
        first[few_of_groups(groups)] = True
        if first.sum() < _FEW_ROWS:  # too few: use all of them
            first[:] = True
        fit = fit_reranker if retrievers.names is None else fit_with_zero_shot
        found = _fit_halves(fit, candidates, F, hits, groups, first, settings.reranker, rng, n_jobs)
        if found is None:
            return _TREES_ALONE
        reranker, S = found
        scores = {name: _alone(retrievers, candidates, F, name) for name in retrievers.scorers}
        scores["blend"] = as_probabilities(S)
        k = min(5, candidates.shape[1])
        ndcg = {
            name: ndcg_at_k(Y[first], best_candidates(candidates[first], S[first], k)[0], k)
            for name, S in scores.items()
        }
        best = max(scores, key=ndcg.__getitem__)
        many_lost = retrievers.names is None and held.lost > FEW_LOST
        if many_lost and ndcg[best] < _guessed(Y[first], retrievers.counts) + _LITTLE:
            best = SCORERS[0]
        calibration, threshold = fit_calibration(scores[best], hits), _HALF
        if settings.objective == "f1":
            threshold = f1_threshold(calibrated(calibration, scores[best]), hits, Y.nnz)
        return {
            "reranker": reranker if best == "blend" else None,
            "scorer": None if best == "blend" else best,
            "calibration": calibration,
            "least_score": threshold,
            "held_out_ndcg": ndcg,
        }


def _fit_halves(
    fit: Callable[..., AnyReranker | None],
    candidates: Ints,
    F: F32,
    hits: Bools,
    groups: Ints,
    first: Bools,
    kind: Kind,
    rng: Rng,
    n_jobs: int,
) -> tuple[AnyReranker, F32] | None:
    """Fit a re-ranker to each half of the groups: return the mean, and log odds of the other half.

    The mean of both is as accurate as one re-ranker of all rows would be. None if one cannot be
    fitted.
    """
    known, group = np.unique(groups, return_inverse=True)
    if len(known) == 1:  # a large group that was given: it is cut into halves of its rows
        group = np.arange(len(groups))
    n_groups = int(group.max()) + 1
    half = (rng.permutation(n_groups) < n_groups // 2)[group]
    tasks = [
        (candidates[rows], F[rows], hits[rows], kind, own)
        for rows, own in zip((half & first, ~half & first), rng.spawn(2), strict=True)
    ]
    halves = [model for model in run(fit, tasks, n_jobs) if model is not None]
    if len(halves) < len(tasks):
        return None
    S = np.empty(candidates.shape, dtype=np.float32)
    for rows, model in zip((~half, half), halves, strict=True):
        S[rows] = model.log_odds(candidates[rows], F[rows], n_jobs)
    return mean_with_zero_shot(halves), S


def _guessed(Y: csr_array, counts: Ints) -> float:
    """Return the nDCG@5 of the five most frequent labels, whatever the row.

    >>> round(_guessed(csr_array([[1, 0], [0, 1]]), np.array([3, 7])), 2)
    0.82
    """
    frequent = np.argsort(-counts, kind="stable")[:5]
    return ndcg_at_k(Y, np.tile(frequent, (Y.shape[0], 1)), len(frequent))


def _alone(retrievers: Retrievers, candidates: Ints, F: F32, scorer: str) -> F32:
    """Return the scores of one scorer; minus infinity where there is no candidate.

    A label without rows has the score of its description, whatever the scorer.
    """
    S = retrievers.scores_of(F, scorer)
    if NAMES in retrievers.scorers:
        S = np.where(known_of_labels(F) == 0, retrievers.scores_of(F, NAMES), S)
    return np.where(candidates >= 0, S, -np.inf)
