"""Embed the labels, regress on the embedding, and decode.

Mineiro, Karampatziakis: Fast label embeddings via randomized linear algebra, 2015, Algorithm 3. The
methods that the paper compares with differ in how the labels are embedded: see `Method`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from labelry.arrays import F32, Ints, Rng
from labelry.checks import StoredCheck
from labelry.embeddings.rembrandt import (
    Embedding,
    PredictionCovariance,
    rembrandt,
    updated_rembrandt,
)
from labelry.linalg.matrices import Matrix, scaled_rows, stacked
from labelry.linalg.rows import Known, Rows, in_memory
from labelry.linalg.sketch import Operator, estimated_trace
from labelry.linalg.solve import LinearMap, Ridge, usual_ridge
from labelry.metrics import precision_at_k
from labelry.parameters import Between, OneOf, param, settings
from labelry.progress import phase
from labelry.ranking.correction import Correction, fit_correction, log_odds, out_of_fold
from labelry.ranking.hold_out import folds, validation_split
from labelry.ranking.linear import LinearDecoder, least_squares_decoder
from labelry.ranking.logistic import fit_logistic
from labelry.ranking.neighbours import Neighbours, NeighbourSettings, fit_neighbours
from labelry.ranking.random_features import make_random_features
from labelry.ranking.ranker import Ranker
from labelry.storage.values import Sizes

# Not tuned, any of them.
_AUTO_DIMS = (25, 50, 100, 150, 200, 300)  # dimensions that "auto" chooses from
_AUTO_LOSS = 0.002  # held-out P@1 that a smaller dimension may cost
_MOST_DIMS = 500  # most dimensions that a share of the energy may ask for
_SHORTLIST = 50  # best labels of a row that are corrected
_N_FOLDS = 5  # folds of the rows; a regressor of the others embeds each
_PLENTY = 100  # rows per feature from which a regressor fits its own rows no better than others


class Method(NamedTuple):
    """How one published method embeds the labels."""

    # embed(ridge, dim, settings, rng) returns the embedding of `dim` dimensions.
    embed: Callable[[Ridge, int, LabelEmbeddingSettings, Rng], Embedding]
    # energy(ridge, settings) returns the operator of which the embedding holds the leading
    # directions; a text says why there is none.
    energy: Callable[[Ridge, LabelEmbeddingSettings], Operator] | str
    # expand(rows, V) returns the least-squares decoder, back from the embedding to the labels.
    expand: Callable[[Rows, F32], LinearDecoder] = lambda rows, V: least_squares_decoder(V)
    of_rows: bool = False  # whether rows are embedded, and labels play no part in that


def centered_decoder(rows: Rows, V: F32) -> LinearDecoder:
    """Return the least-squares decoder of an embedding of centred labels."""
    _, _, y, total = rows.totals()
    return least_squares_decoder(V, (y / total).astype(np.float32))


def rembrandt_method(*, centered: bool = False, **options: Any) -> Method:
    """Return the method of Algorithm 2; with centred labels it is CPLST."""
    return Method(
        embed=lambda ridge, dim, settings, rng: rembrandt(
            ridge,
            dim,
            regularization=settings.embedding_ridge(ridge),
            **settings.sketch_options(),
            center=centered,
            rng=rng,
        ),
        energy=lambda ridge, settings: PredictionCovariance(
            ridge, settings.embedding_ridge(ridge), centered
        ),
        **options,
    )


def _share_or_count(value: Any) -> str | None:
    if isinstance(value, int | np.integer):
        return None if value >= 1 else "at least 1"
    return None if 0 < value < 1 else "between 0 and 1 as a share"


@settings
class LabelEmbeddingSettings(NeighbourSettings):
    """How to embed labels, predict the embedding, and decode it."""

    method: ClassVar[Method] = rembrandt_method()

    embedding_dim: int | float | Literal["auto"] = param(
        default=100,
        check=_share_or_count,
        help="Dimensions k of the embedding. Larger is more accurate up to a point. A share such "
        "as 0.9 takes the fewest that capture so much of the energy of the predictions (500 at "
        'most); "auto" the fewest that are as good as any on held-out rows.',
        tune=Between(30, 400, log=True),
    )
    decoder: Literal["neighbours", "logistic", "least-squares"] = param(
        default="neighbours",
        help='What turns the embedding back into labels. "neighbours" takes the labels of the '
        "`n_neighbors` most similar training rows: best with many labels per row or few rows per "
        'label. "logistic" gives probabilities: best with many rows per label. "least-squares" is '
        "the transpose of the embedding: immediate.",
        tune=OneOf(("neighbours", "logistic", "least-squares")),
    )
    regularization: float | None = param(
        default=1.0,
        least=0,
        help="Ridge for the embedding, in units of mean feature energy. Larger follows the few "
        "strongest features. None takes that of the regressor: as good, and quicker to train.",
        tune=Between(0.03, 30.0, log=True),
    )
    regressor_regularization: float | None = param(
        default=None,
        least=0,
        help="Ridge of the regressor that predicts the embedding, in the same units. Larger "
        "shrinks predictions. By default 0.5, and less the more rows there are for each feature.",
        tune=Between(0.03, 10.0, log=True),
    )
    index: Literal["exact", "approximate"] = param(
        default="exact",
        help='How neighbours are found ("neighbours"). "approximate" looks in a part of the rows '
        "only: faster from some ten thousand rows on.",
    )
    feature_map: Literal["gaussian", "laplacian"] | None = param(
        default=None,
        help='Random Fourier features of the embedded row before the decoder ("logistic").',
    )
    n_random_features: int = param(
        default=4000, least=1, help="Number of random features. More is more accurate and slower."
    )
    bandwidth: float = param(
        default=0.5,
        above=0,
        help="Scale of the random features, as a factor on the median rule. Larger is smoother.",
    )
    max_epochs: int | None = param(
        default=None,
        least=1,
        help="Most passes of the logistic decoder, which stops early on held-out rows. By default "
        "30, or 15 where a pass is slow: with a feature map, or more than 5000 labels.",
    )
    correction: bool = param(
        default=False,
        help="Add a sparse linear term per label, on a shortlist of the 50 best labels of each "
        "row. It helps where single words decide a label. Training takes about four times as long.",
    )
    n_oversamples: int = param(
        default=20,
        least=0,
        help="Further random directions, p in the paper. It rarely needs a change.",
    )
    n_passes: int = param(
        default=1, least=0, help="The paper's q: passes of the power method. Rarely needs a change."
    )
    normalize: bool = param(default=True, help="Scale each row of X to unit length first.")

    def sketch_options(self) -> dict[str, int]:
        return {"n_oversamples": self.n_oversamples, "n_passes": self.n_passes}

    def embedding_ridge(self, ridge: Ridge) -> float:
        given = self.regularization
        return self.regressor_ridge(ridge) if given is None else given

    def regressor_ridge(self, ridge: Ridge) -> float:
        given = self.regressor_regularization
        return usual_ridge(ridge) if given is None else given


@dataclass(frozen=True, eq=False)
class EmbeddedLabels(Ranker):
    """A label embedding with a regressor that predicts it and a decoder that reads it."""

    regressor: Annotated[LinearMap, Sizes(n_outputs="embedding_dim")]
    label_embedding: Annotated[F32, "n_labels", "embedding_dim"]
    spectrum: Annotated[F32, "embedding_dim"]  # energy of each direction, largest first
    decoder: Annotated[Neighbours | LinearDecoder, Sizes(n_features="embedding_dim")]
    normalize: bool

    def embed(self, X: Matrix, n_jobs: int = 1) -> F32:
        """Return the predicted embedding of rows, (n_rows, embedding_dim)."""
        return self.regressor(self._scaled(X), n_jobs)

    def label_vectors(self) -> F32:
        return self.label_embedding

    def _scaled(self, X: Matrix) -> Matrix:
        return scaled_rows(X) if self.normalize else X

    def check_stored(self, check: StoredCheck) -> None:
        """Raise a ValueError unless the decoder takes what the regressor gives."""
        dim = self.label_embedding.shape[1]
        if isinstance(self.decoder, LinearDecoder) and self.decoder.n_inputs != dim:
            raise ValueError(f"decoder must take {dim} dimensions, got {self.decoder.n_inputs}")


@dataclass(frozen=True, eq=False)
class LabelEmbedding(EmbeddedLabels):
    """A label embedding whose decoder ranks the labels."""

    @property
    def probabilities(self) -> bool:
        return isinstance(self.decoder, LinearDecoder) and self.decoder.link != "identity"

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        return self.decoder.topk(self.embed(X, n_jobs), k, n_jobs)

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        return self.decoder.scores(self.embed(X, n_jobs))


@dataclass(frozen=True, eq=False)
class CorrectedLabelEmbedding(EmbeddedLabels):
    """A label embedding whose best labels are ranked anew by a sparse linear term per label."""

    correction: Correction

    @property
    def probabilities(self) -> bool:
        return True

    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k best labels of a corrected shortlist."""
        size = min(max(k, _SHORTLIST), len(self.label_embedding))
        X = self._scaled(X)
        labels, scores = self.decoder.topk(self.regressor(X, n_jobs), size, n_jobs)
        return self.correction.rerank(X, labels, log_odds(scores), k, n_jobs)


def fit_label_embedding(
    rows: Rows,
    settings: LabelEmbeddingSettings,
    rng: Rng,
    *,
    tolerance: float = 1e-4,
    before: LabelEmbedding | None = None,
) -> LabelEmbedding | CorrectedLabelEmbedding:
    """Embed labels, regress on the embedding, fit a decoder (Alg. 3); a few passes over the rows.

    `tolerance` is that of the regressions by conjugate gradients. If `before` was fitted to most of
    these rows, one regression finds the embedding.
    """
    rows = rows.unit() if settings.normalize else rows
    dim = settings.embedding_dim
    if isinstance(dim, int):  # refused now, not after the embedding
        _require_room(rows, settings, min(dim, rows.n_labels))
    singles = rows.map_blocks(lambda block: bool((np.diff(block.side("Y").indptr) == 1).all()))
    multiclass = all(list(singles))
    if dim == "auto":
        dim = _chosen_dim(rows, settings, rng, tolerance)
    # Line 2: the embedding.
    ridge = Ridge(rows, tolerance=tolerance)
    if before is not None:
        former = Embedding(before.label_embedding, before.spectrum, before.regressor.coef)
        embedding = updated_rembrandt(ridge, former, regularization=settings.embedding_ridge(ridge))
    elif isinstance(dim, float):
        embedding = _captured(ridge, settings, dim, rng)
    else:
        embedding = settings.method.embed(ridge, dim, settings, rng)
    regressor, (V, values, _) = _regressor(ridge, settings, embedding)  # line 3
    decoder = _fit_decoder(ridge, settings, regressor, V, multiclass, rng)  # lines 4-5
    parts = (regressor, V, values, decoder, settings.normalize)
    if not settings.correction or rows.n_rows < 2:
        return LabelEmbedding(*parts)
    return CorrectedLabelEmbedding(*parts, _correction_of(rows, settings, rng))


def _captured(ridge: Ridge, settings: LabelEmbeddingSettings, share: float, rng: Rng) -> Embedding:
    """Return the fewest leading directions that hold a share of the energy."""
    method = settings.method
    if isinstance(method.energy, str):
        raise ValueError(f"{method.energy}: embedding_dim must be a number")
    size = ridge.rows.n_features if method.of_rows else ridge.rows.n_labels
    embedding = method.embed(ridge, min(_MOST_DIMS, size), settings, rng)
    energy = share * estimated_trace(method.energy(ridge, settings), size, rng=rng)
    dim = int(np.searchsorted(np.cumsum(embedding.values, dtype=np.float64), energy)) + 1
    return embedding.first(min(dim, len(embedding.values)))


def _regressor(
    ridge: Ridge, settings: LabelEmbeddingSettings, embedding: Embedding
) -> tuple[LinearMap, Embedding]:
    """Return the regressor that predicts an embedding, and the embedding of the labels."""
    if settings.method.of_rows:
        return _components(ridge.rows, embedding)
    with phase("learning to embed rows"):
        regularization = settings.regressor_ridge(ridge)
        return ridge.solve(embedding.vectors, regularization, start=embedding.start), embedding


def _components(rows: Rows, components: Embedding) -> tuple[LinearMap, Embedding]:
    """Return the map to components of the features, and the mean of the rows of each label."""
    x, _, y, total = rows.totals()
    W = np.ascontiguousarray(components.vectors)
    offset: F32 = -(x / total @ W).astype(np.float32)
    means = rows.cross("Y", "X", W) / np.maximum(y, 1)[:, None].astype(np.float32)
    return LinearMap(W, offset), Embedding(np.asarray(means + offset), components.values)


def _require_room(rows: Rows, settings: LabelEmbeddingSettings, dim: int) -> None:
    """Refuse a decoder that keeps embedded rows if these do not fit in memory."""
    if settings.decoder != "least-squares":
        rows.require(
            12 * rows.n_rows * dim,  # with copies on the way to the decoder
            f"decoder {settings.decoder} for {rows.n_rows:,} rows in {dim} dimensions",
            "give more memory, a smaller embedding_dim, or the decoder least-squares",
        )


def _fit_decoder(
    ridge: Ridge,
    settings: LabelEmbeddingSettings,
    regressor: LinearMap,
    V: F32,
    multiclass: bool,
    rng: Rng,
) -> Neighbours | LinearDecoder:
    """Fit what turns the predicted embedding back into labels V (n_labels, k)."""
    rows = ridge.rows
    if settings.decoder == "least-squares":
        return settings.method.expand(rows, V)
    _require_room(rows, settings, V.shape[1])
    with phase("embedding rows"):
        # A regressor fits its own rows better than new ones, and a logistic decoder would rely on
        # that. So a regressor of other rows embeds each row for it. Neighbours are better among
        # rows that are embedded as well as possible.
        few = rows.n_rows < _PLENTY * rows.n_features and rows.n_rows >= 2 * _N_FOLDS
        if settings.decoder == "logistic" and not settings.method.of_rows and few:
            Z = _embedded_out_of_fold(ridge, settings, V, rng)
        else:
            Z = _embedded(regressor, rows)
    parts = rows.map_blocks(lambda block: (block.side("Y").copy(), block.weights))
    labels, own = map(list, zip(*parts, strict=True))
    Y, weights = stacked(labels), None if own[0] is None else np.concatenate(own)
    if settings.decoder == "neighbours":
        found = fit_neighbours(Z, Y, settings.n_neighbors, settings.sharpness, weights)
        return found if settings.index == "exact" else found.approximate(rng, rows.n_jobs)
    features: Any = None
    if settings.feature_map is not None:
        features = make_random_features(
            Z,
            settings.n_random_features,
            kernel=settings.feature_map,
            bandwidth=settings.bandwidth,
            Y=None if settings.method.of_rows else Y,
            rng=rng,
        )
    options: dict[str, Any] = {"max_epochs": settings.max_epochs, "n_jobs": rows.n_jobs}
    options |= {"features": features, "multiclass": multiclass, "weights": weights}
    options |= {"groups": rows.known.groups}
    coef, intercept = fit_logistic(Z, Y, **options, rng=rng)
    return LinearDecoder(coef, intercept, "softmax" if multiclass else "sigmoid", features)


def _embedded(regressor: LinearMap, rows: Rows) -> F32:
    """Return what a regressor predicts for all rows, (n_rows, k)."""
    n_jobs, k = rows.n_jobs, regressor.coef.shape[1]
    predicted = rows.mapped(lambda b: b._replace(X=regressor(b.X, n_jobs)), n_features=k)
    return predicted.gathered("X")[0]


def _embedded_out_of_fold(whole: Ridge, settings: LabelEmbeddingSettings, V: F32, rng: Rng) -> F32:
    """Return what `_embedded` does, but each row by a regressor of the other folds."""
    rows = whole.rows
    Z = np.empty((rows.n_rows, V.shape[1]), dtype=np.float32)
    for split in folds(rows.n_rows, _N_FOLDS, rng, groups=rows.known.groups):
        unseen = split.is_held_out
        ridge = Ridge(rows.weighted(~unseen), tolerance=whole.tolerance)
        W = ridge.solve(V, settings.regressor_ridge(ridge))
        Z[unseen] = _embedded(W, rows.only(unseen))
    return Z


def _correction_of(rows: Rows, settings: LabelEmbeddingSettings, rng: Rng) -> Correction:
    """Fit the sparse part, on shortlists from models that have not seen the row."""
    X, Y = in_memory(rows, "a correction")
    size = min(_SHORTLIST, Y.shape[1])
    plain = replace(settings, correction=False)

    groups = rows.known.groups

    def fit_on(part: Ints) -> Callable[[Ints], tuple[Ints, F32]]:
        known = Known(groups=None if groups is None else groups[part])
        others = Rows(X[part], Y[part], n_jobs=rows.n_jobs, known=known)
        model = fit_label_embedding(others, plain, rng)
        return lambda new: model.topk(X[new], size, rows.n_jobs)

    candidates, scores = out_of_fold(X.shape[0], fit_on, groups=groups, rng=rng)
    options: dict[str, Any] = {"groups": groups, "n_jobs": rows.n_jobs, "rng": rng}
    return fit_correction(X, Y, candidates, log_odds(scores), **options)


def _chosen_dim(rows: Rows, settings: LabelEmbeddingSettings, rng: Rng, tolerance: float) -> int:
    """Return the smallest dimension that is as good as any, by P@1 on a tenth of the rows."""
    n, n_labels = rows.n_rows, rows.n_labels
    if n < 2:
        return min(_AUTO_DIMS[0], n_labels)
    split = validation_split(n, max(1, n // 10), rng, groups=rows.known.groups)
    held_out = split.is_held_out
    dims = [dim for dim in _AUTO_DIMS if dim < n_labels] or [n_labels]
    rows.require(
        12 * n * dims[-1],
        f"the choice of embedding_dim on {n:,} rows",
        "give more memory, or a number as embedding_dim",
    )
    ridge = Ridge(rows.weighted(~held_out), tolerance=tolerance)
    # One embedding of the largest dimension serves all: the smaller ones are its first columns.
    embedding = settings.method.embed(ridge, dims[-1], settings, rng)
    Z = _embedded(_regressor(ridge, settings, embedding)[0], rows)
    (Y,) = rows.gathered("Y")
    scores, how = [], (settings.n_neighbors, settings.sharpness)
    for dim in dims:
        found = fit_neighbours(Z[~held_out, :dim], Y[~held_out], *how)
        best = found.topk(Z[held_out, :dim], 1, rows.n_jobs)[0]
        scores.append(precision_at_k(Y[held_out], best, 1))
    return next(dim for dim, s in zip(dims, scores, strict=True) if s >= max(scores) - _AUTO_LOSS)
