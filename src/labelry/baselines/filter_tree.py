"""Filter trees: a tournament of labels, trained from the first round up."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck, check_at_least, check_positive
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.trees import Tree, random_tree
from labelry.trees.search import beam_search
from labelry.trees.train import NodeTrainer, reach
from labelry.trees.weights import check_tree

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]


class FilterTree(LabelRanker):
    """A random binary tree of labels whose nodes learn which side wins a tournament.

    Nodes are trained from the leaves up, each only on the rows whose label has won all
    rounds below it. Prediction follows one path down, so it is very fast; accuracy is low.

    Parameters
    ----------
    C : float
        Weight of the losses against the regulariser; larger fits the training rows more closely.
    beam_width : int
        Nodes kept at each level while searching; 1 is the published method.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
        Seed for the tree and the order of the rows.
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.

    Attributes
    ----------
    tree_ : Tree
    weights_ : NodeWeights

    Notes
    -----
    Scores are products of the sigmoids of the margins on the path; not calibrated.

    References
    ----------
    Beygelzimer, Langford, Ravikumar: Error-correcting tournaments, 2009, section 3 (Filter-train).

    Examples
    --------
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> FilterTree().fit(X, ["a", "a", "b", "b", "c", "c"]).predict(X[::2]).tolist()
    ['a', 'b', 'c']
    """

    system: ClassVar[str] = "filter-tree"

    def __init__(
        self,
        *,
        C: float = 1.0,
        beam_width: int = 1,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.beam_width = beam_width
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Score from which `predict` says yes: that of a label that is even in every round."""
        return float(0.5 ** int(self.tree_.depth.max()))

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        X = scaled_rows(X) if self.normalize else X
        self.tree_ = random_tree(Y.shape[1], branching=2, rng=rng)
        trainer = NodeTrainer(X, Y, self.tree_, C=self.C, n_jobs=resolve_jobs(self.n_jobs))
        winning = Y.copy()  # labels that have won all their rounds so far
        depth = self.tree_.depth
        for level in range(int(depth.max()) - 1, -1, -1):
            nodes = np.flatnonzero((depth == level) & (self.tree_.label < 0))
            rows_of = reach(self.tree_, winning)
            rounds = list(trainer.train(nodes, rows_of, rng))
            places = tuple(np.concatenate([game[part] for game in rounds]) for part in (1, 2))
            ones = np.ones(len(places[0]), dtype=np.float32)
            won = csr_array((ones, places), shape=(Y.shape[0], len(depth)))
            winning = _winners(winning, _above(self.tree_, level + 1), won)
        self.weights_ = trainer.weights

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        X = scaled_rows(X) if self.normalize else X
        options = {"beam_width": self.beam_width, "n_jobs": resolve_jobs(self.n_jobs)}
        labels, logs = beam_search(self.tree_, self.weights_, X, k, link="sigmoid", **options)
        return labels, np.where(labels < 0, -np.inf, np.exp(logs)).astype(np.float32)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check_tree(check, self.tree_, self.weights_, n_features, n_labels)

    def _check_parameters(self) -> None:
        check_positive("C", self.C)
        check_at_least("beam_width", self.beam_width, 1)


def _above(tree: Tree, level: int) -> I32:
    """The node at depth `level` above the leaf of each label; -1 where the leaf is higher up."""
    nodes, depth, parent = tree.leaves().nodes.copy(), tree.depth, tree.parent
    for _ in range(int(depth.max())):
        nodes = np.where(depth[nodes] > level, parent[nodes], nodes)
    return np.where(depth[nodes] == level, nodes, -1).astype(np.int32)


def _winners(Y: csr_array, node_of: I32, won: csr_array) -> csr_array:
    """The labels of Y that played no round, or whose node (n_labels,) won it in their row."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    node = node_of[Y.indices]
    stays = (node < 0) | (np.asarray(won[rows, node]).ravel() > 0)
    kept = (Y.data[stays], (rows[stays], Y.indices[stays]))
    return csr_array(kept, shape=Y.shape)
