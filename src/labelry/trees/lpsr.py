"""LPSR: a partition of the rows, with a few labels in each part for a linear ranker to rank.

Weston, Makadia, Yee: Label partitioning for sublinear ranking, 2013.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numba import njit
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from labelry import memory
from labelry.arrays import F32, F64, I32, Bools, Ints, Rng
from labelry.checks import StoredCheck
from labelry.linalg.kernels import Csr, topk_rows
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import balanced_spans, run, stream
from labelry.linalg.rows import Rows, in_memory
from labelry.metrics.matching import match
from labelry.parameters import Between, OneOf, Settings, param, settings
from labelry.progress import counted
from labelry.ranking.one_vs_rest import LinearClassifiers, OneVsRestSettings, fit_one_vs_rest
from labelry.ranking.ranker import Ranker
from labelry.storage.values import Sizes
from labelry.trees.row_trees import RowForest, cluster_tree, matrix_of_lists
from labelry.trees.weights import as_csr, frozen

Base: TypeAlias = tuple[F32, F32]  # coef and intercept

_RANKED = 50  # best labels of a training row by the base; a leaf chooses from these; not tuned
_LEAST_WEIGHT = 0.01  # weight in the clustering of a row that the base ranks wrong; not tuned
_STEPS = 20  # Frank-Wolfe steps of the choice of labels; not tuned
_IN = 0.1  # least alpha of a chosen label, because dropped labels keep a small one; not tuned


@settings
class LPSRSettings(Settings):
    """How to train the base, partition the rows and choose the labels of each part."""

    base: Literal["linear", "naive-bayes"] = param(
        default="linear",
        help='The base ranker. "linear" is one-vs-rest with the squared hinge. "naive-bayes" '
        "trains in one pass, is less accurate, and needs features that are not negative.",
        tune=OneOf(("linear", "naive-bayes")),
    )
    max_leaf_size: int = param(
        default=1000,
        least=1,
        help="Most rows of a leaf. Larger is more accurate, as its labels are chosen on more rows.",
        tune=Between(100, 3000, log=True),
    )
    max_leaf_labels: int = param(
        default=300,
        least=1,
        help="Most labels of a leaf. Larger is slower and closer to the base.",
        tune=Between(50, 500, log=True),
    )
    top_k: int = param(
        default=5, least=1, help="The k of the precision for which labels are chosen."
    )
    C: float = param(
        default=1.0,
        above=0,
        help="Weight of the losses of the linear base. Larger fits the training rows more closely.",
        tune=Between(0.1, 30.0, log=True),
    )
    normalize: bool = param(
        default=True,
        help="Scale each row of X to unit length first, for the linear base. Naive Bayes takes "
        "rows as counts of words, and ignores this.",
    )


@dataclass(frozen=True, eq=False)
class LabelPartition(Ranker):
    """A linear ranker, the base, that ranks only the labels of the leaf that a row reaches.

    Scores are those of the base: margins, or log odds.
    """

    coef: Annotated[F32, "n_features", "n_labels"]
    intercept: Annotated[F32, "n_labels"]
    partition: Annotated[RowForest, Sizes(n_nodes="n_nodes")]  # one tree
    leaf_labels: Annotated[csr_array, "n_nodes", "n_labels"]  # 1 for each label of a leaf
    normalize: bool

    @property
    def threshold(self) -> float:
        """Return zero, the boundary of the base in margins or log odds."""
        return 0.0

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k labels of a row's leaf with the highest scores."""
        X = scaled_rows(X) if self.normalize else X
        leaf = self.partition.leaves(X, n_jobs).ravel()
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        csr, base = as_csr(X), frozen(self.coef, self.intercept)
        given = (csr, base, as_csr(self.leaf_labels), leaf, labels, scores)
        run(rank_listed, [(*given, *span) for span in balanced_spans(csr.indptr, n_jobs)], n_jobs)
        return labels, scores

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless there is one tree."""
        if len(self.partition.root) != 1:
            raise ValueError(f"partition must be 1 tree, got {len(self.partition.root)}")


def fit_lpsr(rows: Rows, settings: LPSRSettings, rng: Rng) -> LabelPartition:
    """Train the base, cluster the rows, and choose the labels of each cluster."""
    X, Y = in_memory(rows, "lpsr")
    normalize = settings.normalize and settings.base == "linear"
    X = scaled_rows(X) if normalize else X
    # A copy of rng, so that the base is the model of `OneVsRest` with the same seed.
    base = _fit_base(Rows(X, Y, n_jobs=rows.n_jobs, known=rows.known), settings, deepcopy(rng))
    ranked = base.topk(X, min(_RANKED, rows.n_labels), rows.n_jobs)[0]
    right = match(Y, ranked).hits
    # The weighted hierarchical partitioner weighs rows by the precision of the base on them.
    weights = np.maximum(right[:, : settings.top_k].mean(axis=1), _LEAST_WEIGHT)
    size = settings.max_leaf_size
    partition = cluster_tree(X, weights, max_leaf_size=size, rng=rng, n_jobs=rows.n_jobs)
    lists = _label_lists(partition, X, ranked, right, rows, settings)
    ones = np.ones(sum(map(len, lists)), dtype=np.float32)
    leaf_labels = matrix_of_lists(lists, ones, rows.n_labels)
    return LabelPartition(base.coef, base.intercept, partition, leaf_labels, normalize)


def _fit_base(rows: Rows, settings: LPSRSettings, rng: Rng) -> LinearClassifiers:
    n_copies = 3 if settings.base == "naive-bayes" else 1
    what = f"a base ranker with {rows.n_features:,} features and {rows.n_labels:,} labels"
    n_bytes = 4 * rows.n_features * rows.n_labels * n_copies
    memory.require(n_bytes, what, "use fewer features, or a label tree")
    if settings.base == "linear":
        return fit_one_vs_rest(rows, OneVsRestSettings(C=settings.C, normalize=False), rng)
    X, Y = rows.gathered("X", "Y")
    no_sweeps = np.zeros(rows.n_labels, dtype=np.int32)
    return LinearClassifiers(*naive_bayes(X, Y), no_sweeps, logistic=False, normalize=False)


def _label_lists(
    partition: RowForest, X: Matrix, ranked: Ints, right: Bools, rows: Rows, settings: LPSRSettings
) -> list[Ints]:
    """Return the labels of each node, chosen on the rows that reach it; none of inner nodes."""
    leaf = partition.leaves(X, rows.n_jobs).ravel()
    sizes = np.bincount(leaf, minlength=len(partition.left))
    parts = np.split(np.argsort(leaf, kind="stable"), np.cumsum(sizes)[:-1])
    most = settings.max_leaf_labels
    tasks = ((ranked[part], right[part], settings.top_k, most) for part in parts)
    # A leaf where the base is never right gets the labels that are most frequent in all rows.
    frequent = np.sort(np.argsort(-rows.label_counts(), kind="stable")[:most])
    chosen = stream(choose_labels, tasks, rows.n_jobs)
    lists = counted(chosen, "choosing labels", len(parts), "nodes")
    pairs = zip(lists, partition.left < 0, strict=True)
    return [frequent if is_leaf and len(labels) == 0 else labels for labels, is_leaf in pairs]


def naive_bayes(X: Matrix, Y: csr_array) -> tuple[F32, F32]:
    """Return weights (n_features, n_labels) and intercepts: log odds with multinomial rows.

        log P(y | x) / P(not y | x) = log n_y / (n - n_y) + sum_j x_j log P(j | y) / P(j | not y)

    Smoothed by one more occurrence of each feature, of the mean value that is not zero.
    """
    values = X.data if issparse(X) else X
    if (least := values.min(initial=0.0)) < 0:
        raise ValueError(f"base naive-bayes needs features of at least 0, got {least}")
    smoothing = values.sum() / max(np.count_nonzero(values), 1)
    with_label = X.T @ Y  # (n_features, n_labels)
    with_label = np.asarray(with_label.toarray() if issparse(with_label) else with_label)
    total = np.asarray(X.sum(axis=0), dtype=np.float32).reshape(-1, 1)
    coef = _log_shares(with_label, smoothing) - _log_shares(total - with_label, smoothing)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    intercept = np.log((counts + 1.0) / (Y.shape[0] - counts + 1.0))
    return coef, intercept.astype(np.float32)


def _log_shares(counts: F32, smoothing: np.float32) -> F32:
    # Differences of sums may be a little below zero, and all features may be zero.
    smoothed = np.maximum(counts, 0.0) + max(smoothing, np.float32(1e-6))
    return np.asarray(np.log(smoothed / smoothed.sum(axis=0)), dtype=np.float32)


def choose_labels(ranked: I32, right: Bools, top_k: int, most: int) -> I32:
    """Return at most `most` labels with which the ranker has the best precision on some rows.

    `ranked` (n_rows, n_ranked) are the labels of each row, best first, and `right` marks the true
    ones. Frank-Wolfe steps maximise the `relaxed_precision`, from the labels that are right most
    often.
    """
    labels, place = np.unique(ranked, return_inverse=True)
    place = place.reshape(ranked.shape)
    alpha = np.zeros(len(labels))
    for t in range(_STEPS):
        gradient = relaxed_precision(alpha, place, right, top_k)[1]
        best = np.argsort(-gradient, kind="stable")[:most]
        vertex = np.zeros(len(labels))
        vertex[best[gradient[best] > 0]] = 1.0
        alpha += 2.0 / (t + 2.0) * (vertex - alpha)
    best = np.argsort(-alpha, kind="stable")[:most]
    return labels[np.sort(best[alpha[best] > _IN])]


def relaxed_precision(alpha: F64, place: Ints, right: Bools, top_k: int) -> tuple[float, F64]:
    """Return the relaxed number of true labels among the best `top_k` of a set, and its gradient.

    alpha (n_labels,) in [0, 1] is the degree to which a label is in the set. A true label counts if
    it is in the set and fewer than `top_k` labels of the set rank above it:

        sum_t sum_{y in y_t} alpha_y sigmoid(top_k - 1/2 - sum_{i above y} alpha_i)
    """
    a = alpha[place]  # (n_rows, n_ranked)
    above = np.cumsum(a, axis=1) - a
    within = expit(top_k - 0.5 - above)
    counted = np.where(right, a * within, 0.0)
    # A label takes room from the true labels below it.
    room = counted * (1.0 - within)
    taken = np.cumsum(room[:, ::-1], axis=1)[:, ::-1] - room
    slope = np.where(right, within, 0.0) - taken
    gradient = np.bincount(place.ravel(), weights=slope.ravel(), minlength=len(alpha))
    return float(counted.sum()), gradient.astype(np.float64)


@njit(nogil=True, cache=True)
def rank_listed(
    X: Csr, base: Base, lists: Csr, which: Ints, labels: I32, scores: F32, row0: int, row1: int
) -> None:
    """Fill in the top k of ``x[i] @ coef + intercept`` among the labels of list ``which[i]``."""
    indptr, indices, data = X
    coef, intercept = base
    list_ptr, listed, _ = lists
    k = labels.shape[1]
    s = np.empty((1, np.max(list_ptr[1:] - list_ptr[:-1])), dtype=np.float32)
    found, best = np.empty((1, k), dtype=np.int32), np.empty((1, k), dtype=np.float32)
    for i in range(row0, row1):
        first = list_ptr[which[i]]
        n = list_ptr[which[i] + 1] - first
        for t in range(n):
            s[0, t] = intercept[listed[first + t]]
        s[0, n:] = -np.inf
        for p in range(indptr[i], indptr[i + 1]):
            w, v = coef[indices[p]], data[p]
            for t in range(n):
                s[0, t] += v * w[listed[first + t]]
        topk_rows(s, found, best, 0, 1)
        for t in range(k):
            labels[i, t] = listed[first + found[0, t]] if found[0, t] >= 0 else -1
            scores[i, t] = best[0, t]
