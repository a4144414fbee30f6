"""Binary trees over rows: each node sends a row left or right by a sparse linear separator.

A label tree has labels in its leaves, a tree over rows has rows. The ranker that uses the tree
keeps the labels of each leaf, by node number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from labelry.arrays import F32, I32, Ints, Rng
from labelry.checks import StoredCheck
from labelry.linalg.balanced_clusters import Sets, split_sets
from labelry.linalg.clusters import unit_centres
from labelry.linalg.kernels import Csr
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import balanced_spans, run
from labelry.storage.values import Indices
from labelry.trees.weights import as_csr, frozen

Forest: TypeAlias = tuple[I32, I32, F32]  # root, left and bias of a `RowForest`

_BALANCE = 2.0  # largest ratio of the sizes of two sibling clusters; not tuned


class RowForest(NamedTuple):
    """One or more trees, in flat arrays: a row goes right where ``weights @ x + bias`` > 0."""

    root: Annotated[I32, "n_trees", Indices("n_nodes")]
    # Left child of a node, whose right child comes after it; -1 for a leaf.
    left: Annotated[I32, "n_nodes", Indices("n_nodes", least=-1)]
    weights: Annotated[csr_array, "n_nodes", "n_features"]
    bias: Annotated[F32, "n_nodes"]

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless every path ends, and in a leaf."""
        n = len(self.left)
        inner = np.flatnonzero(self.left >= 0) if check.values else np.arange(0)
        if (self.left[inner] <= inner).any() or (self.left[inner] == n - 1).any():
            raise ValueError("left must be a node after the node itself, and not the last one")

    def leaves(self, X: Matrix, n_jobs: int = 1) -> I32:
        """Return the leaf that each row reaches in each tree, (n_rows, n_trees)."""
        out = np.empty((X.shape[0], len(self.root)), dtype=np.int32)
        csr, flat = as_csr(X), frozen(self.root, self.left, self.bias)
        given = (csr, X.shape[1], flat, as_csr(self.weights), out)
        run(find_leaves, [(*given, *span) for span in balanced_spans(csr.indptr, n_jobs)], n_jobs)
        return out


def matrix_of_lists(indices: Sequence[Ints], values: F32, n_columns: int) -> csr_array:
    """Return a matrix from the column numbers of each row, and the values of all rows."""
    indptr = np.cumsum([0, *map(len, indices)], dtype=np.int32)
    joined = np.concatenate(indices).astype(np.int32)
    return csr_array((values, joined, indptr), shape=(len(indices), n_columns))


def join_trees(trees: Sequence[RowForest]) -> RowForest:
    """Return one forest of forests that have one tree each."""
    root, left, weights, bias = zip(*trees, strict=True)
    sizes = [len(each) for each in left]
    shift = np.cumsum([0, *sizes[:-1]])
    joined, moved = np.concatenate(left), np.repeat(shift, sizes)
    return RowForest(
        (np.concatenate(root) + shift).astype(np.int32),
        np.where(joined < 0, -1, joined + moved).astype(np.int32),
        csr_array(vstack(weights, format="csr")),
        np.concatenate(bias),
    )


def cluster_tree(
    X: Matrix, weights: NDArray[np.floating], *, max_leaf_size: int, rng: Rng, n_jobs: int = 1
) -> RowForest:
    """Return one tree: k-means cuts sets of rows in two, down to `max_leaf_size` rows.

    The centre of a cluster is the weighted mean of its rows, with `weights` (n_rows,) between 0 and
    1. A row goes to the child whose centre has the larger cosine: the separator is the difference
    of the two centres.

    >>> X = np.array([[1, 0], [2, 0], [0, 1], [0, 3]], dtype=np.float32)
    >>> tree = cluster_tree(X, np.ones(4), max_leaf_size=2, rng=np.random.default_rng(0))
    >>> a, b, c, d = tree.leaves(X).ravel().tolist()
    >>> a == b != c == d
    True
    """
    # k-means maximises the sum over clusters of |sum of its rows|, so that length is weight.
    V, scale = scaled_rows(X), weights.astype(np.float32)[:, None]
    V = csr_array(V.multiply(scale)) if issparse(V) else V * scale
    whole = Sets(np.arange(len(weights), dtype=np.int32), np.array([0, len(weights)]))
    sets, nodes = _larger_than(max_leaf_size, whole, np.zeros(1, dtype=np.int32))
    left = np.full(1, -1, dtype=np.int32)
    inner, separators = [nodes], [csr_array((0, X.shape[1]), dtype=np.float32)]
    while len(nodes):  # one level of the tree
        twos = np.full(len(nodes), 2)
        sets = split_sets(V, sets, twos, balance=_BALANCE, rng=rng, n_jobs=n_jobs)
        cluster = np.repeat(np.arange(2 * len(nodes), dtype=np.int32), sets.sizes)
        centres = unit_centres(V[sets.members], cluster, 2 * len(nodes)).T
        separators.append(csr_array(centres[1::2] - centres[::2]))
        children = len(left) + np.arange(2 * len(nodes), dtype=np.int32)
        left[nodes] = children[::2]
        left = np.append(left, np.full(len(children), -1, dtype=np.int32))
        sets, nodes = _larger_than(max_leaf_size, sets, children)
        inner.append(nodes)
    found = vstack(separators, format="csr")  # leaves have none
    size = np.zeros(len(left) + 1, dtype=found.indptr.dtype)
    size[1 + np.concatenate(inner)] = np.diff(found.indptr)  # inner nodes come in ascending order
    separator = csr_array((found.data, found.indices, np.cumsum(size)), (len(left), X.shape[1]))
    root, bias = np.zeros(1, dtype=np.int32), np.zeros(len(left), dtype=np.float32)
    return RowForest(root, left, separator, bias)


def _larger_than(size: int, sets: Sets, nodes: I32) -> tuple[Sets, I32]:
    """Return the sets of more than `size` members, and their nodes."""
    large = sets.sizes > size
    return sets.take(large), nodes[large]


@njit(nogil=True, cache=True)
def find_leaves(
    X: Csr, n_features: int, forest: Forest, W: Csr, out: I32, row0: int, row1: int
) -> None:
    """Fill in the leaves of a span of rows."""
    (indptr, indices, data), (w_indptr, w_indices, w_data) = X, W
    root, left, bias = forest
    x = np.zeros(n_features, dtype=np.float32)
    for i in range(row0, row1):
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = data[p]
        for t in range(root.size):
            node = root[t]
            while left[node] >= 0:
                score = bias[node]
                for q in range(w_indptr[node], w_indptr[node + 1]):
                    score += w_data[q] * x[w_indices[q]]
                node = left[node] + (1 if score > 0 else 0)
            out[i, t] = node
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = 0.0
