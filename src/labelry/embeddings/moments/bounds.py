"""Theorem 1: how far the estimates can be from the parameters, from the fitted spectrum."""

from __future__ import annotations

from math import log, sqrt
from typing import Annotated, NamedTuple

from labelry.arrays import F32
from labelry.storage.values import AtLeast


class SampleSizeWarning(UserWarning):
    """There are fewer documents than the square of the number of topics, as the theory needs."""


class MomentStatistics(NamedTuple):
    """What the bounds depend on.

    `pairs`, `triples` and `label_pairs` are the means over documents of nnz(x)^2, nnz(x)^3 and
    nnz(x)^2 nnz(y), as the moments weigh them: d_2s, d_3s and d_ls of the paper.
    """

    eigenvalues: Annotated[F32, "n_topics"]  # the K largest of the pair probabilities M2
    pairs: float
    triples: float
    label_pairs: float
    n_rows: Annotated[int, AtLeast(1)]


class ConvergenceBound(NamedTuple):
    """Bounds that hold together with probability 1 - delta, from `n_required` documents on."""

    words: float  # of ||mu_k - estimate||, for every topic k
    labels: float  # of ||gamma_k - estimate||
    proportions: float  # of |pi_k - estimate|
    n_required: float  # max(n_1, n_2, n_3) with every constant that the paper leaves open set to 1


def convergence_bound(
    statistics: MomentStatistics, proportions: F32, n_rows: int, delta: float
) -> ConvergenceBound:
    """Return the bounds of Theorem 1 for `n_rows` documents and probability 1 - `delta`."""
    if n_rows < 1:
        raise ValueError(f"N must be at least 1, got {n_rows}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, got {delta}")
    s1, sK = float(statistics.eigenvalues[0]), float(statistics.eigenvalues[-1])
    d2, d3, dl = statistics.pairs, statistics.triples, statistics.label_pairs
    K, root = len(proportions), sqrt(n_rows)
    e1, e2 = 1 + sqrt(log(1 / delta) / 2), 1 + sqrt(log(2 / delta) / 2)
    words = 160 * sqrt(s1) / (d2 * sK**2.5) + 32 * sqrt(2 * s1) / (d3 * sK**1.5)
    words += 4 * sqrt(s1) / (d2 * sK)
    labels = 160 / (d2 * sK**3.5) + 32 * sqrt(2) / (d3 * sK**2.5)
    labels += (2 + 2 * sqrt(2)) / (d2 * sK**2)
    label_noise = 8 * e2 / (dl * sK) if dl > 0 else float("inf")
    pi = (200 / sK**2.5 + 40 * sqrt(2) / sK**1.5) / d3
    spread = sqrt(float(proportions.max()) / max(float(proportions.min()), 1e-300))
    n1 = log(K) + log(max(log(max(K * spread, 1.0)), 1e-300))
    n2 = (e1 / (d2 * sK)) ** 2
    n3 = K**2 * (10 / (d2 * sK**2.5) + 2 * sqrt(2) / (d3 * sK**1.5)) ** 2 * e1**2
    return ConvergenceBound(
        words * e1 / root,
        labels * 2 * e1 / root + label_noise / root,
        pi * e1 / root,
        max(n1, n2, n3, 1.0),
    )
