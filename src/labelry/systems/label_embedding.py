"""Systems that embed the labels, regress on the embedding, and decode (Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from labelry.checks import StoredCheck, check_at_least, check_one_of
from labelry.decoders import (
    Correction,
    LinearDecoder,
    Neighbours,
    fit_correction,
    fit_logistic,
    fit_neighbours,
    least_squares_decoder,
    log_odds,
    make_random_features,
    out_of_fold,
)
from labelry.embeddings import Embedding, PredictionCovariance, rembrandt, updated_rembrandt
from labelry.estimator import LabelRanker, in_memory
from labelry.linalg.matrices import Matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Block, Rows
from labelry.linalg.sketch import Operator, estimated_trace
from labelry.linalg.solve import LinearMap, Ridge, usual_ridge
from labelry.metrics import precision_at_k
from labelry.progress import phase
from labelry.state import storable

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
DecoderName = Literal["neighbours", "logistic", "least-squares"]

_AUTO_DIMS = (25, 50, 100, 150, 200, 300)
_AUTO_LOSS = 0.002  # held-out P@1 that a smaller dimension may cost
_MOST_DIMS = 500  # that a share of the energy may ask for
_SHORTLIST = 50  # labels of a row that are corrected
_N_FOLDS = 5  # of the rows, each embedded by a regressor of the others
_PLENTY = 100  # rows per feature from which a regressor knows its own rows no better than others

storable(LinearMap)


class Rembrandt(LabelRanker):
    """Randomized label embeddings with a choice of decoders.

    Labels are embedded in the leading directions of what a ridge regression can predict of
    them (Algorithm 2), the embedding is predicted by another regression, and a decoder turns it
    back into labels (Algorithm 3). Training needs a few passes over the rows, whatever the
    number of labels. Choose it for a model that is small and quick to train, and for the label
    embedding itself.

    Parameters
    ----------
    embedding_dim : int, float or "auto"
        Dimensions k of the embedding. Larger is more accurate up to a point. A share such as 0.9
        takes the fewest that capture so much of the energy of the predictions (500 at most);
        "auto" the fewest that are as good as any on held-out rows.
    decoder : {"neighbours", "logistic", "least-squares"}
        "neighbours" votes among similar training rows: best with many labels per row or few rows
        per label. "logistic" gives probabilities: best with many rows per label.
        "least-squares" is the embedding's own transpose: immediate.
    regularization : float or None
        Ridge for the embedding, in units of mean feature energy. None is that of the regressor:
        as good, and quicker to train.
    regressor_regularization : float, optional
        Ridge of the regressor that predicts the embedding, in the same units; larger shrinks
        predictions. By default 0.5, and less the more rows there are for each feature.
    n_neighbors : int
        Training rows that vote ("neighbours").
    sharpness : float
        How much more a nearer neighbour weighs ("neighbours").
    index : {"exact", "approximate"}
        "approximate" looks for neighbours in a part of the rows only: faster from some ten
        thousand rows on ("neighbours").
    feature_map : {"gaussian", "laplacian"}, optional
        Random Fourier features of the embedded row before the decoder ("logistic").
    n_random_features : int
        Number of random features; more is more accurate and slower.
    bandwidth : float
        Scale of the random features, as a factor on the median rule; larger is smoother.
    max_epochs : int, optional
        Most passes of the logistic decoder, which stops early on held-out rows. By default 30,
        or 15 where a pass is dear: with a feature map, or more than 5000 labels.
    correction : bool
        Add a sparse linear term per label, on a shortlist of the 50 best labels of each row: for
        single words that decide a label. Training takes about four times as long.
    n_oversamples, n_passes : int
        p and q of the paper; rarely need adjustment.
    normalize : bool
        Scale each row of X to unit length first.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    label_embedding_ : array (n_labels, embedding_dim)
    spectrum_ : array (embedding_dim,)
        Eigenvalues of the prediction covariance, largest first.
    regressor_ : LinearMap
        From features to the embedding.
    decoder_ : Neighbours or LinearDecoder
    correction_ : Correction or None

    References
    ----------
    Mineiro, Karampatziakis: Fast label embeddings via randomized linear algebra, 2015.

    Examples
    --------
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> Rembrandt(embedding_dim=4).fit(X, y).predict(X[:4]).tolist()
    ['a', 'a', 'b', 'b']
    """

    system: ClassVar[str] = "rembrandt"
    _tolerance = 1e-4  # of regressions by conjugate gradients
    centered: ClassVar[bool] = False  # whether the embedding is of centred labels
    supervised: ClassVar[bool] = True  # whether labels play a part in embedding a row

    def __init__(
        self,
        *,
        embedding_dim: int | float | Literal["auto"] = 100,
        decoder: DecoderName = "neighbours",
        regularization: float | None = 1.0,
        regressor_regularization: float | None = None,
        n_neighbors: int = 100,
        sharpness: float = 15.0,
        index: Literal["exact", "approximate"] = "exact",
        feature_map: Literal["gaussian", "laplacian"] | None = None,
        n_random_features: int = 4000,
        bandwidth: float = 0.5,
        max_epochs: int | None = None,
        correction: bool = False,
        n_oversamples: int = 20,
        n_passes: int = 1,
        normalize: bool = True,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.decoder = decoder
        self.regularization = regularization
        self.regressor_regularization = regressor_regularization
        self.n_neighbors = n_neighbors
        self.sharpness = sharpness
        self.index = index
        self.feature_map = feature_map
        self.n_random_features = n_random_features
        self.bandwidth = bandwidth
        self.max_epochs = max_epochs
        self.correction = correction
        self.n_oversamples = n_oversamples
        self.n_passes = n_passes
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities: of the logistic decoder and the correction."""
        return self.decoder == "logistic" or self.correction

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : sparse or dense matrix (n_rows, n_features), list of str, or Rows
        y : sparse or dense indicator (n_rows, n_labels), class vector, or lists of labels
        sample_weight : array (n_rows,), optional
            Importance of each row: one of weight 2 counts as two rows, one of weight 0 as none.
        """
        return self._fit_given(X, y, weights=sample_weight)

    def embed(self, X: Any) -> F32:
        """Predicted embedding (n_rows, embedding_dim) of features or texts."""
        check_is_fitted(self)
        with self._threads():
            return self._embed(self._features(X))

    def _fit_rows(self, rows: Rows, rng: np.random.Generator, weights: Any = None) -> None:
        self._check_parameters()
        if self.normalize:
            rows = rows.unit()
        if weights is not None:
            weights = _checked_weights(weights, rows.n_rows)
            rows, weights = rows.only(weights > 0), weights[weights > 0]
            rows = rows.weighted(weights)
        dim = self.embedding_dim
        if isinstance(dim, int):  # refused now, not after the embedding
            self._require_embedded(rows, min(dim, rows.n_labels))
        self.multiclass_ = all(list(rows.map_blocks(_has_single_labels)))
        if dim == "auto":
            dim = self._choose_dim(rows, rng)
        self.regressor_, embedding = self._learn(rows, dim, rng)
        self.label_embedding_, self.spectrum_ = embedding.vectors, embedding.values
        self.decoder_ = self._fit_decoder(rows, weights, rng)
        self.correction_ = self._fit_correction(rows, rng) if self.correction else None

    def _learn(
        self, rows: Rows, dim: int | float, rng: np.random.Generator
    ) -> tuple[LinearMap, Embedding]:
        """The label embedding, and the regressor that predicts it (Alg. 3, lines 2-3)."""
        ridge = Ridge(rows, tolerance=self._tolerance)
        if isinstance(dim, float):
            embedding = captured(
                lambda most: self._embedding(ridge, most, rng),
                self._covariance(ridge),
                rows.n_labels,
                dim,
                rng,
            )
        else:
            embedding = self._embedding(ridge, dim, rng)
        return self._regressor(ridge, embedding), embedding

    def _regressor(self, ridge: Ridge, embedding: Embedding) -> LinearMap:
        with phase("regressor"):
            return ridge.solve(
                embedding.vectors, self._regressor_ridge(ridge), start=embedding.start
            )

    def _fit_again(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> Rembrandt:
        """A model of these rows, which begins with what was learnt from most of them before."""
        model, rows = copy(self), Rows(X, Y, n_jobs=self.n_jobs)
        ridge = Ridge(rows, tolerance=self._tolerance)
        before = Embedding(self.label_embedding_, self.spectrum_, self.regressor_.coef)
        embedding = updated_rembrandt(ridge, before, regularization=self._ridge(ridge))
        model.regressor_ = self._regressor(ridge, embedding)
        model.label_embedding_, model.spectrum_ = embedding.vectors, embedding.values
        model.decoder_ = model._fit_decoder(rows, None, rng)
        return model

    def _covariance(self, ridge: Ridge) -> Operator:
        """The operator whose leading directions are the embedding."""
        return PredictionCovariance(ridge, self._ridge(ridge), self.centered)

    def _embedded(self, rows: Rows, rng: np.random.Generator) -> F32:
        """Training rows as the decoder should see them.

        A regressor knows its own rows better than new ones. A logistic decoder would learn to
        trust it too much, so it gets each row from a regressor of other rows. Votes of
        neighbours are better among rows that are embedded as well as possible.
        """
        few = rows.n_rows < _PLENTY * rows.n_features and rows.n_rows >= 2 * _N_FOLDS
        if self.decoder == "logistic" and self.supervised and few:
            return self._out_of_fold(rows, rng)
        return _embedded_by(self.regressor_, rows)

    def _out_of_fold(self, rows: Rows, rng: np.random.Generator) -> F32:
        V = self.label_embedding_
        Z = np.empty((rows.n_rows, V.shape[1]), dtype=np.float32)
        fold = rng.permutation(rows.n_rows) % _N_FOLDS
        for unseen in (fold == f for f in range(_N_FOLDS)):
            ridge = Ridge(rows.weighted(~unseen), tolerance=self._tolerance)
            W = ridge.solve(V, self._regressor_ridge(ridge))
            Z[unseen] = _embedded_by(W, rows.only(unseen))
        return Z

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return rembrandt(
            ridge,
            dim,
            regularization=self._ridge(ridge),
            n_oversamples=self.n_oversamples,
            n_passes=self.n_passes,
            center=self.centered,
            rng=rng,
        )

    def _ridge(self, ridge: Ridge) -> float:
        """The ridge for the embedding."""
        return self._regressor_ridge(ridge) if self.regularization is None else self.regularization

    def _regressor_ridge(self, ridge: Ridge) -> float:
        if self.regressor_regularization is not None:
            return self.regressor_regularization
        return usual_ridge(ridge)

    def _require_embedded(self, rows: Rows, dim: int) -> None:
        """Refuse a decoder that keeps embedded rows if these do not fit."""
        if self.decoder != "least-squares":
            rows.require(
                12 * rows.n_rows * dim,  # with copies on the way to the decoder
                f"decoder {self.decoder} for {rows.n_rows:,} rows in {dim} dimensions",
                "give more memory, a smaller embedding_dim, or the decoder least-squares",
            )

    def _fit_decoder(
        self, rows: Rows, weights: F32 | None, rng: np.random.Generator
    ) -> Neighbours | LinearDecoder:
        if self.decoder == "least-squares":
            return self._least_squares(rows)
        self._require_embedded(rows, self.label_embedding_.shape[1])
        with phase("embedding rows"):
            Z = self._embedded(rows, rng)
        (Y,) = rows.gathered("Y")
        if self.decoder == "neighbours":
            votes = fit_neighbours(Z, Y, self.n_neighbors, self.sharpness, weights)
            return votes if self.index == "exact" else votes.approximate(rng, rows.n_jobs)
        features: Any = None
        if self.feature_map is not None:
            features = make_random_features(
                Z,
                self.n_random_features,
                kernel=self.feature_map,
                bandwidth=self.bandwidth,
                Y=Y if self.supervised else None,
                rng=rng,
            )
        coef, intercept = fit_logistic(
            Z,
            Y,
            features=features,
            multiclass=self.multiclass_,
            weights=weights,
            max_epochs=self.max_epochs,
            n_jobs=self.n_jobs,
            rng=rng,
        )
        return LinearDecoder(
            coef, intercept, "softmax" if self.multiclass_ else "sigmoid", features
        )

    def _fit_correction(self, rows: Rows, rng: np.random.Generator) -> Correction | None:
        """The sparse part, on shortlists from models that have not seen the row."""
        if rows.n_rows < 2:
            return None
        X, Y = in_memory(rows, "a correction")
        size = min(_SHORTLIST, Y.shape[1])

        def fit_on(rows: Ints) -> Callable[[Ints], tuple[Ints, F32]]:
            model = clone(self).set_params(correction=False)
            model._fit(X[rows], Y[rows], rng)
            return lambda new: model._topk(X[new], size)

        candidates, scores = out_of_fold(X.shape[0], fit_on, rng=rng)
        return fit_correction(X, Y, candidates, log_odds(scores), n_jobs=self.n_jobs, rng=rng)

    def _least_squares(self, rows: Rows) -> LinearDecoder:
        """Back from the embedding to the labels by its pseudo-inverse."""
        if not self.centered:
            return least_squares_decoder(self.label_embedding_)
        _, _, y, total = rows.totals()
        return least_squares_decoder(self.label_embedding_, (y / total).astype(np.float32))

    def _choose_dim(self, rows: Rows, rng: np.random.Generator) -> int:
        """The smallest dimension that is as good as any, by P@1 on a tenth of the rows.

        One embedding of the largest dimension serves all: the smaller ones are its first columns.
        """
        n, n_labels = rows.n_rows, rows.n_labels
        held_out = rng.permutation(n) < max(1, n // 10)
        if held_out.all():
            return min(_AUTO_DIMS[0], n_labels)
        dims = [dim for dim in _AUTO_DIMS if dim < n_labels] or [n_labels]
        rows.require(
            12 * n * dims[-1],
            f"the choice of embedding_dim on {n:,} rows",
            "give more memory, or a number as embedding_dim",
        )
        regressor, _ = self._learn(rows.weighted(~held_out), dims[-1], rng)
        Z = _embedded_by(regressor, rows)
        (Y,) = rows.gathered("Y")
        scores = []
        for dim in dims:
            judge = fit_neighbours(
                Z[~held_out, :dim], Y[~held_out], self.n_neighbors, self.sharpness
            )
            best = judge.topk(Z[held_out, :dim], 1, rows.n_jobs)[0]
            scores.append(precision_at_k(Y[held_out], best, 1))
        return next(
            dim for dim, s in zip(dims, scores, strict=True) if s >= max(scores) - _AUTO_LOSS
        )

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        n_jobs = resolve_jobs(self.n_jobs)
        if self.correction_ is None:
            return self.decoder_.topk(self._embed(X), k, n_jobs)
        size = min(max(k, _SHORTLIST), len(self.classes_))
        X = self._scaled(X)
        labels, scores = self.decoder_.topk(self._project(X), size, n_jobs)
        return self.correction_.rerank(X, labels, log_odds(scores), k, n_jobs)

    def _scores(self, X: Matrix) -> F32:
        if self.correction_ is not None:
            raise ValueError("corrected scores are only for shortlists: correction must be False")
        return self.decoder_.scores(self._embed(X))

    def _embed(self, X: Matrix) -> F32:
        return self._project(self._scaled(X))

    def _scaled(self, X: Matrix) -> Matrix:
        return scaled_rows(X) if self.normalize else X

    def _project(self, X: Matrix) -> F32:
        return self.regressor_(X, resolve_jobs(self.n_jobs))

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        dim = check.width("label_embedding_", self.label_embedding_)
        check.array("label_embedding_", self.label_embedding_, n_labels, dim)
        check.array("spectrum_", self.spectrum_, dim)
        check.kind("regressor_", self.regressor_, LinearMap)
        self.regressor_.check_stored(check, n_features, dim)
        check.kind("decoder_", self.decoder_, Neighbours, LinearDecoder)
        self.decoder_.check_stored(check, dim, n_labels)
        check.kind("correction_", self.correction_, Correction, None)
        if self.correction_ is not None:
            self.correction_.check_stored(check, n_features, n_labels)

    def _check_parameters(self) -> None:
        check_one_of("decoder", self.decoder, ("neighbours", "logistic", "least-squares"))
        check_one_of("index", self.index, ("exact", "approximate"))
        check_one_of("feature_map", self.feature_map, (None, "gaussian", "laplacian"))
        dim = self.embedding_dim
        if isinstance(dim, float) and not 0 < dim < 1:
            raise ValueError(f"embedding_dim as a share must be between 0 and 1, got {dim}")
        if isinstance(dim, int):
            check_at_least("embedding_dim", dim, 1)
        for name in ("n_neighbors", "n_random_features"):
            check_at_least(name, getattr(self, name), 1)
        if self.max_epochs is not None:
            check_at_least("max_epochs", self.max_epochs, 1)
        if self.regularization is not None:
            check_at_least("regularization", self.regularization, 0)
        for name in ("n_oversamples", "n_passes", "sharpness"):
            check_at_least(name, getattr(self, name), 0)


def captured(
    decompose: Callable[[int], Embedding],
    operator: Operator,
    size: int,
    share: float,
    rng: np.random.Generator,
) -> Embedding:
    """The fewest leading directions of an operator that hold a share of its energy (its trace)."""
    embedding = decompose(min(_MOST_DIMS, size))
    energy = share * estimated_trace(operator, size, rng=rng)
    dim = int(np.searchsorted(np.cumsum(embedding.values, dtype=np.float64), energy)) + 1
    return embedding.first(min(dim, len(embedding.values)))


def _has_single_labels(block: Block) -> bool:
    return bool((np.diff(block.side("Y").indptr) == 1).all())


def _embedded_by(regressor: LinearMap, rows: Rows) -> F32:
    """What a regressor makes of all rows, (n_rows, k)."""
    Z = np.empty((rows.n_rows, regressor.coef.shape[1]), dtype=np.float32)
    parts = rows.map_blocks(lambda block: (block.start, regressor(block.X, rows.n_jobs)))
    for start, part in parts:
        Z[start : start + len(part)] = part
    return Z


def _checked_weights(weights: Any, n_rows: int) -> F32:
    checked = np.asarray(weights, dtype=np.float32)
    if checked.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},), got {checked.shape}")
    if not np.isfinite(checked).all() or (checked < 0).any() or not checked.any():
        raise ValueError("sample_weight must be finite and at least 0, and not all zero")
    return checked
