"""A small model of which candidate labels are true, given what several judges say about them.

Logistic regression is the better re-ranker with few rows, boosted trees with many, above all where
the rows to come are less like the training rows than those held out. The mean of their log odds, in
which the trees count for three quarters, is close to the better of the two on every set that was
tried: that is the default. Both are kept as plain arrays; scikit-learn is needed to fit them only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from labelry.checks import StoredCheck, check_at_least
from labelry.decoders.evidence import PER_JUDGE, n_features, of_candidates
from labelry.linalg.blas import library_threads
from labelry.linalg.parallel import run, spans
from labelry.linalg.topk import topk
from labelry.state import storable

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]
Kind = Literal["average", "logistic", "boosted"]

_LEAST = 1e-4  # score below which differences say nothing
_BOOSTED_SHARE = 0.75  # of boosted trees in the mean with logistic regression
_FEW_HITS = 1500  # with which boosted trees are no better, and most of the time of training
_MOST_CANDIDATES = 60_000  # to learn from: more of the wrong ones make no better re-ranker
_N_TREES = 50
_N_LEAVES = 15
_LEAF_CANDIDATES = 100  # least candidates in a leaf: with fewer the first place suffers most


@storable
class Boosted(NamedTuple):
    """Decision trees whose leaves add up to log odds.

    Attributes
    ----------
    roots : array (n_trees,)
        Number of the node that each tree begins with.
    feature : array (n_nodes,)
        Feature that a node asks about; -1 for a leaf.
    threshold : array (n_nodes,)
        Up to which the answer is left; of a leaf, what it adds.
    left, right : array (n_nodes,)
    offset : float
        What is added in any case.
    """

    roots: I32
    feature: I32
    threshold: F32
    left: I32
    right: I32
    offset: float

    def check_stored(self, check: StoredCheck, n_judges: int) -> None:
        """A ValueError unless every path ends, and asks about features that there are."""
        check.kind("roots", self.roots, np.ndarray)
        check.kind("feature", self.feature, np.ndarray)
        n = self.feature.size
        check.indices("roots", self.roots, self.roots.size, n, dtype="int32")
        check.indices("feature", self.feature, n, n_features(n_judges), least=-1, dtype="int32")
        check.array("threshold", self.threshold, n)
        check.number("offset", self.offset)
        inner = np.flatnonzero(self.feature >= 0) if check.values else np.arange(0)
        for name in ("left", "right"):
            child = getattr(self, name)
            check.indices(name, child, n, n, dtype="int32")
            if (child[inner] <= inner).any():
                raise ValueError(f"{name} must be a later node than the node itself")

    def times(self, factor: float) -> Boosted:
        """With all log odds multiplied by this."""
        leaf = self.feature < 0
        threshold = np.where(leaf, np.float32(factor) * self.threshold, self.threshold)
        return self._replace(threshold=threshold, offset=self.offset * factor)

    def moved(self, by: float) -> Boosted:
        """With this added to all log odds."""
        return self._replace(offset=self.offset + float(by))

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Of the candidates (n, m) by their features F (n, m, n_features)."""
        out = np.full(candidates.shape, self.offset, dtype=np.float32)
        nodes = (self.roots, self.feature, self.threshold, self.left, self.right)
        tasks = [(candidates, F, *nodes, out, *span) for span in spans(len(out), n_jobs)]
        run(_add_leaves, tasks, n_jobs)
        return out


@storable
class Logistic(NamedTuple):
    """Log odds that are linear in `with_logarithms`."""

    coef: F32
    intercept: float

    def check_stored(self, check: StoredCheck, n_judges: int) -> None:
        """A ValueError unless it has a weight for each feature of so many judges."""
        check.array("coef", self.coef, PER_JUDGE * n_judges + 1 + 2 * n_judges)
        check.number("intercept", self.intercept)

    def times(self, factor: float) -> Logistic:
        """With all log odds multiplied by this."""
        return Logistic(np.float32(factor) * self.coef, self.intercept * factor)

    def moved(self, by: float) -> Logistic:
        """With this added to all log odds."""
        return self._replace(intercept=self.intercept + float(by))

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Of the candidates (n, m) by their features F (n, m, n_features)."""
        return with_logarithms(F) @ self.coef + np.float32(self.intercept)


@storable
class Reranker(NamedTuple):
    """Ranks candidates by the mean log odds of its models."""

    models: list[Boosted | Logistic]

    def check_stored(self, check: StoredCheck, n_judges: int) -> None:
        """A ValueError unless it has models of what so many judges say."""
        check.kind("models", self.models, list)
        check_at_least("models", len(self.models), 1)
        for model in self.models:
            check.kind("a model", model, Boosted, Logistic)
            model.check_stored(check, n_judges)

    def log_odds(self, candidates: Ints, F: F32, n_jobs: int = 1) -> F32:
        """Mean log odds (n, m) of the candidates; minus infinity where there is none."""
        models: list[Boosted | Logistic] = [m for m in self.models if isinstance(m, Boosted)]
        linear = [m for m in self.models if isinstance(m, Logistic)]
        if linear:  # their sum is linear too, and logarithms are dear
            models.append(Logistic(*(sum(part) for part in zip(*linear, strict=True))))
        total = sum(model.log_odds(candidates, F, n_jobs) for model in models)
        return np.where(candidates >= 0, total / np.float32(len(self.models)), -np.inf)


def mean_reranker(rerankers: Sequence[Reranker]) -> Reranker:
    """One that ranks by the mean log odds of these."""
    return Reranker([model for reranker in rerankers for model in reranker.models])


def best_candidates(candidates: Ints, S: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
    """The k candidates of each row with the largest scores S, and these; -1 where there is none."""
    places, scores = topk(S, k, n_jobs)
    labels = np.take_along_axis(candidates, np.maximum(places, 0), axis=1)
    return np.where(places < 0, -1, labels), scores


def as_probabilities(log_odds: F32) -> F32:
    """``1 / (1 + exp(-log_odds))``, and minus infinity where there is no candidate."""
    return np.where(np.isneginf(log_odds), log_odds, expit(log_odds)).astype(np.float32)


def with_logarithms(F: F32) -> F32:
    """Features of candidates, and for each judge the logarithms of score and rank.

    Odds are products of both.
    """
    F = of_candidates(F)
    judged = F[..., :-1]
    scores, ranks = judged[..., ::PER_JUDGE], judged[..., PER_JUDGE - 1 :: PER_JUDGE]
    logs = (np.log(np.maximum(scores, np.float32(_LEAST))), np.log1p(ranks))
    return np.concatenate([F, *logs], axis=-1)


def fit_reranker(
    candidates: Ints, F: F32, hits: Bools, kind: Kind, rng: np.random.Generator
) -> Reranker | None:
    """Fit to candidates of rows that the judges have not seen.

    None where all candidates are true, or none is: there is nothing to tell apart.

    Parameters
    ----------
    candidates : integer array (n, m)
        -1 where there is none.
    F : array (n, m, n_features)
        From `labelry.decoders.evidence`.
    hits : bool array (n, m)
        Which candidates are true.
    kind : {"average", "logistic", "boosted"}
        "average" is logistic regression alone where fewer than 1,500 candidates are true.
    """
    listed = candidates >= 0
    features, true = F[listed], hits[listed]
    if true.all() or not true.any():
        return None
    features, true, rate = _drawn(features, true, rng)
    models: list[Boosted | Logistic] = []
    # One thread: those of libraries wait for each other at every step, for long where others work.
    with library_threads(1):
        if kind != "boosted":
            models.append(_fit_logistic(features, true))
        if kind == "boosted" or (kind == "average" and true.sum() >= _FEW_HITS):
            models.append(_fit_boosted(features, true, rng))
    if len(models) > 1:  # the re-ranker takes their mean
        shares = (1 - _BOOSTED_SHARE, _BOOSTED_SHARE)
        models = [model.times(2 * share) for model, share in zip(models, shares, strict=True)]
    # Among those drawn the odds of a true one are too high, by the same factor for all.
    return Reranker([model.moved(np.log(rate)) for model in models])


def _drawn(features: F32, true: Bools, rng: np.random.Generator) -> tuple[F32, Bools, float]:
    """Of very many candidates all that are true, and some others; and the share of the others."""
    others = np.flatnonzero(~true)
    n_drawn = max(_MOST_CANDIDATES - (len(true) - len(others)), _MOST_CANDIDATES // 2)
    if n_drawn >= len(others):
        return features, true, 1.0
    keep = true.copy()
    keep[rng.choice(others, n_drawn, replace=False)] = True
    return features[keep], true[keep], n_drawn / len(others)


def _fit_logistic(features: F32, true: Bools) -> Logistic:
    A = with_logarithms(features).astype(np.float64)
    mean, scale = A.mean(axis=0), A.std(axis=0)
    scale[scale == 0] = 1
    A -= mean
    A /= scale
    model = LogisticRegression(solver="newton-cholesky").fit(A, true)
    coef = model.coef_[0] / scale
    return Logistic(coef.astype(np.float32), float(model.intercept_[0] - mean @ coef))


def _fit_boosted(features: F32, true: Bools, rng: np.random.Generator) -> Boosted:
    model = _boosting(rng).fit(features, true)
    trees = [stage[0].nodes for stage in model._predictors]
    roots = np.cumsum([0, *map(len, trees)])[:-1]
    nodes = np.concatenate(trees)
    first = np.repeat(roots, [len(tree) for tree in trees])
    leaf = nodes["is_leaf"].astype(bool)
    return Boosted(
        roots.astype(np.int32),
        np.where(leaf, -1, nodes["feature_idx"]).astype(np.int32),
        np.where(leaf, nodes["value"], _rounded_down(nodes["num_threshold"])).astype(np.float32),
        (first + nodes["left"]).astype(np.int32),
        (first + nodes["right"]).astype(np.int32),
        float(np.ravel(model._baseline_prediction)[0]),
    )


def _boosting(rng: np.random.Generator) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        max_iter=_N_TREES,
        max_leaf_nodes=_N_LEAVES,
        min_samples_leaf=_LEAF_CANDIDATES,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=int(rng.integers(2**31)),
    )


def _rounded_down(values: NDArray[np.float64]) -> F32:
    """To float32, so that ``x <= value`` stays the same for every x of that type."""
    rounded = values.astype(np.float32)
    return np.where(rounded > values, np.nextafter(rounded, np.float32(-np.inf)), rounded)


@njit(nogil=True, cache=True)
def _add_leaves(
    candidates: Ints,
    F: F32,
    roots: I32,
    feature: I32,
    threshold: F32,
    left: I32,
    right: I32,
    out: F32,
    row0: int,
    row1: int,
) -> None:
    """A tree judges all candidates of a row before the next one is fetched."""
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
