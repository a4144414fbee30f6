"""Systems that embed the labels, regress on the embedding, and decode (Algorithm 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from labelry.decoders import (
    LinearDecoder,
    Neighbours,
    fit_logistic,
    fit_neighbours,
    least_squares_decoder,
    make_random_features,
    unit_rows,
)
from labelry.embeddings import Embedding, cca, compressed_sensing, pca, plst, rembrandt
from labelry.estimator import LabelRanker
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Matrix, Rows, scaled_rows
from labelry.linalg.solve import LinearMap, Ridge
from labelry.metrics import precision_at_k
from labelry.progress import phase
from labelry.state import storable

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
DecoderName = Literal["neighbours", "logistic", "least-squares"]

_AUTO_DIMS = (25, 50, 100, 150, 200, 300)
_AUTO_LOSS = 0.002  # held-out P@1 that a smaller dimension may cost

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
    embedding_dim : int or "auto"
        Dimensions k of the embedding. Larger is more accurate up to a point; "auto" takes the
        smallest that is as good as any on held-out rows.
    decoder : {"neighbours", "logistic", "least-squares"}
        "neighbours" votes among similar training rows: best with many labels per row or few rows
        per label. "logistic" gives probabilities: best with many rows per label.
        "least-squares" is the embedding's own transpose: immediate.
    regularization : float
        Ridge for the embedding, in units of mean feature energy.
    regressor_regularization : float, optional
        Ridge of the regressor that predicts the embedding, in the same units; larger shrinks
        predictions. By default 0.5, and less the more rows there are for each feature.
    n_neighbors : int
        Training rows that vote ("neighbours").
    sharpness : float
        How much more a nearer neighbour weighs ("neighbours").
    feature_map : {"gaussian", "laplacian"}, optional
        Random Fourier features of the embedded row before the decoder ("logistic").
    n_random_features : int
        Number of random features; more is more accurate and slower.
    bandwidth : float
        Scale of the random features, as a factor on the median rule; larger is smoother.
    max_epochs : int, optional
        Most passes of the logistic decoder, which stops early on held-out rows. By default 30,
        or 15 where a pass is dear: with a feature map, or more than 5000 labels.
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
    centered: ClassVar[bool] = False  # whether the embedding is of centred labels

    def __init__(
        self,
        *,
        embedding_dim: int | Literal["auto"] = 100,
        decoder: DecoderName = "neighbours",
        regularization: float = 1.0,
        regressor_regularization: float | None = None,
        n_neighbors: int = 100,
        sharpness: float = 15.0,
        feature_map: Literal["gaussian", "laplacian"] | None = None,
        n_random_features: int = 4000,
        bandwidth: float = 0.5,
        max_epochs: int | None = None,
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
        self.feature_map = feature_map
        self.n_random_features = n_random_features
        self.bandwidth = bandwidth
        self.max_epochs = max_epochs
        self.n_oversamples = n_oversamples
        self.n_passes = n_passes
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities: those of the logistic decoder are."""
        return self.decoder == "logistic"

    def embed(self, X: Any) -> F32:
        """Predicted embedding (n_rows, embedding_dim) of features or texts."""
        check_is_fitted(self)
        with self._threads():
            return self._embed(self._features(X))

    def similar_labels(self, label: Any, k: int = 10) -> tuple[NDArray[Any], F32]:
        """The k labels nearest to `label` in the embedding, and their cosine similarities."""
        check_is_fitted(self)
        found = np.flatnonzero(self.classes_ == label)
        if not len(found):
            raise ValueError(f"unknown label {label!r}")
        V = unit_rows(self.label_embedding_)
        cosine = V @ V[found[0]]
        cosine[found[0]] = -np.inf
        order = np.argsort(-cosine, kind="stable")[: min(k, len(V) - 1)]
        return self.classes_[order], cosine[order]

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        self._check_parameters()
        self.multiclass_ = bool((np.diff(Y.indptr) == 1).all())
        X = scaled_rows(X) if self.normalize else X
        dim = self.embedding_dim
        if dim == "auto":
            dim = self._choose_dim(X, Y, rng)
        rows = Rows(X, Y, n_jobs=self.n_jobs)
        self.regressor_, embedding = self._learn(rows, dim, rng)
        self.label_embedding_, self.spectrum_ = embedding
        with phase("embedding rows"):
            Z = np.concatenate(list(rows.map_blocks(lambda block: self._project(block.X))))
        self.decoder_ = self._fit_decoder(Z, Y, rng)

    def _learn(self, rows: Rows, dim: int, rng: np.random.Generator) -> tuple[LinearMap, Embedding]:
        """The label embedding, and the regressor that predicts it (Alg. 3, lines 2-3)."""
        ridge = Ridge(rows)
        embedding = self._embedding(ridge, dim, rng)
        with phase("regressor"):
            regressor = ridge.solve(embedding.vectors, self._regressor_ridge(rows))
        return regressor, embedding

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return rembrandt(
            ridge,
            dim,
            regularization=self.regularization,
            n_oversamples=self.n_oversamples,
            n_passes=self.n_passes,
            center=self.centered,
            rng=rng,
        )

    def _regressor_ridge(self, rows: Rows) -> float:
        if self.regressor_regularization is not None:
            return self.regressor_regularization
        # The noise that a ridge must hold down grows with the features that each row must pay for.
        return 0.5 * min(1.0, 10 * rows.n_features / rows.n_rows)

    def _fit_decoder(
        self, Z: F32, Y: csr_array, rng: np.random.Generator
    ) -> Neighbours | LinearDecoder:
        if self.decoder == "neighbours":
            return fit_neighbours(Z, Y, self.n_neighbors, self.sharpness)
        if self.decoder == "least-squares":
            mean = (self.label_counts_ / self.n_rows_).astype(np.float32)
            return least_squares_decoder(self.label_embedding_, mean if self.centered else None)
        features: Any = None
        if self.feature_map is not None:
            features = make_random_features(
                Z,
                self.n_random_features,
                kernel=self.feature_map,
                bandwidth=self.bandwidth,
                rng=rng,
            )
        coef, intercept = fit_logistic(
            Z,
            Y,
            features=features,
            multiclass=self.multiclass_,
            max_epochs=self.max_epochs,
            n_jobs=self.n_jobs,
            rng=rng,
        )
        return LinearDecoder(
            coef, intercept, "softmax" if self.multiclass_ else "sigmoid", features
        )

    def _choose_dim(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> int:
        """The smallest dimension that is as good as any, by P@1 on a tenth of the rows.

        One embedding of the largest dimension serves all: the smaller ones are its first columns.
        """
        held_out = rng.permutation(X.shape[0])[: max(1, X.shape[0] // 10)]
        train = np.setdiff1d(np.arange(X.shape[0]), held_out)
        if not len(train):
            return min(_AUTO_DIMS[0], Y.shape[1])
        dims = [dim for dim in _AUTO_DIMS if dim < Y.shape[1]] or [Y.shape[1]]
        regressor, _ = self._learn(Rows(X[train], Y[train], n_jobs=self.n_jobs), dims[-1], rng)
        n_jobs = resolve_jobs(self.n_jobs)
        Z, Z_test = regressor(X[train], n_jobs), regressor(X[held_out], n_jobs)
        scores = []
        for dim in dims:
            judge = fit_neighbours(Z[:, :dim], Y[train], self.n_neighbors, self.sharpness)
            best = judge.topk(Z_test[:, :dim], 1, n_jobs)[0]
            scores.append(precision_at_k(Y[held_out], best, 1))
        return next(
            dim for dim, s in zip(dims, scores, strict=True) if s >= max(scores) - _AUTO_LOSS
        )

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        return self.decoder_.topk(self._embed(X), k, resolve_jobs(self.n_jobs))

    def _scores(self, X: Matrix) -> F32:
        return self.decoder_.scores(self._embed(X))

    def _embed(self, X: Matrix) -> F32:
        return self._project(scaled_rows(X) if self.normalize else X)

    def _project(self, X: Matrix) -> F32:
        return self.regressor_(X, resolve_jobs(self.n_jobs))

    def _check_parameters(self) -> None:
        _check_one_of("decoder", self.decoder, ("neighbours", "logistic", "least-squares"))
        _check_one_of("feature_map", self.feature_map, (None, "gaussian", "laplacian"))
        if self.embedding_dim != "auto":
            _check_at_least("embedding_dim", self.embedding_dim, 1)
        for name in ("n_neighbors", "n_random_features"):
            _check_at_least(name, getattr(self, name), 1)
        if self.max_epochs is not None:
            _check_at_least("max_epochs", self.max_epochs, 1)
        for name in ("n_oversamples", "n_passes", "regularization", "sharpness"):
            _check_at_least(name, getattr(self, name), 0)


class PLST(Rembrandt):
    """Principal label space transformation: the embedding of the labels alone.

    As `Rembrandt`, with the leading directions of the label covariance in place of the prediction
    covariance. Features play no part in the embedding.

    References
    ----------
    Tai, Lin: Multilabel classification with principal label space transformation, 2012.
    """

    system: ClassVar[str] = "plst"
    centered: ClassVar[bool] = True

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return plst(
            ridge.rows, dim, n_oversamples=self.n_oversamples, n_passes=self.n_passes, rng=rng
        )


class CPLST(Rembrandt):
    """Conditional principal label space transformation: Rembrandt on centred labels.

    References
    ----------
    Chen, Lin: Feature-aware label space dimension reduction for multi-label classification, 2012.
    """

    system: ClassVar[str] = "cplst"
    centered: ClassVar[bool] = True


class CompressedSensing(Rembrandt):
    """Random label vectors: what Rembrandt starts from.

    References
    ----------
    Hsu, Kakade, Langford, Zhang: Multi-label prediction via compressed sensing, 2009.
    """

    system: ClassVar[str] = "compressed-sensing"

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return compressed_sensing(ridge.rows.n_labels, dim, rng=rng)


class CCA(Rembrandt):
    """Canonical correlations between features and labels.

    As `Rembrandt`, with both features and labels whitened.

    References
    ----------
    Lu, Foster: Large scale canonical correlation analysis with iterative least squares, 2014.
    """

    system: ClassVar[str] = "cca"

    def _embedding(self, ridge: Ridge, dim: int, rng: np.random.Generator) -> Embedding:
        return cca(
            ridge,
            dim,
            regularization=self.regularization,
            n_oversamples=self.n_oversamples,
            n_passes=max(self.n_passes, 4),
            rng=rng,
        )


class PCA(Rembrandt):
    """Principal components of the features, then a decoder; labels play no part in the components.

    With as many components as features it is the decoder on the features themselves, so that
    ``decoder="logistic"`` is plain logistic regression. The label embedding is the mean of
    each label's rows.
    """

    system: ClassVar[str] = "pca"

    def _learn(self, rows: Rows, dim: int, rng: np.random.Generator) -> tuple[LinearMap, Embedding]:
        components = pca(
            rows, dim, n_oversamples=self.n_oversamples, n_passes=self.n_passes, rng=rng
        )
        x, _, y, total = rows.totals()
        W = components.vectors
        means = rows.cross("Y", "X", W) / np.maximum(y, 1)[:, None].astype(np.float32)
        offset: F32 = -(x / total @ W).astype(np.float32)
        vectors = np.asarray(means + offset, dtype=np.float32)
        return LinearMap(W, offset), Embedding(vectors, components.values)


def _check_one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}")


def _check_at_least(name: str, value: Any, least: float) -> None:
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
