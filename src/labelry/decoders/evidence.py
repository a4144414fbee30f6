"""What several judges say about the candidate labels of each row, as features of a re-ranker.

Candidates are an array (n, m) of labels, -1 where there is none. A judge gives each candidate a
score, (n, m); a judge that knows nothing of a candidate gives 0. `evidence` turns the scores of any
number of judges into features, so a further judge is one more array.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.linalg.parallel import run, spans

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

PER_JUDGE = 3  # features of a candidate: score, share of the row's best score, rank
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def merged(lists: Sequence[Ints]) -> Ints:
    """The labels of all lists, each once a row, in ascending order; then -1.

    Examples
    --------
    >>> merged([np.array([[3, 1]]), np.array([[1, 2]])]).tolist()
    [[1, 2, 3, -1]]
    """
    labels = np.concatenate(lists, axis=1).astype(np.int32)
    nobody = np.iinfo(np.int32).max
    labels[labels < 0] = nobody
    labels.sort(axis=1)
    labels[:, 1:][labels[:, 1:] == labels[:, :-1]] = nobody
    labels.sort(axis=1)
    labels[labels == nobody] = -1
    return labels


def listed_scores(candidates: Ints, labels: Ints, scores: F32, n_jobs: int = 1) -> F32:
    """Scores of the candidates in a ranked list (n, k); 0 for those that are not on it."""
    out = np.zeros(candidates.shape, dtype=np.float32)
    _in_threads(_look_up, (candidates, labels, scores, out), n_jobs)
    return out


def votes(
    candidates: Ints, near: Ints, weights: F32, Y: csr_array, n_near: int, n_jobs: int = 1
) -> F32:
    """Votes for the candidates of the first `n_near` neighbours: ``weights[i] @ Y[near[i]]``."""
    out = np.zeros(candidates.shape, dtype=np.float32)
    n_near = min(n_near, near.shape[1])
    csr = (Y.indptr, Y.indices, Y.data, Y.shape[1])
    _in_threads(_count_votes, (candidates, near, weights, *csr, n_near, out), n_jobs)
    return out


def inner_products(candidates: Ints, Z: F32, V: F32, n_jobs: int = 1) -> F32:
    """``Z[i] @ V[l]`` for the candidates l of each row i; V is (n_labels, k)."""
    out = np.zeros(candidates.shape, dtype=np.float32)
    _in_threads(_dense_products, (candidates, Z, V, out), n_jobs)
    return out


def sparse_inner_products(candidates: Ints, X: csr_array, C: csr_array, n_jobs: int = 1) -> F32:
    """``X[i] @ C[l]`` for the candidates l of each row i; C is (n_labels, n_features)."""
    out = np.zeros(candidates.shape, dtype=np.float32)
    rows = (X.indptr, X.indices, X.data)
    labels = (C.indptr, C.indices, C.data, C.shape[1])
    _in_threads(_sparse_products, (candidates, *rows, *labels, out), n_jobs)
    return out


def evidence(candidates: Ints, scores: Sequence[F32], known: F32, n_jobs: int = 1) -> F32:
    """Features (n, m, `n_features` of the judges) of the candidates; zeros where there is none.

    For each judge its score, the share of the best score of the row (0 unless that is positive)
    and the rank, which counts the candidates of a larger score; then `known`, (n, m), what is known
    of the label without looking at the row, such as the logarithm of its frequency; and for each
    judge the best score of the row, or 0: how sure it is of the row at all.
    """
    n_judges = len(scores)
    out = np.zeros((*candidates.shape, n_features(n_judges)), dtype=np.float32)
    best = PER_JUDGE * n_judges + 1
    for judge, part in enumerate(scores):
        _in_threads(_judged, (candidates, part, PER_JUDGE * judge, best + judge, out), n_jobs)
    out[..., best - 1] = np.where(candidates >= 0, known, 0)
    return out


def n_features(n_judges: int) -> int:
    """How many features `evidence` makes of the scores of so many judges."""
    return (PER_JUDGE + 1) * n_judges + 1


def of_candidates(F: F32) -> F32:
    """The features without the best scores of rows."""
    n_judges = F.shape[-1] // (PER_JUDGE + 1)
    return F[..., : PER_JUDGE * n_judges + 1]


def known_of_labels(F: F32) -> F32:
    """Of the features, what is known of the label (n, m).

    Examples
    --------
    >>> F = evidence(np.array([[3, 1]]), [np.array([[2, 4]], "f4")], np.array([[7, 8]]))
    >>> known_of_labels(F).tolist()
    [[7.0, 8.0]]
    """
    return of_candidates(F)[..., -1]


def _in_threads(kernel: object, arguments: tuple[object, ...], n_jobs: int) -> None:
    n = len(arguments[0])  # type: ignore[arg-type]
    run(kernel, [(*arguments, *span) for span in spans(n, n_jobs)], n_jobs)  # type: ignore[arg-type]


@njit(nogil=True, cache=True)
def _look_up(candidates: Ints, labels: Ints, scores: F32, out: F32, row0: int, row1: int) -> None:
    for i in range(row0, row1):
        for c in range(candidates.shape[1]):
            for t in range(labels.shape[1]):
                if labels[i, t] == candidates[i, c] and labels[i, t] >= 0:
                    out[i, c] = scores[i, t]
                    break


@njit(nogil=True, cache=True)
def _count_votes(
    candidates: Ints,
    near: Ints,
    weights: F32,
    indptr: Ints,
    indices: Ints,
    data: F32,
    n_labels: int,
    n_near: int,
    out: F32,
    row0: int,
    row1: int,
) -> None:
    """The place of each candidate is noted, so that no vote for other labels is counted."""
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
    candidates: Ints,
    x_indptr: Ints,
    x_indices: Ints,
    x_data: F32,
    c_indptr: Ints,
    c_indices: Ints,
    c_data: F32,
    n_features: int,
    out: F32,
    row0: int,
    row1: int,
) -> None:
    """A row is laid out over all features once, for all its candidates."""
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
def _judged(
    candidates: Ints, scores: F32, first: int, last: int, out: F32, row0: int, row1: int
) -> None:
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
