"""Systems that learn a space for rows and labels by ranking true labels above wrong ones."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from labelry.checks import StoredCheck, check_at_least, check_one_of, check_positive
from labelry.embeddings.joint import JointMap, fit_joint, random_start, unit_start
from labelry.embeddings.laplacian import laplacian_eigenmaps
from labelry.embeddings.rembrandt import rembrandt
from labelry.embeddings.violations import LabelViolations, Negatives, Violations
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows
from labelry.linalg.solve import LinearMap, Ridge, usual_ridge
from labelry.linalg.topk import topk_blocks
from labelry.metrics import ndcg_at_k
from labelry.progress import phase
from labelry.state import storable
from labelry.systems.tree_choice import surrogate_confusion

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Start = Literal["rembrandt", "random"]

_HELD_OUT = 20  # one row in so many is held out to find the best epoch
_MOST_HELD_OUT = 2000
_FEWEST_HELD_OUT = 30  # with fewer rows to judge by, all epochs are made
_JUDGED = 5  # labels of a row that count
_LENGTH = 4.0  # of sequential label vectors, for a margin of 1
_N_CONFUSED = 10  # labels of a row that count as confused with the true ones

storable(LinearMap)


class RankingEmbedding(LabelRanker):
    """What the systems here share: rows held out, prediction, and a threshold for scores.

    Scores are relative to the threshold at which rows have as many labels as they should, on
    average; above zero is a yes.
    """

    threshold: ClassVar[float] = 0.0

    embedding_dim: int
    rate: float
    regularization: float
    max_epochs: int
    normalize: bool

    regressor_: LinearMap
    label_embedding_: F32

    @abstractmethod
    def _ranked(self, Z: F32, k: int) -> tuple[Ints, F32]:
        """The k best labels of embedded rows, by the present regressor and vectors."""

    def embed(self, X: Any) -> F32:
        """Rows in the space of the labels, (n_rows, embedding_dim)."""
        check_is_fitted(self)
        with self._threads():
            return self._embed(self._features(X))

    def _learn(
        self,
        X: Matrix,
        Y: csr_array,
        start: JointMap,
        violations: Violations,
        rng: np.random.Generator,
        *,
        fixed_vectors: bool = False,
    ) -> None:
        """Fit on most rows; the others tell which epoch was best, and where the threshold is."""
        n = X.shape[0]
        n_judges = min(n // _HELD_OUT, _MOST_HELD_OUT)
        order = rng.permutation(n)
        held_out, rows = order[:n_judges], order[n_judges:]
        if n_judges < _FEWEST_HELD_OUT:
            held_out, rows = order[:_MOST_HELD_OUT], order
        X_held, Y_held = X[held_out], Y[held_out]
        k = min(_JUDGED, Y.shape[1])

        def judge(found: JointMap) -> float:
            self._set(found)
            return self._judged(found.regressor(X_held, resolve_jobs(self.n_jobs)), Y_held, k)

        found = fit_joint(
            X,
            start,
            violations,
            rows=rows,
            judge=judge if len(rows) < n else None,
            rate=self.rate,
            regularization=self.regularization,
            max_epochs=self.max_epochs,
            fixed_vectors=fixed_vectors,
            rng=rng,
            n_jobs=resolve_jobs(self.n_jobs),
        )
        judge(found)
        self.score_threshold_ = self._threshold(X_held, Y_held)

    def _set(self, found: JointMap) -> None:
        self.regressor_, self.label_embedding_ = found

    def _judged(self, Z: F32, Y: csr_array, k: int) -> float:
        """How well the present vectors rank the labels of embedded rows."""
        return ndcg_at_k(Y, self._ranked(Z, k)[0], k)

    def _threshold(self, X: Matrix, Y: csr_array) -> float:
        """The score that as many predictions reach as there are labels."""
        k = min(100, Y.shape[1])
        scores = self._ranked(self.regressor_(X, resolve_jobs(self.n_jobs)), k)[1]
        scores = -np.sort(-scores[np.isfinite(scores)])  # largest first
        if not len(scores):
            return 0.0
        padded = np.concatenate([[scores[0] + 1], scores, [scores[-1] - 1]])
        n = min(Y.nnz, len(scores))
        return float(padded[n] + padded[n + 1]) / 2

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        labels, scores = self._ranked(self._embed(X), k)
        return labels, scores - np.float32(self.score_threshold_)

    def _embed(self, X: Matrix) -> F32:
        return self.regressor_(self._scaled(X), resolve_jobs(self.n_jobs))

    def _scaled(self, X: Matrix) -> Matrix:
        return scaled_rows(X) if self.normalize else X

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        dim = check.width("label_embedding_", self.label_embedding_)
        check.array("label_embedding_", self.label_embedding_, n_labels, dim)
        self._check_map(check, n_features, dim)

    def _check_map(self, check: StoredCheck, n_features: int, dim: int) -> None:
        check.kind("regressor_", self.regressor_, LinearMap)
        self.regressor_.check_stored(check, n_features, dim)
        check.number("score_threshold_", self.score_threshold_)

    def _check_parameters(self) -> None:
        for name in ("embedding_dim", "max_epochs"):
            check_at_least(name, getattr(self, name), 1)
        check_positive("rate", self.rate)
        check_at_least("regularization", self.regularization, 0)


def rembrandt_start(
    X: Matrix, Y: csr_array, dim: int, n_jobs: int | None, rng: np.random.Generator
) -> JointMap:
    """W and V of the randomized embedding: a regressor, and the label vectors it predicts."""
    ridge = Ridge(Rows(X, Y, n_jobs=n_jobs))
    V = rembrandt(ridge, dim, rng=rng).vectors
    if not V.shape[1]:  # no labels at all, or no features
        V = np.zeros((Y.shape[1], 1), dtype=np.float32)
    with phase("regressor"):
        return JointMap(ridge.solve(V, usual_ridge(ridge)), V)


class JointEmbedding(RankingEmbedding):
    """Rows and labels in one space, learnt together: the non-convex label embedding.

    Stochastic gradient descent on W and V so that (W x)'V_y exceeds (W x)'V_j by a margin for each
    true label y and wrong label j. More accurate than embeddings that are found before the
    regressor; choose it for a small model with fast prediction when there are many rows per label.

    Parameters
    ----------
    embedding_dim : int
        Dimensions of the space. Larger is more accurate up to a point, and slower.
    negatives : {"auto", "hardest", "sampled"}
        The wrong label that each true label is set against: the best-scored one (the paper's
        slack), or the first in random order that comes too close. "auto" takes the hardest if
        rows have one label each; of many labels per row the best-scored wrong one is often
        only missing.
    start : {"rembrandt", "random"}
        Where to begin: from the randomized embedding, or from random vectors as in the paper.
    rate : float
        Length of the first steps relative to W and V. Larger learns faster and less finely.
    regularization : float
        Shrinking of W. Larger fits the training rows less closely.
    max_epochs : int
        Most passes over the rows; the best is kept, by held-out rows.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    regressor_ : LinearMap
        From features to the space.
    label_embedding_ : array (n_labels, embedding_dim)
        Vectors within the unit ball.
    score_threshold_ : float

    Notes
    -----
    An epoch costs O(n_rows embedding_dim (n_labels + nonzeros of a row)). Beyond 16,384 labels a
    batch of rows looks at a random choice of as many.

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.1.

    Examples
    --------
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> JointEmbedding().fit(X, list("aabbcc")).predict(X[::2]).tolist()
    ['a', 'b', 'c']
    """

    system: ClassVar[str] = "joint-embedding"

    def __init__(
        self,
        *,
        embedding_dim: int = 100,
        negatives: Literal["auto", "hardest", "sampled"] = "auto",
        start: Start = "rembrandt",
        rate: float = 0.3,
        regularization: float = 0.1,
        max_epochs: int = 20,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.negatives = negatives
        self.start = start
        self.rate = rate
        self.regularization = regularization
        self.max_epochs = max_epochs
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        check_one_of("start", self.start, ("rembrandt", "random"))
        X = self._scaled(X)
        if self.start == "rembrandt":
            start = unit_start(rembrandt_start(X, Y, self.embedding_dim, self.n_jobs, rng))
        else:
            start = random_start(X.shape[1], Y.shape[1], self.embedding_dim, rng)
        violations = LabelViolations(
            Y, self._negatives(Y), rng=rng, n_jobs=resolve_jobs(self.n_jobs)
        )
        self._learn(X, Y, start, violations, rng)

    def _negatives(self, Y: csr_array) -> Negatives:
        check_one_of("negatives", self.negatives, ("auto", "hardest", "sampled"))
        if self.negatives != "auto":
            return self.negatives
        return "hardest" if np.diff(Y.indptr).mean() < 1.5 else "sampled"

    def _ranked(self, Z: F32, k: int) -> tuple[Ints, F32]:
        V = self.label_embedding_
        return topk_blocks(lambda rows: Z[rows] @ V.T, len(Z), len(V), k, resolve_jobs(self.n_jobs))

    def _scores(self, X: Matrix) -> F32:
        return self._embed(X) @ self.label_embedding_.T - np.float32(self.score_threshold_)


class WSABIE(JointEmbedding):
    """Joint embedding with the WARP loss, which cares most about the top of the ranking.

    As `JointEmbedding`; wrong labels are drawn until one comes too close to the true label, and the
    number of draws N gives the weight 1 + 1/2 + ... + 1/r of the step, r = (n_labels - 1) / N.

    Parameters
    ----------
    embedding_dim : int
        Dimensions of the space. Larger is more accurate up to a point, and slower.
    start : {"rembrandt", "random"}
        Where to begin: from the randomized embedding, or from random vectors as in the paper.
    rate : float
        Length of the first steps relative to W and V. Larger learns faster and less finely.
    regularization : float
        Shrinking of W. Larger fits the training rows less closely.
    max_epochs : int
        Most passes over the rows; the best is kept, by held-out rows.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    References
    ----------
    Weston, Bengio, Usunier: WSABIE: scaling up to large vocabulary image annotation, 2011.

    Examples
    --------
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> WSABIE().fit(X, list("aabbcc")).predict(X[::2]).tolist()
    ['a', 'b', 'c']
    """

    system: ClassVar[str] = "wsabie"

    def __init__(
        self,
        *,
        embedding_dim: int = 100,
        start: Start = "rembrandt",
        rate: float = 0.3,
        regularization: float = 0.1,
        max_epochs: int = 20,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.start = start
        self.rate = rate
        self.regularization = regularization
        self.max_epochs = max_epochs
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _negatives(self, Y: csr_array) -> Negatives:
        return "warp"


class SequentialEmbedding(RankingEmbedding):
    """Label vectors from confusions first, then the map of rows: a sequence of convex problems.

    One-vs-rest classifiers tell which labels are confused; Laplacian eigenmaps put those close
    together; and a max-margin W maps rows nearer to their own label than to any other
    (constraint 6). It scores by distance. Here for comparison: `JointEmbedding` is more accurate
    and needs no one-vs-rest classifiers.

    Parameters
    ----------
    embedding_dim : int
        Dimensions of the space. Larger is more accurate, and slower.
    rate : float
        Length of the first steps relative to W. Larger learns faster and less finely.
    regularization : float
        Shrinking of W. Larger fits the training rows less closely.
    max_epochs : int
        Most passes over the rows; the best is kept, by held-out rows.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    regressor_ : LinearMap
        From features to the space.
    label_embedding_ : array (n_labels, embedding_dim)
    score_threshold_ : float

    References
    ----------
    Bengio, Weston, Grangier: Label embedding trees for large multi-class tasks, 2010, section 3.1.

    Examples
    --------
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> SequentialEmbedding().fit(X, list("aabbcc")).predict(X[::2]).tolist()
    ['a', 'b', 'c']
    """

    system: ClassVar[str] = "sequential-embedding"

    def __init__(
        self,
        *,
        embedding_dim: int = 100,
        rate: float = 0.3,
        regularization: float = 0.0,
        max_epochs: int = 20,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.rate = rate
        self.regularization = regularization
        self.max_epochs = max_epochs
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        X = self._scaled(X)
        A = surrogate_confusion(X, Y, _N_CONFUSED, self.n_jobs, rng)
        with phase("label vectors"):
            V = laplacian_eigenmaps(A, self.embedding_dim, rng=rng).vectors
        # V'DV = I makes labels that are rarely confused very long: directions are what counts.
        # Constraint 6 has a margin of 1 only where vectors are long enough to have it.
        V = np.float32(_LENGTH) * scaled_rows(V)
        ridge = Ridge(Rows(X, Y, n_jobs=self.n_jobs))
        start = JointMap(ridge.solve(V, usual_ridge(ridge)), V)
        # |Wx - V_j|^2 = |Wx|^2 - 2 ((Wx)'V_j - |V_j|^2 / 2): an inner product with an offset.
        violations = LabelViolations(
            Y,
            "hardest",
            offset=self._offset(V),
            rng=rng,
            n_jobs=resolve_jobs(self.n_jobs),
        )
        self._learn(X, Y, start, violations, rng, fixed_vectors=True)

    def _offset(self, V: F32) -> F32:
        offset = -0.5 * np.einsum("ij,ij->i", V, V)
        # A label without rows is confused with none: its vector of zeros would be the nearest of
        # all rows that are not near any label.
        if self.label_counts_.any():
            offset[self.label_counts_ == 0] = -np.inf
        return offset

    def _ranked(self, Z: F32, k: int) -> tuple[Ints, F32]:
        V = self.label_embedding_
        offset = self._offset(V)
        labels, inner = topk_blocks(
            lambda rows: Z[rows] @ V.T + offset, len(Z), len(V), k, resolve_jobs(self.n_jobs)
        )
        return labels, _minus_distance(Z, inner)

    def _scores(self, X: Matrix) -> F32:
        Z = self._embed(X)
        inner = Z @ self.label_embedding_.T + self._offset(self.label_embedding_)
        return _minus_distance(Z, inner) - np.float32(self.score_threshold_)


def _minus_distance(Z: F32, inner: F32) -> F32:
    """-|z - V_j| from z'V_j - |V_j|^2 / 2."""
    squares = np.einsum("ij,ij->i", Z, Z)[:, None] - 2 * inner
    return -np.sqrt(np.maximum(squares, 0))
