"""Pruned linear node predictors f_s(x) = w_s'x + b_s of a tree, stored in few bytes.

The children of an inner node are scored together, so their weights form one chunk. A chunk is a
hash table from a feature to its entries (child, weight). A feature of a query is looked up once for
all siblings, and only weights that pruning left are stored and read.

The number of a feature, multiplied by an odd constant, gives another number of as many bits. Its
first bits are the number of a bucket in the chunk. The other bits are stored in two bytes and tell
the features of a bucket apart. A weight is a whole number of one byte, in units of its chunk.

Etter, Zhong, Yu, Ying, Dhillon: Enterprise-scale search: accelerating inference for sparse
extreme multi-label ranking trees, 2022 (chunks of siblings). Cleary: Compact hash tables using
bidirectional linear probing, 1984 (the place of a key is a part of it).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.arrays import F32, I8, I32, I64, Ints
from labelry.checks import StoredCheck
from labelry.storage.values import Pointers
from labelry.trees.structure import Tree
from labelry.trees.weights import frozen

Small = NDArray[np.uint8] | NDArray[np.uint16] | I32

LEVELS = 127  # largest absolute value of a weight in one byte
_SPREAD = 0x9E3779B1  # odd, so that multiplication by it can be undone
_KEY_BITS = 16  # bits of a key
_FULL = 8  # most features of a bucket on average; not tuned


class PackedWeights(NamedTuple):
    """One chunk per inner node, all chunks in flat arrays.

    `n_heads` is the number of nodes up to the last inner one; later nodes have no chunk.
    """

    bias: Annotated[F32, "n_nodes"]
    scale: Annotated[F32, "n_heads"]  # unit of the weights in the chunk of a node
    shift: Annotated[NDArray[np.uint8], "n_heads"]  # a chunk has 2 ** (bits - shift) buckets
    # The buckets of node s are first_bucket[s] to first_bucket[s + 1] - 1; there may be none.
    first_bucket: Annotated[I64, "n_heads + 1", Pointers("n_buckets")]
    bucket: Annotated[Ints, "n_buckets + 1", "2"]  # first feature and first entry of a bucket
    key: Annotated[NDArray[np.uint16], "n_found"]  # tells a feature apart in its bucket
    more: Annotated[Small, "n_found"]  # number of entries of a feature, less one
    child: Annotated[Small, "n_entries"]  # 0 for the first child of the node
    weight: Annotated[I8 | F32, "n_entries"]
    bits: int  # of the number of a feature

    def check_fits(self, check: StoredCheck, tree: Tree, n_features: int) -> None:
        """Raise a ValueError unless every feature has entries, of children of the node."""
        n_heads, n_found, n_entries = _n_heads(tree), len(self.key), len(self.child)
        n_buckets = len(self.bucket) - 1
        if len(self.bias) != tree.n_nodes or len(self.scale) != n_heads:
            raise ValueError("the weights must be those of the nodes of the tree")
        if self.bits != feature_bits(n_features):
            raise ValueError(f"bits must be those of {n_features} features, got {self.bits}")
        if not check.values:
            return
        sizes, most = np.diff(self.first_bucket), min(_KEY_BITS, self.bits)
        wrong = (sizes > 0) & (sizes != 1 << (self.bits - self.shift.astype(np.int64)))
        if (wrong | (self.shift > most)).any():
            raise ValueError("shift must be that of the buckets of each node")
        for column, (name, size) in enumerate((("features", n_found), ("entries", n_entries))):
            pointers = np.ascontiguousarray(self.bucket[:, column])
            check.pointers(f"{name} of bucket", pointers, n_buckets, size)
        if n_found and self.more.min() < 0:
            raise ValueError("more must not be negative")
        ends = np.concatenate([[0], np.cumsum(self.more.astype(np.int64) + 1)])
        if (ends[self.bucket[:, 0]] != self.bucket[:, 1]).any():
            raise ValueError("more must add up to the entries of each bucket")
        first_entry = self.bucket[self.first_bucket, 1]
        check.within_parts("child", self.child, first_entry, np.diff(tree.first_child)[:n_heads])

    def read_only(self) -> PackedWeights:
        """Return read-only views, the only type that kernels are compiled for."""
        return PackedWeights._make((*frozen(*self[:-1]), self.bits))

    def entries(self, node: int) -> tuple[I64, Ints, F32]:
        """Return feature, child and weight of each entry of the chunk of a node."""
        buckets = slice(self.first_bucket[node], self.first_bucket[node + 1] + 1)
        first = self.bucket[buckets]
        nodes = np.full(len(first) - 1, node)
        found, entries = (slice(*first[[0, -1], column]) for column in (0, 1))
        features = self._features(nodes, first[:, 0], found)
        return (
            np.repeat(features, self.more[found] + np.int64(1)),
            self.child[entries],
            self.weight[entries] * self.scale[node],
        )

    def chunk(self, tree: Tree, node: int, n_features: int) -> csr_array:
        """Return the weights of the children of a node, without bias, (n_features, n_children)."""
        feature, child, weight = self.entries(node)
        shape = (n_features, tree.first_child[node + 1] - tree.first_child[node])
        return csr_array((weight, (feature, child)), shape=shape)

    def by_node(self, tree: Tree, n_features: int) -> csr_array:
        """Return the weights of every node, without bias, (n_nodes, n_features)."""
        heads = np.arange(len(self.scale))
        nodes = np.repeat(heads, np.diff(self.first_bucket))  # of each bucket
        features = self._features(nodes, self.bucket[:, 0], slice(None))
        of_entry = np.repeat(heads, np.diff(self.bucket[self.first_bucket, 1]))
        children = tree.first_child[of_entry] + self.child
        columns = np.repeat(features, self.more + np.int64(1))
        values = self.weight * self.scale[of_entry]
        return csr_array((values, (children, columns)), shape=(tree.n_nodes, n_features))

    def _features(self, nodes: Ints, first: Ints, found: slice) -> I64:
        """Return the numbers of the features in consecutive buckets, which are of these nodes."""
        within = np.arange(len(nodes)) - np.searchsorted(nodes, nodes)
        mixed = np.repeat(within << self.shift[nodes].astype(np.int64), np.diff(first))
        mixed |= self.key[found]
        return (mixed * pow(_SPREAD, -1, 1 << self.bits)) & ((1 << self.bits) - 1)


class PackedChunk(NamedTuple):
    """The weights of the children of one node, as in `PackedWeights`; numbers begin at zero."""

    shift: int
    bucket: I64
    key: NDArray[np.uint16]
    more: I32
    child: I32
    weight: F32


def feature_bits(n_features: int) -> int:
    """Return the bits that the number of a feature takes."""
    return max(n_features - 1, 0).bit_length()


def pack_chunk(feature: I32, child: I32, weight: F32, n_features: int) -> PackedChunk:
    """Return the chunk of a list of weights, given by feature and child in any order."""
    bits = feature_bits(n_features)
    mixed = (feature.astype(np.int64) * _SPREAD) & ((1 << bits) - 1)
    order = np.argsort(mixed, kind="stable")
    found, first, counts = np.unique(mixed[order], return_index=True, return_counts=True)
    needed = max(-(-len(found) // _FULL) - 1, 0).bit_length()
    shift = bits - min(max(needed, bits - _KEY_BITS), bits)
    n_buckets = 1 << (bits - shift) if len(found) else 0
    places = np.searchsorted(found >> shift, np.arange(n_buckets + 1))
    bucket = np.stack([places, np.append(first, len(order))[places]], axis=1)
    key, more = (found & ((1 << shift) - 1)).astype(np.uint16), (counts - 1).astype(np.int32)
    return PackedChunk(shift, bucket, key, more, child[order], weight[order])


def join_chunks(
    tree: Tree, chunks: dict[int, PackedChunk], bias: F32, n_features: int, *, exact: bool = False
) -> PackedWeights:
    """Return the weights of a tree from the chunks of its inner nodes.

    Weights are rounded to one byte, unless they are to stay `exact`. Numbers are stored in the
    smallest type that holds them.
    """
    n_heads = _n_heads(tree)
    order = sorted(chunks)
    parts = [chunks[s] for s in order]
    scale, shift = np.ones(n_heads, dtype=np.float32), np.zeros(n_heads, dtype=np.uint8)
    n_buckets = np.zeros(n_heads + 1, dtype=np.int64)
    shift[order] = [part.shift for part in parts]
    n_buckets[1 + np.array(order)] = [len(part.bucket) - 1 for part in parts]
    weights = [part.weight for part in parts]
    if not exact:
        largest = np.array([np.abs(w).max(initial=0) for w in weights], dtype=np.float32)
        scale[order] = np.where(largest > 0, largest / np.float32(LEVELS), np.float32(1))
        units = zip(weights, scale[order], strict=True)
        weights = [np.rint(w / unit).astype(np.int8) for w, unit in units]
    more = np.concatenate([part.more for part in parts])
    widest = int(np.diff(tree.first_child).max()) - 1
    return PackedWeights(
        bias,
        scale,
        shift,
        np.cumsum(n_buckets),
        _joined_buckets([part.bucket for part in parts]),
        np.concatenate([part.key for part in parts]),
        more.astype(_small_type(int(more.max(initial=0)))),
        np.concatenate([part.child for part in parts], dtype=_small_type(widest), casting="unsafe"),
        np.concatenate(weights),
        feature_bits(n_features),
    )


def _n_heads(tree: Tree) -> int:
    return int(np.flatnonzero(tree.label < 0)[-1]) + 1


def _small_type(largest: int) -> type[np.integer]:
    return np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.int32


def _joined_buckets(parts: list[I64]) -> Ints:
    """Return the buckets of all chunks in one array, with the end of the last one."""
    ends = np.concatenate([np.zeros((1, 2), dtype=np.int64), *(part[-1:] for part in parts)])
    ends = np.cumsum(ends, axis=0)
    joined = [part[:-1] + end for part, end in zip(parts, ends, strict=False)]
    all_parts = np.concatenate([*joined, ends[-1:]])
    return all_parts.astype(np.int32) if all_parts.max() < 1 << 31 else all_parts


@njit(nogil=True, cache=True, inline="always")
def mixed_number(feature: int, bits: int) -> int:
    """Return another number of as many bits, whose first bits are spread evenly."""
    return (int(feature) * _SPREAD) & ((1 << bits) - 1)


@njit(nogil=True, cache=True, inline="always")
def bucket_of(weights: PackedWeights, node: int, mixed: int) -> int:
    """Return the number of the bucket that holds a feature, if the node has it."""
    return int(weights.first_bucket[node]) + (mixed >> int(weights.shift[node]))


@njit(nogil=True, cache=True)
def find_entries(weights: PackedWeights, b: int, key: int) -> tuple[int, int]:
    """Return the entries of a feature, from and to; equal if it is not in the bucket."""
    entry = int(weights.bucket[b, 1])
    for s in range(weights.bucket[b, 0], weights.bucket[b + 1, 0]):
        after = entry + int(weights.more[s]) + 1
        if weights.key[s] == key:
            return entry, after
        entry = after
    return 0, 0
