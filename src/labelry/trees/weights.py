"""Linear node predictors f_s(x) = w_s'x + b_s of a tree, stored for search.

The children of an inner node are scored together, so their weights form one chunk: a dense block
with a row for each feature that the chunk knows, a last row for the intercepts, and a column for
each child. A feature of a query is looked up once per chunk and adds one contiguous row.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry import memory
from labelry.arrays import F32, I32, I64, Ints
from labelry.checks import StoredCheck
from labelry.linalg.kernels import Csr
from labelry.linalg.lanes import LINE, prefetch
from labelry.linalg.matrices import Matrix
from labelry.storage.values import Indices, Pointers
from labelry.trees.structure import Tree

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_FREE = np.int32(-1)  # a slot without a feature
_SPREAD = np.int64(0x9E3779B1)  # factor of the multiplicative hash, of which 32 bits are used
_ZERO = np.float32(0.0)


class NodeWeights(NamedTuple):
    """One chunk per inner node, all chunks in flat arrays.

    A chunk without slots has a row for every feature. The others find a feature's row in a hash
    table: the slots ``slot_ptr[s]`` to ``slot_ptr[s + 1] - 1``, a power of two of them.
    """

    slot_ptr: Annotated[I64, "n_nodes + 1", Pointers("n_slots")]
    slot_feature: Annotated[I32, "n_slots", Indices("n_features", least=-1)]  # -1: a free slot
    slot_row: Annotated[I32, "n_slots"]  # row of that feature in the block
    # The block of node s, (n_rows + 1, n_children) row by row, starts at block_ptr[s].
    block_ptr: Annotated[I64, "n_nodes + 1", Pointers("n_weights")]
    data: Annotated[F32, "n_weights"]

    def check_fits(self, check: StoredCheck, tree: Tree, n_features: int) -> None:
        """Raise a ValueError unless every search for a feature ends, with a row of its block."""
        if len(self.slot_ptr) != tree.n_nodes + 1:
            raise ValueError("the weights must be those of the nodes of the tree")
        if not check.values:
            return
        n_slots, n_children = np.diff(self.slot_ptr), np.diff(tree.first_child)
        if self.slot_feature.size:
            first = self.slot_ptr[:-1][n_slots > 0]
            if (np.minimum.reduceat(self.slot_feature, first) != _FREE).any():
                raise ValueError("slot_feature must have a free slot at each node that has slots")
        inner = n_children > 0
        n_rows, beyond = np.divmod(np.diff(self.block_ptr), np.where(inner, n_children, 1))
        n_rows -= 1  # the last is that of the intercepts
        least = np.where(n_slots == 0, n_features, 0)
        if (beyond[inner] != 0).any() or (n_rows[inner] < least[inner]).any():
            raise ValueError("block_ptr must leave room for a row of each feature and one more")
        check.within_parts("slot_row", self.slot_row, self.slot_ptr, n_rows)

    def block(self, tree: Tree, node: int) -> F32:
        """Return a view of the weights of the children of a node, (n_rows + 1, n_children)."""
        n_children = int(tree.first_child[node + 1] - tree.first_child[node])
        return self.data[self.block_ptr[node] : self.block_ptr[node + 1]].reshape(-1, n_children)


def empty_weights(tree: Tree, features: csr_array) -> NodeWeights:
    """Return weights of zero, with room for the features (n_nodes, n_features) of each inner node.

    A chunk with more than half of all features has a row for each of them, and needs no table.
    """
    n_features = features.shape[1]
    n_children = np.diff(tree.first_child).astype(np.int64)
    n_rows = np.diff(features.indptr).astype(np.int64)
    whole = (n_rows > n_features / 2) | (n_children == 0)
    # A table at most two thirds full, of a size that a bit mask can wrap around.
    n_slots = np.where(whole, 0, 1 << np.ceil(np.log2(1.5 * n_rows + 1)).astype(np.int64))
    n_rows[whole] = n_features
    n_weights = (n_rows + 1) * n_children
    memory.require(
        4 * int(n_weights.sum()),
        f"a tree with {int((n_children > 0).sum()):,} inner nodes and {n_features:,} features",
        "use fewer features or a wider tree",
    )
    slot_ptr, block_ptr = (np.append(0, np.cumsum(counts)) for counts in (n_slots, n_weights))
    slot_feature = np.full(slot_ptr[-1], _FREE, dtype=np.int32)
    slot_row = np.zeros(slot_ptr[-1], dtype=np.int32)
    _fill_slots(features.indptr, features.indices, slot_ptr, slot_feature, slot_row)
    data = np.zeros(block_ptr[-1], dtype=np.float32)
    return NodeWeights(slot_ptr, slot_feature, slot_row, block_ptr, data)


def chunk_features(X: Matrix, reach: csr_array) -> csr_array:
    """Return 1 for each feature of the rows that reach a node, (n_nodes, n_features)."""
    if not issparse(X):
        return csr_array(np.ones((reach.shape[0], X.shape[1]), dtype=np.int8))
    ones = csr_array((np.ones(X.nnz, dtype=bool), X.indices, X.indptr), shape=X.shape)
    found = csr_array(reach.astype(bool) @ ones)
    found.sort_indices()
    return found


def as_csr(X: Matrix) -> Csr:
    """Return read-only arrays of sparse or dense rows.

    Kernels are compiled for read-only arrays, so that arrays of a memory-mapped model or input have
    no other type. Dense rows keep their zeros, and their data is not copied.
    """
    if issparse(X):
        return Csr(*frozen(X.indptr, X.indices, X.data))
    n, d = X.shape
    indptr = np.arange(n + 1, dtype=np.int32) * np.int32(d)
    indices = np.empty((n, d), dtype=np.int32)
    indices[:] = np.arange(d, dtype=np.int32)  # np.tile takes longer for a single row
    return Csr(*frozen(indptr, indices.reshape(-1), X.reshape(-1)))


def frozen(*arrays: NDArray) -> tuple[NDArray, ...]:
    """Return read-only views."""
    views = tuple(array.view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views


@njit(nogil=True, cache=True)
def _fill_slots(
    indptr: Ints, indices: Ints, slot_ptr: I64, slot_feature: I32, slot_row: I32
) -> None:
    for node in range(slot_ptr.size - 1):
        first, last = slot_ptr[node], slot_ptr[node + 1]
        if first == last:
            continue
        for p in range(indptr[node], indptr[node + 1]):
            slot = _first_slot(np.int64(indices[p]), first, last)
            while slot_feature[slot] != _FREE:
                slot = slot + 1 if slot + 1 < last else first
            slot_feature[slot] = indices[p]
            slot_row[slot] = p - indptr[node]


@njit(nogil=True, cache=True, inline="always")
def _first_slot(feature: np.int64, first: int, last: int) -> np.int64:
    # The higher bits of the product are mixed better.
    return first + ((((feature * _SPREAD) & 0xFFFFFFFF) >> 7) & (last - first - 1))


@njit(nogil=True, cache=True)
def feature_row(slot_feature: I32, slot_row: I32, first: int, last: int, feature: int) -> np.int64:
    """Return the row of a feature in the block whose slots begin at `first`, -1 if it has none."""
    if first == last:
        return np.int64(feature)
    slot = _first_slot(np.int64(feature), first, last)
    while slot_feature[slot] != _FREE:
        if slot_feature[slot] == feature:
            return np.int64(slot_row[slot])
        slot = slot + 1 if slot + 1 < last else np.int64(first)
    return np.int64(-1)


@njit(nogil=True, cache=True, fastmath=_FAST)
def score_children(X: Csr, i: int, weights: NodeWeights, node: int, scores: F32) -> None:
    """Compute ``scores[c] = w_c'x + b_c`` for the children c of a node; x is row i of X.

    Adds four rows of the block at a time, so that the scores are loaded and stored less often. The
    places of all features are prefetched before the first is used.
    """
    indptr, indices, data = X
    p0, p1, n = indptr[i], indptr[i + 1], scores.size
    W, slot_feature, slot_row = weights.data, weights.slot_feature, weights.slot_row
    first, last = weights.slot_ptr[node], weights.slot_ptr[node + 1]
    start, bias = weights.block_ptr[node], weights.block_ptr[node + 1] - n
    if first == last:
        for q in range(p0, p1):
            at = 4 * (start + indices[q] * n)
            for line in range(0, 4 * n, LINE):
                prefetch(W, at + line)
    else:
        for q in range(p0, p1):
            slot = 4 * _first_slot(np.int64(indices[q]), first, last)
            prefetch(slot_feature, slot)
            prefetch(slot_row, slot)
    for c in range(n):
        scores[c] = W[bias + c]
    p = p0
    while p < p1:
        at0 = at1 = at2 = at3 = bias
        v0 = v1 = v2 = v3 = _ZERO
        found = 0
        while p < p1 and found < 4:
            row = feature_row(slot_feature, slot_row, first, last, indices[p])
            if row >= 0:
                at0, at1, at2, at3 = at1, at2, at3, start + row * n
                v0, v1, v2, v3 = v1, v2, v3, data[p]
                found += 1
            p += 1
        w0, w1 = W[at0 : at0 + n], W[at1 : at1 + n]
        w2, w3 = W[at2 : at2 + n], W[at3 : at3 + n]
        for c in range(n):
            scores[c] += (v0 * w0[c] + v1 * w1[c]) + (v2 * w2[c] + v3 * w3[c])
