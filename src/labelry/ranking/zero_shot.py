"""A re-ranker for zero-shot labels, those without training rows, beside the one for all others.

Most scorers give 0 to a zero-shot label, as they do to the worst of the other candidates, so a
re-ranker of all candidates would rank it last. The re-ranker of zero-shot labels has two inputs:
how well the description of the label matches the row, and the best log odds of other candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from labelry.arrays import F32, Bools, Ints, Rng
from labelry.checks import StoredCheck
from labelry.ranking.evidence import PER_SCORER, known_of_labels, of_candidates
from labelry.ranking.rerank import Kind, Reranker, fit_reranker, mean_reranker

_ENOUGH_HITS = 200  # true candidates that a re-ranker of zero-shot labels needs; not tuned


class ZeroShotReranker(NamedTuple):
    """The log odds of labels with rows from one re-ranker, of those without from another.

    The last scorer compares descriptions; what is known of a label is 0 if it has no rows.
    """

    known: Reranker
    zero_shot: Reranker

    def check_fits(self, check: StoredCheck, n_scorers: int) -> None:
        """Raise a ValueError unless the re-rankers are of all scorers, and of descriptions only."""
        self.known.check_fits(check, n_scorers)
        self.zero_shot.check_fits(check, 1)

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Return the log odds (n, m) of the candidates; minus infinity where there is none."""
        no_rows = known_of_labels(F) == 0
        S = self.known.log_odds(np.where(no_rows, -1, candidates), F, n_jobs)
        only = np.where(no_rows, candidates, -1)
        return np.where(no_rows, self.zero_shot.log_odds(only, _by_name(F, S), n_jobs), S)


def fit_with_zero_shot(
    candidates: Ints, F: F32, hits: Bools, kind: Kind, rng: Rng
) -> Reranker | ZeroShotReranker | None:
    """Fit a re-ranker as `fit_reranker` does, with a model of its own for labels without rows.

    The last scorer compares descriptions, and log(1 + rows) is known of a label. The second model
    is fitted to candidates of such labels. If fewer than 200 of these are true, it is fitted to the
    rarest labels too, as many as it takes to reach that number.
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
    zero_shot = fit_reranker(rare, _by_name(F, S), hits, kind, rng)
    return known if zero_shot is None else ZeroShotReranker(known, zero_shot)


def mean_with_zero_shot(
    rerankers: Sequence[Reranker | ZeroShotReranker],
) -> Reranker | ZeroShotReranker:
    """Return the mean of these; for zero-shot labels, of those that have a re-ranker of them."""
    both = [model for model in rerankers if isinstance(model, ZeroShotReranker)]
    known = mean_reranker(
        [model.known if isinstance(model, ZeroShotReranker) else model for model in rerankers]
    )
    if not both:
        return known
    return ZeroShotReranker(known, mean_reranker([model.zero_shot for model in both]))


def _by_name(F: F32, S: F32) -> F32:
    """Return the scores of descriptions as evidence of one scorer, with the best log odds known."""
    best = S.max(axis=1, keepdims=True)
    best = np.where(np.isneginf(best), 0, best)
    names = of_candidates(F)[..., -PER_SCORER - 1 : -1]
    best_odds = np.broadcast_to(best, S.shape)[..., None]
    return np.concatenate([names, best_odds, F[..., -1:]], axis=-1)
