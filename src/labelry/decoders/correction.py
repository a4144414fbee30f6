"""Low-rank plus sparse: a sparse correction, label by label, of scores on a shortlist.

Low-rank scores cannot say that one word decides one label; for that the paper's discussion
proposes separately regularised direct connections from the inputs. Each row comes with a
shortlist of candidate labels and their low-rank scores o (log odds), and the score becomes

    s(x, l) = a o(x, l) + b_l + w_l'x,   w_l sparse

A label's problem has only the rows on whose shortlist it is, so the cost grows with rows times
shortlist and not with the number of labels. Two things decide whether it helps:

- The scores of training rows must come from a model that has not seen the row (`out_of_fold`).
  Scores of rows that were trained on are too good: they leave nothing to correct.
- True labels that a shortlist misses teach labels with few rows, but adding them favours labels
  that are often missed. With one label per row that is a large gain (WordNet), with nineteen a
  large loss (Delicious): `fit_correction` tries both on held-out rows.

References
----------
Mineiro, Karampatziakis: Fast label embeddings via randomized linear algebra, 2015 (Discussion).
Shalev-Shwartz, Zhang: Accelerated proximal stochastic dual coordinate ascent for regularized
loss minimization, Mathematical Programming 2016 (the elastic net in the dual).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from labelry.checks import StoredCheck
from labelry.decoders import correction_kernels as kernels
from labelry.linalg.dual_descent import row_energies
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import balanced_spans, resolve_jobs, run, spans, stream
from labelry.linalg.topk import topk
from labelry.metrics import ndcg_at_k
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.state import storable

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Shortlist = tuple[Ints, F32]  # labels (n, m), -1 for none, and their scores (n, m)
TopK = Callable[[Ints], Shortlist]  # row numbers -> their shortlists

_LEAST = 1e-4  # probability or share of votes below which differences say nothing
_STRENGTHS = (3.0, 1.0, 0.3, 0.1)  # of the regularization, to choose from
_USUAL = 0.3  # where there is no choice yet
_PARTS = 64  # spans of labels: enough to balance threads and to show progress


@storable
class Correction(NamedTuple):
    """Corrected log odds ``scale * o + intercept[l] + x @ weights[:, l]``.

    Attributes
    ----------
    weights : csr_array (n_features, n_labels)
        By feature: each feature of a row is looked up once, for all its candidates.
    intercept : array (n_labels,)
    scale : float
    """

    weights: csr_array
    intercept: F32
    scale: float

    def check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        """A ValueError unless it has weights of so many features and labels."""
        check.sparse("weights", self.weights, n_features, n_labels)
        check.array("intercept", self.intercept, n_labels)
        check.number("scale", self.scale)

    def rescore(self, X: Matrix, candidates: Ints, offsets: F32, n_jobs: int = 1) -> F32:
        """Corrected log odds (n, m) of the candidates; minus infinity where there is none."""
        X = csr_array(X)
        scores = np.full(candidates.shape, -np.inf, dtype=np.float32)
        W = (self.weights.indptr, self.weights.indices, self.weights.data, self.intercept)
        offsets = (np.float32(self.scale) * offsets).astype(np.float32)
        args = (X.indptr, X.indices, X.data, *W, candidates, offsets, scores)
        run(kernels.rescore_rows, [(*args, *span) for span in spans(len(scores), n_jobs)], n_jobs)
        return scores

    def rerank(
        self, X: Matrix, candidates: Ints, offsets: F32, k: int, n_jobs: int = 1
    ) -> Shortlist:
        """The k best candidates of each row after correction, and their probabilities.

        Places without a candidate get label -1 and score minus infinity.
        """
        places, scores = topk(self.rescore(X, candidates, offsets, n_jobs), k, n_jobs)
        labels = np.take_along_axis(candidates, np.maximum(places, 0), axis=1)
        none = places < 0
        return np.where(none, -1, labels), np.where(none, scores, expit(scores))


def log_odds(scores: F32) -> F32:
    """Log odds of probabilities or shares of votes, which are held to [0.0001, 0.9999].

    Examples
    --------
    >>> [round(float(v), 2) for v in log_odds(np.array([0.0, 0.5, 1.0], dtype=np.float32))]
    [-9.21, 0.0, 9.21]
    """
    return logit(np.clip(scores, _LEAST, 1 - _LEAST, dtype=np.float64)).astype(np.float32)


def out_of_fold(
    n_rows: int,
    fit_on: Callable[[Ints], TopK],
    *,
    n_folds: int = 3,
    rng: np.random.Generator,
) -> Shortlist:
    """Shortlists of all rows, each from a model that has not seen the row.

    Parameters
    ----------
    n_rows : int
        At least 2.
    fit_on : function
        ``fit_on(rows)`` learns from those rows; what it returns gives shortlists of other rows.
    n_folds : int
        Models to fit, each on all rows but one fold. More folds give scores that are more like
        those of the final model, for proportionally more time.
    rng : numpy.random.Generator

    Examples
    --------
    >>> Y = np.array([0, 0, 0, 1, 1, 1])
    >>> def fit_on(rows):  # the share of label 1 among the rows seen
    ...     share = np.float32(Y[rows].mean())
    ...     return lambda new: (np.ones((len(new), 1), np.int32), np.full((len(new), 1), share))
    >>> labels, scores = out_of_fold(6, fit_on, n_folds=6, rng=np.random.default_rng(0))
    >>> [round(float(v), 1) for v in scores.ravel()]
    [0.6, 0.6, 0.6, 0.4, 0.4, 0.4]
    """
    if n_rows < 2:
        raise ValueError(f"out-of-fold scores need at least 2 rows, got {n_rows}")
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2, got {n_folds}")
    fold = rng.permutation(np.arange(n_rows) % n_folds)
    parts = []
    with phase("out-of-fold scores", min(n_folds, n_rows), "folds") as advance:
        for f in range(min(n_folds, n_rows)):
            unseen = np.flatnonzero(fold == f)
            parts.append((unseen, *fit_on(np.flatnonzero(fold != f))(unseen)))
            advance(1)
    rows, labels, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(rows)
    return labels[order], scores[order]


def fit_correction(
    X: Matrix,
    Y: csr_array,
    candidates: Ints,
    offsets: F32,
    *,
    regularization: float | None = None,
    add_missed: bool | None = None,
    sparsity: float = 0.3,
    tolerance: float = 0.05,
    max_sweeps: int = 10,
    n_jobs: int | None = None,
    rng: np.random.Generator,
) -> Correction:
    """Fit the sparse part to what the low-rank scores of the shortlists leave unexplained.

    For each label, over the rows i on whose shortlist it is, y_i = +1 or -1:

        minimise  sum_i log(1 + exp(-y_i s_i)) + regularization/2 ||w||^2 + sparsity ||w||_1

    The scale a and the mean of b are fitted first, without w. A label without positive rows is
    left as it is: there is only one class to learn from.

    Parameters
    ----------
    X : csr_array or array (n, n_features)
    Y : csr_array (n, n_labels)
    candidates : integer array (n, m)
        Shortlist of each row, -1 for none; no label twice in a row.
    offsets : float32 array (n, m)
        Log odds (`log_odds`) of the candidates, from a model that has not seen the row.
    regularization : float, optional
        Larger keeps closer to the low-rank scores; it holds for b_l too. By default the best of
        3, 1, 0.3 and 0.1 on a fifth of the rows: many rows per label ask for more.
    add_missed : bool, optional
        Add the true labels that a shortlist missed, with its lowest score. It teaches labels of
        few rows their words, but favours labels that are often missed; by default what is
        better on a fifth of the rows.
    sparsity : float
        Larger keeps fewer weights; 0 keeps all.
    tolerance : float
        Largest violation of the optimality conditions, in log odds, at which a label is done.
    max_sweeps : int
        Most passes over the rows of a label.
    n_jobs : int, optional
        Threads; all cores when None. The result does not depend on it.
    rng : numpy.random.Generator

    Notes
    -----
    Time: 4 flops for each candidate, nonzero of its row and sweep (about four sweeps), and six
    times as much with both choices. Memory: about 50 bytes a candidate while they are sorted,
    and n_features floats for each thread.
    """
    strength = None if regularization is None else float(regularization)
    options = _Options(strength, add_missed, float(sparsity), float(tolerance), max_sweeps)
    options.check()
    if offsets.shape != candidates.shape:
        shapes = f"{candidates.shape} and {offsets.shape}"
        raise ValueError(f"candidates and offsets must have the same shape, got {shapes}")
    problem = _Problem(
        csr_array(X), Y, candidates, offsets, int(rng.integers(1, 2**31)), resolve_jobs(n_jobs)
    )
    return problem.fit(_chosen(problem, options, rng))


class _Options(NamedTuple):
    """Parameters of `fit_correction`; None where held-out rows are to choose."""

    regularization: float | None
    add_missed: bool | None
    sparsity: float
    tolerance: float
    max_sweeps: int

    def check(self) -> None:
        for name in ("regularization", "tolerance"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if not self.sparsity >= 0:
            raise ValueError(f"sparsity must be at least 0, got {self.sparsity}")
        if self.max_sweeps < 1:
            raise ValueError(f"max_sweeps must be at least 1, got {self.max_sweeps}")


class _Problem(NamedTuple):
    """Rows with their labels and shortlists."""

    X: csr_array
    Y: csr_array
    candidates: Ints
    offsets: F32
    seed: int
    n_jobs: int

    def rows(self, rows: Ints) -> _Problem:
        return self._replace(
            X=self.X[rows],
            Y=self.Y[rows],
            candidates=self.candidates[rows],
            offsets=self.offsets[rows],
        )

    def fit(self, options: _Options) -> Correction:
        """The correction, once `options` are all given."""
        X = self.X
        energy = row_energies(X.indptr, X.data)
        pairs, scale, shift = _pairs(self.Y, self.candidates, self.offsets, options.add_missed)
        fixed = (X.indptr, X.indices, X.data, X.shape[1], energy, *pairs)
        numbers = (options.regularization, options.sparsity, options.tolerance, options.max_sweeps)
        spans_of_labels = balanced_spans(pairs.starts, _PARTS)
        tasks = ((*fixed, *numbers, self.seed, *span) for span in spans_of_labels)
        parts = []
        with phase("sparse correction", self.Y.shape[1], "labels") as advance:
            for part in stream(kernels.train_labels, tasks, self.n_jobs):
                parts.append(part)
                advance(len(part[0]))
        intercept, counts, features, values = (np.concatenate(p) for p in zip(*parts, strict=True))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        by_label = csr_array((values, features, indptr), shape=(len(counts), X.shape[1]))
        weights = csr_array(by_label.T)
        return Correction(weights, (intercept + shift).astype(np.float32), scale)

    def quality(self, correction: Correction) -> float:
        """nDCG@5 after the correction."""
        k = min(5, self.candidates.shape[1])
        best = correction.rerank(self.X, self.candidates, self.offsets, k, self.n_jobs)[0]
        return ndcg_at_k(self.Y, best, k)


def _chosen(problem: _Problem, options: _Options, rng: np.random.Generator) -> _Options:
    """The options with what was not given chosen on a fifth of the rows, one after the other."""
    order = rng.permutation(problem.X.shape[0])
    n_judges = len(order) // 5
    if not n_judges:
        return options._replace(
            regularization=options.regularization or _USUAL, add_missed=bool(options.add_missed)
        )
    judges, others = (problem.rows(np.sort(part)) for part in np.split(order, [n_judges]))

    def best(tried: list[_Options]) -> _Options:
        return max(tried, key=lambda options: judges.quality(others.fit(options)))

    if options.add_missed is None:
        usual = options._replace(regularization=options.regularization or _USUAL)
        missed = best([usual._replace(add_missed=missed) for missed in (False, True)]).add_missed
        options = options._replace(add_missed=missed)
    if options.regularization is None:
        options = best([options._replace(regularization=value) for value in _STRENGTHS])
    return options


class _Pairs(NamedTuple):
    """Rows and labels to learn from, by label: those of label l are ``starts[l]:starts[l + 1]``."""

    starts: Ints
    rows: Ints
    signs: NDArray[np.int8]  # +1 where the row has the label, -1 otherwise
    offsets: F32  # log odds before the correction


def _pairs(
    Y: csr_array, candidates: Ints, offsets: F32, add_missed: bool | None
) -> tuple[_Pairs, float, float]:
    """What to learn from, and the scale and shift that turned `offsets` into its log odds."""
    matched = match(Y, candidates)
    Y, hits = matched.Y, matched.hits
    listed = candidates >= 0
    scale, shift = _calibrate(offsets[listed], hits[listed])
    rows = np.nonzero(listed)[0]
    labels, signs, scores = candidates[listed], np.where(hits[listed], 1, -1), offsets[listed]
    if add_missed:
        true = matched.true_rows * Y.shape[1] + Y.indices
        found = (rows * Y.shape[1] + labels)[signs > 0]
        new_rows, new_labels = np.divmod(np.setdiff1d(true, found), Y.shape[1])
        lowest = np.where(listed, offsets, np.inf).min(axis=1, initial=np.inf)[new_rows]
        real = np.isfinite(lowest)  # a row without candidates has nothing to correct
        rows = np.concatenate([rows, new_rows[real]])
        labels = np.concatenate([labels, new_labels[real]])
        signs = np.concatenate([signs, np.ones(real.sum(), dtype=int)])
        scores = np.concatenate([scores, lowest[real]])
    order = np.argsort(labels, kind="stable")
    pairs = _Pairs(
        np.searchsorted(labels[order], np.arange(Y.shape[1] + 1)),
        rows[order].astype(np.int32),
        signs[order].astype(np.int8),
        (scale * scores[order] + shift).astype(np.float32),
    )
    return pairs, scale, shift


def _calibrate(offsets: F32, hits: NDArray[np.bool_]) -> tuple[float, float]:
    """Scale a and shift b of the best log odds ``a * offset + b``, over all candidates."""
    if hits.all() or not hits.any():
        return 1.0, 0.0
    bounded = np.clip(offsets[:, None], -kernels.SURE, kernels.SURE)
    fit = LogisticRegression(solver="newton-cholesky").fit(bounded, hits)
    return float(fit.coef_[0, 0]), float(fit.intercept_[0])
