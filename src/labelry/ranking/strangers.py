"""A re-ranker for labels without training rows, beside the one for all others.

Most scorers give 0 to a label without rows, as to the worst of the other candidates: a model of all
candidates would rank it last. So such labels, the strangers, have a model of their own, of the
match of their description with the row and of the best log odds of the other candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from labelry.arrays import F32, Bools, Ints
from labelry.checks import StoredCheck
from labelry.ranking.evidence import PER_SCORER, known_of_labels, of_candidates
from labelry.ranking.rerank import Kind, Reranker, fit_reranker, mean_reranker

_ENOUGH_HITS = 200  # true candidates that a model of strangers needs; not tuned


class StrangerReranker(NamedTuple):
    """The log odds of labels with rows from one re-ranker, of those without from another.

    The last scorer compares descriptions; what is known of a label is 0 if it has no rows.
    """

    known: Reranker
    strangers: Reranker

    def check_fits(self, check: StoredCheck, n_scorers: int) -> None:
        """Raise a ValueError unless the re-rankers are of all scorers, and of descriptions only."""
        self.known.check_fits(check, n_scorers)
        self.strangers.check_fits(check, 1)

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Return the log odds (n, m) of the candidates; minus infinity where there is none."""
        strange = known_of_labels(F) == 0
        S = self.known.log_odds(np.where(strange, -1, candidates), F, n_jobs)
        only = np.where(strange, candidates, -1)
        return np.where(strange, self.strangers.log_odds(only, _by_name(F, S), n_jobs), S)


def fit_with_strangers(
    candidates: Ints, F: F32, hits: Bools, kind: Kind, rng: np.random.Generator
) -> Reranker | StrangerReranker | None:
    """As `fit_reranker`; the last scorer compares descriptions, log(1 + rows) is known of a label.

    The model of strangers is fitted to candidates without rows. If fewer than 200 of these are
    true, it is fitted to the rarest labels too, as many as it takes to reach that number.
    """
    rows = known_of_labels(F)
    known = fit_reranker(np.where(rows == 0, -1, candidates), F, hits, kind, rng)
    if known is None:
        return fit_reranker(candidates, F, hits, kind, rng)
    S = known.log_odds(candidates, F)
    frequency = np.where(candidates >= 0, rows, np.inf)
    of_hits = np.sort(frequency[hits])
    most = of_hits[min(_ENOUGH_HITS, len(of_hits)) - 1]
    rare = np.where(frequency <= most, candidates, -1)
    strangers = fit_reranker(rare, _by_name(F, S), hits, kind, rng)
    return known if strangers is None else StrangerReranker(known, strangers)


def mean_with_strangers(
    rerankers: Sequence[Reranker | StrangerReranker],
) -> Reranker | StrangerReranker:
    """Return the mean log odds of these; for strangers, of those that have a model of them."""
    both = [model for model in rerankers if isinstance(model, StrangerReranker)]
    known = mean_reranker(
        [model.known if isinstance(model, StrangerReranker) else model for model in rerankers]
    )
    if not both:
        return known
    return StrangerReranker(known, mean_reranker([model.strangers for model in both]))


def _by_name(F: F32, S: F32) -> F32:
    """Return the scores of descriptions as evidence of one scorer, with the best log odds known."""
    best = S.max(axis=1, keepdims=True)
    best = np.where(np.isneginf(best), 0, best)
    names = of_candidates(F)[..., -PER_SCORER - 1 : -1]
    best_odds = np.broadcast_to(best, S.shape)[..., None]
    return np.concatenate([names, best_odds, F[..., -1:]], axis=-1)
