"""The blend: better than its parts, never worse, calibrated, deterministic, kept whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.metrics import ndcg_at_k, precision_at_k
from labelry.systems import blend
from labelry.systems.blend import Blend
from labelry.systems.registry import SYSTEMS, load
from labelry.systems.retrieval import JUDGES

OPTIONS = {"n_trees": 1, "embedding_dim": 15, "n_jobs": 1}


def documents(n: int, seed: int = 0) -> tuple[csr_array, csr_array]:
    """Words of one to three labels each, with many words that say nothing."""
    words = np.random.default_rng(99).dirichlet(np.full(150, 0.05), size=40)
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(1, 41)
    Y = np.zeros((n, 40), dtype=np.float32)
    X = np.zeros((n, 150), dtype=np.float32)
    for i in range(n):
        labels = rng.choice(40, size=rng.integers(1, 4), replace=False, p=popular / popular.sum())
        Y[i, labels] = 1
        mixed = 0.5 * words[labels].mean(axis=0) + 0.5 / 150
        X[i] = np.log1p(rng.multinomial(12, mixed))
    return csr_array(X), csr_array(Y)


@pytest.fixture(scope="module")
def model() -> Blend:
    return Blend(**OPTIONS).fit(*documents(1200))


def test_better_than_each_judge_on_new_rows(model: Blend) -> None:
    X, Y = documents(600, seed=1)
    labels = model.topk_ids(X, 5)[0]
    quality = ndcg_at_k(Y, labels, 5)
    parts = (model.retrievers_.tree, model.retrievers_.embedding)
    unit = X / np.sqrt(X.multiply(X).sum(axis=1))[:, None]
    for part in parts:
        assert quality > ndcg_at_k(Y, part._topk(csr_array(unit, dtype=np.float32), 5)[0], 5)
    assert list(model.held_out_ndcg_) == [*JUDGES, "blend"]
    assert max(model.held_out_ndcg_, key=model.held_out_ndcg_.get) == "blend"
    assert model.judge_ is None
    assert abs(quality - model.held_out_ndcg_["blend"]) < 0.05


def test_scores_are_calibrated_probabilities(model: Blend) -> None:
    X, Y = documents(600, seed=1)
    labels, scores = model.topk_ids(X, 5)
    assert model.probabilities
    assert (np.diff(scores, axis=1) <= 0).all()
    assert scores.min() > 0
    assert scores.max() < 1
    for k in (1, 5):
        assert abs(scores[:, :k].mean() - precision_at_k(Y, labels, k)) < 0.05


def test_where_a_judge_alone_is_better_it_ranks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = documents(200)
    worst = np.float32(-1.0)
    monkeypatch.setattr(
        blend.Blend,
        "_unseen_log_odds",
        lambda self, candidates, F, *rest: worst * F[..., 0],  # the tree's, upside down
    )
    model = Blend(**OPTIONS).fit(X, Y)
    assert model.reranker_ is None
    assert not model.probabilities
    best = max(JUDGES, key=model.held_out_ndcg_.__getitem__)
    assert model.judge_ == best
    _, candidates, F = next(model.retrievers_.judged(blend.scaled_rows(X), 30, 1))
    scores = np.where(candidates >= 0, F[..., 3 * JUDGES.index(best)], -np.inf)
    assert_array_equal(model.topk_ids(X, 1)[1][:, 0], scores.max(axis=1))


def test_near_duplicates_do_not_flatter_neighbours() -> None:
    X, Y = documents(300)
    X3, Y3 = csr_array(np.tile(X.toarray(), (3, 1))), csr_array(np.tile(Y.toarray(), (3, 1)))
    at_random = Blend(**OPTIONS, similarity=1.1).fit(X3, Y3).held_out_ndcg_
    grouped = Blend(**OPTIONS).fit(X3, Y3).held_out_ndcg_
    assert at_random["neighbours"] > grouped["neighbours"] + 0.1
    new = Blend(**OPTIONS).fit(X3, Y3).retrievers_.embedding
    X, Y = documents(300, seed=1)
    unseen = ndcg_at_k(Y, new._topk(blend.scaled_rows(X), 5)[0], 5)
    assert abs(grouped["neighbours"] - unseen) < 0.08


@pytest.mark.parametrize("reranker", ["average", "logistic", "boosted"])
def test_a_saved_model_is_the_same(
    reranker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SYSTEMS, "blend", "labelry.systems.blend:Blend")
    X, Y = documents(1000)
    model = Blend(**OPTIONS, reranker=reranker).fit(X, Y)
    assert model.reranker_ is not None
    model.save(tmp_path / "a")
    Blend(**OPTIONS, reranker=reranker).fit(X, Y).save(tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    loaded = load(tmp_path / "a")
    for ours, theirs in zip(loaded.topk_ids(X, 5), model.topk_ids(X, 5), strict=True):
        assert_array_equal(ours, theirs)


def test_one_row_is_ranked_as_among_many(model: Blend) -> None:
    X, _ = documents(30, seed=1)
    labels, scores = model.topk_ids(X, 5)
    for i in (0, 7, 29):
        one, score = model.topk_ids(X[[i]], 5)
        assert_array_equal(one[0], labels[i])
        np.testing.assert_allclose(score[0], scores[i], rtol=1e-4)


def test_odd_data() -> None:
    X, Y = documents(120)
    X, Y = X.tolil(), Y.tolil()
    X[:10] = 0  # no features
    Y[5:20] = 0  # no labels
    Y[:, 39] = 0  # a label without rows
    Y[:, 38] = 1  # a label of all rows
    labels, scores = Blend(**OPTIONS).fit(csr_array(X), csr_array(Y)).topk_ids(csr_array(X), 40)
    assert labels.shape == scores.shape == (120, 40)
    assert_array_equal(labels < 0, np.isneginf(scores))
    assert (labels[:, :3] == 38).any(axis=1).mean() > 0.9
    every = [np.unique(row[row >= 0], return_counts=True)[1].max() for row in labels]
    assert max(every) == 1
    for rows, names in ((1, 1), (3, 1), (100, 1), (100, 2)):
        alone = Blend(**OPTIONS).fit(np.ones((rows, 2)), csr_array(np.ones((rows, names))))
        assert alone.topk_ids(np.ones((2, 2)), 2)[0][:, 0].tolist() == [0, 0]


def test_nothing_is_held_out_of_few_rows() -> None:
    X, Y = documents(60)
    model = Blend(**OPTIONS).fit(X, Y)
    assert model.judge_ == "tree"
    assert model.held_out_ndcg_ == {}
    assert Blend(**OPTIONS, held_out=0.0).fit(*documents(200)).judge_ == "tree"


def test_parameters_out_of_range() -> None:
    X, Y = documents(30)
    for options, message in (
        ({"n_trees": 0}, "n_trees must be at least 1, got 0"),
        ({"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ({"n_candidates": 0}, "n_candidates must be at least 1, got 0"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"reranker": "magic"}, "reranker must be one of average, logistic, boosted; got 'magic'"),
        ({"held_out": 1.0}, r"held_out must be at least 0 and below 1, got 1\.0"),
        ({"similarity": 0.0}, r"similarity must be positive, got 0\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            Blend(**options).fit(X, Y)
