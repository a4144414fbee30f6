"""The label tree as flat arrays, which are checked, saved and searched without recursion."""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from labelry.arrays import I32, I64, Bools, Ints
from labelry.checks import StoredCheck


class Lists(NamedTuple):
    """Many short lists in one: list i is ``nodes[ptr[i] : ptr[i + 1]]``."""

    ptr: I32
    nodes: I32


class TreeSummary(NamedTuple):
    """The shape of a tree in a few numbers."""

    n_labels: int
    n_leaves: int  # more than labels in a joint tree
    n_inner: int
    depth: int  # edges from the root to the deepest leaf
    mean_depth: float  # the same, over all leaves
    branching: float  # mean number of children of an inner node
    max_branching: int
    balance: float  # of inner siblings the most leaves below one over the least; at worst


class Tree(NamedTuple):
    """Nodes in breadth-first order; node 0 is the root and the children of a node are consecutive.

    A leaf carries one label. A label may sit in several leaves (a joint tree); each label sits in
    at least one. Leaves may be at different depths. The root is never a leaf. Children of node s
    are the nodes ``first_child[s]`` to ``first_child[s + 1] - 1``. An inner node has label -1.

    >>> tree = Tree.from_parents([-1, 0, 0, 1, 1], [-1, -1, 2, 0, 1], n_labels=3)
    >>> tree.first_child.tolist()
    [1, 3, 5, 5, 5, 5]
    >>> tree.depth.tolist()
    [0, 1, 1, 2, 2]
    """

    first_child: Annotated[I32, "n_nodes + 1"]
    label: Annotated[I32, "n_nodes"]
    n_labels: int

    @classmethod
    def from_parents(cls, parent: ArrayLike, label: ArrayLike, n_labels: int) -> Self:
        """Return a tree from parents (-1: root) and labels (-1: none), siblings in their order."""
        parents, labels = np.asarray(parent, dtype=np.int64), np.asarray(label, dtype=np.int32)
        n = len(parents)
        if labels.shape != parents.shape:
            raise ValueError(f"parent and label must be equally long; got {n} and {len(labels)}")
        if n:
            _check_between("parent", parents, n)
        if (n_roots := int((parents == -1).sum())) != 1:
            raise ValueError(f"one node must be the root (parent -1); got {n_roots}")
        by_parent = np.argsort(parents, kind="stable")  # the root, then the children of 0, 1, ...
        ptr = np.searchsorted(parents[by_parent], np.arange(n + 1))
        levels = [by_parent[:1]]
        while len(levels[-1]):
            level = levels[-1]
            levels.append(by_parent[ranges(ptr[level], ptr[level + 1])])
        order = np.concatenate(levels)
        if len(order) < n:
            lost = int(np.setdiff1d(np.arange(n), order)[0])
            raise ValueError(f"node {lost} is not below the root: its parents form a circle")
        first_child = np.concatenate([[1], 1 + np.cumsum(np.diff(ptr)[order])])
        return cls(first_child.astype(np.int32), labels[order], int(n_labels)).check()

    @property
    def n_nodes(self) -> int:
        return len(self.label)

    @property
    def parent(self) -> I32:
        """Return the parent of each node, (n_nodes,); -1 for the root."""
        counts = np.diff(self.first_child)
        return np.concatenate([[-1], np.repeat(np.arange(self.n_nodes), counts)]).astype(np.int32)

    @property
    def depth(self) -> I32:
        """Return the number of edges from the root to each node, (n_nodes,)."""
        depth = np.zeros(self.n_nodes, dtype=np.int32)
        first, last = 0, 1  # nodes of one level
        while first < last:
            depth[first:last] = depth[max(first - 1, 0)] + (first > 0)
            first, last = last, int(self.first_child[last])
        return depth

    def leaves(self) -> Lists:
        """Return the leaf nodes of each label: one each, unless the tree is joint."""
        nodes = np.flatnonzero(self.label >= 0)
        nodes = nodes[np.argsort(self.label[nodes], kind="stable")]
        ptr = np.searchsorted(self.label[nodes], np.arange(self.n_labels + 1))
        return Lists(ptr.astype(np.int32), nodes.astype(np.int32))

    def paths(self) -> Lists:
        """Return the nodes from below the root down to a leaf; list j is for ``leaves().nodes[j]``.

        So in a tree that is not joint the path of label y is list y.
        """
        leaves, parent = self.leaves().nodes, self.parent
        length = self.depth[leaves].astype(np.int64)
        ptr = np.concatenate([[0], np.cumsum(length)])
        nodes = np.empty(ptr[-1], dtype=np.int32)
        place, at = ptr[1:] - 1, leaves
        while len(at):  # all paths climb in step; a path that reached the root is done
            nodes[place] = at
            climbing = parent[at] > 0
            place, at = place[climbing] - 1, parent[at[climbing]]
        return Lists(ptr.astype(np.int32), nodes)

    @property
    def label_sets(self) -> csr_array:
        """Return the label sets of the paper, (n_nodes, n_labels): 1 for a label below a node."""
        ptr, nodes = self.paths()
        label = np.repeat(self.label[self.leaves().nodes], np.diff(ptr))
        rows = np.concatenate([np.zeros(self.n_labels, dtype=np.int32), nodes])
        columns = np.concatenate([np.arange(self.n_labels, dtype=np.int32), label])
        ones = np.ones(len(rows), dtype=np.float32)
        sets = csr_array((ones, (rows, columns)), shape=(self.n_nodes, self.n_labels))
        sets.data[:] = 1.0  # also for a label that is twice below a node
        return sets

    @property
    def n_leaves_below(self) -> I32:
        """Return the number of leaves below each node, (n_nodes,); 1 for a leaf."""
        counts, parent, depth = (self.label >= 0).astype(np.int32), self.parent, self.depth
        bounds = np.searchsorted(depth, np.arange(depth[-1] + 2))  # of the levels
        for level in range(int(depth[-1]), 0, -1):
            nodes = slice(bounds[level], bounds[level + 1])
            np.add.at(counts, parent[nodes], counts[nodes])
        return counts

    def summary(self) -> TreeSummary:
        """Return the shape of the tree in a few numbers."""
        inner = self.label < 0
        n_children, depth = np.diff(self.first_child)[inner], self.depth[~inner]
        below, parent = self.n_leaves_below, self.parent
        children = np.flatnonzero(inner[1:]) + 1
        largest, smallest = np.zeros(self.n_nodes), np.full(self.n_nodes, np.inf)
        np.maximum.at(largest, parent[children], below[children])
        np.minimum.at(smallest, parent[children], below[children])
        sizes = (self.n_labels, len(depth), len(n_children), int(depth.max()), float(depth.mean()))
        branching = (float(n_children.mean()), int(n_children.max()))
        return TreeSummary(*sizes, *branching, max(1.0, float((largest / smallest).max())))

    def check(self) -> Self:
        """Return the tree itself, or raise a ValueError that says what is wrong with it."""
        n = self.n_nodes
        if self.n_labels < 1:
            raise ValueError(f"a tree must have at least 1 label; got {self.n_labels}")
        if (shape := self.first_child.shape) != (n + 1,):
            rule = f"shape ({n + 1},), one more than there are nodes"
            raise ValueError(f"first_child must have {rule}; got {shape}")
        self._check_children()
        self._check_labels()
        self._check_siblings()
        return self

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless a search of the tree ends; a node may have a label twice."""
        if len(self.label) == 0:
            raise ValueError("a tree must have nodes")
        if check.values:
            self._check_children()
            self._check_labels()

    def _check_children(self) -> None:
        n, first = self.n_nodes, self.first_child
        if first[0] != 1 or first[-1] != n:
            rule = f"begin with 1 and end with {n}, the number of nodes"
            raise ValueError(f"first_child must {rule}; got {first[0]} and {first[-1]}")
        for s in np.flatnonzero(np.diff(first) < 0):
            got = f"{first[s]}, {first[s + 1]} at {s}"
            raise ValueError(f"first_child must not decrease; got {got}")
        # The children of nodes before s are the nodes 1 to first[s] - 1; s must be among them.
        for s in np.flatnonzero(first[:-1] <= np.arange(n)):
            rule = "must be a child of a node before it"
            raise ValueError(f"node {s} {rule}; those end at {first[s] - 1}")

    def _check_labels(self) -> None:
        label, is_leaf = self.label, np.diff(self.first_child) == 0
        _check_between("label", label, self.n_labels)
        if is_leaf[0]:
            raise ValueError("the root must have children")
        for s in np.flatnonzero(is_leaf & (label < 0)):
            raise ValueError(f"a node without children must have a label; node {s} has none")
        for s in np.flatnonzero(~is_leaf & (label >= 0)):
            raise ValueError(f"a node with children must have label -1; node {s} has {label[s]}")
        # If there are more labels than leaves, one of the first of them has none.
        found = np.zeros(min(self.n_labels, int(is_leaf.sum()) + 1), dtype=bool)
        found[label[is_leaf & (label < len(found))]] = True
        if not found.all():
            raise ValueError(f"each label must have a leaf; label {found.argmin()} has none")

    def _check_siblings(self) -> None:
        label, leaves = self.label, np.flatnonzero(self.label >= 0)
        slots = self.parent[leaves].astype(np.int64) * self.n_labels + label[leaves]
        where, counts = np.unique(slots, return_counts=True)
        if (counts > 1).any():
            s, y = divmod(int(where[counts.argmax()]), self.n_labels)
            raise ValueError(f"a node must have a label once among its children; {s} has {y} twice")


def _check_between(name: str, values: Ints, end: int) -> None:
    low, high = values.min(), values.max()
    if low < -1 or high >= end:
        raise ValueError(f"{name} must be between -1 and {end - 1}; got {low} to {high}")


def ranges(start: Ints, end: Ints) -> I64:
    """Return the numbers from each start up to its end, one range after the other."""
    length = np.asarray(end, dtype=np.int64) - start
    return np.arange(length.sum()) + np.repeat(start - (np.cumsum(length) - length), length)


def without_nodes(parent: Ints, label: Ints, keep: Bools) -> tuple[I64, I64]:
    """Return parents and labels without some nodes; their children go to the next node above."""
    up = parent.copy()
    while len(lost := np.flatnonzero(~keep[up] & (up >= 0))):
        up[lost] = up[up[lost]]
    number = np.cumsum(keep) - 1
    up = up[keep]
    return np.where(up >= 0, number[up], -1), label[keep].astype(np.int64)
