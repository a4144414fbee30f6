"""Low-rank empirical risk minimisation."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck, check_at_least, check_one_of
from labelry.decoders import LinearDecoder
from labelry.embeddings.leml import LOSSES, Factors, KnownLabels, Objective, SquaredLoss, leml
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import Matrix, product, with_constant
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]


class LEML(LabelRanker):
    """Low-rank linear map from features to labels, fitted to the loss itself.

    Where `Rembrandt` finds the embedding first and the regressor after, LEML fits both to one
    objective by turns. Choose it where some labels of the training rows are unknown (`known` in
    `fit`), or to compare with.

    Parameters
    ----------
    embedding_dim : int
        Rank of the map. Larger is more accurate up to a point.
    loss : {"squared", "logistic", "squared_hinge"}
        "squared" needs only passes over the nonzeros while all labels are known; the others, and
        unknown labels, cost time for each row and label.
    regularization : float
        Weight of half the squared factors, in units of the root of the number of rows; larger
        fits the training rows less closely.
    n_rounds : int
        Most turns of each factor; stops when the objective falls by less than a thousandth.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    regressor_ : array (n_features + 1, embedding_dim)
        W; the last row is the intercept.
    label_embedding_ : array (n_labels, embedding_dim)
        H.
    objective_ : array (n_rounds_ + 1,)
        Objective before the first round and after each.

    Notes
    -----
    Squared loss, all labels known: about 20 passes a round, each 4 flops per nonzero and
    dimension. Otherwise about 50 products of 6 flops per row, label and dimension a round.

    References
    ----------
    Yu, Jain, Kar, Dhillon: Large-scale multi-label learning with missing labels, 2014.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> LEML().fit(X, y).predict(X[::2]).tolist()
    ['a', 'b', 'c', 'd']
    """

    system: ClassVar[str] = "leml"

    def __init__(
        self,
        *,
        embedding_dim: int = 100,
        loss: Literal["squared", "logistic", "squared_hinge"] = "squared",
        regularization: float = 0.03,
        n_rounds: int = 10,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.loss = loss
        self.regularization = regularization
        self.n_rounds = n_rounds
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Score from which `predict` says yes."""
        return 0.0 if self.loss == "squared_hinge" else 0.5

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities: those of the logistic loss are."""
        return self.loss == "logistic"

    def fit(self, X: Any, y: Any = None, known: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : sparse or dense matrix (n_rows, n_features), list of str, or Rows
        y : sparse or dense indicator (n_rows, n_labels), class vector, or lists of labels
        known : sparse or dense matrix (n_rows, n_labels), optional
            Nonzero where y is known, whether it says yes or no; all of it by default.
        """
        return self._fit_given(X, y, known=known)

    def _fit_rows(self, rows: Rows, rng: np.random.Generator, known: Any = None) -> None:
        self._check_parameters()
        rows = rows.mapped(
            lambda block: block._replace(X=self._with_constant(block.X)),
            n_features=rows.n_features + 1,
        )
        n, d, c = rows.n_rows, rows.n_features, rows.n_labels
        dim = min(self.embedding_dim, n, c, d)
        W = rng.standard_normal((d, dim), dtype=np.float32) / np.sqrt(np.float32(dim))
        start = Factors(W, np.zeros((c, dim), dtype=np.float32))
        ridge = self.regularization * float(np.sqrt(n))
        squared = SquaredLoss(rows, ridge)
        objective: Objective = squared
        if self.loss != "squared" or known is not None:
            # The cheap problem leads near the dear one.
            start, _ = leml(squared, start, n_rounds=self.n_rounds, tolerance=0.01)
            mask = None if known is None else _checked_mask(known, (n, c))
            objective = KnownLabels(rows, LOSSES[self.loss], ridge, mask)
        factors, values = leml(objective, start, n_rounds=self.n_rounds)
        self.regressor_, self.label_embedding_ = factors
        self.objective_ = np.array(values)

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        return self._decoder().topk(self._embed(X), k, resolve_jobs(self.n_jobs))

    def _scores(self, X: Matrix) -> F32:
        return self._decoder().scores(self._embed(X))

    def _embed(self, X: Matrix) -> F32:
        return product(self._with_constant(X), self.regressor_, resolve_jobs(self.n_jobs))

    def _decoder(self) -> LinearDecoder:
        H = self.label_embedding_
        link: Literal["sigmoid", "identity"] = "sigmoid" if self.probabilities else "identity"
        return LinearDecoder(H.T, np.zeros(len(H), dtype=np.float32), link)

    def _with_constant(self, X: Matrix) -> Matrix:
        return with_constant(X, unit=self.normalize)

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        dim = check.width("label_embedding_", self.label_embedding_)
        check.array("label_embedding_", self.label_embedding_, n_labels, dim)
        check.array("regressor_", self.regressor_, n_features + 1, dim)

    def _check_parameters(self) -> None:
        check_one_of("loss", self.loss, tuple(LOSSES))
        for name in ("embedding_dim", "n_rounds"):
            check_at_least(name, getattr(self, name), 1)
        if not self.regularization > 0:
            raise ValueError(f"regularization must be above 0, got {self.regularization}")


def _checked_mask(known: Any, shape: tuple[int, int]) -> csr_array:
    mask = csr_array(known)
    if mask.shape != shape:
        raise ValueError(f"known must have the shape of the labels {shape}, got {mask.shape}")
    return mask
