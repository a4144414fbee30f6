"""Which pairs of a true and a wrong label (or tree node) violate the margin, for a batch of rows.

A finder turns the embedded rows Z (b, k) and the vectors V (m, k) into the sparse matrix P (b, m)
that holds, in the row of each violation, +w for the wrong vector s and -w for the right one r.
The hinge loss of the batch, sum of w (1 + f_s - f_r) with f = z'v, has the gradients

    P V  in Z   (and X'P V in W),      P'Z  in V
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.embeddings import joint_kernels
from labelry.linalg.parallel import run, spans

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Negatives = Literal["hardest", "sampled", "warp"]

_MOST_SCORED = 16_384  # labels that a batch looks at; beyond, a random choice of them


class Violations(Protocol):
    """Finds the violations of some rows."""

    def __call__(self, rows: Ints, Z: F32, V: F32) -> csr_array:
        """The matrix P of the rows with the numbers `rows`, embedded as Z."""
        ...


class LabelViolations:
    """Violations among all labels: (W x)'V_y >= (W x)'V_j + 1 for the true y and every wrong j.

    Each true label of a row is an example; the other true labels are no negatives.

    Parameters
    ----------
    Y : csr_array (n_rows, n_labels)
    negatives : {"hardest", "sampled", "warp"}
        The wrong label with the largest violation, as in the paper; the first that violates in
        random order; or that, weighted by the rank that the number of draws suggests.
    offset : array (n_labels,), optional
        Added to the scores of the labels.
    """

    def __init__(
        self,
        Y: csr_array,
        negatives: Negatives,
        *,
        offset: F32 | None = None,
        rng: np.random.Generator,
        n_jobs: int = 1,
    ) -> None:
        self._Y = Y
        self._offset = offset
        self._rng = rng
        self._n_jobs = n_jobs
        n_labels = Y.shape[1]
        self._draw_weights = None
        if negatives == "sampled":
            self._draw_weights = np.ones(n_labels, dtype=np.float32)
        elif negatives == "warp":
            self._draw_weights = warp_weights(n_labels)

    def __call__(self, rows: Ints, Z: F32, V: F32) -> csr_array:
        Y = self._Y[rows]
        candidates = self._candidates(Y.indices, len(V))
        positives, chosen = Y.indices, V
        if candidates is not None:
            positives = np.searchsorted(candidates, Y.indices).astype(np.int32)
            chosen = V[candidates]
        S = Z @ chosen.T
        if self._offset is not None:
            S += self._offset if candidates is None else self._offset[candidates]
        found, weights = np.empty(Y.nnz, dtype=np.int32), np.empty(Y.nnz, dtype=np.float32)
        how: tuple[object, ...] = ()
        kernel: Callable[..., None] = joint_kernels.hardest_negatives
        if self._draw_weights is not None:
            how = self._draw_weights[: S.shape[1]], int(self._rng.integers(2**31))
            kernel = joint_kernels.sampled_negatives
        given = (S, Y.indptr, positives, *how, found, weights)
        run(kernel, [(*given, *span) for span in spans(len(rows), self._n_jobs)], self._n_jobs)
        if candidates is not None:
            found = candidates[found]
        return _pulls(Y.indptr, Y.indices, found, weights, Y.shape)

    def _candidates(self, labels: Ints, n_labels: int) -> Ints | None:
        """Labels to look at: those of the batch and a random choice; None for all."""
        if n_labels <= _MOST_SCORED:
            return None
        drawn = self._rng.integers(n_labels, size=_MOST_SCORED)
        return np.unique(np.concatenate([labels, drawn])).astype(np.int32)


def warp_weights(n_labels: int) -> F32:
    """Weight of a violation found at draw N: L(floor((c - 1) / N)), L(r) = 1 + 1/2 + ... + 1/r.

    The number of draws estimates the rank r of the true label. Entry 0 is not used.

    >>> warp_weights(5)[1:].tolist() == [np.float32(25 / 12), 1.5, 1.0, 1.0]
    True
    """
    draws = np.arange(1, n_labels)
    harmonic = np.cumsum(1.0 / draws)  # L(1), L(2), ...
    return np.concatenate([[0.0], harmonic[(n_labels - 1) // draws - 1]]).astype(np.float32)


class Paths(NamedTuple):
    """What training needs of a tree; paths and leaves are lists in one array, with pointers.

    Attributes
    ----------
    first_child : array (n_nodes + 1,)
        Children of node s are ``first_child[s]`` to ``first_child[s + 1] - 1``.
    parent : array (n_nodes,)
    leaf_ptr : array (n_labels + 1,)
        Leaves of label y are ``leaf_ptr[y]`` to ``leaf_ptr[y + 1] - 1``.
    path_ptr, path_nodes : arrays
        Nodes from below the root down to each leaf.
    """

    first_child: Ints
    parent: Ints
    leaf_ptr: Ints
    path_ptr: Ints
    path_nodes: Ints


class TreeViolations:
    """Violations among the siblings on the path to a true label (section 3.2).

    One slack is shared by the path: only its largest violation counts.
    """

    def __init__(self, Y: csr_array, paths: Paths, *, n_jobs: int = 1) -> None:
        self._Y = Y
        self._paths = paths
        self._n_jobs = n_jobs

    def __call__(self, rows: Ints, Z: F32, V: F32) -> csr_array:
        Y = self._Y[rows]
        good, bad = np.empty(Y.nnz, dtype=np.int32), np.empty(Y.nnz, dtype=np.int32)
        weights = np.empty(Y.nnz, dtype=np.float32)
        given = (Z, V, *self._paths, Y.indptr, Y.indices, good, bad, weights)
        tasks = [(*given, *span) for span in spans(len(rows), self._n_jobs)]
        run(joint_kernels.tree_violations, tasks, self._n_jobs)
        return _pulls(Y.indptr, good, bad, weights, (len(rows), len(V)))


def _pulls(ptr: Ints, good: Ints, bad: Ints, weights: F32, shape: tuple[int, int]) -> csr_array:
    """The matrix P; what does not violate is there with weight zero."""
    indices = np.stack([bad, good], axis=1).ravel()
    data = np.stack([weights, -weights], axis=1).ravel()
    return csr_array((data, indices, 2 * ptr), shape=shape)
