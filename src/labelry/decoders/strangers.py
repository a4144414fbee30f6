"""A re-ranker for labels of which only the name is known, beside the one for all others.

What the judges say about a label without rows looks like the worst that they say about any other:
no score, no votes. A model of all candidates would bury it. So such labels, the strangers, get a
model of their own, of the match of their name with the row and of how well the best of the other
candidates explains the row already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.checks import StoredCheck
from labelry.decoders.evidence import PER_JUDGE, known_of_labels, of_candidates
from labelry.decoders.rerank import Kind, Reranker, fit_reranker, mean_reranker
from labelry.state import storable

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]

_ENOUGH_HITS = 200  # to learn from


@storable
class StrangerReranker(NamedTuple):
    """Log odds of labels with rows by one re-ranker, of those without by another.

    The last judge has the names; what is known of a label is 0 if it has no rows.
    """

    known: Reranker
    strangers: Reranker

    def check_stored(self, check: StoredCheck, n_judges: int) -> None:
        """A ValueError unless it has both re-rankers: of all judges, and of the names."""
        for name, n in (("known", n_judges), ("strangers", 1)):
            check.kind(name, getattr(self, name), Reranker)
            getattr(self, name).check_stored(check, n)

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Log odds (n, m) of the candidates; minus infinity where there is none."""
        strange = known_of_labels(F) == 0
        S = self.known.log_odds(np.where(strange, -1, candidates), F, n_jobs)
        only = np.where(strange, candidates, -1)
        return np.where(strange, self.strangers.log_odds(only, _by_name(F, S), n_jobs), S)


def fit_with_strangers(
    candidates: Ints, F: F32, hits: Bools, kind: Kind, rng: np.random.Generator
) -> Reranker | StrangerReranker | None:
    """As `fit_reranker`, where the last judge has the names and log(1 + rows) is known of a label.

    The model of strangers learns from candidates without rows. Where fewer than 200 of them are
    true, the rarest labels are taken for strangers too: as many as that needs.
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
    """One that ranks by the mean log odds of these, strangers by those that know of them."""
    both = [model for model in rerankers if isinstance(model, StrangerReranker)]
    known = mean_reranker(
        [model.known if isinstance(model, StrangerReranker) else model for model in rerankers]
    )
    if not both:
        return known
    return StrangerReranker(known, mean_reranker([model.strangers for model in both]))


def _by_name(F: F32, S: F32) -> F32:
    """What the names say, as the evidence of one judge; of the row the best log odds are known."""
    best = S.max(axis=1, keepdims=True)
    best = np.where(np.isneginf(best), 0, best)
    names = of_candidates(F)[..., -PER_JUDGE - 1 : -1]
    best_odds = np.broadcast_to(best, S.shape)[..., None]
    return np.concatenate([names, best_odds, F[..., -1:]], axis=-1)
