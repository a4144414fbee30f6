"""A tree of labels with a linear predictor at each node, searched with a beam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from labelry.arrays import F32, Ints
from labelry.checks import StoredCheck
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.parameters import Between, Settings, param, settings
from labelry.ranking.ranker import Ranker
from labelry.storage.values import AtLeast, Sizes
from labelry.trees.search import NodeLink, beam_search
from labelry.trees.structure import Tree
from labelry.trees.weights import NodeWeights

_CONSTANT = 1e-6  # a column is constant if its deviation over its mean is less; not tuned


@settings
class BinaryTreeSettings(Settings):
    """How to prepare rows for a binary tree, and how to search it."""

    beam_width: int = param(
        default=1,
        least=1,
        help="Nodes kept at each level while searching. Larger is more accurate and slower; 1 "
        "follows one path, which is the published method.",
        tune=Between(1, 50, log=True),
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")


def loss_weight(default: float, least: float, most: float) -> Any:
    """Return the declaration of C, which is tuned between `least` and `most`."""
    text = (
        "Weight of the losses against the regulariser. Larger fits the training rows more closely."
    )
    return param(default=default, above=0, help=text, tune=Between(least, most, log=True))


class ColumnScaling(NamedTuple):
    """A shift and a factor for each column of dense rows: ``(x - shift) * scale``."""

    shift: Annotated[F32, "n_features"]
    scale: Annotated[F32, "n_features"]


@dataclass(frozen=True, eq=False)
class NodePredictors(Ranker):
    """Linear predictors of the nodes of a tree, and how to search it.

    Scores are products of the probabilities of the nodes on a path: between 0 and 1, not
    calibrated.
    """

    tree: Annotated[Tree, Sizes(n_nodes="n_nodes")]
    weights: Annotated[NodeWeights, Sizes(n_nodes="n_nodes")]
    n_features: int
    beam_width: Annotated[int, AtLeast(1)]
    normalize: bool
    link: NodeLink = "sigmoid"  # turns the scores of siblings into probabilities
    sharpness: float = 1.0  # factor on the scores of nodes before the link
    # How to scale dense rows; None: rows are scaled to unit length. Only with `normalize`.
    columns: ColumnScaling | None = None

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k labels with the best paths that a beam search finds."""
        X = scaled(X, self.normalize, self.columns)
        how: dict[str, Any] = {"beam_width": self.beam_width, "sharpness": self.sharpness}
        how |= {"link": self.link, "n_jobs": n_jobs}
        labels, logs = beam_search(self.tree, self.weights, X, k, **how)
        return labels, np.where(labels < 0, -np.inf, np.exp(logs)).astype(np.float32)

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless the weights are those of the tree."""
        self.weights.check_fits(check, self.tree, self.n_features)


def scaled(X: Matrix, normalize: bool, columns: ColumnScaling | None = None) -> Matrix:
    """Return rows as the predictors of a tree take them."""
    if not normalize:
        return X
    if columns is None:
        return scaled_rows(X)
    return ((X.toarray() if issparse(X) else X) - columns.shift) * columns.scale


def column_scaling(X: F32) -> ColumnScaling:
    """Return the scaling with which columns have mean zero and equal variance, or are zero.

    Rows then have about unit length.
    """
    # In double: squares of large and of small values do not fit in float32.
    mean = X.mean(axis=0, dtype=np.float64)
    variance = np.einsum("ij,ij->j", X, X, dtype=np.float64) / X.shape[0] - mean**2
    deviation = np.sqrt(np.maximum(variance, 0) * X.shape[1])
    constant = deviation <= _CONSTANT * np.abs(mean)
    scale = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    return ColumnScaling(mean.astype(np.float32), scale.astype(np.float32))
