"""Rembrandt and its relatives as estimators."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, random_array

import labelry
from labelry import CCA, CPLST, PCA, PLST, CompressedSensing, Rembrandt
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge

SYSTEMS = [Rembrandt, PLST, CPLST, CompressedSensing, CCA, PCA]
DECODERS = ["neighbours", "least-squares", "logistic"]


def planted(n: int = 400, d: int = 40, c: int = 30, seed: int = 0) -> tuple[csr_array, csr_array]:
    """Labels that depend on the features through eight directions."""
    rng = np.random.default_rng(seed)
    X = random_array((n, d), density=0.4, rng=rng, format="csr", dtype=np.float32)
    W = rng.standard_normal((d, 8)) @ rng.standard_normal((8, c))
    scores = X @ W
    scores -= scores.mean(axis=0)  # no label is right everywhere
    return X, csr_array((scores >= np.sort(scores, axis=1)[:, [-3]]).astype(np.float32))


X, Y = planted()
TRAIN, TEST = slice(0, 300), slice(300, 400)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_learns_planted_labels(system, decoder: str) -> None:
    if (system, decoder) == (PCA, "least-squares"):
        pytest.skip("the components of the features say nothing about labels without a decoder")
    model = system(embedding_dim=20, decoder=decoder, normalize=False).fit(X[TRAIN], Y[TRAIN])
    chance = np.asarray(Y.mean(axis=0)).max()
    assert model.score(X[TEST], Y[TEST]) > chance + 0.1
    assert model.label_embedding_.shape == (30, 20)


def test_all_dimensions_equal_plain_ridge() -> None:
    model = Rembrandt(
        embedding_dim=30, decoder="least-squares", regressor_regularization=0.1, normalize=False
    ).fit(X, Y)
    ridge = Ridge(Rows(X, Y)).solve(np.eye(30, dtype=np.float32), 0.1)
    assert_allclose(model.score_all(X), ridge(X), atol=1e-4)


def test_cplst_equals_rembrandt_on_centred_labels() -> None:
    """CPLST: the directions of centred labels, decoded back with the mean added."""
    options = {"embedding_dim": 6, "decoder": "least-squares", "normalize": False, "n_passes": 3}
    cplst = CPLST(**options).fit(X, Y)
    mean = Y.toarray().mean(axis=0)
    ridge = Ridge(Rows(X, Y.toarray() - mean))
    from labelry.embeddings.rembrandt import rembrandt

    V = rembrandt(ridge, 6, n_passes=3, rng=np.random.default_rng(0)).vectors
    W = ridge.solve(V, cplst.regressor_ridge(ridge))
    assert_allclose(cplst.score_all(X), W(X) @ V.T + mean, atol=2e-3)


def test_plst_equals_a_dense_svd_of_centred_labels() -> None:
    options = {"embedding_dim": 6, "decoder": "least-squares", "normalize": False, "n_passes": 5}
    plst = PLST(**options).fit(X, Y)
    mean = Y.toarray().mean(axis=0)
    V = np.linalg.svd(Y.toarray() - mean, full_matrices=False)[2][:6].T
    ridge = Ridge(Rows(X, Y.toarray() - mean))
    W = ridge.solve(V, plst.regressor_ridge(ridge))
    assert_allclose(plst.score_all(X), W(X) @ V.T + mean, atol=2e-3)


@pytest.mark.parametrize("system", [Rembrandt, CCA])
def test_one_ridge_for_embedding_and_regressor(system) -> None:
    options = {"embedding_dim": 5, "regressor_regularization": 0.3}
    model = system(regularization=None, **options).fit(X, Y)
    expected = system(regularization=0.3, **options).fit(X, Y)
    other = system(regularization=3.0, **options).fit(X, Y)
    assert_allclose(model.label_embedding_, expected.label_embedding_)
    assert_allclose(model.regressor_.coef, expected.regressor_.coef)
    assert not np.allclose(model.label_embedding_, other.label_embedding_, atol=1e-3)


def test_energy_captured_by_a_smaller_embedding_is_a_prefix() -> None:
    small, large = (
        Rembrandt(embedding_dim=dim, n_passes=3, decoder="least-squares").fit(X, Y)
        for dim in (4, 10)
    )
    assert_allclose(small.spectrum_, large.spectrum_[:4], rtol=1e-3)


def test_auto_dimension_is_one_of_the_candidates() -> None:
    model = Rembrandt(embedding_dim="auto").fit(X, Y)
    assert model.label_embedding_.shape[1] in (25,)
    tiny = Rembrandt(embedding_dim="auto").fit(X, Y[:, :3])
    assert tiny.label_embedding_.shape[1] <= 3


def test_a_share_of_the_energy_chooses_the_dimension() -> None:
    whole = Rembrandt(embedding_dim=30, n_passes=3, decoder="least-squares").fit(X, Y)
    shares = np.cumsum(whole.spectrum_) / whole.spectrum_.sum()
    for share in (0.5, 0.9):
        model = Rembrandt(embedding_dim=share, n_passes=3, decoder="least-squares").fit(X, Y)
        dim = model.label_embedding_.shape[1]
        assert shares[dim - 1] >= share - 1e-4
        assert dim == 1 or shares[dim - 2] < share + 1e-4
    components = PCA(embedding_dim=0.5).fit(X, Y)
    assert 1 < components.label_embedding_.shape[1] < 40
    with pytest.raises(ValueError, match="embedding_dim must be a number"):
        CompressedSensing(embedding_dim=0.5).fit(X, Y)


@pytest.mark.parametrize("decoder", ["neighbours", "least-squares"])
@pytest.mark.parametrize("system", [Rembrandt, CPLST, PCA])
def test_weights_count_rows(system, decoder: str) -> None:
    """Weight 2 is the row twice, weight 0 is no row."""
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, 300)
    repeated = np.repeat(np.arange(300), weights)
    options = {"embedding_dim": 8, "decoder": decoder, "n_neighbors": 10_000, "n_passes": 4}
    weighted = system(**options).fit(X[TRAIN], Y[TRAIN], sample_weight=weights)
    copied = system(**options).fit(X[repeated], Y[repeated])
    assert_allclose(weighted.spectrum_, copied.spectrum_, rtol=1e-3)
    assert_allclose(weighted.score_all(X[TEST]), copied.score_all(X[TEST]), atol=5e-3)
    plain = system(**options).fit(X[TRAIN], Y[TRAIN])
    assert np.abs(plain.score_all(X[TEST]) - copied.score_all(X[TEST])).max() > 0.02


def test_bad_weights() -> None:
    for weights, message in (
        (np.ones(5), r"sample_weight must have shape \(400,\), got \(5,\)"),
        (np.zeros(400), "sample_weight must be finite and at least 0, and not all zero"),
        (-np.ones(400), "at least 0"),
        (np.full(400, np.nan), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            Rembrandt().fit(X, Y, sample_weight=weights)


def test_logistic_decoder_sees_rows_that_the_regressor_does_not_know() -> None:
    """With more features than rows the regressor knows its own labels by heart."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((120, 300)).astype(np.float32)
    y = csr_array(np.eye(2, dtype=np.float32)[rng.integers(0, 2, 120)])
    model = Rembrandt(embedding_dim=2, decoder="logistic", regressor_regularization=1e-3)
    model.fit(noise, y)
    confident = model.predict_topk(rng.standard_normal((200, 300)), k=1)[1]
    assert confident.mean() < 0.65  # a coin, and it should know


@pytest.mark.parametrize("decoder", ["neighbours", "logistic"])
def test_the_correction_learns_words_that_decide_a_label(decoder: str, tmp_path) -> None:
    """Each of 60 labels has a word of its own: 5 dimensions cannot hold them, sparse terms can."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 60, 900)
    words = np.eye(60, dtype=np.float32)[y] + (rng.random((900, 60)) < 0.02)
    train, test = slice(0, 700), slice(700, 900)
    options = {"embedding_dim": 5, "decoder": decoder}
    plain = Rembrandt(**options).fit(csr_array(words[train]), y[train])
    model = Rembrandt(**options, correction=True).fit(csr_array(words[train]), y[train])
    rows = csr_array(words[test])
    assert model.score(rows, y[test]) > plain.score(rows, y[test]) + 0.1
    labels, scores = model.predict_topk(rows, k=60)
    assert labels.shape == (200, 60)
    assert ((scores >= 0) & (scores <= 1))[labels >= 0].all()
    model.save(tmp_path / "m")
    assert_allclose(labelry.load(tmp_path / "m").predict_topk(rows, k=60)[1], scores)
    with pytest.raises(ValueError, match="rembrandt does not score all labels"):
        model.score_all(rows)


def test_similar_labels() -> None:
    frequent = np.argsort(-Y.toarray().sum(axis=0))[:10]
    pairs = csr_array(np.repeat(Y.toarray()[:, frequent], 2, axis=1))  # each label has a twin
    model = Rembrandt(embedding_dim=10).fit(X, pairs)
    for label in range(20):
        names, cosine = model.similar_labels(label, k=3)
        assert names[0] == label ^ 1
        assert cosine[0] == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(ValueError, match="one of the 20 labels of the model, got 'x'"):
        model.similar_labels("x")


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("A", "B"),
    [
        (X, np.ones((400, 3))),  # every label on every row
        (np.zeros((6, 4)), np.eye(6, 4)),  # no features at all; rows without labels
        (np.ones((5, 2)), np.eye(5, 9)),  # labels without rows; duplicate rows
        (np.ones((1, 1)), np.ones((1, 2))),  # one row
    ],
)
def test_odd_data_gives_finite_scores(decoder: str, A, B: np.ndarray) -> None:
    model = Rembrandt(embedding_dim=5, decoder=decoder).fit(A, csr_array(B))
    labels, scores = model.predict_topk(A, k=2)
    assert np.isfinite(scores[np.asarray(labels) >= 0]).all()
    assert not np.isnan(scores).any()


def test_errors_name_the_parameter() -> None:
    for parameters, message in (
        ({"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ({"decoder": "magic"}, "decoder must be one of neighbours, logistic, least-squares"),
        ({"feature_map": "linear"}, "feature_map must be one of None, gaussian, laplacian"),
        ({"regularization": -1}, "regularization must be at least 0, got -1"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Rembrandt(**parameters).fit(X, Y)
