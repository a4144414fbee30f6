"""Which features of a row speak for a label, and which against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.data.text import TextFeatures
from labelry.decoders.evidence import PER_JUDGE
from labelry.linalg.matrices import Matrix
from labelry.systems.linear_tree import LinearLabelTree

Feature = str | int


class Explanation(NamedTuple):
    """Why a row has a label, or has it not.

    ``bias + sum of for and against + rest`` is `margin`: the sum of the margins of the linear
    classifiers on the way to the label, the mean of all trees. It is what the tree alone says.

    Attributes
    ----------
    label : label
    probability : float or None
        As in prediction; None where the label is not among the candidates of the row.
    supporting, opposing : list of (feature, contribution)
        The strongest features for and against the label, strongest first. Features are words,
        or numbers of columns.
    rest : float
        Contribution of the features that are not listed.
    bias : float
        What is added whatever the row.
    margin : float
    judges : dict
        What each judge of a blend says: score of the tree, shares of the neighbours, ...; empty
        where the tree alone judges, and where the label is not among the candidates.
    """

    label: Any
    probability: float | None
    supporting: list[tuple[Feature, float]]
    opposing: list[tuple[Feature, float]]
    rest: float
    bias: float
    margin: float
    judges: dict[str, float]


class Contributions(NamedTuple):
    """What each feature of a row adds to the margin of a label, and what is added in any case."""

    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    bias: float

    def strongest(self, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Places of the n largest values above 0 and of the n smallest below 0, largest first."""
        order = np.argsort(-np.abs(self.values), kind="stable")
        values = self.values[order]
        return order[values > 0][:n], order[values < 0][:n]

    def named(
        self, places: NDArray[np.intp], text_features: TextFeatures | None
    ) -> list[tuple[Feature, float]]:
        """Feature and value at some places; features are words, or numbers of columns."""
        columns = self.columns[places].tolist()
        features = columns if text_features is None else text_features.names_of(columns)
        return list(zip(features, self.values[places].tolist(), strict=True))

    def margin(self) -> float:
        return self.bias + float(self.values.sum())


def contributions(tree: LinearLabelTree, x: Matrix, label: int) -> Contributions:
    """Of the features of a row of unit length; of all places of the label the mean.

    Nothing for a label that came after the tree was trained.
    """
    row = csr_array(x)
    if label >= tree.tree_.n_labels:
        return Contributions(row.indices[:0], np.zeros(0), 0.0)
    _, weights, bias = tree.path_weights(label)
    summed = np.asarray(weights[:, row.indices].sum(axis=0), dtype=np.float64).ravel()
    n_paths = np.count_nonzero(tree.tree_.label == label)
    total = float(bias.sum(dtype=np.float64)) / n_paths
    return Contributions(row.indices, summed * row.data / n_paths, total)


def judgement(judges: Sequence[str], features: NDArray[np.float32]) -> dict[str, float]:
    """What each judge says about a candidate, out of its features from `Retrievers.judged`."""
    scores = features[: PER_JUDGE * len(judges) : PER_JUDGE]
    return dict(zip(judges, scores.tolist(), strict=True))
