"""The blend: better than its parts, never worse, calibrated, deterministic, saved whole.

Labels by description, labels and rows that come later, and objectives.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.estimators import load
from labelry.estimators.tagging import Blend
from labelry.metrics import inverse_propensity, micro_f1, ndcg_at_k, precision_at_k, psp_at_k
from labelry.tagging import blend
from labelry.tagging.retrieval import SCORERS

OPTIONS = {"n_trees": 1, "embedding_dim": 15, "n_jobs": 1}


WORDS = np.random.default_rng(99).dirichlet(np.full(150, 0.05), size=40)  # of each label
NAMES = csr_array(np.where(WORDS > 0.05, WORDS, 0).astype(np.float32))
HIDDEN = [37, 38, 39]  # labels that come later


def documents(n: int, seed: int = 0) -> tuple[csr_array, csr_array]:
    """Words of one to three labels each, with many words that say nothing."""
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(1, 41)
    Y = np.zeros((n, 40), dtype=np.float32)
    X = np.zeros((n, 150), dtype=np.float32)
    for i in range(n):
        labels = rng.choice(40, size=rng.integers(1, 4), replace=False, p=popular / popular.sum())
        Y[i, labels] = 1
        mixed = 0.5 * WORDS[labels].mean(axis=0) + 0.5 / 150
        X[i] = np.log1p(rng.multinomial(12, mixed))
    return csr_array(X), csr_array(Y)


@pytest.fixture(scope="module")
def model() -> Blend:
    return Blend(**OPTIONS).fit(*documents(2000))


def test_better_than_each_scorer_on_new_rows(model: Blend) -> None:
    X, Y = documents(600, seed=1)
    labels = model.topk_ids(X, 5)[0]
    quality = ndcg_at_k(Y, labels, 5)
    parts = (model.retrievers_.trees, model.retrievers_.embedding)
    unit = X / np.sqrt(X.multiply(X).sum(axis=1))[:, None]
    for part in parts:
        assert quality > ndcg_at_k(Y, part.topk(csr_array(unit, dtype=np.float32), 5)[0], 5)
    assert list(model.held_out_ndcg_) == [*SCORERS, "blend"]
    assert max(model.held_out_ndcg_, key=model.held_out_ndcg_.get) == "blend"
    assert model.fitted_.scorer is None
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


@pytest.mark.parametrize("single", [0.3, 0.8])
def test_where_most_labels_have_a_single_row_the_others_tell(single: float) -> None:
    X, Y = documents(1000)
    rng = np.random.default_rng(0)
    own = np.flatnonzero(rng.random(1000) < single)  # rows with nothing but a label of their own
    Y = Y.toarray()
    Y[own] = 0
    more = np.zeros((1000, len(own)), dtype=np.float32)
    more[own, np.arange(len(own))] = 1
    Y = csr_array(np.hstack([Y, more]))
    fitted = Blend(**OPTIONS).fit(X, Y)
    new_X, new_Y = documents(300, seed=1)
    new_Y = csr_array((new_Y.data, new_Y.indices, new_Y.indptr), shape=(300, Y.shape[1]))
    tree = fitted.retrievers_.trees.topk(blend.scaled_rows(new_X), 5)[0]
    found = fitted.topk_ids(new_X, 5)[0]
    assert ndcg_at_k(new_Y, found, 5) > ndcg_at_k(new_Y, tree, 5)
    assert fitted.held_out_ndcg_["tree"] > 0.3  # though a share of 0.8 has no label to be found
    assert fitted.probabilities


def of_a_list(seed: int, n: int = 600) -> tuple[csr_array, csr_array]:
    """A row about each label, by words of its own, and with another label, for no reason."""
    rng = np.random.default_rng(seed)
    row = np.arange(n)
    Y = np.eye(n, dtype=np.float32)
    Y[row, rng.zipf(1.5, n) % n] = 1
    X = np.zeros((n, 3 * n + 100), dtype=np.float32)
    for word in range(3):
        X[row, 3 * row + word] = rng.random(n) < 0.8
        X[row, 3 * n + rng.integers(0, 100, n)] = 1
    return csr_array(X), csr_array(Y)


@pytest.mark.parametrize("little", [0.1, -1.0])
def test_where_rows_say_nothing_about_others_the_tree_ranks(
    little: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blend, "_LITTLE", little)
    model = Blend(n_jobs=1).fit(*of_a_list(seed=0))
    ndcg = model.held_out_ndcg_
    assert ndcg["blend"] > ndcg["tree"]  # it knows what is frequent
    found = model.topk_ids(of_a_list(seed=1)[0], 5)[0] == np.arange(600)[:, None]
    if little > 0:
        assert model.scorer_ == "tree"
        assert found.any(axis=1).mean() > 0.5
    else:  # what the rule is for
        assert found.any(axis=1).mean() < 0.1


def test_where_a_scorer_alone_is_better_it_ranks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = documents(200)
    worst = np.float32(-1.0)

    def reversed_tree(fit, candidates, F, *rest):
        return None, worst * F[..., 0]

    monkeypatch.setattr(blend, "_fit_halves", reversed_tree)
    model = Blend(**OPTIONS).fit(X, Y)
    assert model.fitted_.reranker is None
    assert model.probabilities
    best = max(SCORERS, key=model.held_out_ndcg_.__getitem__)
    assert model.scorer_ == best
    _, candidates, F = next(model.retrievers_.candidates(blend.scaled_rows(X), 30))
    scores = np.where(candidates >= 0, F[..., 3 * SCORERS.index(best)], -np.inf)
    expected = model.calibration_.probabilities(scores).max(axis=1)
    assert_array_equal(model.topk_ids(X, 1)[1][:, 0], expected)
    assert abs(expected.mean() - precision_at_k(Y, model.topk_ids(X, 1)[0], 1)) < 0.2


def test_near_duplicates_do_not_flatter_neighbours() -> None:
    X, Y = documents(300)
    X3, Y3 = csr_array(np.tile(X.toarray(), (3, 1))), csr_array(np.tile(Y.toarray(), (3, 1)))
    at_random = Blend(**OPTIONS, similarity=1.1).fit(X3, Y3).held_out_ndcg_
    grouped = Blend(**OPTIONS).fit(X3, Y3).held_out_ndcg_
    assert at_random["neighbours"] > grouped["neighbours"] + 0.1
    new = Blend(**OPTIONS).fit(X3, Y3).retrievers_.embedding
    X, Y = documents(300, seed=1)
    unseen = ndcg_at_k(Y, new.topk(blend.scaled_rows(X), 5)[0], 5)
    assert abs(grouped["neighbours"] - unseen) < 0.08


@pytest.mark.parametrize("reranker", ["average", "logistic", "boosted"])
def test_a_saved_model_is_the_same(reranker: str, tmp_path: Path) -> None:
    X, Y = documents(1000)
    model = Blend(**OPTIONS, reranker=reranker, held_out=0.25).fit(X, Y)
    assert model.reranker_ is not None
    model.save(tmp_path / "a")
    Blend(**OPTIONS, reranker=reranker, held_out=0.25).fit(X, Y).save(tmp_path / "b")
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
    assert model.scorer_ == "tree"
    assert model.held_out_ndcg_ == {}
    assert Blend(**OPTIONS, held_out=0.0).fit(*documents(200)).scorer_ == "tree"


def test_held_out_rows_are_judged_by_five_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    def noting(Y: csr_array, best: np.ndarray, k: int) -> float:
        judged.append(k)
        return ndcg_at_k(Y, best, k)

    monkeypatch.setattr(blend, "ndcg_at_k", noting)
    X, Y = documents(300)
    Blend(**OPTIONS).fit(X, Y)
    assert set(judged) == {5}
    judged.clear()
    Blend(**OPTIONS, n_candidates=1).fit(X, Y)  # or by as many as there are
    assert judged
    assert max(judged) < 5


def test_parameters_out_of_range() -> None:
    X, Y = documents(30)
    for options, message in (
        ({"n_trees": 0}, "n_trees must be at least 1, got 0"),
        ({"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ({"n_candidates": 0}, "n_candidates must be at least 1, got 0"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1, got 0"),
        ({"objective": "fame"}, "objective must be one of precision, propensity, f1; got 'fame'"),
        ({"reranker": "magic"}, "reranker must be one of average, logistic, boosted; got 'magic'"),
        ({"held_out": 1.0}, r"held_out must be at least 0 and below 1, got 1\.0"),
        ({"similarity": 0.0}, r"similarity must be positive, got 0\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            Blend(**options).fit(X, Y)


def found(model: Blend, label: int) -> float:
    """Share of new rows of a label whose five best labels have it."""
    X, Y = documents(600, seed=1)
    rows = np.flatnonzero(Y[:, [label]].toarray())
    return float((model.topk_ids(X[rows], 5)[0] == label).any(axis=1).mean())


def without(labels: list[int]) -> tuple[csr_array, csr_array]:
    """Rows that have none of the labels."""
    X, Y = documents(900)
    rows = np.flatnonzero(Y[:, labels].sum(axis=1) == 0)
    return X[rows], Y[rows]


@pytest.fixture(scope="module")
def zero_shot() -> Blend:
    return Blend(**OPTIONS).fit(*without(HIDDEN), label_features=NAMES)


def test_labels_without_rows_are_found_by_their_names(zero_shot: Blend) -> None:
    assert list(zero_shot.held_out_ndcg_) == [*SCORERS, "names", "blend"]
    assert zero_shot.label_counts_[HIDDEN].tolist() == [0, 0, 0]
    plain = Blend(**OPTIONS).fit(*without(HIDDEN))
    assert [found(plain, label) for label in HIDDEN] == [0, 0, 0]
    assert np.mean([found(zero_shot, label) for label in HIDDEN]) > 0.3
    X, Y = documents(600, seed=1)
    rows = np.flatnonzero(Y[:, HIDDEN].sum(axis=1) == 0)
    better = ndcg_at_k(Y[rows], zero_shot.topk_ids(X[rows], 5)[0], 5)
    assert better > ndcg_at_k(Y[rows], plain.topk_ids(X[rows], 5)[0], 5) + 0.005


def test_labels_that_are_added_are_as_those_without_rows(zero_shot: Blend) -> None:
    X, Y = without(HIDDEN)
    model = Blend(**OPTIONS).fit(X, Y[:, :37], label_features=NAMES[:37])
    model.add_labels(NAMES[37:38], [37]).add_labels(NAMES[38:].toarray(), [38, 39])
    assert model.classes_.tolist() == list(range(40))
    assert_array_equal(model.label_counts_, zero_shot.label_counts_)
    assert model.predict(X[:3]).shape == (3, 40)
    for label in HIDDEN:
        assert abs(found(model, label) - found(zero_shot, label)) < 0.25
    with pytest.raises(ValueError, match=r"classes must be \[40\], got \[3\]"):
        model.add_labels(NAMES[:1], [3])
    with pytest.raises(ValueError, match=r"label_features must have shape \(1, 150\)"):
        model.add_labels(NAMES[:2], [40])
    with pytest.raises(ValueError, match="fitted with label_features"):
        Blend(**OPTIONS).fit(*documents(30)).add_labels(NAMES[:1], [40])


@pytest.mark.parametrize("with_names", [True, False])
def test_rows_that_come_later_vote(with_names: bool) -> None:
    X, Y = documents(900)
    Y = Y[:, [*range(2, 40), 0, 1]]  # the two labels with the most rows come later
    early = np.flatnonzero(Y[:, [38, 39]].sum(axis=1) == 0)
    late = np.setdiff1d(np.arange(900), early)
    names = NAMES[2:] if with_names else None
    model = Blend(**OPTIONS).fit(X[early], Y[early][:, :38], label_features=names)
    trees = model.retrievers_.trees
    model.partial_fit(X[late[:100]], Y[late[:100]]).partial_fit(X[late[100:]], Y[late[100:]])
    assert model.n_rows_ == 900
    assert model.classes_.tolist() == list(range(40))
    assert_array_equal(model.label_counts_, Y.sum(axis=0))
    assert model.retrievers_.trees is trees
    new_X, new_Y = documents(400, seed=1)
    new_Y = new_Y[:, [*range(2, 40), 0, 1]]
    labels = model.topk_ids(new_X, 5)[0]
    whole = Blend(**OPTIONS).fit(X, Y).topk_ids(new_X, 5)[0]
    for label in (38, 39):
        rows = np.flatnonzero(new_Y[:, [label]].toarray())
        assert (labels[rows] == label).any(axis=1).mean() > 0.7
    assert ndcg_at_k(new_Y, labels, 5) > ndcg_at_k(new_Y, whole, 5) - 0.1


def test_the_centroids_of_rows_that_come_later_are_running_means() -> None:
    X, Y = documents(300)
    for rows in (X, X.toarray()):
        model = (
            Blend(**OPTIONS, held_out=0.0).fit(rows[:200], Y[:200]).partial_fit(rows[200:], Y[200:])
        )
        expected = Blend(**OPTIONS, held_out=0.0).fit(rows, Y).retrievers_
        grown = model.retrievers_
        np.testing.assert_allclose(grown.lengths, expected.lengths, rtol=0.02)
        cosine = (grown.centroids * expected.centroids).sum(axis=1)
        # Small entries of sparse centroids are not kept, so not added up either.
        assert cosine[expected.counts > 0].min() > (0.95 if rows is X else 0.9999)


def test_texts_take_names_as_texts_and_new_rows_in_the_same_form() -> None:
    texts = ["a red cat", "the cat sat", "the blue dog", "a dog", "an owl at night"] * 20
    y = [["cat"], ["cat"], ["dog"], ["dog", "big"], []] * 20
    names = ["large", "cat", "dog"]
    model = Blend(**OPTIONS).fit(texts, y, label_features=names)
    model.add_labels(["owl night"], ["owl"])
    assert model.classes_.tolist() == ["big", "cat", "dog", "owl"]
    assert "owl" in model.predict_topk(["an owl"], 2)[0][0]
    model.partial_fit(["a dog at night", "the cat"], [["wolf", "dog"], []])
    assert model.classes_.tolist() == ["big", "cat", "dog", "owl", "wolf"]
    assert model.label_counts_.tolist() == [20, 40, 41, 0, 1]
    fresh = Blend(**OPTIONS).partial_fit(texts, y)
    assert_array_equal(
        fresh.predict_topk(texts[:5])[1], Blend(**OPTIONS).fit(texts, y).predict_topk(texts[:5])[1]
    )
    with pytest.raises(ValueError, match="X has 1 rows but Y has 2"):
        model.partial_fit(["a dog"], [["dog"], []])
    assert model.label_counts_.tolist() == [20, 40, 41, 0, 1]


def test_a_grown_model_is_saved_whole(zero_shot: Blend, tmp_path: Path) -> None:
    X, Y = documents(100, seed=2)
    paths = (tmp_path / "a", tmp_path / "b")
    for path in paths:
        model = Blend(**OPTIONS).fit(*without(HIDDEN), label_features=NAMES)
        model.add_labels(NAMES[:1], [40]).partial_fit(X, csr_array(Y.toarray()[:, [*range(40), 0]]))
        model.save(path)
    for file in paths[0].iterdir():
        assert file.read_bytes() == (paths[1] / file.name).read_bytes()
    loaded = load(paths[0])
    for ours, theirs in zip(loaded.topk_ids(X, 5), model.topk_ids(X, 5), strict=True):
        assert_array_equal(ours, theirs)
    for grown in (model, loaded):  # arrays of a loaded model are read-only
        grown.add_labels(NAMES[:1], [41]).partial_fit(X[:3], csr_array((3, 42), dtype=np.float32))
    assert_array_equal(loaded.topk_ids(X, 5)[1], model.topk_ids(X, 5)[1])


def test_propensities_move_rare_labels_up(model: Blend) -> None:
    X, Y = documents(600, seed=1)
    rare = Blend(**OPTIONS, objective="propensity").fit(*documents(2000))
    weights = inverse_propensity(model.label_counts_, model.n_rows_)
    labels, scores = rare.topk_ids(X, 3)
    usual = model.topk_ids(X, 3)[0]
    assert psp_at_k(Y, labels[:, :1], 1, weights) > psp_at_k(Y, usual[:, :1], 1, weights) + 0.01
    counts = model.label_counts_
    assert counts[labels].mean() < 0.9 * counts[usual].mean()
    assert not rare.probabilities
    assert (np.diff(scores, axis=1) <= 0).all()
    by_label = dict(zip(*(a[0].tolist() for a in model.topk_ids(X[:1], 40)), strict=True))
    np.testing.assert_allclose(
        scores[0], [by_label[label] * weights[label] for label in labels[0]], rtol=1e-5
    )
    before = rare.label_weights_
    rare.partial_fit(X, Y)
    assert (rare.label_weights_ < before)[:5].all()


def test_f1_has_its_own_threshold(model: Blend) -> None:
    X, Y = documents(600, seed=1)
    best = Blend(**OPTIONS, objective="f1").fit(*documents(2000))
    assert_array_equal(best.topk_ids(X, 5)[0], model.topk_ids(X, 5)[0])
    assert model.threshold == 0.5
    assert best.threshold == best.least_score_
    # Of calibrated probabilities, the best threshold is half the best F1 (Lipton et al., 2014).
    assert abs(best.threshold - micro_f1(Y, best.predict(X)) / 2) < 0.12
    labels, scores = best.topk_ids(X, 40)
    assert best.predict(X).nnz == ((scores >= best.threshold) & (labels >= 0)).sum()


def test_odd_names() -> None:
    X, Y = documents(200)
    nothing = csr_array((40, 150), dtype=np.float32)
    some = NAMES.tolil()
    some[::2] = 0
    for names in (nothing, csr_array(some), csr_array(np.ones((40, 150), dtype=np.float32))):
        labels, scores = Blend(**OPTIONS).fit(X, Y, label_features=names).topk_ids(X, 5)
        assert_array_equal(labels < 0, np.isneginf(scores))
        assert precision_at_k(Y, labels, 1) > 0.5
    dense = Blend(**OPTIONS).fit(X.toarray(), Y, label_features=NAMES.toarray())
    assert dense.retrievers_.names.features.shape == (40, 150)
    assert precision_at_k(Y, dense.topk_ids(X.toarray(), 1)[0], 1) > 0.5
    few = Blend(**OPTIONS).fit(
        X[:40], csr_array(np.eye(40, 41)), label_features=NAMES[[*range(40), 0]]
    )
    assert few.scorer_ == "tree"  # nothing was held out, and still the name counts
    assert few.topk_ids(NAMES[:1], 2)[0].tolist()[0].count(40) == 1
    for n_labels in (1, 2):
        ones = csr_array(np.ones((100, n_labels)))
        alone = Blend(**OPTIONS).fit(np.ones((100, 2)), ones, label_features=np.ones((n_labels, 2)))
        assert alone.topk_ids(np.ones((2, 2)), 2)[0][:, 0].tolist() == [0, 0]
