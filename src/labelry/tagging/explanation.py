"""Explain a label of a row by the features that raise its score, and those that lower it."""

from __future__ import annotations

from typing import Any, NamedTuple

from labelry.data.text import TextFeatures
from labelry.linalg.matrices import Matrix
from labelry.ranking.ranker import Explains, Feature


class Explanation(NamedTuple):
    """The features of a row that raise or lower the score of a label.

    ``bias + sum of for and against + rest`` is `margin`: the sum of the margins of the linear
    classifiers on the way to the label, the mean of all trees. It is the score of the trees alone.

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
    scores : dict
        The score of each part of a blend, by its name: tree, neighbours, ... It is empty if trees
        are the whole model, or if the label is not among the candidates.
    """

    label: Any
    probability: float | None
    supporting: list[tuple[Feature, float]]
    opposing: list[tuple[Feature, float]]
    rest: float
    bias: float
    margin: float
    scores: dict[str, float]


def explanation(
    model: Explains,
    x: Matrix,
    column: int,
    label: Any,
    n: int,
    text_features: TextFeatures | None,
    n_jobs: int = 1,
) -> Explanation:
    """Explain the label in a column for one row of unit length, by the n strongest features."""
    if n < 0:
        raise ValueError(f"n must be at least 0, got {n}")
    found = model.contributions(x, column)
    largest, smallest = found.strongest(n)
    listed = found.values[largest].sum() + found.values[smallest].sum()
    probability, scores = model.scored(x, column, n_jobs)
    return Explanation(
        label=label,
        probability=probability,
        supporting=found.named(largest, text_features),
        opposing=found.named(smallest, text_features),
        rest=float(found.values.sum() - listed),
        bias=found.bias,
        margin=found.margin(),
        scores=scores,
    )
