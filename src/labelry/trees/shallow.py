"""Shallow, wide trees for linear classifiers, and several trees side by side."""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from labelry.linalg.matrices import as_matrix
from labelry.trees.learn import balanced_tree
from labelry.trees.structure import Tree

Ints = NDArray[np.integer]

_BALANCE = 2.0  # most that sizes of sibling sets differ by, in each round
_TWO_ROUNDS = 16  # parts from which they are found in two rounds


def shallow_tree(
    V: object,
    *,
    branching: int,
    depth: int,
    copies: int = 0,
    alone: NDArray[np.bool_] | None = None,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Tree:
    """A tree of clusters of similar label vectors, of few levels that branch widely.

    The time of k-means grows with the number of parts. So a set is cut into the root of
    `branching` parts, each of these likewise, and the level between is left out of the tree: as
    good, and a fraction of the time.

    Parameters
    ----------
    V : array or sparse matrix (n_labels, k)
        A vector for each label; only directions count.
    branching : int
        Most parts a set is cut into, rounded down to a square from 16.
    depth : int
        Most edges from the root to a leaf; 1 has all leaves under the root.
    copies : int
        As in `balanced_tree`.
    alone : bool array (n_labels,), optional
        Labels that are in no cluster: their leaves are further children of the root.

    Examples
    --------
    >>> tree = shallow_tree(np.eye(100), branching=16, depth=2, rng=np.random.default_rng(0))
    >>> int(tree.first_child[1] - tree.first_child[0]), int(tree.depth[-1])
    (16, 2)
    """
    if alone is not None and alone.all():
        depth = 1
    elif alone is not None and alone.any():
        clustered = np.flatnonzero(~alone)
        tree = shallow_tree(
            as_matrix(V)[clustered],
            branching=branching,
            depth=depth,
            copies=copies,
            rng=rng,
            n_jobs=n_jobs,
        )
        return _with_leaves(tree, clustered, np.flatnonzero(alone))
    rounds = 1 if branching < _TWO_ROUNDS or depth == 1 else 2
    tree = balanced_tree(
        V,
        branching=branching if rounds == 1 else isqrt(branching),
        depth=rounds * (depth - 1) + 1,
        balance=_BALANCE,
        copies=copies,
        rng=rng,
        n_jobs=n_jobs,
    )
    if rounds == 1:
        return tree
    return _without(tree, (tree.label < 0) & (tree.depth % 2 == 1))


def side_by_side(trees: list[Tree]) -> Tree:
    """One joint tree: a new root whose children are the roots of `trees`, in their order."""
    start = 1 + np.cumsum([0] + [tree.n_nodes for tree in trees])
    parents = [np.where(t.parent < 0, 0, t.parent + s) for t, s in zip(trees, start, strict=False)]
    labels = [np.array([-1]), *(tree.label for tree in trees)]
    return Tree.from_parents(
        np.concatenate([[-1], *parents]), np.concatenate(labels), trees[0].n_labels
    )


def _with_leaves(tree: Tree, labels: Ints, more: Ints) -> Tree:
    """The tree with its labels named anew, and leaves of more labels after the root's children."""
    parent = np.concatenate([tree.parent, np.zeros(len(more), dtype=np.int32)])
    label = np.where(tree.label < 0, -1, labels[tree.label])
    return Tree.from_parents(parent, np.concatenate([label, more]), len(labels) + len(more))


def _without(tree: Tree, dropped: NDArray[np.bool_]) -> Tree:
    """The tree without some inner nodes, no two of them a child of the other, nor the root.

    Their children take their place.
    """
    parent = tree.parent
    above = np.where(dropped[parent], parent[parent], parent)
    above[0] = -1
    number = np.append(np.cumsum(~dropped) - 1, -1)  # the last for the parent of the root
    return Tree.from_parents(number[above[~dropped]], tree.label[~dropped], tree.n_labels)
