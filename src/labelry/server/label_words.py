"""The words that weigh most for a label, and most against it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelry.estimator import LabelRanker
from labelry.systems.blend import Blend
from labelry.systems.calibrated_tree import CalibratedTree
from labelry.systems.explanation import contributions
from labelry.systems.linear_tree import LinearLabelTree
from labelry.systems.tagger import Tagger


def tree_of(model: LabelRanker) -> LinearLabelTree | None:
    """The tree of linear classifiers in a model, if it has one."""
    if isinstance(model, Tagger):
        return tree_of(model.model_)
    if isinstance(model, Blend):
        return model.retrievers_.tree
    if isinstance(model, CalibratedTree):
        return model.tree_
    return model if isinstance(model, LinearLabelTree) else None


def label_words(model: LabelRanker, label: int, k: int) -> dict[str, list[dict[str, Any]]]:
    """The k features with the largest weights for a label, and the k against it.

    Weights are sums over the classifiers on the way to the label; of all trees the mean.
    Features are words, or numbers of columns.
    """
    tree = tree_of(model)
    if tree is None:
        raise ValueError(f"{model.system} has no tree of linear classifiers")
    every = csr_array(np.ones((1, tree.n_columns_), dtype=np.float32))
    found = contributions(tree, every, label)
    sides = zip(("supporting", "opposing"), found.strongest(k), strict=True)
    return {
        side: [{"word": w, "weight": v} for w, v in found.named(places, model.text_features_)]
        for side, places in sides
    }
