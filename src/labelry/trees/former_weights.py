"""Weights of linear trees as models of before November 2026 have them: read, not written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.checks import StoredCheck
from labelry.state import storable
from labelry.trees.sparse_weights import PackedWeights, join_chunks, pack_chunk
from labelry.trees.structure import Tree
from labelry.trees.weights import check_slots

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Ints = NDArray[np.integer]


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
        """A ValueError unless there are features, with children that the node has."""
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

    def packed(self, tree: Tree, n_features: int) -> PackedWeights:
        """The same weights as they are searched now, to the last bit."""
        # Asked again, as values need not have been looked at: a kernel counts by these.
        if self.feature.size and not -1 <= self.feature.min() <= self.feature.max() < n_features:
            raise ValueError(f"feature must be from -1 to {n_features - 1}")
        chunks = {}
        for node in np.flatnonzero(np.diff(self.slot_start)).tolist():
            slots = slice(self.slot_start[node], self.slot_start[node + 1])
            start = self.entry_start[self.slot_start[node] : self.slot_start[node + 1] + 1]
            entries = slice(start[0], start[-1])
            feature = np.repeat(self.feature[slots], np.diff(start))
            child = self.child[entries].astype(np.int32)
            chunks[node] = pack_chunk(feature, child, self.weight[entries], n_features)
        return join_chunks(tree, chunks, self.bias, n_features, exact=True)
