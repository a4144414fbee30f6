"""Candidates from several systems, ranked by a model that has learnt whom to trust when."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import check_at_least, check_one_of, check_positive
from labelry.decoders.evidence import PER_JUDGE
from labelry.decoders.rerank import Kind, Reranker, as_probabilities, best_candidates, fit_reranker
from labelry.estimator import LabelRanker
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Matrix, scaled_rows
from labelry.metrics import ndcg_at_k
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.systems.hold_out import held_out_rows, near_duplicates
from labelry.systems.retrieval import JUDGES, Retrievers, fit_retrievers

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_MOST_ROWS = 20_000  # to hold out: more make no better re-ranker
_FEW_ROWS = 20  # held out that cannot judge anybody


class Blend(LabelRanker):
    """Candidates from a linear label tree and from neighbours in an embedding, re-ranked.

    Both propose labels; they, the low-rank scores of the embedding and the centroids of the labels
    judge each candidate; and a small model, fitted on rows that none of them has seen, turns
    what they say into a probability. Choose it for accuracy: it is at least as good on held-out
    rows as the best of its parts, or else ranks as that part does.

    Parameters
    ----------
    n_trees : int
        Trees of the linear label tree. More are more accurate and slower.
    embedding_dim : int
        Dimensions of the embedding. Larger is more accurate up to a point.
    n_neighbors : int
        Training rows that vote; more find more labels.
    n_candidates : int
        Labels that the tree and the neighbours propose, each. Larger finds more of the labels
        beyond the first few, and is slower.
    reranker : {"average", "logistic", "boosted"}
        "logistic" is quickest and best with few rows, "boosted" trees with many; "average" of both.
    held_out : float
        Share of the rows that the re-ranker is fitted on, at most 20,000 of them, by judges that
        were fitted on the others. Afterwards the judges are fitted on all rows.
    similarity : float
        Cosine from which rows count as near-duplicates, which are held out together; sparse rows
        only. Smaller trusts neighbours less; more than 1 holds out rows at random, which is right
        where new rows have near-duplicates in the training rows too.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    retrievers_ : Retrievers
    reranker_ : Reranker or None
        None where a judge alone is better.
    judge_ : str or None
        That judge.
    held_out_ndcg_ : dict
        nDCG@5 on the held-out rows, of each judge by its name and of their "blend".

    Notes
    -----
    Scores are probabilities, as far as the rows held out are like those to come; those of a judge
    alone are not calibrated. Only candidates are ranked: there may be fewer than k of them.

    Training takes two to four times as long as that of the parts: they are fitted twice, the
    re-ranker three times. Fewer than 80 rows are not held out: the tree alone ranks.

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
        held_out: float = 0.25,
        similarity: float = 0.8,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.embedding_dim = embedding_dim
        self.n_neighbors = n_neighbors
        self.n_candidates = n_candidates
        self.reranker = reranker
        self.held_out = held_out
        self.similarity = similarity
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities: those of a re-ranker are."""
        return getattr(self, "reranker_", None) is not None

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        X = scaled_rows(X)
        self.reranker_: Reranker | None = None
        self.judge_: str | None = JUDGES[0]
        self.held_out_ndcg_: dict[str, float] = {}
        with phase("near-duplicates"):
            groups = near_duplicates(X, self.similarity)
        n_wanted = min(int(self.held_out * X.shape[0]), _MOST_ROWS)
        held_out = held_out_rows(groups, n_wanted, rng)
        if held_out.sum() >= _FEW_ROWS:
            seen, unseen = np.flatnonzero(~held_out), np.flatnonzero(held_out)
            judges = self._fit_retrievers(X[seen], Y[seen], rng)
            self._fit_reranker(judges, X[unseen], Y[unseen], groups[unseen], rng)
        self.retrievers_ = self._fit_retrievers(X, Y, rng)

    def _fit_retrievers(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> Retrievers:
        return fit_retrievers(
            X,
            Y,
            n_trees=self.n_trees,
            embedding_dim=self.embedding_dim,
            n_neighbors=self.n_neighbors,
            rng=rng,
            n_jobs=self.n_jobs,
        )

    def _fit_reranker(
        self,
        judges: Retrievers,
        X: Matrix,
        Y: csr_array,
        groups: Ints,
        rng: np.random.Generator,
    ) -> None:
        """Fit the re-ranker to rows that the judges have not seen, if it is better than each."""
        parts = []
        with phase("candidates", X.shape[0], "rows") as advance:
            for _, *part in judges.judged(X, self.n_candidates, resolve_jobs(self.n_jobs)):
                parts.append(part)
                advance(len(part[0]))
        candidates, F = (np.concatenate(part) for part in zip(*parts, strict=True))
        hits = match(Y, candidates).hits
        with phase("re-ranker"):
            S = self._unseen_log_odds(candidates, F, hits, groups, rng)
            if S is None:
                return
            scores = {name: _alone(candidates, F, name) for name in JUDGES} | {"blend": S}
            k = min(5, candidates.shape[1])
            self.held_out_ndcg_ = {
                name: ndcg_at_k(Y, best_candidates(candidates, S, k)[0], k)
                for name, S in scores.items()
            }
            best = max(scores, key=self.held_out_ndcg_.__getitem__)
            if best == "blend":
                self.judge_ = None
                self.reranker_ = fit_reranker(candidates, F, hits, kind=self.reranker, rng=rng)
            else:
                self.judge_ = best

    def _unseen_log_odds(
        self,
        candidates: Ints,
        F: F32,
        hits: NDArray[np.bool_],
        groups: Ints,
        rng: np.random.Generator,
    ) -> F32 | None:
        """Log odds of the candidates of each half of the rows, by a re-ranker of the other half."""
        half = held_out_rows(groups, len(groups) // 2, rng)
        S = np.empty(candidates.shape, dtype=np.float32)
        for rows in (half, ~half):
            model = fit_reranker(
                candidates[~rows], F[~rows], hits[~rows], kind=self.reranker, rng=rng
            )
            if model is None:
                return None
            S[rows] = model.log_odds(candidates[rows], F[rows], resolve_jobs(self.n_jobs))
        return S

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        n_jobs = resolve_jobs(self.n_jobs)
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        blocks = self.retrievers_.judged(scaled_rows(X), self.n_candidates, n_jobs)
        for rows, candidates, F in blocks:
            if self.reranker_ is None:
                S = _alone(candidates, F, self.judge_ or JUDGES[0])
            else:
                S = as_probabilities(self.reranker_.log_odds(candidates, F, n_jobs))
            labels[rows], scores[rows] = best_candidates(candidates, S, k, n_jobs)
        return labels, scores

    def _check_parameters(self) -> None:
        for name in ("n_trees", "embedding_dim", "n_neighbors", "n_candidates"):
            check_at_least(name, getattr(self, name), 1)
        check_one_of("reranker", self.reranker, ("average", "logistic", "boosted"))
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out must be at least 0 and below 1, got {self.held_out}")
        check_positive("similarity", self.similarity)


def _alone(candidates: Ints, F: F32, judge: str) -> F32:
    """Scores of one judge; minus infinity where there is no candidate."""
    return np.where(candidates >= 0, F[..., PER_JUDGE * JUDGES.index(judge)], -np.inf)
