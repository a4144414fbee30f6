"""Topics: words, labels and proportions, and what they say about a document."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.embeddings.moments.documents import documents
from labelry.embeddings.moments.passes import Counts
from labelry.linalg.rows import Block, Rows, product, scatter
from labelry.progress import phase
from labelry.state import storable

F32 = NDArray[np.float32]

TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0)
_WORDS_TEMPERATURE = 3.0  # of the words in a refinement; chosen on held-out rows


@storable
class Topics(NamedTuple):
    """log P[v|h] (d, K), P[l|h] (c, K) and log P[h] (K,)."""

    log_words: F32
    labels: F32
    log_proportions: F32

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


def make_topics(
    words: F32, labels: F32, proportions: F32, counts: Counts, smoothing: float
) -> Topics:
    """Topics from probability vectors, each mixed with a part of the overall frequencies.

    `words` and `labels` are overwritten.
    """
    words = _mix(words, counts.words, smoothing)
    pi = _mix(proportions[:, None].astype(np.float32), np.ones_like(proportions), smoothing)
    return Topics(
        np.log(words, out=words), _mix(labels, counts.labels, smoothing), np.log(pi[:, 0])
    )


def _mix(P: F32, frequencies: F32, smoothing: float) -> F32:
    """``P = (1 - s) P + s frequencies``, in place; nothing is quite impossible."""
    overall = frequencies.astype(np.float64) + 0.5  # what never occurs is worth half an occurrence
    overall *= smoothing / overall.sum()
    P *= np.float32(1 - smoothing)
    P += overall.astype(np.float32)[:, None]
    return np.maximum(P, np.finfo(np.float32).tiny, out=P)


def refine(rows: Rows, topics: Topics, counts: Counts, smoothing: float) -> Topics:
    """One step of expectation maximisation from the topics, in one pass.

    The moments put the topics near the truth; the step makes them fit the likelihood that
    prediction uses. The labels of a document have their say in its topic: words are many and
    say the same thing over, so their likelihood is tempered.
    """
    d, c = rows.n_features, rows.n_labels
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
    return make_topics(
        _shares(words), _shares(labels), _shares(proportions[:, None])[:, 0], counts, smoothing
    )


def fit_temperature(topics: Topics, words: csr_array, Y: csr_array, n_jobs: int = 1) -> float:
    """The temperature at which the labels of these documents are likeliest, of nine."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    likelihoods = []
    for temperature in TEMPERATURES:
        P = topics.posterior(words, temperature=temperature, n_jobs=n_jobs)
        chosen = np.einsum("lk,lk->l", P[rows], topics.labels[Y.indices])
        likelihoods.append(float(np.log(np.maximum(chosen, 1e-30)).sum()))
    return TEMPERATURES[int(np.argmax(likelihoods))]


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
