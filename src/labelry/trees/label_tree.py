"""Label trees: linear predictors at the nodes of a tree of labels, trained for the whole tree.

Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 2.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import issparse

from labelry.arrays import Rng
from labelry.errors import ParameterError
from labelry.linalg.rows import Rows, in_memory
from labelry.metrics import precision_at_k
from labelry.parameters import OneOf, param, settings
from labelry.ranking.hold_out import validation_split
from labelry.trees.choice import TREE_HELP, TreeChoice, TreeSearchSettings, choose_tree
from labelry.trees.node_predictors import NodePredictors, column_scaling, scaled
from labelry.trees.search import NodeLink, beam_search
from labelry.trees.structure import Tree
from labelry.trees.train import train_independent, train_tree_loss
from labelry.trees.weights import NodeWeights

NodeTraining = Literal["tree-loss", "siblings", "independent"]

_HELD_OUT = 0.1  # largest share of the rows in the validation split; not tuned
_MOST_HELD_OUT = 5000  # rows in the validation split, at most; not tuned
_LEAST_HELD_OUT = 20  # rows; with fewer there is no validation split; not tuned
# The first steps of the tree loss that a validation split chooses from; not tuned. Small steps stay
# near the start, which suits few rows per label (texts); large ones suit overlapping classes
# (images).
_STEPS = (0.1, 1.0, 30.0)
# The values of `sharpness` to choose from; the first of equally good ones is taken. Not tuned.
_SHARPNESS = (1.0, 0.5, 2.0, 1.5, 0.3, 3.0, 0.2, 4.0, 0.1, 6.0, 8.0)


@settings
class LabelTreeSettings(TreeSearchSettings):
    """How to find a tree of labels, train its predictors and search it."""

    tree: TreeChoice = param(
        default="rembrandt", help=TREE_HELP, tune=OneOf(("rembrandt", "confusion"))
    )
    training: NodeTraining = param(
        default="tree-loss",
        help='The training of nodes. "independent" trains each node by itself against all rows '
        '(relaxation 1), "siblings" on the rows that reach its parent. "tree-loss" continues from '
        '"siblings" and minimises the largest violation along the path of each row (relaxation '
        "2).",
        tune=OneOf(("tree-loss", "siblings", "independent")),
    )
    regularization: float | None = param(
        default=None,
        least=0,
        help='Strength of the regulariser. For "tree-loss" the fraction by which weights shrink in '
        "the first epoch, by default 0; otherwise the inverse of C, by default 1. Larger gives "
        "smaller weights.",
    )
    max_epochs: int = param(
        default=50,
        least=1,
        help='Most passes over the rows. "tree-loss" stops early by a validation split.',
    )
    normalize: bool = param(
        default=True,
        help="Scale sparse rows to unit length, or columns of a dense X to mean zero and equal "
        "variance.",
    )

    def check_together(self) -> None:
        if self.training != "tree-loss" and self.regularization == 0:
            rule = f"must be positive for {self.training}"
            raise ParameterError("regularization", f"{rule}, got {self.regularization}")


class _TreeLossPlan(NamedTuple):
    """How to minimise the tree loss, and how to turn scores into probabilities."""

    step: float
    n_epochs: int
    link: NodeLink = "softmax"
    sharpness: float = 1.0


def fit_label_tree(rows: Rows, settings: LabelTreeSettings, rng: Rng) -> NodePredictors:
    """Find a tree of the labels, and train a linear predictor for each of its nodes."""
    X, Y = in_memory(rows, "label-tree")
    columns = column_scaling(X) if settings.normalize and not issparse(X) else None
    X = scaled(X, settings.normalize, columns)
    kept = Rows(X, Y, n_jobs=rows.n_jobs, known=rows.known)
    branching, depth = settings.branching, settings.depth
    tree = choose_tree(settings.tree, kept, branching=branching, depth=depth, rng=rng)
    fixed = (rows.n_features, settings.beam_width, settings.normalize)
    options: dict[str, Any] = {"rng": rng, "n_jobs": rows.n_jobs}
    if settings.training != "tree-loss":
        C = 1.0 if settings.regularization is None else 1.0 / settings.regularization
        options |= {"C": C, "max_sweeps": settings.max_epochs}
        all_rows = settings.training == "independent"
        weights = train_independent(X, Y, tree, all_rows=all_rows, **options)
        return NodePredictors(tree, weights, *fixed, columns=columns)
    how = _choose_descent(kept, tree, settings, **options)
    start = train_independent(X, Y, tree, **options)
    options |= {"regularization": settings.regularization or 0.0}
    options |= {"step": how.step, "max_epochs": how.n_epochs}
    weights = train_tree_loss(X, Y, tree, start=start, **options).weights
    return NodePredictors(tree, weights, *fixed, how.link, how.sharpness, columns)


def _choose_descent(
    rows: Rows, tree: Tree, settings: LabelTreeSettings, **options: Any
) -> _TreeLossPlan:
    """Choose how to train on all rows, by a validation split if there are enough rows."""
    (X, Y), groups = rows.gathered("X", "Y"), rows.known.groups
    labelled = np.flatnonzero(np.diff(Y.indptr))
    n_wanted = min(_MOST_HELD_OUT, int(_HELD_OUT * len(labelled)))
    if n_wanted < _LEAST_HELD_OUT:
        return _TreeLossPlan(_STEPS[0], settings.max_epochs)
    split = validation_split(Y.shape[0], n_wanted, options["rng"], groups=groups, among=labelled)
    train, held_out = map(np.sort, split)

    def accuracy(weights: NodeWeights, **how: Any) -> float:
        how = {"beam_width": 1, "n_jobs": options["n_jobs"]} | how
        best = beam_search(tree, weights, X[held_out], 1, **how)[0]
        return precision_at_k(Y[held_out], best, 1)

    # With few rows per label many weights have no loss; those near this start generalise better.
    options["start"] = train_independent(X[train], Y[train], tree, **options)
    options |= {"regularization": settings.regularization or 0.0, "max_epochs": settings.max_epochs}
    found = [
        train_tree_loss(X[train], Y[train], tree, step=step, score=accuracy, **options)
        for step in _STEPS
    ]
    best = max(range(len(found)), key=lambda i: found[i].score)
    links: list[dict[str, Any]] = [{"link": "softmax", "sharpness": s} for s in _SHARPNESS]
    links.append({"link": "sigmoid", "sharpness": 1.0})
    weights, width = found[best].weights, settings.beam_width
    link = max(links, key=lambda how: accuracy(weights, beam_width=width, **how))
    return _TreeLossPlan(_STEPS[best], found[best].n_epochs, **link)
