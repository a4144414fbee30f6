"""Candidate labels of rows: their scores by several scorers, and features made of these.

Candidates are an array (n, m) of labels, -1 where there is none. A scorer gives each candidate a
score, (n, m), which is 0 if it does not know the candidate. `evidence` turns the scores of any
number of scorers into features, so a further scorer is one more array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numba import njit
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from labelry.arrays import CSR, F32, Ints
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import run_spans
from labelry.linalg.topk import topk

PER_SCORER = 3  # features of a candidate: score, share of the row's best score, rank
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def merged(lists: Sequence[Ints]) -> Ints:
    """Return the labels of all lists, each once a row, in ascending order; then -1.

    >>> merged([np.array([[3, 1]]), np.array([[1, 2]])]).tolist()
    [[1, 2, 3, -1]]
    """
    labels = np.concatenate(lists, axis=1).astype(np.int32)
    nothing = np.iinfo(np.int32).max
    labels[labels < 0] = nothing
    labels.sort(axis=1)
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = nothing
    labels.sort(axis=1)
    labels[labels == nothing] = -1
    return labels


def best_candidates(candidates: Ints, S: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
    """Return the k candidates of each row with the largest scores S, and the scores.

    Places are -1 and minus infinity if there are fewer.
    """
    places, scores = topk(S, k, n_jobs)
    labels = np.take_along_axis(candidates, np.maximum(places, 0), axis=1)
    return np.where(places < 0, -1, labels), scores


def as_probabilities(log_odds: F32) -> F32:
    """Return ``1 / (1 + exp(-log_odds))``, and minus infinity where there is no candidate."""
    return np.where(np.isneginf(log_odds), log_odds, expit(log_odds)).astype(np.float32)


def listed_scores(candidates: Ints, labels: Ints, scores: F32, n_jobs: int = 1) -> F32:
    """Return the scores of the candidates in a ranked list (n, k); 0 if they are not on it."""
    return _filled(_look_up, candidates, (labels, scores), n_jobs)


def shares_of_candidates(
    candidates: Ints, near: Ints, weights: F32, Y: csr_array, n_near: int, n_jobs: int = 1
) -> F32:
    """Return ``weights[i] @ Y[near[i]]`` of the first `n_near` neighbours, at the candidates."""
    labels = (Y.indptr, Y.indices, Y.data)
    n_near = min(n_near, near.shape[1])
    return _filled(_add_labels, candidates, (near, weights, labels, Y.shape[1], n_near), n_jobs)


def inner_products(candidates: Ints, Z: Matrix, V: Matrix, n_jobs: int = 1) -> F32:
    """Return ``Z[i] @ V[l]`` for the candidates l of each row i; V is (n_labels, k)."""
    if not issparse(V):
        dense = Z.toarray() if issparse(Z) else Z
        return _filled(_dense_products, candidates, (dense, V), n_jobs)
    rows, labels = ((A.indptr, A.indices, A.data) for A in (Z if issparse(Z) else csr_array(Z), V))
    return _filled(_sparse_products, candidates, (rows, labels, V.shape[1]), n_jobs)


def evidence(candidates: Ints, scores: Sequence[F32], known: F32, n_jobs: int = 1) -> F32:
    """Return features (n, m, n_features) of the candidates; zeros where there is none.

    Each scorer has three features: its score, the score over the best score of the row (0 unless
    that is positive), and the rank, which counts the candidates with a larger score. Then comes
    `known`, (n, m), what is known of the label whatever the row, such as the logarithm of its
    frequency. At the end is the best score of the row by each scorer, or 0.
    """
    n_scorers = len(scores)
    out = np.zeros((*candidates.shape, n_features(n_scorers)), dtype=np.float32)
    best = PER_SCORER * n_scorers + 1
    for i, part in enumerate(scores):
        arguments = (candidates, part, PER_SCORER * i, best + i, out)
        run_spans(_add_scorer, arguments, len(out), n_jobs)
    out[..., best - 1] = np.where(candidates >= 0, known, 0)
    return out


def n_features(n_scorers: int) -> int:
    """Return how many features `evidence` makes of the scores of so many scorers."""
    return (PER_SCORER + 1) * n_scorers + 1


def of_candidates(F: F32) -> F32:
    """Return the features without the best scores of rows."""
    n_scorers = F.shape[-1] // (PER_SCORER + 1)
    return F[..., : PER_SCORER * n_scorers + 1]


def known_of_labels(F: F32) -> F32:
    """Return, of the features, what is known of the label, (n, m)."""
    return of_candidates(F)[..., -1]


def _filled(
    kernel: Callable[..., None], candidates: Ints, arguments: tuple[object, ...], n_jobs: int
) -> F32:
    """Return zeros (n, m) to which a kernel adds the scores of the candidates."""
    out = np.zeros(candidates.shape, dtype=np.float32)
    run_spans(kernel, (candidates, *arguments, out), len(out), n_jobs)
    return out


@njit(nogil=True, cache=True)
def _look_up(candidates: Ints, labels: Ints, scores: F32, out: F32, row0: int, row1: int) -> None:
    """Look up each candidate in the ranked list of its row."""
    for i in range(row0, row1):
        for c in range(candidates.shape[1]):
            for t in range(labels.shape[1]):
                if labels[i, t] == candidates[i, c] and labels[i, t] >= 0:
                    out[i, c] = scores[i, t]
                    break


@njit(nogil=True, cache=True)
def _add_labels(
    candidates: Ints,
    near: Ints,
    weights: F32,
    Y: CSR,
    n_labels: int,
    n_near: int,
    out: F32,
    row0: int,
    row1: int,
) -> None:
    """Add up the weights of neighbours, only for labels that are candidates of the row."""
    indptr, indices, data = Y
    place = np.full(n_labels, -1, dtype=np.int32)
    m = candidates.shape[1]
    for i in range(row0, row1):
        for c in range(m):
            if candidates[i, c] >= 0:
                place[candidates[i, c]] = c
        for t in range(n_near):
            row, w = near[i, t], weights[i, t]
            for p in range(indptr[row], indptr[row + 1]):
                c = place[indices[p]]
                if c >= 0:
                    out[i, c] += w * data[p]
        for c in range(m):
            if candidates[i, c] >= 0:
                place[candidates[i, c]] = -1


@njit(nogil=True, cache=True, fastmath=_FAST)
def _dense_products(candidates: Ints, Z: F32, V: F32, out: F32, row0: int, row1: int) -> None:
    """Set the products ``Z[i] @ V[l]`` of the candidates l of each row i."""
    for i in range(row0, row1):
        for c in range(candidates.shape[1]):
            label = candidates[i, c]
            if label >= 0:
                total = np.float32(0.0)
                for j in range(Z.shape[1]):
                    total += Z[i, j] * V[label, j]
                out[i, c] = total


@njit(nogil=True, cache=True)
def _sparse_products(
    candidates: Ints, X: CSR, C: CSR, n_features: int, out: F32, row0: int, row1: int
) -> None:
    """Add the products. A row is made dense once, for all its candidates."""
    x_indptr, x_indices, x_data = X
    c_indptr, c_indices, c_data = C
    x = np.zeros(n_features, dtype=np.float32)
    for i in range(row0, row1):
        for p in range(x_indptr[i], x_indptr[i + 1]):
            x[x_indices[p]] = x_data[p]
        for c in range(candidates.shape[1]):
            label = candidates[i, c]
            if label >= 0:
                total = np.float32(0.0)
                for q in range(c_indptr[label], c_indptr[label + 1]):
                    total += x[c_indices[q]] * c_data[q]
                out[i, c] = total
        for p in range(x_indptr[i], x_indptr[i + 1]):
            x[x_indices[p]] = 0.0


@njit(nogil=True, cache=True)
def _add_scorer(
    candidates: Ints, scores: F32, first: int, last: int, out: F32, row0: int, row1: int
) -> None:
    """Set the features of one scorer, and the best score of each row."""
    m = candidates.shape[1]
    for i in range(row0, row1):
        best = np.float32(0.0)
        for c in range(m):
            if candidates[i, c] >= 0:
                best = max(best, scores[i, c])
        for c in range(m):
            if candidates[i, c] < 0:
                continue
            rank = 0
            for other in range(m):
                rank += candidates[i, other] >= 0 and scores[i, other] > scores[i, c]
            out[i, c, first] = scores[i, c]
            out[i, c, first + 1] = scores[i, c] / best if best > 0.0 else np.float32(0.0)
            out[i, c, first + 2] = rank
            out[i, c, last] = best
