"""The tree of labels that a tree system uses: learnt from the rows, given, or a taxonomy."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.baselines import OneVsRest
from labelry.checks import check_at_least, check_one_of
from labelry.embeddings.rembrandt import rembrandt
from labelry.estimator import in_memory
from labelry.linalg.matrices import Matrix
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge
from labelry.progress import phase
from labelry.trees.hierarchy import Edges, hierarchy_tree
from labelry.trees.learn import balanced_tree, confusion, random_tree, spectral_tree
from labelry.trees.structure import Tree

F32 = NDArray[np.float32]
Learner = Literal["rembrandt", "confusion", "random"]
TreeChoice: TypeAlias = Learner | Tree | Edges

_EMBEDDING_DIM = 100  # of the label vectors that "rembrandt" clusters
_BALANCE = 10.0  # most that sizes of sibling sets differ by; equal sizes tear clusters apart
_N_CONFUSED = 5  # best labels of a row that count as confused


def check_tree_choice(tree: object, branching: int | None, *more_learners: str) -> None:
    """A ValueError unless `tree` is the name of a learner, a Tree or the edges of a taxonomy."""
    if isinstance(tree, str):
        check_one_of("tree", tree, (*more_learners, *get_args(Learner), "a Tree", "edges"))
    if branching is not None:
        check_at_least("branching", branching, 2)


def choose_tree(
    tree: TreeChoice,
    rows: Rows,
    names: NDArray[Any],
    *,
    branching: int | None,
    depth: int = 2,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> Tree:
    """The tree of a choice.

    Parameters
    ----------
    names : array (n_labels,)
        Labels as a taxonomy has them.
    branching : int, optional
        Most children of a node; by default the root of order `depth` of the number of labels.
    depth : int
        Most edges from the root to a leaf.
    """
    n_labels = rows.n_labels
    if isinstance(tree, Tree):
        if tree.check().n_labels != n_labels:
            raise ValueError(f"tree has {tree.n_labels} labels but Y has {n_labels}")
        return tree
    if not isinstance(tree, str):
        return hierarchy_tree(tree, [str(name) for name in names.tolist()])
    branching = branching or max(2, int(np.ceil(n_labels ** (1.0 / depth))))
    if tree == "random":
        return random_tree(n_labels, branching=branching, depth=depth, rng=rng)
    shape = {"branching": branching, "depth": depth, "balance": _BALANCE, "n_jobs": n_jobs}
    if tree == "confusion":
        X, Y = in_memory(rows, "a tree of confusions")
        A = surrogate_confusion(X, Y, min(_N_CONFUSED, n_labels), n_jobs, rng)
        return spectral_tree(A, rng=rng, **shape)  # type: ignore[arg-type]
    embedding = rembrandt(Ridge(rows), min(_EMBEDDING_DIM, n_labels), rng=rng)
    # Directions count by how well they are predicted; the weak ones are noise.
    V = embedding.vectors * np.maximum(embedding.values, 0)
    return balanced_tree(V, rng=rng, **shape)  # type: ignore[arg-type]


def surrogate_confusion(
    X: Matrix, Y: csr_array, n_best: int, n_jobs: int | None, rng: np.random.Generator
) -> csr_array:
    """A = (C + C') / 2 of one-vs-rest classifiers: trained on 80 % of the rows, counted on 20 %.

    The paper counts the best label of each row. A good classifier then leaves most labels
    unconnected, and their vectors mean nothing; so the `n_best` labels of a row all count.
    Nothing is known to be confused when there are fewer than five rows.
    """
    n = X.shape[0]
    order = rng.permutation(n)
    held_out, rows = order[: n // 5], order[n // 5 :]
    if not len(held_out):
        return csr_array((Y.shape[1], Y.shape[1]), dtype=np.float32)
    with phase("one-vs-rest surrogate"):
        surrogate = OneVsRest(normalize=False, prune=0.01, random_state=0, n_jobs=n_jobs)
        best = surrogate.fit(X[rows], Y[rows]).topk_ids(X[held_out], n_best)[0]
    return sum(confusion(Y[held_out], place) for place in best.T)
