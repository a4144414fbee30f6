"""A small model of which candidate labels are true, given the scores of several scorers.

Logistic regression is the better re-ranker with few rows, and boosted trees are with many. The
trees gain most if new rows resemble the training rows less than the held-out rows do. The default
is the mean of their log odds, in which the trees have a weight of three quarters. It is close to
the better of the two on every dataset that was tried. Both are kept as plain arrays; scikit-learn
only fits them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numba import njit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from labelry.arrays import F32, I32, Bools, Ints, Rng
from labelry.checks import StoredCheck, check_at_least
from labelry.linalg.blas import library_threads
from labelry.linalg.parallel import run_spans
from labelry.ranking.evidence import PER_SCORER, n_features, of_candidates
from labelry.storage.values import Indices

Kind = Literal["average", "logistic", "boosted"]

_LEAST = 1e-4  # smallest score whose logarithm is used; not tuned
# The next six were chosen on held-out rows, which no table shows.
_BOOSTED_SHARE = 0.75  # weight of boosted trees in the mean with logistic regression
_FEW_HITS = 1500  # true candidates below which boosted trees are no better, and slow to train
_MOST_CANDIDATES = 60_000  # most candidates to fit to; more wrong ones make no better re-ranker
_N_TREES = 50  # trees of a boosted re-ranker
_N_LEAVES = 15  # most leaves of each of these trees
_LEAF_CANDIDATES = 100  # least candidates in a leaf: with fewer, P@1 falls most


class Boosted(NamedTuple):
    """Decision trees whose leaves add up to log odds."""

    roots: Annotated[I32, "n_trees", Indices("n_nodes")]  # number of the first node of each tree
    feature: Annotated[I32, "n_nodes"]  # that a node tests; -1 for a leaf
    # Largest value for which the path goes left; for a leaf, its log odds.
    threshold: Annotated[F32, "n_nodes"]
    left: Annotated[I32, "n_nodes", Indices("n_nodes")]  # children are later nodes
    right: Annotated[I32, "n_nodes", Indices("n_nodes")]
    offset: float  # log odds that are added in any case

    def check_fits(self, check: StoredCheck, n_scorers: int) -> None:
        """Raise a ValueError unless every path ends, and tests features of so many scorers."""
        end = n_features(n_scorers)
        check.indices("feature", self.feature, len(self.feature), end, least=-1, dtype="int32")
        inner = np.flatnonzero(self.feature >= 0) if check.values else np.arange(0)
        for name in ("left", "right"):
            if (getattr(self, name)[inner] <= inner).any():
                raise ValueError(f"{name} must be a later node than the node itself")

    def adjusted(self, factor: float, by: float) -> Boosted:
        """Return the model with all log odds multiplied by a factor, then moved by a constant."""
        leaves = np.where(self.feature < 0, np.float32(factor), np.float32(1))
        return self._replace(threshold=leaves * self.threshold, offset=self.offset * factor + by)

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Return the log odds of candidates (n, m) with features F (n, m, n_features)."""
        out = np.full(candidates.shape, self.offset, dtype=np.float32)
        trees = self[:-1]  # all fields but the offset
        run_spans(_add_leaves, (candidates, F, trees, out), len(out), n_jobs)
        return out
        return out


class Logistic(NamedTuple):
    """Log odds that are linear in `with_logarithms`."""

    coef: Annotated[F32, "n_logarithms"]
    intercept: float

    def check_fits(self, check: StoredCheck, n_scorers: int) -> None:
        """Raise a ValueError unless there is a weight for each feature of so many scorers."""
        check.array("coef", self.coef, PER_SCORER * n_scorers + 1 + 2 * n_scorers)

    def adjusted(self, factor: float, by: float) -> Logistic:
        """Return the model with all log odds multiplied by a factor, then moved by a constant."""
        return Logistic(np.float32(factor) * self.coef, self.intercept * factor + by)

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Return the log odds of candidates (n, m) with features F (n, m, n_features)."""
        return with_logarithms(F) @ self.coef + np.float32(self.intercept)


class Reranker(NamedTuple):
    """The mean log odds of its models."""

    models: list[Boosted | Logistic]

    def check_fits(self, check: StoredCheck, n_scorers: int) -> None:
        """Raise a ValueError unless the models take the features of so many scorers."""
        check_at_least("models", len(self.models), 1)
        for model in self.models:
            model.check_fits(check, n_scorers)

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Return the mean log odds (n, m) of candidates; minus infinity where there is none."""
        models: list[Boosted | Logistic] = [m for m in self.models if isinstance(m, Boosted)]
        linear = [m for m in self.models if isinstance(m, Logistic)]
        if linear:  # their sum is linear too, and logarithms take most of the time
            models.append(Logistic(*(sum(part) for part in zip(*linear, strict=True))))
        total = sum(model.log_odds(candidates, F, n_jobs) for model in models)
        return np.where(candidates >= 0, total / np.float32(len(self.models)), -np.inf)


def mean_reranker(rerankers: Sequence[Reranker]) -> Reranker:
    """Return a re-ranker with the mean log odds of these."""
    return Reranker([model for reranker in rerankers for model in reranker.models])


def with_logarithms(F: F32) -> F32:
    """Return the features of candidates, and for each scorer the logarithms of score and rank.

    With these, odds are products of powers of scores and ranks.
    """
    F = of_candidates(F)
    scored = F[..., :-1]
    scores, ranks = scored[..., ::PER_SCORER], scored[..., PER_SCORER - 1 :: PER_SCORER]
    logs = (np.log(np.maximum(scores, np.float32(_LEAST))), np.log1p(ranks))
    return np.concatenate([F, *logs], axis=-1)


def fit_reranker(candidates: Ints, F: F32, hits: Bools, kind: Kind, rng: Rng) -> Reranker | None:
    """Fit to candidates (n, m) of rows that were held out from the scorers; `hits` are true ones.

    `F` (n, m, n_features) comes from `labelry.ranking.evidence`. The kind "average" is logistic
    regression alone if fewer than 1,500 candidates are true. Return None if all or none are true.
    """
    listed = candidates >= 0
    features, true = F[listed], hits[listed]
    if true.all() or not true.any():
        return None
    features, true, rate = _drawn_candidates(features, true, rng)
    models: list[Boosted | Logistic] = []
    # One thread: threads of libraries wait for each other at every step of these small fits.
    with library_threads(1):
        if kind != "boosted":
            models.append(_logistic_model(features, true))
        if kind == "boosted" or (kind == "average" and true.sum() >= _FEW_HITS):
            models.append(_boosted_model(features, true, rng))
    # The re-ranker takes the mean of its models. Among the drawn candidates the odds are too high,
    # by the same factor for all.
    shares = (2 * (1 - _BOOSTED_SHARE), 2 * _BOOSTED_SHARE) if len(models) > 1 else (1.0,)
    by = float(np.log(rate))
    return Reranker([model.adjusted(s, by) for model, s in zip(models, shares, strict=True)])


def _drawn_candidates(features: F32, true: Bools, rng: Rng) -> tuple[F32, Bools, float]:
    """Return all true candidates, some of the others, and the share of the others that is kept."""
    others = np.flatnonzero(~true)
    n_drawn = max(_MOST_CANDIDATES - (len(true) - len(others)), _MOST_CANDIDATES // 2)
    if n_drawn >= len(others):
        return features, true, 1.0
    keep = true.copy()
    keep[rng.choice(others, n_drawn, replace=False)] = True
    return features[keep], true[keep], n_drawn / len(others)


def _logistic_model(features: F32, true: Bools) -> Logistic:
    """Fit a logistic regression to features that are scaled to unit variance."""
    A = with_logarithms(features).astype(np.float64)
    mean, scale = A.mean(axis=0), A.std(axis=0)
    scale[scale == 0] = 1
    A -= mean
    A /= scale
    model = LogisticRegression(solver="newton-cholesky").fit(A, true)
    coef = model.coef_[0] / scale
    return Logistic(coef.astype(np.float32), float(model.intercept_[0] - mean @ coef))


def _boosted_model(features: F32, true: Bools, rng: Rng) -> Boosted:
    """Fit boosted trees, and copy them into plain arrays."""
    model = HistGradientBoostingClassifier(
        max_iter=_N_TREES,
        max_leaf_nodes=_N_LEAVES,
        min_samples_leaf=_LEAF_CANDIDATES,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=int(rng.integers(2**31)),
    ).fit(features, true)
    trees = [stage[0].nodes for stage in model._predictors]
    roots = np.cumsum([0, *map(len, trees)])[:-1]
    nodes = np.concatenate(trees)
    first = np.repeat(roots, [len(tree) for tree in trees])
    leaf = nodes["is_leaf"].astype(bool)
    # Rounded down to float32, so that ``x <= threshold`` stays the same for every x of that type.
    exact = nodes["num_threshold"]
    threshold = exact.astype(np.float32)
    threshold = np.where(threshold > exact, np.nextafter(threshold, -np.inf), threshold)
    return Boosted(
        roots.astype(np.int32),
        np.where(leaf, -1, nodes["feature_idx"]).astype(np.int32),
        np.where(leaf, nodes["value"], threshold).astype(np.float32),
        (first + nodes["left"]).astype(np.int32),
        (first + nodes["right"]).astype(np.int32),
        float(np.ravel(model._baseline_prediction)[0]),
    )


@njit(nogil=True, cache=True)
def _add_leaves(
    candidates: Ints, F: F32, trees: tuple[I32, I32, F32, I32, I32], out: F32, row0: int, row1: int
) -> None:
    """Add the leaves of each tree; a tree goes through all candidates of a row before the next."""
    roots, feature, threshold, left, right = trees
    for i in range(row0, row1):
        for root in roots:
            for c in range(candidates.shape[1]):
                if candidates[i, c] < 0:
                    continue
                node = root
                while feature[node] >= 0:
                    low = F[i, c, feature[node]] <= threshold[node]
                    node = left[node] if low else right[node]
                out[i, c] += threshold[node]
