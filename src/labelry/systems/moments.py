"""Multi-label learning by the method of moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from labelry.checks import StoredCheck, check_positive
from labelry.embeddings.moments import (
    ConvergenceBound,
    choose_topics,
    convergence_bound,
    learn_topics,
    present_words,
)
from labelry.embeddings.moments.bounds import MomentStatistics
from labelry.embeddings.moments.passes import Diagonal
from labelry.embeddings.moments.topics import Topics
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Block, Rows
from labelry.linalg.topk import topk, topk_blocks

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_HELD_OUT_PART = 20  # one row in so many, for the temperature
_MOST_HELD_OUT = 2000


class Moments(LabelRanker):
    """Topics that words and labels share, from moments of the word counts.

    Each document has one hidden topic, from which its words and its labels are drawn. The
    topics come from the eigenpairs of the second and third moments of the words, not from a
    search, so there are no local optima, and with enough documents the estimates are provably
    close (`convergence_bound`). Training takes three passes over the rows and one for each
    refinement. Choose it for very many rows and labels, or for topics that can be read.

    X is taken as words that are present (x > 0) or absent, as the paper models documents; the
    size of an entry plays no part. Scores are P[l|d], the probability that a label drawn from the
    document is l: between 0 and 1, and one in sum over the labels.

    Parameters
    ----------
    n_topics : int or "auto"
        Topics K. More are finer, and need more rows: at least K^2. "auto" takes 100, or fewer
        where there are fewer than 10,000 rows or the pairs of words have a smaller rank.
    diagonal : {"kept", "removed"}
        Whether a word makes pairs and triples with itself. "kept" is the paper's estimate and
        robust; "removed" is closer to the model, needs documents of three words and more, and
        allows fewer topics.
    normalize : bool
        Scale documents to unit length in the moments, so that long ones do not decide alone;
        False is the paper's weighting.
    n_refinements : int
        Steps of expectation maximisation after Algorithm 1, a pass each. Two are worth some
        points of AUC, more add little; 0 is the paper's estimate.
    temperature : float or "auto"
        Divides the log-likelihood of a document; larger is less certain of the topic, 1 is
        the paper's. "auto" takes the one that makes the labels of held-out rows likeliest
        (one row in 20, at most 2000, which are then not learnt from).
    smoothing : float or "auto"
        Part of the overall frequencies in the words of each topic; larger trusts the topics less.
        "auto" is as for the temperature.
    n_restarts : int
        Starts of the tensor power method for each topic; more find the strongest more surely.
    n_power_passes : int
        Further passes for the eigenvectors of the word pairs; more are closer to exact.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    topics_ : Topics
        log P[v|h] (n_features, K), P[l|h] (n_labels, K), log P[h] (K,).
    statistics_ : MomentStatistics
        Spectrum of the word pairs and the means that `convergence_bound` needs.
    temperature_ : float
    word_frequencies_ : array (n_features,)
        Share of the rows that have each word.

    Notes
    -----
    With N rows, z nonzeros in X, z' in Y and m = K + 20: pass 1 costs 4 z m flops and reads
    or writes 12 z m bytes; pass 2 costs 6 z m + 2/3 N m^3 flops (the tensor, in cache) and
    16 z m bytes; pass 3 and a refinement 2 z K + 2 z' K and 4 z K + 4 z' K flops. Memory beyond
    the data is 4 bytes x (3 d m + c K + 2 m^3). "removed" adds 4 z m + 2 d m^3 flops.

    Warns `SampleSizeWarning` when N < n_topics^2; an error only where `n_topics` exceeds the
    numerical rank of the word pairs.

    References
    ----------
    Dasgupta: Multi-label learning with provable guarantee, 2016.

    Examples
    --------
    >>> texts = ["red cat", "the red cat", "a blue dog", "blue dog"] * 5
    >>> model = Moments(n_topics=2).fit(texts, ["cat", "cat", "dog", "dog"] * 5)
    >>> model.predict(["red", "my blue dog"]).tolist()
    ['cat', 'dog']
    """

    system: ClassVar[str] = "moments"

    def __init__(
        self,
        *,
        n_topics: int | Literal["auto"] = "auto",
        diagonal: Diagonal = "kept",
        normalize: bool = True,
        n_refinements: int = 2,
        temperature: float | Literal["auto"] = "auto",
        smoothing: float | Literal["auto"] = "auto",
        n_restarts: int = 20,
        n_power_passes: int = 0,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_topics = n_topics
        self.diagonal = diagonal
        self.normalize = normalize
        self.n_refinements = n_refinements
        self.temperature = temperature
        self.smoothing = smoothing
        self.n_restarts = n_restarts
        self.n_power_passes = n_power_passes
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Score from which `predict` says yes: half the mean share of a label of a row.

        The scores of a row sum to one, so with m labels a row each has about 1/m.
        """
        return 0.5 / max(1.0, float(self.label_counts_.sum()) / self.n_rows_)

    @property
    def topic_proportions_(self) -> F32:
        """P[h] (K,), the share of each topic."""
        return np.exp(self.topics_.log_proportions)

    def topic_posteriors(self, X: Any) -> F32:
        """P[h|d] (n_rows, K) of features or texts, at the fitted temperature."""
        check_is_fitted(self)
        with self._threads():
            return self._posterior(self._features(X))

    def topic_words(self, k: int = 10) -> tuple[NDArray[Any], F32]:
        """The k words that mark each topic, and P[v|h]; both (K, k).

        Ranked by P[v|h] log(P[v|h] / P[v]): frequent in the topic, and more so than elsewhere.
        Column numbers where X was not text.
        """
        check_is_fitted(self)
        background = self.word_frequencies_ / max(float(self.word_frequencies_.sum()), 1e-30)
        log_lift = self.topics_.log_words - np.log(np.maximum(background, 1e-30))[:, None]
        words = np.exp(self.topics_.log_words)
        best, values = _ranked(words * log_lift, words, k)
        if self.text_features_ is None:
            return best, values
        return self.text_features_.get_feature_names_out()[best], values

    def topic_labels(self, k: int = 10) -> tuple[NDArray[Any], F32]:
        """The k likeliest labels of each topic, and P[l|h]; both (K, k)."""
        check_is_fitted(self)
        best, values = _ranked(self.topics_.labels, self.topics_.labels, k)
        return self.classes_[best], values

    def convergence_bound(self, N: int | None = None, delta: float = 0.05) -> ConvergenceBound:
        """The bounds of Theorem 1, from the fitted spectrum.

        With probability 1 - `delta`, words, labels and proportions of every topic are within
        these distances of the truth, if the documents follow the model and there are at least
        `n_required` of them. They are worst-case bounds, falling like 1/sqrt(N): a value above
        1 says nothing; what they are good for is how they change with N, K and the spectrum.

        Parameters
        ----------
        N : int, optional
            Documents; those of the fit when None.
        delta : float
            Probability that a bound fails.
        """
        check_is_fitted(self)
        N = self.statistics_.n_rows if N is None else N
        return convergence_bound(self.statistics_, self.topic_proportions_, N, delta)

    def _fit_rows(self, rows: Rows, rng: np.random.Generator) -> None:
        self._check_parameters()
        judges = self._judges(rows.n_rows, rng)
        # Products here are tall and thin or small: BLAS threads would wait for each other.
        with threadpool_limits(limits=1):
            estimate, self.statistics_ = learn_topics(
                rows.only(~judges) if 0 < judges.sum() < rows.n_rows else rows,
                self.n_topics,
                diagonal=self.diagonal,
                normalize=self.normalize,
                n_refinements=self.n_refinements,
                n_restarts=self.n_restarts,
                n_power_passes=self.n_power_passes,
                rng=rng,
            )
        (counts,) = rows.reduce(_add_words, (rows.n_features,), dtype=np.float64)
        self.word_frequencies_ = (counts / rows.n_rows).astype(np.float32)
        given: dict[str, Sequence[float]] = {}
        if self.smoothing != "auto":
            given["smoothings"] = [self.smoothing]
        if self.temperature != "auto":
            given["temperatures"] = [float(self.temperature)]
        X, Y = rows.only(judges).gathered("X", "Y")
        self.topics_, self.temperature_ = choose_topics(
            estimate, present_words(X), Y, n_jobs=resolve_jobs(self.n_jobs), **given
        )

    def _judges(self, n_rows: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """The rows to judge topics by, if that is needed, which are then not learnt from.

        All rows, which are learnt from too, where they are few.
        """
        order = rng.permutation(n_rows)
        judges = np.zeros(n_rows, dtype=bool)
        if "auto" in (self.temperature, self.smoothing):
            judges[order[: min(n_rows // _HELD_OUT_PART, _MOST_HELD_OUT) or n_rows]] = True
        return judges

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        P = self._posterior(X)
        return topk_blocks(
            lambda rows: self.topics_.scores(P[rows]),
            len(P),
            len(self.classes_),
            k,
            resolve_jobs(self.n_jobs),
        )

    def _scores(self, X: Matrix) -> F32:
        return self.topics_.scores(self._posterior(X))

    def _posterior(self, X: Matrix) -> F32:
        return self.topics_.posterior(
            present_words(X), temperature=self.temperature_, n_jobs=resolve_jobs(self.n_jobs)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Features whose size matters, not their presence, are not for this model.
        tags.classifier_tags.poor_score = True
        return tags

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.kind("topics_", self.topics_, Topics)
        self.topics_.check_stored(check, n_features, n_labels)
        check.kind("statistics_", self.statistics_, MomentStatistics)
        self.statistics_.check_stored(check, len(self.topics_.log_proportions))
        check.number("temperature_", self.temperature_)
        check_positive("temperature_", self.temperature_)
        check.array("word_frequencies_", self.word_frequencies_, n_features)

    def _check_parameters(self) -> None:
        if self.diagonal not in ("kept", "removed"):
            raise ValueError(f"diagonal must be kept or removed, got {self.diagonal!r}")
        if self.n_topics != "auto" and self.n_topics < 1:
            raise ValueError(f"n_topics must be at least 1, or 'auto'; got {self.n_topics}")
        if self.temperature != "auto" and not self.temperature > 0:
            raise ValueError(f"temperature must be positive, or 'auto'; got {self.temperature}")
        if self.smoothing != "auto" and not 0 <= self.smoothing < 1:
            raise ValueError(
                f"smoothing must be at least 0 and below 1, or 'auto'; got {self.smoothing}"
            )
        if self.n_restarts < 1:
            raise ValueError(f"n_restarts must be at least 1, got {self.n_restarts}")
        for name in ("n_refinements", "n_power_passes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")


def _add_words(block: Block, counts: NDArray[np.float64]) -> None:
    counts += present_words(block.X).sum(axis=0, dtype=np.float64)


def _ranked(ranks: F32, values: F32, k: int) -> tuple[Ints, F32]:
    """The k best of each column by `ranks`, best first, and their `values`; both transposed."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    best, _ = topk(ranks.T, min(k, len(ranks)))
    return best, np.take_along_axis(values.T, best, axis=1)
