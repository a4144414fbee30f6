"""What to try of each system's parameters, around what was found to work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Between:
    """Numbers from `low` to `high`; whole ones if both are.

    >>> Between(1, 100, log=True).draw(np.random.default_rng(0))
    19
    """

    low: float
    high: float
    log: bool = False  # factors are equally likely, not differences

    def draw(self, rng: np.random.Generator) -> float:
        """One of them, with three digits: more are noise, and have to be typed."""
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return round(value) if whole else float(f"{value:.3g}")


@dataclass(frozen=True)
class OneOf:
    """Some values, each as likely as the others."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """One of them."""
        return self.values[rng.integers(len(self.values))]


Ranges = dict[str, Between | OneOf]

_NEIGHBOURS: Ranges = {
    "n_neighbors": Between(10, 300, log=True),
    "sharpness": Between(2.0, 50.0, log=True),
}
_LABEL_EMBEDDING: Ranges = {
    "embedding_dim": Between(30, 400, log=True),
    "decoder": OneOf(("neighbours", "logistic", "least-squares")),
    "regularization": Between(0.03, 30.0, log=True),
    "regressor_regularization": Between(0.03, 10.0, log=True),
    **_NEIGHBOURS,
}
_GRADIENT: Ranges = {
    "embedding_dim": Between(30, 200, log=True),
    "rate": Between(0.05, 1.0, log=True),
    "regularization": Between(0.001, 1.0, log=True),
    "max_epochs": Between(10, 40),
}
_LOW_RANK: Ranges = {
    "embedding_dim": Between(30, 200, log=True),
    "regularization": Between(0.001, 1.0, log=True),
    "n_rounds": Between(5, 20),
}
_C = Between(0.1, 30.0, log=True)
_BEAM = Between(1, 50, log=True)

RANGES: dict[str, Ranges] = {
    "one-vs-rest": {"C": _C, "loss": OneOf(("squared_hinge", "logistic"))},
    "rembrandt": _LABEL_EMBEDDING,
    "pca": _LABEL_EMBEDDING,
    "compressed-sensing": _LABEL_EMBEDDING,
    "plst": _LABEL_EMBEDDING,
    "cplst": _LABEL_EMBEDDING,
    "cca": _LABEL_EMBEDDING,
    "ml-cssp": _LABEL_EMBEDDING,
    "blend": {
        "n_trees": OneOf((1, 2, 3, 5)),
        "embedding_dim": Between(30, 200, log=True),
        "n_neighbors": Between(20, 200, log=True),
        "n_candidates": Between(10, 60, log=True),
        "reranker": OneOf(("average", "logistic", "boosted")),
    },
    "linear-tree": {
        "tree": OneOf(("centroids", "rembrandt")),
        "n_trees": OneOf((1, 2, 3, 5)),
        "depth": OneOf((1, 2, 3)),
        "beam_width": Between(5, 50, log=True),
        "C": _C,
        "prune": Between(0.01, 0.3, log=True),
    },
    "label-tree": {
        "tree": OneOf(("rembrandt", "confusion")),
        "training": OneOf(("tree-loss", "siblings", "independent")),
        "depth": OneOf((1, 2, 3)),
        "beam_width": _BEAM,
    },
    "label-embedding-tree": _GRADIENT | {"depth": OneOf((1, 2, 3)), "beam_width": _BEAM},
    "sequential-embedding": _GRADIENT,
    "joint-embedding": _GRADIENT,
    "wsabie": _GRADIENT,
    "filter-tree": {"C": _C, "beam_width": _BEAM},
    "conditional-probability-tree": {
        "balance": Between(0.1, 1.0),
        "C": Between(1.0, 100.0, log=True),
        "beam_width": _BEAM,
    },
    "fastxml": {
        "n_trees": Between(20, 100, log=True),
        "max_leaf_size": Between(5, 50, log=True),
        "C": _C,
    },
    "lpsr": {
        "base": OneOf(("linear", "naive-bayes")),
        "max_leaf_size": Between(100, 3000, log=True),
        "max_leaf_labels": Between(50, 500, log=True),
        "C": _C,
    },
    "knn": _NEIGHBOURS,
    "local-leml": _LOW_RANK,
    "sleec": {
        "embedding_dim": Between(20, 200, log=True),
        "n_learners": Between(3, 15),
        "n_label_neighbors": Between(15, 300, log=True),
        "regularization": Between(0.1, 30.0, log=True),
        **_NEIGHBOURS,
    },
    "leml": _LOW_RANK | {"loss": OneOf(("squared", "logistic", "squared_hinge"))},
    "moments": {"n_topics": Between(20, 200, log=True), "n_refinements": Between(0, 4)},
}


def ranges_of(system: str) -> Ranges:
    """What to try of a system; a ValueError that names the systems with ranges if it has none."""
    if system not in RANGES:
        raise ValueError(
            f"there are no ranges to tune {system!r}; there are for: {', '.join(RANGES)}"
        )
    return RANGES[system]
