"""Labels by topics: the settings, the fit (Algorithm 1) and the fitted value."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Annotated, Literal

import numpy as np

from labelry.arrays import F32, F64, Bools, Ints, Rng
from labelry.embeddings.moments.bounds import (
    ConvergenceBound,
    MomentStatistics,
    SampleSizeWarning,
    convergence_bound,
)
from labelry.embeddings.moments.passes import Diagonal, WordMoments, present_words
from labelry.embeddings.moments.tensor import tensor_eigenpairs
from labelry.embeddings.moments.topics import (
    Estimate,
    Topics,
    choose_topics,
    make_estimate,
    refine,
    to_distributions,
)
from labelry.linalg.blas import library_threads
from labelry.linalg.matrices import Matrix
from labelry.linalg.rows import Block, Rows
from labelry.linalg.topk import topk, topk_blocks
from labelry.parameters import Between, Settings, param, settings
from labelry.ranking.hold_out import validation_split
from labelry.ranking.ranker import Ranker
from labelry.storage.values import AtLeast, Sizes

_HELD_OUT_PART = 20  # one row in so many is held out for temperature and smoothing; not tuned
_MOST_HELD_OUT = 2000  # rows; not tuned
_LEAST_TEMPERATURE = np.finfo(np.float32).tiny  # whose inverse is a float32
_MOST_AUTO_TOPICS = 100  # that "auto" takes; not tuned
_OVERSAMPLES = 20  # columns of the sketch beyond the topics; not tuned


@settings
class MomentsSettings(Settings):
    """How to learn topics of words and labels from moments of the word counts."""

    n_topics: int | Literal["auto"] = param(
        default="auto",
        least=1,
        help='Topics K. More are finer, and need more rows: at least K^2. "auto" takes 100, or '
        "fewer where there are fewer than 10,000 rows or the pairs of words have a smaller rank.",
        tune=Between(20, 200, log=True),
    )
    diagonal: Diagonal = param(
        default="kept",
        help='Whether a word makes pairs and triples with itself. "kept" is the paper\'s estimate '
        'and robust. "removed" is closer to the model, needs documents of three words and more, '
        "and allows fewer topics.",
    )
    normalize: bool = param(
        default=True,
        help="Scale documents to unit length in the moments, so that long ones do not decide "
        "alone. False is the paper's weighting.",
    )
    n_refinements: int = param(
        default=2,
        least=0,
        help="Steps of expectation maximisation after Algorithm 1, a pass each. 0 is the paper's "
        "estimate. Two add some points of AUC; more take longer and add little.",
        tune=Between(0, 4),
    )
    temperature: float | Literal["auto"] = param(
        default="auto",
        above=0,
        help="Divides the log-likelihood of a document. Larger is less certain of the topic; 1 is "
        'the paper\'s. "auto" takes the one that makes the labels of held-out rows likeliest. It '
        "holds out one row in 20, at most 2000.",
    )
    smoothing: float | Literal["auto"] = param(
        default="auto",
        least=0,
        below=1,
        help="Part of the overall frequencies in the words of each topic. Larger makes the topics "
        'more alike. "auto" is as for the temperature.',
    )
    n_restarts: int = param(
        default=20,
        least=1,
        help="Starts of the tensor power method for each topic. More find the strongest topic more "
        "surely, and take longer.",
    )
    n_power_passes: int = param(
        default=0,
        least=0,
        help="Further passes for the eigenvectors of the word pairs. More are closer to exact.",
    )


@dataclass(frozen=True, eq=False)
class TopicModel(Ranker):
    """Topics, and the temperature at which a document is divided among them."""

    topics: Annotated[Topics, Sizes(n_topics="n_topics")]
    statistics: Annotated[MomentStatistics, Sizes(n_topics="n_topics")]
    temperature: Annotated[float, AtLeast(float(_LEAST_TEMPERATURE))]
    word_frequencies: Annotated[F32, "n_features"]  # share of the rows that have each word
    labels_per_row: Annotated[float, AtLeast(0)]  # mean over the training rows

    @property
    def threshold(self) -> float:
        """Return half the mean share of a label of a row: with m labels, each has about 1/m."""
        return 0.5 / max(1.0, self.labels_per_row)

    @property
    def topic_proportions(self) -> F32:
        """Return P[h] (K,), the share of each topic."""
        return np.exp(self.topics.log_proportions)

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        P = self.posteriors(X, n_jobs)
        n_labels = len(self.topics.labels)
        return topk_blocks(lambda rows: self.topics.scores(P[rows]), len(P), n_labels, k, n_jobs)

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        return self.topics.scores(self.posteriors(X, n_jobs))

    def posteriors(self, X: Matrix, n_jobs: int = 1) -> F32:
        """Return P[h|d], (n_rows, K), at the temperature of the model."""
        return self.topics.posterior(present_words(X), temperature=self.temperature, n_jobs=n_jobs)

    def topic_words(self, k: int) -> tuple[Ints, F32]:
        """Return the k words that mark each topic, and P[v|h]; both (K, k).

        The order is that of P[v|h] log(P[v|h] / P[v]): frequent in the topic, and more so than
        elsewhere.
        """
        background = self.word_frequencies / max(float(self.word_frequencies.sum()), 1e-30)
        log_lift = self.topics.log_words - np.log(np.maximum(background, 1e-30))[:, None]
        words = np.exp(self.topics.log_words)
        return _best_of_columns(words * log_lift, words, k)

    def topic_labels(self, k: int) -> tuple[Ints, F32]:
        """Return the k likeliest labels of each topic, and P[l|h]; both (K, k)."""
        return _best_of_columns(self.topics.labels, self.topics.labels, k)

    def convergence_bound(self, n_rows: int | None, delta: float) -> ConvergenceBound:
        """Return the bounds of Theorem 1 for so many documents; those of the fit when None."""
        n_rows = self.statistics.n_rows if n_rows is None else n_rows
        return convergence_bound(self.statistics, self.topic_proportions, n_rows, delta)


def fit_moments(rows: Rows, settings: MomentsSettings, rng: Rng) -> TopicModel:
    """Learn topics by Algorithm 1; held-out rows choose the temperature and the smoothing.

    Three passes, one for each refinement and power pass, and one for the frequencies of words.
    """

    def add_words(block: Block, counts: F64) -> None:
        counts += present_words(block.X).sum(axis=0, dtype=np.float64)

    held_out = _held_out(rows, settings, rng)
    some = 0 < held_out.sum() < rows.n_rows
    # Products here are tall and thin, or small: BLAS threads would wait for each other.
    with library_threads(1):
        estimate, statistics = learn_topics(rows.only(~held_out) if some else rows, settings, rng)
    (counts,) = rows.reduce(add_words, (rows.n_features,), dtype=np.float64)
    given: dict[str, Sequence[float]] = {}
    if settings.smoothing != "auto":
        given["smoothings"] = [float(settings.smoothing)]
    if settings.temperature != "auto":
        given["temperatures"] = [float(settings.temperature)]
    X, Y = rows.only(held_out).gathered("X", "Y")
    topics, temperature = choose_topics(estimate, present_words(X), Y, n_jobs=rows.n_jobs, **given)
    frequencies = (counts / rows.n_rows).astype(np.float32)
    labels_per_row = float(rows.label_counts().sum()) / rows.n_rows
    return TopicModel(topics, statistics, temperature, frequencies, labels_per_row)


def _held_out(rows: Rows, settings: MomentsSettings, rng: Rng) -> Bools:
    """Return which rows choose among temperatures and smoothings: none if both are given.

    They are not among the training rows, unless there are so few rows that all do both.
    """
    chooses = "auto" in (settings.temperature, settings.smoothing)
    n_wanted = min(rows.n_rows // _HELD_OUT_PART, _MOST_HELD_OUT) if chooses else 0
    split = validation_split(rows.n_rows, n_wanted, rng, groups=rows.known.groups)
    return split.is_held_out | (chooses and not n_wanted)


def _best_of_columns(ranks: F32, values: F32, k: int) -> tuple[Ints, F32]:
    """Return the k best of each column by `ranks`, best first, and their `values`; transposed."""
    best, _ = topk(ranks.T, min(k, len(ranks)))
    return best, np.take_along_axis(values.T, best, axis=1)


def learn_topics(
    rows: Rows, settings: MomentsSettings, rng: Rng
) -> tuple[Estimate, MomentStatistics]:
    """Return words, labels and proportions of topics, and what the bounds depend on.

    Takes 3 + n_power_passes + n_refinements passes.
    """
    n_topics, diagonal = settings.n_topics, settings.diagonal
    K = _resolve(n_topics, rows.n_rows)
    moments = WordMoments(rows, diagonal=diagonal, normalize=settings.normalize)
    # Without the diagonal, about every other direction has a negative eigenvalue.
    n_columns = (2 * K if diagonal == "removed" else K) + _OVERSAMPLES
    basis = moments.sketch(n_columns, settings.n_power_passes, rng)  # line 1
    white = moments.whiten(basis, K)  # lines 2-4
    rank = len(white.eigenvalues)
    if rank == 0 or (n_topics != "auto" and rank < K):
        raise ValueError(_rank_message(n_topics, rank, diagonal))
    n_restarts = settings.n_restarts
    values, U = tensor_eigenpairs(white.tensor, rank, n_restarts=n_restarts, rng=rng)  # line 5
    # Line 6: mu_k = W+ u_k up to scale, and pi_k = lambda_k^-2
    words = to_distributions(white.unwhitening @ U)
    pi = np.maximum(values, 1e-6 * max(float(values.max()), 1e-30)) ** -2.0
    labels = to_distributions(moments.labels(white.W @ U))  # lines 8-9
    estimate = make_estimate(words, labels, pi / pi.sum(), moments.counts)
    for _ in range(settings.n_refinements):
        estimate = refine(rows, estimate)
    return estimate, moments.statistics(white.eigenvalues)


def _resolve(n_topics: int | Literal["auto"], n_rows: int) -> int:
    """Return K, and warn where there are fewer documents than the theory needs."""
    most = max(1, isqrt(n_rows))  # n_rows >= K^2
    if n_topics == "auto":
        return min(_MOST_AUTO_TOPICS, most)
    if n_topics > most:
        warnings.warn(
            f"{n_topics} topics need at least {n_topics**2:,} documents (K^2) for the theory to "
            f"say anything, got {n_rows:,}; the largest n_topics for these is {most}",
            SampleSizeWarning,
            stacklevel=3,
        )
    return n_topics


def _rank_message(n_topics: int | Literal["auto"], rank: int, diagonal: Diagonal) -> str:
    """Return why there are fewer topics than were asked for."""
    if rank == 0 and diagonal == "removed":
        return "no document has two words (positive entries of X), so there are no pairs to count"
    if rank == 0:
        return "no document has a word: X has no positive entry"
    what = "number of positive eigenvalues" if diagonal == "removed" else "numerical rank"
    return f"n_topics must be at most {rank}, the {what} of the pairs of words, got {n_topics}"
