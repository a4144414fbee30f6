"""Learn label trees from label vectors or confusions, or draw them at random.

All learners grow the tree level by level: each set of labels that is too large is cut into parts.
They differ in the cut.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from labelry.arrays import F32, I64, Bools, Rng
from labelry.linalg.balanced_clusters import Sets, even_cuts, sparse_products, split_sets
from labelry.linalg.clusters import unit_centres
from labelry.linalg.matrices import Matrix, as_matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.spectral import affinity_eigenpairs
from labelry.linalg.topk import topk_blocks
from labelry.progress import phase
from labelry.trees.structure import Tree, without_nodes

Split = Callable[[Sets, I64], Sets]  # cuts set s into n_parts[s] sets

# A label gets a copy in a cluster if its cosine is at least this share of that to its own.
# Not tuned.
_CLOSE = 0.9
_BALANCE = 2.0  # largest ratio of the sizes of sibling sets, in each round; not tuned
_TWO_ROUNDS = 16  # least number of parts that are cut in two rounds; not tuned


def random_tree(
    n_labels: int,
    *,
    branching: int = 16,
    depth: int | None = None,
    max_leaf_size: int | None = None,
    rng: Rng,
) -> Tree:
    """Return a tree of random sets of equal sizes; parameters are those of `balanced_tree`."""
    shuffled = rng.permutation(n_labels)

    def split(sets: Sets, n_parts: I64) -> Sets:
        return Sets(sets.members, even_cuts(sets, n_parts))

    return _grow_levels(shuffled, split, branching, depth, max_leaf_size)


def balanced_tree(
    V: object,
    *,
    branching: int = 16,
    depth: int | None = None,
    max_leaf_size: int | None = None,
    balance: float = 1.0,
    copies: int = 0,
    rng: Rng,
    n_jobs: int | None = None,
) -> Tree:
    """Return a tree of clusters of similar label vectors: recursive k-means of bounded sizes.

    V (n_labels, k) has a vector for each label, such as its row of an embedding or the mean of the
    rows with the label. Only directions matter. Labels with a vector of zeros fill free places.
    Each level costs O(n_labels k branching) time and n_labels x branching floats.

    Parameters
    ----------
    branching : int
        Most parts a set is cut into. Larger is a shallower tree: more accurate, slower to search.
    depth : int, optional
        Most edges from the root to a leaf. By default sets are cut until they are small enough.
    max_leaf_size : int, optional
        Most labels of a set that is not cut further; by default `branching`.
    balance : float
        Largest ratio of the sizes of sibling sets; 1 means equal sizes (up to one label). Larger
        follows the data more closely and may give deeper trees.
    copies : int
        Most further leaves of a label, in other bottom clusters that are about as close to it
        as its own (a joint tree). Larger tolerates more search errors, with a larger tree.

    Examples
    --------
    >>> V = np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]])
    >>> tree = balanced_tree(V, branching=2, rng=np.random.default_rng(0))
    >>> sorted(tree.label_sets[[s]].indices.tolist() for s in (1, 2))
    [[0, 2], [1, 3]]
    """
    _at_least("balance", balance, 1)
    _at_least("copies", copies, 0)
    rows, jobs = _unit_rows(V), resolve_jobs(n_jobs)

    def split(sets: Sets, n_parts: I64) -> Sets:
        return split_sets(rows, sets, n_parts, balance=balance, rng=rng, n_jobs=jobs)

    tree = _grow_levels(np.arange(rows.shape[0]), split, branching, depth, max_leaf_size)
    return _joint(tree, rows, copies, jobs) if copies else tree


def spectral_tree(
    A: object,
    *,
    branching: int = 16,
    depth: int | None = None,
    max_leaf_size: int | None = None,
    balance: float = 1.0,
    rng: Rng,
    n_jobs: int | None = None,
) -> Tree:
    """Return a tree that groups confused labels (Algorithm 2), by recursive spectral cuts.

    A (n_labels, n_labels) has symmetric affinities that are not negative; see
    `labelry.ranking.confusion`. The other parameters are those of `balanced_tree`. The paper's
    spectral clustering leaves balance to chance; here k-means keeps it.

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, Algorithm 2.
    Ng, Jordan, Weiss: On spectral clustering, 2001.
    """
    _at_least("balance", balance, 1)
    affinity, jobs = _affinity(A), resolve_jobs(n_jobs)
    V = np.zeros((affinity.shape[0], branching), dtype=np.float32)

    def split(sets: Sets, n_parts: I64) -> Sets:
        for start, end, k in zip(sets.bounds[:-1], sets.bounds[1:], n_parts, strict=True):
            labels = sets.members[start:end]
            # Steps 2-3 of Ng, Jordan and Weiss. A label that is confused with no other gets a weak
            # affinity to all labels, and so a place of its own.
            among = csr_array(affinity[labels][:, labels])
            Z = affinity_eigenpairs(among, int(k), rng=rng).vectors.astype(np.float32)
            V[labels, : Z.shape[1]] = Z
            V[labels, Z.shape[1] :] = 0.0
        # NJW, steps 4-6: rows of unit length, then k-means
        return split_sets(scaled_rows(V), sets, n_parts, balance=balance, rng=rng, n_jobs=jobs)

    return _grow_levels(np.arange(len(V)), split, branching, depth, max_leaf_size)


def _grow_levels(
    labels: I64, split: Split, branching: int, depth: int | None, max_leaf_size: int | None
) -> Tree:
    """Cut sets of labels level by level, until they are small or the tree is deep enough."""
    limit = branching if max_leaf_size is None else max_leaf_size
    if len(labels) < 1:
        raise ValueError(f"a tree must have at least 1 label; got {len(labels)}")
    _at_least("branching", branching, 2)
    _at_least("max_leaf_size", limit, 1)
    if depth is not None and depth < 1:
        raise ValueError(f"depth must be at least 1, or None; got {depth}")
    sets = Sets(labels.astype(np.int32), np.array([0, len(labels)]))
    nodes = np.zeros(1, dtype=np.int64)  # node of each set
    parents, of_label = [np.array([-1])], [np.array([-1])]
    n_nodes, level = 1, 0
    with phase("grouping labels", len(labels), "labels") as advance:
        while len(nodes):
            level += 1
            small = (sets.sizes <= limit) | (level == depth)
            placed, above = sets.take(small), nodes[small]
            sets, nodes = sets.take(~small), nodes[~small]
            n_parts = np.clip(-(-sets.sizes // limit), 2, branching)
            sets = split(sets, n_parts) if len(nodes) else sets
            # A part of one label becomes its leaf; the others are the sets of the next level.
            single = sets.sizes == 1
            parents += [np.repeat(above, placed.sizes), np.repeat(nodes, n_parts)]
            of_label += [placed.members, np.where(single, sets.members[sets.bounds[:-1]], -1)]
            nodes = (n_nodes + len(placed.members) + np.arange(len(single)))[~single]
            n_nodes += len(placed.members) + len(single)
            sets = sets.take(~single)
            advance(len(placed.members) + int(single.sum()))
    return Tree.from_parents(np.concatenate(parents), np.concatenate(of_label), len(labels))


def _joint(tree: Tree, V: Matrix, copies: int, n_jobs: int) -> Tree:
    """Return the tree with further leaves of each label, in the bottom clusters nearest to it."""
    parent, leaves = tree.parent, tree.leaves().nodes
    clusters, own = np.unique(parent[leaves], return_inverse=True)  # own: of each label
    if len(clusters) < 2:
        return tree
    centers = unit_centres(V, own.astype(np.int32), len(clusters))
    to_own = np.empty(len(own), dtype=np.float32)

    def closeness(rows: slice) -> F32:
        S = sparse_products(V, centers, rows, n_jobs) if issparse(V) else V[rows] @ centers
        each = np.arange(len(S)), own[rows]
        to_own[rows] = S[each]
        S[each] = -np.inf
        return S

    n_near = min(copies, len(clusters) - 1)
    with phase("putting labels into further groups"):
        near, cosine = topk_blocks(closeness, len(own), len(clusters), n_near, n_jobs)
    label, place = np.nonzero((cosine > 0) & (cosine >= _CLOSE * to_own[:, None]))
    parents = np.append(parent, clusters[near[label, place]])
    return Tree.from_parents(parents, np.append(tree.label, label), tree.n_labels)


def _affinity(A: object) -> csr_array:
    matrix = csr_array(as_matrix(A))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"A must be square, labels x labels; got {matrix.shape}")
    if not (np.isfinite(matrix.data) & (matrix.data >= 0)).all():
        raise ValueError("A must not have negative or infinite entries, or NaN")
    if matrix.nnz and abs(matrix - matrix.T).max() > 1e-5 * matrix.data.max():
        raise ValueError("A must be symmetric")
    return matrix


def _unit_rows(V: object) -> Matrix:
    matrix = as_matrix(V)
    if matrix.ndim != 2:
        raise ValueError(f"V must have two dimensions, labels x columns; got {matrix.shape}")
    if matrix.shape[0] < 1:
        raise ValueError(f"V must have at least 1 row, one per label; got {matrix.shape[0]}")
    if not np.isfinite(matrix.data if issparse(matrix) else matrix).all():
        raise ValueError("V must not have infinite entries or NaN")
    return scaled_rows(matrix)


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}; got {value}")


def shallow_tree(
    V: object,
    *,
    branching: int,
    depth: int,
    copies: int = 0,
    alone: Bools | None = None,
    rng: Rng,
    n_jobs: int | None = None,
) -> Tree:
    """Return a tree of clusters of similar label vectors, of few levels that branch widely.

    The time of k-means grows with the number of parts. So a set is cut into sqrt(branching) parts,
    each of these again, and the level between is left out of the tree. That is as accurate, and
    takes a fraction of the time.

    Parameters are those of `balanced_tree`; from 16 on `branching` is rounded down to a square.
    Labels that are `alone` (n_labels,) are in no cluster: their leaves are children of the root.
    """
    if alone is not None and alone.all():
        depth = 1
    elif alone is not None and alone.any():
        among, more = np.flatnonzero(~alone), np.flatnonzero(alone)
        shape: dict[str, Any] = {"branching": branching, "depth": depth, "copies": copies}
        tree = shallow_tree(as_matrix(V)[among], **shape, rng=rng, n_jobs=n_jobs)
        parent = np.append(tree.parent, np.zeros(len(more), dtype=np.int32))
        label = np.append(np.where(tree.label < 0, -1, among[tree.label]), more)
        return Tree.from_parents(parent, label, len(alone))
    how: dict[str, Any] = {"balance": _BALANCE, "copies": copies, "rng": rng, "n_jobs": n_jobs}
    if branching < _TWO_ROUNDS or depth == 1:
        return balanced_tree(V, branching=branching, depth=depth, **how)
    tree = balanced_tree(V, branching=isqrt(branching), depth=2 * depth - 1, **how)
    keep = (tree.label >= 0) | (tree.depth % 2 == 0)
    return Tree.from_parents(*without_nodes(tree.parent, tree.label, keep), tree.n_labels)


def side_by_side(trees: list[Tree]) -> Tree:
    """Return one joint tree: a new root whose children are the roots of `trees`, in their order."""
    start = 1 + np.cumsum([0] + [tree.n_nodes for tree in trees])
    parents = [np.where(t.parent < 0, 0, t.parent + s) for t, s in zip(trees, start, strict=False)]
    parent = np.concatenate([[-1], *parents])
    label = np.concatenate([[-1], *(tree.label for tree in trees)])
    return Tree.from_parents(parent, label, trees[0].n_labels)
