"""Which labels are confused with which: affinities for spectral cuts and for eigenmaps.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, Algorithm 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from labelry.arrays import Rng
from labelry.linalg.rows import Rows, in_memory
from labelry.progress import phase
from labelry.ranking.hold_out import validation_split
from labelry.ranking.one_vs_rest import OneVsRestSettings, fit_one_vs_rest

_PRUNE = 0.01  # absolute weight up to which the surrogate drops a weight, to save memory; not tuned


def confusion(Y: csr_array, predicted: ArrayLike) -> csr_array:
    """Return the affinities A = (C + C') / 2 of Algorithm 2, with zero diagonal, (c, c).

    C_ij counts the held-out rows that have label i and for which label j is `predicted` as the best
    (-1 for none). A row of several labels counts for each of them.

    >>> Y = csr_array(np.eye(3)[[0, 0, 1]])
    >>> confusion(Y, [1, 0, -1]).toarray().tolist()
    [[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    best = np.asarray(predicted)
    n_rows, n_labels = Y.shape
    if best.shape != (n_rows,):
        raise ValueError(f"predicted must have shape ({n_rows},), one per row; got {best.shape}")
    if n_rows and not -1 <= best.min() <= best.max() < n_labels:
        raise ValueError(
            f"predicted must be between -1 and {n_labels - 1}; got {best.min()} to {best.max()}"
        )
    rows = np.flatnonzero(best >= 0)
    ones = np.ones(len(rows), dtype=np.float32)
    P = csr_array((ones, (rows, best[rows])), shape=Y.shape)
    C = (Y != 0).astype(np.float32).T @ P
    A = csr_array((C + C.T) / 2)
    A.setdiag(0)
    A.eliminate_zeros()
    return A


def surrogate_confusion(rows: Rows, n_best: int, rng: Rng) -> csr_array:
    """Return A = (C + C') / 2 of one-vs-rest classifiers: 80 % of the rows train, 20 % count.

    The paper counts the best label of each row. A good classifier then leaves most labels
    unconnected, and their vectors mean nothing. So the `n_best` labels of a row all count.
    With fewer than five rows there is nothing to count, and A is zero.
    """
    X, Y = in_memory(rows, "a matrix of confusions")
    n = rows.n_rows
    training, held_out = validation_split(n, n // 5, rng, groups=rows.known.groups)
    if not len(held_out):
        return csr_array((rows.n_labels, rows.n_labels), dtype=np.float32)
    with phase("looking for confused labels"):
        settings = OneVsRestSettings(normalize=False, prune=_PRUNE)
        part = Rows(X[training], Y[training], n_jobs=rows.n_jobs)
        surrogate = fit_one_vs_rest(part, settings, np.random.default_rng(0))
        best = surrogate.topk(X[held_out], n_best, part.n_jobs)[0]
    return sum(confusion(Y[held_out], place) for place in best.T)
