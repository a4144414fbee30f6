"""Pruned linear node predictors f_s(x) = w_s'x + b_s of a tree.

The children of an inner node are scored together, so their weights form one chunk. A chunk is a
hash table from a feature to its entries (child, weight): a feature of a query is looked up once
for all siblings, and only what training left of the weights is stored or touched.

References
----------
Etter, Zhong, Yu, Ying, Dhillon: Enterprise-scale search: accelerating inference for sparse
extreme multi-label ranking trees, 2022 (chunks of siblings).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck
from labelry.state import storable
from labelry.trees.structure import Tree
from labelry.trees.weights import check_slots

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Ints = NDArray[np.integer]

FREE = np.int32(-1)  # a slot without a feature
_SPREAD = np.uint64(0x9E3779B1)  # multiplicative hashing
_LOW_BITS = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@storable
class SparseWeights(NamedTuple):
    """One chunk per inner node, all chunks in flat arrays.

    Attributes
    ----------
    bias : array (n_nodes,)
    slot_start : array (n_nodes + 1,)
        The hash table of node s is the slots ``slot_start[s]`` to ``slot_start[s + 1] - 1``.
    feature : array (n_slots,)
        Feature in a slot; -1 where it is free.
    entry_start : array (n_slots + 1,)
        The entries of a slot are ``entry_start[slot]`` to ``entry_start[slot + 1] - 1``.
    child : array (n_entries,)
        Child of an entry: 0 for the first child of the node.
    weight : array (n_entries,)
    """

    bias: F32
    slot_start: I64
    feature: I32
    entry_start: Ints
    child: Ints
    weight: F32

    def check_stored(self, check: StoredCheck, tree: Tree, n_features: int) -> None:
        """A ValueError unless every search for a feature ends, with children that the node has."""
        for name in ("feature", "child"):
            check.kind(name, getattr(self, name), np.ndarray)
        n_slots, n_entries = self.feature.size, self.child.size
        check.array("bias", self.bias, tree.n_nodes)
        check_slots(check, "feature", self.feature, self.slot_start, tree.n_nodes, n_features)
        check.pointers("entry_start", self.entry_start, n_slots, n_entries)
        check.array("child", self.child, n_entries, dtype=("uint16", "int32"))
        check.array("weight", self.weight, n_entries)
        if check.values:
            first_entry = self.entry_start[self.slot_start]
            check.within_parts("child", self.child, first_entry, np.diff(tree.first_child))

    def chunk(self, tree: Tree, node: int, n_features: int) -> csr_array:
        """Weights of the children of a node, without bias, (n_features, n_children)."""
        slots = slice(self.slot_start[node], self.slot_start[node + 1])
        start = self.entry_start[self.slot_start[node] : self.slot_start[node + 1] + 1]
        entries = slice(start[0], start[-1])
        shape = (n_features, int(tree.first_child[node + 1] - tree.first_child[node]))
        rows = np.repeat(self.feature[slots], np.diff(start))
        return csr_array((self.weight[entries], (rows, self.child[entries])), shape=shape)

    def by_node(self, tree: Tree, n_features: int) -> csr_array:
        """Weights of every node, without bias, (n_nodes, n_features)."""
        per_chunk = self.entry_start[self.slot_start[1:]] - self.entry_start[self.slot_start[:-1]]
        nodes = np.repeat(tree.first_child[: len(per_chunk)], per_chunk) + self.child
        features = np.repeat(self.feature, np.diff(self.entry_start))
        shape = (tree.n_nodes, n_features)
        return csr_array((self.weight, (nodes, features)), shape=shape)


class Chunk(NamedTuple):
    """The weights of the children of one node; as in `SparseWeights`, counted from zero."""

    feature: I32
    entry_start: I64
    child: I32
    weight: F32


def pack_chunk(feature: I32, child: I32, weight: F32, n_features: int) -> Chunk:
    """The chunk of a list of weights, given by feature and child in any order."""
    n_unique = _count_distinct(feature, np.zeros(n_features, dtype=np.bool_))
    # Two thirds full: few collisions, and a free slot ends each search.
    table = np.full(n_unique + n_unique // 2 + 1 if n_unique else 0, FREE, dtype=np.int32)
    entry_start = np.zeros(len(table) + 1, dtype=np.int64)
    entries = Chunk(table, entry_start, np.empty_like(child), np.empty_like(weight))
    if n_unique:
        _fill_chunk(feature, child, weight, *entries)
    return entries


def join_chunks(tree: Tree, chunks: dict[int, Chunk], bias: F32) -> SparseWeights:
    """The weights of a tree from the chunks of its inner nodes; nodes without one only have bias.

    Numbers are stored in the smallest type that holds them.
    """
    order = sorted(chunks)
    parts = [chunks[s] for s in order]
    n_slots = np.zeros(tree.n_nodes + 1, dtype=np.int64)
    n_slots[1 + np.array(order)] = [len(part.feature) for part in parts]
    n_entries = np.concatenate([[0], *(np.diff(part.entry_start) for part in parts)])
    entry_start = np.cumsum(n_entries)
    small = np.diff(tree.first_child).max() <= 1 << 16
    few = entry_start[-1] < 1 << 31
    return SparseWeights(
        bias,
        np.cumsum(n_slots),
        np.concatenate([part.feature for part in parts]),
        entry_start.astype(np.int32 if few else np.int64),
        np.concatenate(
            [part.child for part in parts], dtype=np.uint16 if small else np.int32, casting="unsafe"
        ),
        np.concatenate([part.weight for part in parts]),
    )


@njit(nogil=True, cache=True)
def _count_distinct(feature: I32, seen: NDArray[np.bool_]) -> int:
    n = 0
    for f in feature:
        if not seen[f]:
            seen[f] = True
            n += 1
    return n


@njit(nogil=True, cache=True)
def _fill_chunk(
    feature: I32,
    child: I32,
    weight: F32,
    table: I32,
    entry_start: I64,
    out_child: I32,
    out_weight: F32,
) -> None:
    slot_of = np.empty(feature.size, dtype=np.int32)
    for e in range(feature.size):
        slot = first_slot(feature[e], 0, table.size)
        while table[slot] != FREE and table[slot] != feature[e]:
            slot = next_slot(slot, 0, table.size)
        table[slot] = feature[e]
        slot_of[e] = slot
        entry_start[slot + 1] += 1
    for j in range(table.size):
        entry_start[j + 1] += entry_start[j]
    place = entry_start[:-1].copy()
    for e in range(feature.size):
        at = place[slot_of[e]]
        place[slot_of[e]] += 1
        out_child[at] = child[e]
        out_weight[at] = weight[e]


@njit(nogil=True, cache=True, inline="always")
def first_slot(feature: int, first: int, last: int) -> np.int64:
    """Where the search for a feature begins: its hash, scaled to the size of the table."""
    mixed = (np.uint64(feature) * _SPREAD) & _LOW_BITS
    return first + np.int64((mixed * np.uint64(last - first)) >> _HALF)


@njit(nogil=True, cache=True, inline="always")
def next_slot(slot: np.int64, first: int, last: int) -> np.int64:
    return slot + 1 if slot + 1 < last else np.int64(first)


@njit(nogil=True, cache=True)
def find_slot(table: I32, first: int, last: int, feature: int) -> np.int64:
    """Slot of a feature in the table from `first` to `last`; -1: none."""
    if first == last:
        return np.int64(-1)
    slot = first_slot(feature, first, last)
    while table[slot] != FREE:
        if table[slot] == feature:
            return slot
        slot = next_slot(slot, first, last)
    return np.int64(-1)
