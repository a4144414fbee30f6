"""What must not change an answer, for every system: order, copies, scale, precision, threads.

No relation here needs to know the right answer: a model is trained and asked in two ways that must
agree. They agree up to `ROUNDING`, unless a table says what else holds for a system, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack

from labelry.estimators import SYSTEMS, system_class
from labelry.estimators.base import LabelRanker

N_TRAIN, N_TEST, N_FEATURES, N_LABELS = 180, 60, 40, 30
ROUNDING = 3e-5  # of float32, relative to the largest score
CHANCE = 0.2  # of P@1 that another draw of the same distribution may cost on 60 rows

EMBEDDINGS = ("rembrandt", "pca", "compressed-sensing", "plst", "cplst", "cca", "ml-cssp")
TAGGERS = ("fast", "balanced", "best")
NAMES = [*SYSTEMS, *(f"tagger-{quality}" for quality in TAGGERS)]

# As exact as a system can be: all directions, optima that are reached, nothing held out.
_EMBEDDING = {"embedding_dim": N_LABELS, "regressor_regularization": 0.5, "n_neighbors": 20}
_SHORT = {"embedding_dim": 8, "max_epochs": 5}
_LEML = {"embedding_dim": N_LABELS, "n_rounds": 30}
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(EMBEDDINGS, _EMBEDDING),
    "one-vs-rest": {"tolerance": 1e-4, "max_sweeps": 2000},
    "blend": {"n_trees": 1, "embedding_dim": N_LABELS, "n_neighbors": 20},
    "linear-tree": {"prune": 0.0},
    "label-tree": {"max_epochs": 10},
    "label-embedding-tree": _SHORT,
    "sequential-embedding": _SHORT,
    "joint-embedding": _SHORT,
    "wsabie": _SHORT,
    "fastxml": {"n_trees": 10, "normalize": True},
    "knn": {"n_neighbors": 20},
    "leml": _LEML,
    "local-leml": {**_LEML, "n_clusters": 1, "n_learners": 1},
    "sleec": {"embedding_dim": 10, "n_label_neighbors": 20, "n_neighbors": 20},
    "moments": {"n_topics": 6, "temperature": 1.0, "smoothing": 0.1, "n_power_passes": 8},
}

# What makes twice the rows the same problem: a sum of losses is weighed against a regulariser, and
# each neighbour is there twice.
DOUBLED: dict[str, dict[str, Any]] = {
    **{name: {"n_neighbors": 40} for name in (*EMBEDDINGS, "knn")},
    "one-vs-rest": {"C": 0.5},
    "linear-tree": {"C": 1.25 / 2},
    "lpsr": {"C": 0.5},
    "leml": {"regularization": 0.03 * 2**0.5},  # its unit is the root of the number of rows
    "local-leml": {"regularization": 0.03 * 2**0.5},
}


class Weaker(NamedTuple):
    """What holds of a relation: scores up to a tolerance, or P@1 up to chance (None)."""

    tolerance: float | None
    reason: str


Table = Mapping[str, Weaker]
Scores = NDArray[np.float32]

_DESCENT = Weaker(0.06, "the descent goes through the rows in order and stops near the optimum")
_ROUNDS = Weaker(0.01, "rounds of conjugate gradients that stop near the optimum")
_FACTORS = Weaker(0.05, "rounds from factors that are drawn for each feature by its number")
_HELD_OUT = Weaker(None, "rows are held out by their numbers")
_SEEDS = Weaker(None, "clusters begin with rows that are drawn by their numbers")
_TREE = Weaker(None, "the tree is drawn, or clustered from seeds that are, by numbers of labels")
_NEGATIVES = Weaker(None, "wrong labels are drawn by their numbers")
_ORDER = Weaker(None, "the tree grows by one row after the other")
_SIDES = Weaker(None, "the sides of the rows of a node are drawn by their numbers")
_POWER = Weaker(5e-3, "the power method stops when a step is below 1e-4")
_STARTS = Weaker(None, "another number of rows or features draws other starts of the power method")
_COORDINATES = Weaker(None, "features are descended in the order of the rows that have them")

ROWS: Table = {
    **dict.fromkeys(("linear-tree", "lpsr"), _DESCENT),
    **dict.fromkeys(("leml", "local-leml"), _ROUNDS),
    **dict.fromkeys(("blend", "tagger-fast", "tagger-balanced", "tagger-best"), _HELD_OUT),
    **dict.fromkeys(("label-tree", "label-embedding-tree"), _HELD_OUT),
    **dict.fromkeys(("sequential-embedding", "joint-embedding", "wsabie"), _HELD_OUT),
    "filter-tree": Weaker(None, "a round that is nearly even may go to the other side"),
    "conditional-probability-tree": _ORDER,
    "fastxml": _SIDES,
    "sleec": _SEEDS,
    "moments": _POWER,
}
LABELS: Table = {
    **dict.fromkeys(("linear-tree", "lpsr"), _DESCENT),
    **dict.fromkeys(("leml", "local-leml"), _ROUNDS),
    **dict.fromkeys(("blend", "tagger-fast", "tagger-balanced", "tagger-best"), _TREE),
    **dict.fromkeys(("label-tree", "label-embedding-tree", "filter-tree"), _TREE),
    **dict.fromkeys(("joint-embedding", "wsabie"), _NEGATIVES),
    "compressed-sensing": Weaker(None, "the vector of a label is drawn, and is all there is"),
    "conditional-probability-tree": Weaker(None, "labels of a row come in order of their numbers"),
    "fastxml": Weaker(None, "equal gains go to the label with the smaller number"),
}
FEATURES: Table = {
    **dict.fromkeys(("leml", "local-leml"), _FACTORS),
    "filter-tree": Weaker(1e-3, "a descent that stops near the optimum, one step sooner or later"),
    "fastxml": _COORDINATES,
    "moments": _POWER,
}
ROWS_TWICE: Table = {**ROWS, "moments": _STARTS}
UNUSED_FEATURE: Table = {**dict.fromkeys(("leml", "local-leml"), _FACTORS), "moments": _STARTS}
DENSE: Table = {
    "label-tree": Weaker(None, "dense columns are standardised, sparse rows only scaled"),
    **dict.fromkeys(
        ("blend", "tagger-fast", "tagger-balanced", "tagger-best"),
        Weaker(None, "near-duplicates are kept together on one side of a split if rows are sparse"),
    ),
    "fastxml": _COORDINATES,
    **dict.fromkeys(("leml", "local-leml"), _ROUNDS),
}
THREADS: Table = {**dict.fromkeys(("leml", "local-leml"), _ROUNDS), "moments": _POWER}
WEIGHTS: Table = {"cca": Weaker(3e-4, "rare labels are divided by their small variance")}
SCALE: Table = {**dict.fromkeys(("leml", "local-leml"), _ROUNDS), "fastxml": _COORDINATES}

# Neighbours: copies of a row are as many, and rounding may exchange the last of fewer.
EVERYONE: Mapping[str, Any] = {"n_neighbors": 2 * N_TRAIN}

# Never the best label of a row if it has no rows in training, except for:
UNSEEN_LABEL_WINS = {
    "label-embedding-tree": "a leaf only has to beat its siblings, and only rows of theirs say so"
}


class Data(NamedTuple):
    """Sparse rows with one to three labels each, frequent ones and rare ones."""

    X: csr_array
    Y: csr_array
    X_test: csr_array
    Y_test: NDArray[np.float32]


@cache
def data(seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    n = N_TRAIN + N_TEST
    topics = rng.random((N_LABELS, N_FEATURES)) * (rng.random((N_LABELS, N_FEATURES)) < 0.2)
    # The largest of log p + Gumbel noise are a draw without replacement.
    keys = -np.log(np.arange(2, N_LABELS + 2)) + rng.gumbel(size=(n, N_LABELS))
    place = np.argsort(np.argsort(-keys, axis=1), axis=1)
    Y = (place < rng.integers(1, 4, size=(n, 1))).astype(np.float32)
    noise = rng.random((n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < 0.1)
    X = csr_array((Y @ topics + noise).astype(np.float32))
    return Data(X[:N_TRAIN], csr_array(Y[:N_TRAIN]), X[N_TRAIN:], Y[N_TRAIN:])


def make(name: str, **changes: Any) -> LabelRanker:
    if name.startswith("tagger-"):
        changes["quality"] = name.removeprefix("tagger-")
        name = "tagger"
    return system_class(name)(**{"n_jobs": 1, **SETTINGS.get(name, {}), **changes})


@cache
def fitted(name: str) -> LabelRanker:
    d = data()
    return make(name).fit(d.X, d.Y)


@cache
def scores_before(name: str) -> Scores:
    return scores(fitted(name), data().X_test)


def scores(model: LabelRanker, X: Any) -> Scores:
    """Scores of all labels of each row; minus infinity where a label is not found."""
    ids, found = model.topk_ids(X, N_LABELS + 1)
    S = np.full((len(ids), N_LABELS + 1), -np.inf, dtype=np.float32)
    rows, places = np.nonzero(ids >= 0)
    S[rows, ids[rows, places]] = found[rows, places]
    return S[:, : len(model.classes_)]


def hits(S: Scores) -> float:
    """P@1 on the test rows."""
    return float(data().Y_test[np.arange(len(S)), S.argmax(axis=1)].mean())


def assert_agree(before: Scores, after: Scores, tolerance: float | None = ROUNDING) -> None:
    assert not np.isnan(after).any()
    if tolerance is None:
        assert hits(after) >= hits(before) - CHANCE
        return
    found = np.isfinite(before)
    assert np.array_equal(found, np.isfinite(after)), "other labels are found"
    error = np.abs(before[found] - after[found]).max() / np.abs(before[found]).max()
    assert error <= tolerance


def tolerance(table: Table, name: str) -> float | None:
    return table[name].tolerance if name in table else ROUNDING


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_tables_name_systems() -> None:
    tables: list[Mapping[str, Any]] = [
        *(ROWS, LABELS, FEATURES, ROWS_TWICE, UNUSED_FEATURE, DENSE, THREADS, WEIGHTS, SCALE),
        *(SETTINGS, DOUBLED, UNSEEN_LABEL_WINS),
    ]
    assert set().union(*tables) <= set(NAMES)


def test_the_systems_learn_something(name: str) -> None:
    assert hits(scores_before(name)) >= 0.6  # the most frequent label: 0.3


def test_order_of_the_rows(name: str) -> None:
    d = data()
    order = np.random.default_rng(1).permutation(N_TRAIN)
    model = make(name).fit(d.X[order], d.Y[order])
    assert_agree(scores_before(name), scores(model, d.X_test), tolerance(ROWS, name))


def test_order_of_the_labels(name: str) -> None:
    d = data()
    order = np.random.default_rng(2).permutation(N_LABELS)
    after = np.empty_like(scores_before(name))
    after[:, order] = scores(make(name).fit(d.X, csr_array(d.Y[:, order])), d.X_test)
    assert_agree(scores_before(name), after, tolerance(LABELS, name))


def test_order_of_the_features(name: str) -> None:
    d = data()
    order = np.random.default_rng(3).permutation(N_FEATURES)
    model = make(name).fit(csr_array(d.X[:, order]), d.Y)
    after = scores(model, csr_array(d.X_test[:, order]))
    assert_agree(scores_before(name), after, tolerance(FEATURES, name))


def test_every_row_twice(name: str) -> None:
    d = data()
    twice = np.repeat(np.arange(N_TRAIN), 2)
    model = make(name, **DOUBLED.get(name, {})).fit(d.X[twice], d.Y[twice])
    assert_agree(scores_before(name), scores(model, d.X_test), tolerance(ROWS_TWICE, name))


def test_a_feature_that_no_row_has(name: str) -> None:
    d = data()
    place = 7

    def widened(X: csr_array) -> csr_array:
        nothing = csr_array((X.shape[0], 1), dtype=np.float32)
        return csr_array(hstack([X[:, :place], nothing, X[:, place:]], format="csr"))

    model = make(name).fit(widened(d.X), d.Y)
    after = scores(model, widened(d.X_test))
    assert_agree(scores_before(name), after, tolerance(UNUSED_FEATURE, name))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_label_that_no_row_has(name: str, seed: int) -> None:
    if name in UNSEEN_LABEL_WINS:
        pytest.skip(UNSEEN_LABEL_WINS[name])
    d = data(seed)
    place = 10
    Y = csr_array(hstack([d.Y[:, :place], 0 * d.Y[:, :1], d.Y[:, place:]], format="csr"))
    Y.eliminate_zeros()
    S = scores(make(name).fit(d.X, Y), d.X_test)
    others = np.delete(S, place, axis=1).max(axis=1)
    assert (S[:, place] < others).all()


def test_double_precision_is_rounded_first(name: str) -> None:
    d = data()
    noise = np.random.default_rng(4).uniform(-1e-9, 1e-9, d.X.nnz)  # far below float32
    X = csr_array((d.X.data * (1 + noise), d.X.indices, d.X.indptr), shape=d.X.shape)
    assert X.dtype == np.float64
    model = make(name).fit(X, d.Y.astype(np.float64))
    assert np.array_equal(scores(model, d.X_test.astype(np.float64)), scores_before(name))


def test_dense_rows(name: str) -> None:
    d = data()
    model = make(name).fit(d.X.toarray(), d.Y.toarray())
    after = scores(model, d.X_test.toarray())
    assert_agree(scores_before(name), after, tolerance(DENSE, name))


def test_dense_rows_to_predict(name: str) -> None:
    assert_agree(scores_before(name), scores(fitted(name), data().X_test.toarray()))


def test_entries_in_any_order_and_in_parts(name: str) -> None:
    d = data()

    def scattered(X: csr_array) -> Any:
        entries = X.tocoo()
        order = np.random.default_rng(5).permutation(2 * X.nnz) % X.nnz  # each one twice
        parts = (entries.data[order] / 2, (entries.row[order], entries.col[order]))
        return coo_array(parts, shape=X.shape)

    model = make(name).fit(scattered(d.X), d.Y)
    assert np.array_equal(scores(model, scattered(d.X_test)), scores_before(name))


@pytest.mark.parametrize(
    ("factor", "dense"),
    [
        (4.0, False),
        (1e30, True),
        pytest.param(1e-30, True, marks=pytest.mark.slow),
        pytest.param(1e30, False, marks=pytest.mark.slow),
    ],
)
def test_rows_are_scaled_to_unit_length(name: str, factor: float, dense: bool) -> None:
    d = data()
    weaker = tolerance(SCALE, name)
    if dense:
        weaker = None if None in (weaker, tolerance(DENSE, name)) else weaker

    def scaled(X: csr_array) -> Any:
        Z = X * np.float32(factor)
        return Z.toarray() if dense else Z

    after = scores(make(name).fit(scaled(d.X), d.Y), scaled(d.X_test))
    if factor == 4.0 and not dense:  # no rounding at all
        assert np.array_equal(after, scores_before(name))
    assert_agree(scores_before(name), after, weaker)


@pytest.mark.parametrize("dense", [False, True])
def test_sizes_that_float32_cannot_square(name: str, dense: bool) -> None:
    if "normalize" not in make(name).get_params():
        pytest.skip("rows are always scaled")
    d = data()
    X = d.X.toarray() if dense else d.X
    with pytest.raises(ValueError, match=r"at most 1e\+15 in size with normalize=False, got 3"):
        make(name, normalize=False).fit(X * np.float32(1e30), d.Y)
    tiny = X * np.float32(1e-30)  # as good as nothing, but no error
    assert not np.isnan(scores(make(name, normalize=False).fit(tiny, d.Y), tiny)).any()


def test_threads_of_training(name: str) -> None:
    d = data()
    after = scores(make(name, n_jobs=2).fit(d.X, d.Y), d.X_test)
    assert_agree(scores_before(name), after, tolerance(THREADS, name))
    assert np.array_equal(after.argmax(axis=1), scores_before(name).argmax(axis=1))


def test_threads_of_prediction(name: str) -> None:
    model = fitted(name)
    model.n_jobs = 2
    try:
        assert np.array_equal(scores(model, data().X_test), scores_before(name))
    finally:
        model.n_jobs = 1


def test_one_row_at_a_time(name: str) -> None:
    X = data().X_test
    after = np.vstack([scores(fitted(name), X[[i]]) for i in range(N_TEST)])
    assert_agree(scores_before(name), after)


def test_fewer_labels_are_the_first_of_more(name: str) -> None:
    few, many = (fitted(name).topk_ids(data().X_test, k) for k in (3, N_LABELS))
    for a, b in zip(few, many, strict=True):
        assert np.array_equal(a, b[:, :3])


class TestWeights:
    """Importance of rows, where `fit` takes it."""

    @pytest.fixture(params=EMBEDDINGS)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @staticmethod
    def scores(name: str, weights: Any, **changes: Any) -> Scores:
        d = data()
        return scores(make(name, **changes).fit(d.X, d.Y, sample_weight=weights), d.X_test)

    def test_ones(self, name: str) -> None:
        assert_agree(scores_before(name), self.scores(name, np.ones(N_TRAIN)))

    @pytest.mark.parametrize("factor", [3.0, 1e-6, 1e6])
    def test_only_their_ratios_count(self, name: str, factor: float) -> None:
        weights = np.random.default_rng(6).random(N_TRAIN) + 0.1
        before = self.scores(name, weights, **EVERYONE)
        after = self.scores(name, factor * weights, **EVERYONE)
        assert_agree(before, after, tolerance(WEIGHTS, name))

    def test_whole_numbers_are_copies_and_zero_is_none(self, name: str) -> None:
        d = data()
        weights = np.random.default_rng(7).integers(0, 3, N_TRAIN)
        copies = np.repeat(np.arange(N_TRAIN), weights)
        model = make(name, **EVERYONE).fit(d.X[copies], d.Y[copies])
        assert_agree(scores(model, d.X_test), self.scores(name, weights, **EVERYONE))


@pytest.mark.parametrize("decoder", ["logistic", "least-squares"])
@pytest.mark.parametrize(
    "changed",
    [
        lambda d: (d.X, csr_array(d.Y[:, ::-1])),
        lambda d: (csr_array(hstack([d.X, 0 * d.X[:, :3]], format="csr")), d.Y),
        lambda d: (d.X * np.float32(1e-25), d.Y),
    ],
    ids=["labels", "unused features", "scale"],
)
def test_decoders(decoder: str, changed: Callable[[Data], tuple[Any, Any]]) -> None:
    d = data()
    options: dict[str, Any] = {"decoder": decoder, "max_epochs": 3}
    before = make("rembrandt", **options).fit(d.X, d.Y).embed(d.X)
    X, Y = changed(d)
    model = make("rembrandt", **options).fit(X, Y)
    after = model.embed(X)
    # The embedding up to signs of its directions: cosines of rows.
    assert_agree(before @ before.T, after @ after.T)
