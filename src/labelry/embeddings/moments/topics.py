"""Topics: words, labels and proportions, and what they say about a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck
from labelry.embeddings.moments.documents import documents
from labelry.embeddings.moments.passes import Counts
from labelry.linalg.matrices import product, scatter
from labelry.linalg.rows import Block, Rows
from labelry.progress import phase
from labelry.state import storable

F32 = NDArray[np.float32]

TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0)
SMOOTHINGS = (0.05, 0.1, 0.2, 0.3, 0.5)
# Chosen on held-out rows. Labels are smoothed less than words: a rare one has its topics only.
_WORDS_TEMPERATURE = 3.0  # in a refinement
_WORD_SMOOTHING = 0.5  # in a refinement
_LABEL_SMOOTHING = 0.01


@storable
class Topics(NamedTuple):
    """log P[v|h] (d, K), P[l|h] (c, K) and log P[h] (K,)."""

    log_words: F32
    labels: F32
    log_proportions: F32

    def check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        """A ValueError unless they are topics of so many words and labels."""
        check.kind("log_proportions", self.log_proportions, np.ndarray)
        n_topics = self.log_proportions.size
        check.array("log_proportions", self.log_proportions, n_topics)
        check.array("log_words", self.log_words, n_features, n_topics)
        check.array("labels", self.labels, n_labels, n_topics)

    def posterior(self, words: csr_array, *, temperature: float = 1.0, n_jobs: int = 1) -> F32:
        """P[h|d] (n, K) of documents of binary words; a document without words has P[h].

        The logarithm of the likelihood is divided by the temperature: as it is (equation 14),
        a long document is certain of its topic.
        """
        # Equation 13, in logs and for all documents at once
        L = product(words, self.log_words, n_jobs)
        L *= np.float32(1 / temperature)
        return _softmax(L + self.log_proportions)  # equation 14

    def scores(self, posterior: F32) -> F32:
        """P[l|d] (n, c) from P[h|d] (n, K): equation 15."""
        return posterior @ self.labels.T


class Estimate(NamedTuple):
    """P[v|h] (d, K), P[l|h] (c, K) and P[h] (K,), with the overall P[v] (d,) and P[l] (c,)."""

    words: F32
    labels: F32
    proportions: F32
    all_words: F32
    all_labels: F32

    def smoothed(self, smoothing: float, *, labels: float | None = None) -> Topics:
        """Topics that are mixed with a part of the overall distributions.

        Nothing is quite impossible then. `labels` is the part in those of labels, if another.
        """
        words = _mixed(self.words, self.all_words, smoothing)
        even = np.full_like(self.proportions, 1 / len(self.proportions))
        return Topics(
            np.log(words, out=words),
            _mixed(self.labels, self.all_labels, smoothing if labels is None else labels),
            np.log(_mixed(self.proportions[:, None], even, smoothing)[:, 0]),
        )


def make_estimate(words: F32, labels: F32, proportions: F32, counts: Counts) -> Estimate:
    """What the moments give, beside the overall distributions."""
    overall = (_overall(counts.words), _overall(counts.labels))
    return Estimate(words, labels, proportions.astype(np.float32), *overall)


def _overall(counts: F32) -> F32:
    shares = counts.astype(np.float64) + 0.5  # what never occurs is worth half an occurrence
    return (shares / shares.sum()).astype(np.float32)


def _mixed(P: F32, overall: F32, part: float) -> F32:
    mixed = np.float32(1 - part) * P
    mixed += np.float32(part) * overall[:, None]
    return np.maximum(mixed, np.finfo(np.float32).tiny, out=mixed)


def refine(rows: Rows, estimate: Estimate) -> Estimate:
    """One step of expectation maximisation, in one pass.

    The moments put the topics near the truth; the step makes them fit the likelihood that
    prediction uses. The labels of a document have their say in its topic: words are many and
    say the same thing over, so their likelihood is tempered.
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
            P = _softmax(L + topics.log_proportions) * part.pair_weights[:, None]
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
    """Topics, and the temperature, that make the labels of some documents likeliest."""
    known = np.unique(words.indices)  # only words of these documents matter
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


def _softmax(L: F32) -> F32:
    P = np.exp(L - L.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    return P


def _shares(counts: F32) -> F32:
    """Columns divided by their sums, in place; a column of zeros becomes uniform."""
    totals = counts.sum(axis=0, dtype=np.float64)
    counts[:, totals <= 0] = 1
    counts /= np.where(totals > 0, totals, len(counts)).astype(np.float32)
    return counts
