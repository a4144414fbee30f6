"""Low-rank plus sparse: a sparse correction, label by label, of scores on a shortlist.

Low-rank scores cannot express that one word decides one label. The paper's discussion proposes
direct connections from the inputs to the labels, with a penalty of their own. Each row has a
shortlist of candidate labels with low-rank scores o (log odds), and the score becomes

    s(x, l) = a o(x, l) + b_l + w_l'x,   w_l sparse

The term of a label is fitted only to rows on whose shortlist it is, so the cost grows with rows
times shortlist, and not with the number of labels. The scores of training rows must come from a
model that has not seen the row (`out_of_fold`): those of rows that were trained on are too good,
and leave nothing to correct. Adding the true labels that a shortlist misses is a large gain with
one label per row (WordNet) and a large loss with nineteen (Delicious), because it favours labels
that are often missed.

Mineiro, Karampatziakis: Fast label embeddings via randomized linear algebra, 2015 (Discussion).
Shalev-Shwartz, Zhang: Accelerated proximal stochastic dual coordinate ascent for regularized
loss minimization, Mathematical Programming 2016 (the elastic net in the dual).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logit
from sklearn.linear_model import LogisticRegression

from labelry.arrays import F32, Bools, Ints, Rng
from labelry.linalg.balanced_clusters import Sets
from labelry.linalg.dual_descent import row_energies
from labelry.linalg.matrices import Matrix
from labelry.linalg.parallel import balanced_spans, run_spans, stream
from labelry.metrics import ndcg_at_k
from labelry.metrics.matching import match
from labelry.progress import phase
from labelry.ranking import correction_kernels as kernels
from labelry.ranking.evidence import as_probabilities, best_candidates
from labelry.ranking.hold_out import folds, validation_split

Shortlist = tuple[Ints, F32]  # labels (n, m), -1 for none, and their scores (n, m)
TopK = Callable[[Ints], Shortlist]  # row numbers -> their shortlists

# Not tuned, any of them.
_LEAST = 1e-4  # distance from 0 and 1 below which probabilities or shares count as equal
_STRENGTHS = (3.0, 1.0, 0.3, 0.1)  # values of the regularization that held-out rows choose from
_USUAL = 0.3  # regularization while `add_missed` is chosen
_PARTS = 64  # spans of labels: enough to balance threads and to show progress


class CorrectionSettings(NamedTuple):
    """How to fit the sparse part; what is None is chosen on a fifth of the rows."""

    # Weight of the squared weights and intercepts. Many rows per label ask for more.
    regularization: float | None = None
    add_missed: bool | None = None  # add the true labels missed, with the lowest score of the row
    sparsity: float = 0.3  # larger keeps fewer weights; 0 keeps all
    tolerance: float = 0.05  # violation of the optimality conditions, in log odds, that ends it
    max_sweeps: int = 10  # most passes over the rows of a label


class Correction(NamedTuple):
    """Corrected log odds ``scale * o + intercept[l] + x @ weights[:, l]``."""

    weights: Annotated[csr_array, "n_features", "n_labels"]  # by feature: each is looked up once
    intercept: Annotated[F32, "n_labels"]
    scale: float

    def rescore(self, X: Matrix, candidates: Ints, offsets: F32, n_jobs: int = 1) -> F32:
        """Return corrected log odds (n, m) of candidates; minus infinity where there is none."""
        scores = np.full(candidates.shape, -np.inf, dtype=np.float32)
        rows, W = ((A.indptr, A.indices, A.data) for A in (csr_array(X), self.weights))
        offsets = (np.float32(self.scale) * offsets).astype(np.float32)
        args = (rows, W, self.intercept, candidates, offsets, scores)
        run_spans(kernels.rescore_rows, args, len(scores), n_jobs)
        return scores

    def rerank(
        self, X: Matrix, candidates: Ints, offsets: F32, k: int, n_jobs: int = 1
    ) -> Shortlist:
        """Return the k best candidates of each row after correction, and their probabilities.

        Places without a candidate get label -1 and score minus infinity.
        """
        log_odds = self.rescore(X, candidates, offsets, n_jobs)
        labels, best = best_candidates(candidates, log_odds, k, n_jobs)
        return labels, as_probabilities(best)


def log_odds(scores: F32) -> F32:
    """Return the log odds of probabilities or shares, which are held to [0.0001, 0.9999]."""
    return logit(np.clip(scores, _LEAST, 1 - _LEAST, dtype=np.float64)).astype(np.float32)


def out_of_fold(
    n_rows: int,
    fit_on: Callable[[Ints], TopK],
    *,
    n_folds: int = 3,
    groups: Ints | None = None,
    rng: Rng,
) -> Shortlist:
    """Return shortlists of all rows, each from a model that has not seen the row or its group.

    ``fit_on(rows)`` learns from those rows; what it returns gives shortlists of other rows.

    >>> Y = np.array([0, 0, 0, 1, 1, 1])
    >>> def fit_on(rows):  # the share of label 1 among the rows seen
    ...     share = np.float32(Y[rows].mean())
    ...     return lambda new: (np.ones((len(new), 1), np.int32), np.full((len(new), 1), share))
    >>> labels, scores = out_of_fold(6, fit_on, n_folds=6, rng=np.random.default_rng(0))
    >>> [round(float(v), 1) for v in scores.ravel()]
    [0.6, 0.6, 0.6, 0.4, 0.4, 0.4]
    """
    splits = folds(n_rows, n_folds, rng, groups=groups)
    parts = []
    with phase("scoring held-out rows", len(splits), "folds") as advance:
        for training, held_out in splits:
            parts.append((held_out, *fit_on(training)(held_out)))
            advance(1)
    rows, labels, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(rows)
    return labels[order], scores[order]


def fit_correction(
    X: Matrix,
    Y: csr_array,
    candidates: Ints,
    offsets: F32,
    settings: CorrectionSettings = CorrectionSettings(),  # noqa: B008
    *,
    groups: Ints | None = None,
    n_jobs: int = 1,
    rng: Rng,
) -> Correction:
    """Fit the sparse part to what the low-rank scores of the shortlists leave unexplained.

    For each label, over the rows i on whose shortlist it is, y_i = +1 or -1:

        minimise  sum_i log(1 + exp(-y_i s_i)) + regularization/2 ||w||^2 + sparsity ||w||_1

    The scale a and the mean of b are fitted first, without w. A label without positive rows keeps
    its scores, because there is only one class to learn from. `candidates` (n, m) has no label
    twice in a row; `offsets` are their log odds (`log_odds`), from a model that has not seen the
    row. Rows of one of the `groups` are held out together.

    Time: 4 flops for each candidate, nonzero of its row and sweep (about four sweeps), and six
    times as much with both choices. Memory: about 50 bytes a candidate while they are sorted,
    and n_features floats for each thread.
    """
    if offsets.shape != candidates.shape:
        shapes = f"{candidates.shape} and {offsets.shape}"
        raise ValueError(f"candidates and offsets must have the same shape, got {shapes}")
    seed = int(rng.integers(1, 2**31))
    problem = _Problem(csr_array(X), Y, candidates, offsets, seed, n_jobs)
    return problem.fit(_chosen(problem, settings, groups, rng))


class _Problem(NamedTuple):
    """Rows with their labels and shortlists."""

    X: csr_array
    Y: csr_array
    candidates: Ints
    offsets: F32
    seed: int
    n_jobs: int

    def rows(self, rows: Ints) -> _Problem:
        parts = {name: getattr(self, name)[rows] for name in ("X", "Y", "candidates", "offsets")}
        return self._replace(**parts)

    def fit(self, settings: CorrectionSettings) -> Correction:
        """Return the correction; nothing is left to choose in the settings."""
        X = self.X
        pairs, scale, shift = _pairs(self.Y, self.candidates, self.offsets, settings.add_missed)
        fixed = ((X.indptr, X.indices, X.data), X.shape[1], row_energies(X.indptr, X.data), pairs)
        strengths = (float(settings.regularization or _USUAL), float(settings.sparsity))
        stop = (float(settings.tolerance), settings.max_sweeps)
        tasks = (
            (*fixed, *strengths, *stop, self.seed, *span)
            for span in balanced_spans(pairs.starts, _PARTS)
        )
        parts = []
        with phase("training the correction", self.Y.shape[1], "labels") as advance:
            for part in stream(kernels.train_labels, tasks, self.n_jobs):
                parts.append(part)
                advance(len(part[0]))
        intercept, counts, features, values = (np.concatenate(p) for p in zip(*parts, strict=True))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        by_label = csr_array((values, features, indptr), shape=(len(counts), X.shape[1]))
        weights = csr_array(by_label.T)
        return Correction(weights, (intercept + shift).astype(np.float32), scale)

    def quality(self, correction: Correction) -> float:
        """Return nDCG@5 after the correction."""
        k = min(5, self.candidates.shape[1])
        best = correction.rerank(self.X, self.candidates, self.offsets, k, self.n_jobs)[0]
        return ndcg_at_k(self.Y, best, k)


def _chosen(
    problem: _Problem, settings: CorrectionSettings, groups: Ints | None, rng: Rng
) -> CorrectionSettings:
    """Return the settings with what is None chosen on a fifth of the rows, one after the other."""
    n_rows = problem.X.shape[0]
    split = validation_split(n_rows, n_rows // 5, rng, groups=groups)
    if not len(split.held_out):
        return settings
    others, held_out = (problem.rows(np.sort(part)) for part in split)

    def best(tried: list[CorrectionSettings]) -> CorrectionSettings:
        return max(tried, key=lambda each: held_out.quality(others.fit(each)))

    if settings.add_missed is None:
        settings = best([settings._replace(add_missed=missed) for missed in (False, True)])
    if settings.regularization is None:
        settings = best([settings._replace(regularization=value) for value in _STRENGTHS])
    return settings


def _pairs(
    Y: csr_array, candidates: Ints, offsets: F32, add_missed: bool | None
) -> tuple[kernels.Pairs, float, float]:
    """Return what to learn from, and the scale and shift that made its log odds of `offsets`."""
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
    order, starts = Sets.of(labels, Y.shape[1])
    pairs = kernels.Pairs(
        starts,
        rows[order].astype(np.int32),
        signs[order].astype(np.int8),
        (scale * scores[order] + shift).astype(np.float32),
    )
    return pairs, scale, shift


def _calibrate(offsets: F32, hits: Bools) -> tuple[float, float]:
    """Return scale a and shift b of the best log odds ``a * offset + b``, over all candidates."""
    if hits.all() or not hits.any():
        return 1.0, 0.0
    bounded = np.clip(offsets[:, None], -kernels.SURE, kernels.SURE)
    fit = LogisticRegression(solver="newton-cholesky").fit(bounded, hits)
    return float(fit.coef_[0, 0]), float(fit.intercept_[0])
