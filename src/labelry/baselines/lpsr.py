"""LPSR: a partition of the rows, with a few labels in each part for a linear ranker to rank."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from labelry import memory
from labelry.baselines.one_vs_rest import OneVsRest
from labelry.checks import StoredCheck, check_at_least, check_positive
from labelry.estimator import LabelRanker
from labelry.linalg.kernels import topk_rows
from labelry.linalg.matrices import Matrix, product, scaled_rows
from labelry.linalg.parallel import balanced_spans, resolve_jobs, run, stream
from labelry.linalg.topk import topk_blocks
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.trees.row_trees import RowForest, cluster_tree
from labelry.trees.weights import as_csr, frozen

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
Bools = NDArray[np.bool_]
Ints = NDArray[np.integer]
Base = Literal["linear", "naive-bayes"]

_RANKED = 50  # labels that the base ranks for each training row
_LEAST_WEIGHT = 0.01  # of a row that the base gets all wrong
_STEPS = 20  # of the choice of labels
_IN = 0.1  # least alpha of a chosen label; labels that were given up keep a trace


class LPSR(LabelRanker):
    """Label partitioning for sublinear ranking: a base ranker that looks at few labels.

    A tree of clusters leads a row to a leaf, and the base ranks only the labels of that leaf.
    Rows that the base ranks well have more weight in the clustering; the labels of a leaf are
    those with which the base has the best precision at `top_k` on its rows. Choose it to
    make one-vs-rest faster, at about the same accuracy.

    Scores are those of the base: margins, or log odds. 0 is the boundary.

    Parameters
    ----------
    base : {"linear", "naive-bayes"}
        "linear" is one-vs-rest with the squared hinge. "naive-bayes" trains in one pass, is less
        accurate, and needs features that are not negative.
    max_leaf_size : int
        Most rows of a leaf; larger is more accurate, as its labels are chosen on more rows.
    max_leaf_labels : int
        Most labels of a leaf; larger is slower and closer to the base.
    top_k : int
        The k of the precision for which labels are chosen.
    C : float
        Weight of the losses of the linear base; larger fits the training rows more closely.
    normalize : bool
        Scale each row of X to unit length first, for the linear base; naive Bayes takes rows as
        counts of words, whatever they hold.
    random_state : int, optional
        Seed for the base and the clustering.
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    coef_ : array (n_features, n_labels)
    intercept_ : array (n_labels,)
        The base.
    partition_ : RowForest
        One tree; the leaf of a row is its part.
    leaf_labels_ : csr_array (n_nodes, n_labels)
        1 for each label of a leaf.

    Notes
    -----
    Time of a query: the centres on one path, and the labels of one leaf, for each of its
    features. Training costs what the base does, and its scores of all labels for all rows.

    The labels of a leaf maximise the paper's relaxation of precision at k, with a sigmoid, but by
    Frank-Wolfe steps, which keep to the number of labels. Clusters are balanced.

    References
    ----------
    Weston, Makadia, Yee: Label partitioning for sublinear ranking, 2013.

    Examples
    --------
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> model = LPSR(max_leaf_size=2).fit(X, ["a", "a", "b", "b", "c", "c"])
    >>> model.predict(X[::2]).tolist()
    ['a', 'b', 'c']
    """

    system: ClassVar[str] = "lpsr"
    threshold: ClassVar[float] = 0.0

    def __init__(
        self,
        *,
        base: Base = "linear",
        max_leaf_size: int = 1000,
        max_leaf_labels: int = 300,
        top_k: int = 5,
        C: float = 1.0,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.base = base
        self.max_leaf_size = max_leaf_size
        self.max_leaf_labels = max_leaf_labels
        self.top_k = top_k
        self.C = C
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        n_jobs = resolve_jobs(self.n_jobs)
        X = self._scaled(X)
        self.coef_, self.intercept_ = self._fit_base(X, Y)
        ranked = self._ranked_by_base(X)
        right = match(Y, ranked).hits
        # The weighted hierarchical partitioner: rows count by the precision of the base on them.
        weights = np.maximum(right[:, : self.top_k].mean(axis=1), _LEAST_WEIGHT)
        self.partition_ = cluster_tree(
            X, weights, max_leaf_size=self.max_leaf_size, rng=rng, n_jobs=n_jobs
        )
        leaf = self.partition_.leaves(X, n_jobs).ravel()
        self.leaf_labels_ = self._label_leaves(leaf, ranked, right)

    def _fit_base(self, X: Matrix, Y: csr_array) -> tuple[F32, F32]:
        n_copies = 3 if self.base == "naive-bayes" else 1
        memory.require(
            4 * X.shape[1] * Y.shape[1] * n_copies,
            f"a base ranker with {X.shape[1]:,} features and {Y.shape[1]:,} labels",
            "use fewer features, or a label tree",
        )
        if self.base == "naive-bayes":
            return naive_bayes(X, Y)
        base = OneVsRest(
            C=self.C, normalize=False, random_state=self.random_state, n_jobs=self.n_jobs
        ).fit(X, Y)
        return base.coef_, base.intercept_

    def _ranked_by_base(self, X: Matrix) -> I32:
        """The labels that the base ranks first for each row, (n_rows, at most 50)."""
        n_jobs, n_labels = resolve_jobs(self.n_jobs), len(self.intercept_)

        def scores(rows: slice) -> F32:
            return product(X[rows], self.coef_, n_jobs) + self.intercept_

        return topk_blocks(scores, X.shape[0], n_labels, min(_RANKED, n_labels), n_jobs)[0]

    def _label_leaves(self, leaf: I32, ranked: I32, right: Bools) -> csr_array:
        """The labels of each leaf, chosen on the rows that reach it."""
        shape = (len(self.partition_.left), len(self.intercept_))
        order = np.argsort(leaf, kind="stable")
        bounds = np.searchsorted(leaf[order], np.arange(shape[0] + 1))
        parts = [order[a:b] for a, b in pairwise(bounds)]
        tasks = ((ranked[p], right[p], self.top_k, self.max_leaf_labels) for p in parts)
        # A leaf where the base never was right has the labels that are most frequent anywhere.
        order = np.argsort(-self.label_counts_, kind="stable")
        frequent = np.sort(order[: self.max_leaf_labels])
        lists = []
        with phase("choosing labels", len(parts), "nodes") as advance:
            for node, labels in enumerate(stream(choose_labels, tasks, resolve_jobs(self.n_jobs))):
                is_leaf = self.partition_.left[node] < 0
                lists.append(frequent if is_leaf and len(labels) == 0 else labels)
                advance(1)
        indptr = np.cumsum([0, *map(len, lists)], dtype=np.int32)
        indices = np.concatenate(lists).astype(np.int32)
        return csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=shape)

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        X = self._scaled(X)
        n_jobs = resolve_jobs(self.n_jobs)
        leaf = self.partition_.leaves(X, n_jobs).ravel()
        labels = np.empty((X.shape[0], k), dtype=np.int32)
        scores = np.empty((X.shape[0], k), dtype=np.float32)
        csr, lists = as_csr(X), self.leaf_labels_
        model = frozen(self.coef_, self.intercept_, lists.indptr, lists.indices)
        tasks = [
            (*csr, *model, leaf, labels, scores, *span) for span in balanced_spans(csr[0], n_jobs)
        ]
        run(rank_listed, tasks, n_jobs)
        return labels, scores

    def _scaled(self, X: Matrix) -> Matrix:
        return scaled_rows(X) if self.normalize and self.base == "linear" else X

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.array("coef_", self.coef_, n_features, n_labels)
        check.array("intercept_", self.intercept_, n_labels)
        check.kind("partition_", self.partition_, RowForest)
        self.partition_.check_stored(check, n_features)
        check.array("root", self.partition_.root, 1, dtype="int32")
        check.sparse("leaf_labels_", self.leaf_labels_, len(self.partition_.left), n_labels)

    def _check_parameters(self) -> None:
        if self.base not in ("linear", "naive-bayes"):
            raise ValueError(f"base must be linear or naive-bayes; got {self.base!r}")
        check_positive("C", self.C)
        for name in ("max_leaf_size", "max_leaf_labels", "top_k"):
            check_at_least(name, getattr(self, name), 1)


def naive_bayes(X: Matrix, Y: csr_array) -> tuple[F32, F32]:
    """Weights (n_features, n_labels) and intercepts: log odds of a label under multinomial rows.

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
    """Logarithm of the smoothed share of each feature (row) in the counts of each label."""
    # Differences of sums may be a little below zero; features may be all zero.
    smoothed = np.maximum(counts, 0.0) + max(smoothing, np.float32(1e-6))
    return np.asarray(np.log(smoothed / smoothed.sum(axis=0)), dtype=np.float32)


def choose_labels(ranked: I32, right: Bools, top_k: int, most: int) -> I32:
    """At most `most` labels with which the ranker has the best precision on some rows.

    `ranked` (n_rows, n_ranked) are the labels of each row, best first, and `right` says which are
    true. Maximises the relaxed precision by Frank-Wolfe steps (see `relaxed_precision`), the
    first of which picks the labels that are right most often.
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
    """True labels among the best `top_k` of a set of labels, relaxed, and the gradient.

    alpha (n_labels,) in [0, 1] says how much a label is in the set. A true label counts if it is
    in and fewer than `top_k` labels that are in rank above it:

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
    indptr: Ints,
    indices: Ints,
    data: F32,
    coef: F32,
    intercept: F32,
    list_ptr: Ints,
    listed: Ints,
    which: Ints,
    labels: I32,
    scores: F32,
    row0: int,
    row1: int,
) -> None:
    """Top k of ``x[i] @ coef + intercept`` among the labels of list ``which[i]`` alone."""
    k = labels.shape[1]
    widest = np.max(list_ptr[1:] - list_ptr[:-1])
    s = np.empty((1, widest), dtype=np.float32)
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
