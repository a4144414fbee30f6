"""Algorithm 1: topics of words and labels from moments."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from labelry.embeddings.moments.bounds import MomentStatistics, SampleSizeWarning, most_topics
from labelry.embeddings.moments.passes import Diagonal, WordMoments
from labelry.embeddings.moments.simplex import to_distributions
from labelry.embeddings.moments.tensor import tensor_eigenpairs
from labelry.embeddings.moments.topics import Estimate, make_estimate, refine
from labelry.linalg.rows import Rows

MOST_AUTO_TOPICS = 100
_OVERSAMPLES = 20  # columns of the sketch beyond the topics


def learn_topics(
    rows: Rows,
    n_topics: int | Literal["auto"],
    *,
    diagonal: Diagonal = "kept",
    normalize: bool = True,
    n_refinements: int = 2,
    n_restarts: int = 20,
    n_power_passes: int = 0,
    rng: np.random.Generator,
) -> tuple[Estimate, MomentStatistics]:
    """Words, labels and proportions of topics, in 3 + n_power_passes + n_refinements passes.

    The parameters are those of `labelry.systems.moments.Moments`.
    """
    K = _resolve(n_topics, rows.n_rows)
    moments = WordMoments(rows, diagonal=diagonal, normalize=normalize)
    # Without the diagonal, about every other direction has a negative eigenvalue.
    n_columns = (2 * K if diagonal == "removed" else K) + _OVERSAMPLES
    basis = moments.sketch(n_columns, n_power_passes, rng)  # line 1
    white = moments.whiten(basis, K)  # lines 2-4
    rank = len(white.eigenvalues)
    if rank == 0 or (n_topics != "auto" and rank < K):
        raise ValueError(_rank_message(n_topics, rank, diagonal))
    values, U = tensor_eigenpairs(white.tensor, rank, n_restarts=n_restarts, rng=rng)  # line 5
    # Line 6: mu_k = W+ u_k up to scale, and pi_k = lambda_k^-2
    words = to_distributions(white.unwhitening @ U)
    pi = np.maximum(values, 1e-6 * max(float(values.max()), 1e-30)) ** -2.0
    labels = to_distributions(moments.labels(white.W @ U))  # lines 8-9
    estimate = make_estimate(words, labels, pi / pi.sum(), moments.counts)
    for _ in range(n_refinements):
        estimate = refine(rows, estimate)
    return estimate, moments.statistics(white.eigenvalues)


def _resolve(n_topics: int | Literal["auto"], n_rows: int) -> int:
    most = max(1, most_topics(n_rows))
    if n_topics == "auto":
        return min(MOST_AUTO_TOPICS, most)
    if n_topics > most:
        warnings.warn(
            f"{n_topics} topics need at least {n_topics**2:,} documents (K^2) for the theory to "
            f"say anything, got {n_rows:,}; the largest n_topics for these is {most}",
            SampleSizeWarning,
            stacklevel=3,
        )
    return n_topics


def _rank_message(n_topics: int | Literal["auto"], rank: int, diagonal: Diagonal) -> str:
    if rank == 0 and diagonal == "removed":
        return "no document has two words (positive entries of X), so there are no pairs to count"
    if rank == 0:
        return "no document has a word: X has no positive entry"
    what = "number of positive eigenvalues" if diagonal == "removed" else "numerical rank"
    return f"n_topics must be at most {rank}, the {what} of the pairs of words, got {n_topics}"
