"""Topics: words, labels and proportions, and the labels of a document that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from labelry.arrays import F32, F64
from labelry.embeddings.moments.passes import Counts, documents
from labelry.linalg.matrices import product, scatter
from labelry.linalg.rows import Block, Rows
from labelry.progress import phase

TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0)
SMOOTHINGS = (0.05, 0.1, 0.2, 0.3, 0.5)
# These three were chosen on held-out rows. Labels are smoothed less than words, because a rare
# label belongs to few topics.
_WORDS_TEMPERATURE = 3.0  # divides the log-likelihood of words in a refinement
_WORD_SMOOTHING = 0.5  # part of the overall frequencies of words in a refinement
_LABEL_SMOOTHING = 0.01  # part of the overall frequencies of labels
_COLUMNS = 16  # columns that are copied as rows at a time: one cache line of a row


class Topics(NamedTuple):
    """log P[v|h] (d, K), P[l|h] (c, K) and log P[h] (K,)."""

    log_words: Annotated[F32, "n_features", "n_topics"]
    labels: Annotated[F32, "n_labels", "n_topics"]
    log_proportions: Annotated[F32, "n_topics"]

    def posterior(self, words: csr_array, *, temperature: float = 1.0, n_jobs: int = 1) -> F32:
        """Return P[h|d] (n, K) of documents of binary words; a document without words has P[h].

        The temperature divides the log-likelihood. At 1 (equation 14), a long document has one
        topic with a probability of almost 1.
        """
        # Equation 13, in logs and for all documents at once
        L = product(words, self.log_words, n_jobs)
        L *= np.float32(1 / temperature)
        return softmax(L + self.log_proportions, axis=1)  # equation 14

    def scores(self, posterior: F32) -> F32:
        """Return P[l|d] (n, c) from P[h|d] (n, K): equation 15."""
        return posterior @ self.labels.T


class Estimate(NamedTuple):
    """P[v|h] (d, K), P[l|h] (c, K) and P[h] (K,), with the overall P[v] (d,) and P[l] (c,)."""

    words: F32
    labels: F32
    proportions: F32
    all_words: F32
    all_labels: F32

    def smoothed(self, smoothing: float, *, labels: float | None = None) -> Topics:
        """Return topics that are mixed with a part of the overall distributions, so none is zero.

        `labels` is the part for labels, where it differs.
        """
        words = _mixed(self.words, self.all_words, smoothing)
        even = np.full_like(self.proportions, 1 / len(self.proportions))
        return Topics(
            np.log(words, out=words),
            _mixed(self.labels, self.all_labels, smoothing if labels is None else labels),
            np.log(_mixed(self.proportions[:, None], even, smoothing)[:, 0]),
        )


def make_estimate(words: F32, labels: F32, proportions: F32, counts: Counts) -> Estimate:
    """Return what the moments give, and the overall distributions with it."""
    overall = (_overall(counts.words), _overall(counts.labels))
    return Estimate(words, labels, proportions.astype(np.float32), *overall)


def _overall(counts: F32) -> F32:
    shares = counts.astype(np.float64) + 0.5  # a word that never occurs counts half an occurrence
    return (shares / shares.sum()).astype(np.float32)


def _mixed(P: F32, overall: F32, part: float) -> F32:
    """Return columns of probabilities, a part of which is the overall distribution."""
    mixed = np.float32(1 - part) * P
    mixed += np.float32(part) * overall[:, None]
    return np.maximum(mixed, np.finfo(np.float32).tiny, out=mixed)


def refine(rows: Rows, estimate: Estimate) -> Estimate:
    """Make one step of expectation maximisation, in one pass.

    The moments put the topics near the truth; the step makes them fit the likelihood that
    prediction uses. Words and labels of a document both count for its topic. A temperature divides
    the likelihood of the words, because the many words of a document depend on each other.
    """
    d, c = rows.n_features, rows.n_labels
    topics = estimate.smoothed(_WORD_SMOOTHING, labels=_LABEL_SMOOTHING)
    K = len(topics.log_proportions)
    log_labels = np.log(topics.labels)

    def add(block: Block, words: F32, labels: F32, proportions: F32) -> None:
        for part in documents(block, normalize=False).parts():
            L = product(part.words, topics.log_words, rows.n_jobs)
            L *= np.float32(1 / _WORDS_TEMPERATURE)
            L += product(part.labels, log_labels, rows.n_jobs)
            P = softmax(L + topics.log_proportions, axis=1) * part.pair_weights[:, None]
            scatter(part.words, P, words, rows.n_jobs)
            scatter(part.labels, P, labels, rows.n_jobs)
            proportions += P.sum(axis=0)

    with phase("refinement"):
        words, labels, proportions = rows.reduce(add, (d, K), (c, K), (K,))
    pi = _shares(proportions[:, None])[:, 0]
    return estimate._replace(words=_shares(words), labels=_shares(labels), proportions=pi)


def choose_topics(
    estimate: Estimate,
    words: csr_array,
    Y: csr_array,
    *,
    smoothings: Sequence[float] = SMOOTHINGS,
    temperatures: Sequence[float] = TEMPERATURES,
    n_jobs: int = 1,
) -> tuple[Topics, float]:
    """Return the topics and the temperature that make the labels of some documents likeliest."""
    known = np.unique(words.indices)  # no other word plays a part in these documents
    local = csr_array(words[:, known])
    few = estimate._replace(words=estimate.words[known], all_words=estimate.all_words[known])
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    likelihoods = {}
    for smoothing in smoothings:
        topics = few.smoothed(smoothing, labels=_LABEL_SMOOTHING)
        for temperature in temperatures:
            P = topics.posterior(local, temperature=temperature, n_jobs=n_jobs)
            chosen = np.einsum("lk,lk->l", P[rows], topics.labels[Y.indices])
            likelihoods[smoothing, temperature] = float(np.log(np.maximum(chosen, 1e-30)).sum())
    smoothing, temperature = max(likelihoods, key=likelihoods.__getitem__)
    return estimate.smoothed(smoothing, labels=_LABEL_SMOOTHING), temperature


def _shares(counts: F32) -> F32:
    """Divide columns by their sums, in place; a column of zeros becomes uniform."""
    totals = counts.sum(axis=0, dtype=np.float64)
    counts[:, totals <= 0] = 1
    counts /= np.where(totals > 0, totals, len(counts)).astype(np.float32)
    return counts


def project_to_simplex(V: NDArray[np.floating]) -> F32:
    """Return the probability vector nearest to each column of V, in Euclidean distance.

    It is max(v - t, 0) with the t that makes the sum one. Entries that are not above the t of all
    entries are not above the final t either. So they are left out, and t is computed again, until
    it no longer changes.

    Michelot: A finite algorithm for finding the projection of a point onto the canonical simplex,
    1986.

    >>> project_to_simplex(np.array([[1.2], [0.2], [-0.3]], dtype=np.float32)).ravel().round(3)
    array([1., 0., 0.], dtype=float32)
    """
    out = np.empty(V.shape, dtype=np.float32)
    for start in range(0, V.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        part = np.array(V[:, columns].T, dtype=np.float64, order="C")
        for v in part:
            v -= _shift_to_simplex(v)
        np.maximum(part, 0, out=part)
        out[:, columns] = part.T
    return out


def _shift_to_simplex(v: F64) -> float:
    """Return the t for which max(v - t, 0) sums to one."""
    while True:
        t = (v.sum() - 1) / len(v)
        above = v[v > t]
        if len(above) == len(v):
            return float(t)
        v = above


def to_distributions(V: F32) -> F32:
    """Return columns as probability vectors: scaled to sum to one, then projected on the simplex.

    A column whose negative part nearly cancels its positive part is noise, and to divide by
    its sum would leave a single entry; such a column is scaled by half its positive part.
    A column without a positive entry becomes uniform.
    """
    positive = np.maximum(V, 0).sum(axis=0, dtype=np.float64)
    scale = np.maximum(V.sum(axis=0, dtype=np.float64), positive / 2)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=positive > 0)
    return project_to_simplex(V * inverse.astype(np.float32))
