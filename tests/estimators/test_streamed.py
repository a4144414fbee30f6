"""Systems that learn by passes: the same model from one block, ten blocks, shards and a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal

import labelry
from labelry.data import Dataset
from labelry.data.cluster.dask_rows import DaskRows
from labelry.data.shard_writer import write_shards
from labelry.data.shards import Shards
from labelry.errors import MemoryBudgetError
from labelry.estimators import SYSTEMS, system_class
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge

N, D, C, TOPICS = 400, 90, 24, 6

# What is compared, beside the ranking of labels: scores to float tolerance, wider where steps of
# conjugate gradients or of minibatches amplify the rounding.
SETTINGS: list[tuple[str, dict[str, Any], float]] = [
    ("rembrandt", {"embedding_dim": 8}, 1e-3),
    ("rembrandt", {"embedding_dim": 8, "decoder": "least-squares"}, 1e-3),
    ("rembrandt", {"embedding_dim": 8, "decoder": "logistic", "max_epochs": 5}, 1e-2),
    ("rembrandt", {"embedding_dim": "auto", "n_neighbors": 20}, 1e-3),
    ("rembrandt", {"embedding_dim": 0.9}, 1e-3),
    ("rembrandt", {"embedding_dim": 6, "correction": True}, 1e-2),
    ("rembrandt", {"embedding_dim": 6, "normalize": False, "index": "approximate"}, 1e-3),
    ("pca", {"embedding_dim": 8}, 1e-3),
    ("plst", {"embedding_dim": 8}, 1e-3),
    ("cplst", {"embedding_dim": 8, "decoder": "least-squares"}, 1e-3),
    ("cca", {"embedding_dim": 6}, 1e-2),
    ("compressed-sensing", {"embedding_dim": 8}, 1e-3),
    ("ml-cssp", {"embedding_dim": 8, "decoder": "least-squares"}, 1e-3),
    ("leml", {"embedding_dim": 6, "n_rounds": 3}, 5e-3),
    ("leml", {"embedding_dim": 6, "n_rounds": 2, "loss": "logistic"}, 2e-2),
    ("moments", {"n_topics": 5}, 1e-3),
    ("moments", {"n_topics": 5, "temperature": 2.0, "smoothing": 0.1}, 1e-3),
]


@pytest.fixture(scope="module")
def dataset(topic_documents: Callable[..., Dataset]) -> Dataset:
    return topic_documents(N, D, C, TOPICS, n_words=30)


@pytest.fixture(scope="module")
def shards(dataset: Dataset, sharded: Callable[[Dataset, int], Shards]) -> Shards:
    shards = sharded(dataset, 8000)
    assert len(shards.shards) > 5
    return shards


@pytest.fixture(scope="module")
def cluster_shards(dataset: Dataset, sharded: Callable[[Dataset, int], Shards]) -> Shards:
    """The same in fewer shards, as a task takes longer than its work here."""
    shards = sharded(dataset, 20_000)
    assert len(shards.shards) > 2
    return shards


@pytest.mark.parametrize(("system", "settings", "tolerance"), SETTINGS)
def test_the_source_of_the_rows_does_not_matter(
    dataset: Dataset, shards: Shards, system: str, settings: dict, tolerance: float
) -> None:
    ten_blocks = Rows(dataset.X, dataset.Y, block_rows=N // 10, n_jobs=1)
    for rows in (ten_blocks, shards.rows(n_jobs=1)):
        check_same_model(rows, dataset, system, settings, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("system", "settings", "tolerance"), SETTINGS)
def test_a_cluster_learns_the_same(
    dataset: Dataset,
    cluster_shards: Shards,
    client: Client,
    system: str,
    settings: dict,
    tolerance: float,
) -> None:
    rows = DaskRows(cluster_shards.path, client)
    check_same_model(rows, dataset, system, settings, tolerance)
    assert rows.n_passes > 5


def check_same_model(
    rows: Rows, dataset: Dataset, system: str, settings: dict, tolerance: float
) -> None:
    """Learn from rows and from the same in memory, and compare."""
    whole = system_class(system)(n_jobs=1, **settings).fit(dataset)
    other = system_class(system)(n_jobs=1, **settings)
    other.fit(rows.knowing(label_names=dataset.label_names))
    labels, scores = whole.predict_topk(dataset.X, 3)
    their_labels, their_scores = other.predict_topk(dataset.X, 3)
    assert np.mean(labels == their_labels) > 0.98
    assert_allclose(their_scores, scores, atol=tolerance)
    assert_array_equal(other.label_counts_, whole.label_counts_)
    assert_array_equal(other.classes_, whole.classes_)
    assert (other.n_rows_, other.form_) == (N, "lists")
    assert other.n_features_in_ == D


def test_weights_of_streamed_rows(dataset: Dataset, shards: Shards) -> None:
    weights = np.random.default_rng(1).integers(0, 3, N).astype(np.float32)
    model = labelry.Rembrandt(embedding_dim=6, n_jobs=1)
    expected = model.fit(dataset.X, dataset.Y, sample_weight=weights).topk_ids(dataset.X, 3)
    model.fit(shards.rows(n_jobs=1), sample_weight=weights)
    for ours, theirs in zip(model.topk_ids(dataset.X, 3), expected, strict=True):
        assert_allclose(ours, theirs, atol=1e-4)


def test_a_bound_that_is_too_small_for_a_gram_matrix(dataset: Dataset, shards: Shards) -> None:
    bound = 4 * max(shard.bytes for shard in shards.shards)
    model = labelry.Rembrandt(embedding_dim=6, decoder="least-squares", n_jobs=1)
    expected = model.fit(dataset).score_all(dataset.X)
    rows = shards.rows(memory=bound, n_jobs=1).knowing(label_names=None)
    model.fit(rows)  # by conjugate gradients
    assert_allclose(model.score_all(dataset.X), expected, atol=5e-3)
    assert model.classes_.tolist() == list(range(C))  # no names were given


@pytest.mark.parametrize("method", ["cg", "dual"])
def test_ridge_of_streamed_rows(
    dataset: Dataset, shards: Shards, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ridge, "_choose", staticmethod(lambda rows: method))
    bound = 4 * max(shard.bytes for shard in shards.shards)
    rows = shards.rows(memory=bound, n_jobs=1).unit().weighted(np.linspace(0, 1, N))
    whole = Rows(dataset.X, dataset.Y, n_jobs=1).unit().weighted(np.linspace(0, 1, N))
    Q = np.eye(C, dtype=np.float32)
    expected, found = Ridge(whole).solve(Q, 0.1), Ridge(rows).solve(Q, 0.1)
    assert bound // 2 < 4 * D * C * 5  # so that the columns are solved in chunks
    assert_allclose(found.coef, expected.coef, atol=5e-3)  # conjugate gradients stop


def test_what_does_not_fit_is_refused_with_what_would_help(shards: Shards) -> None:
    rows = shards.rows(memory=40_000)
    with pytest.raises(MemoryBudgetError, match=r"for 400 rows in 24 dim.*or the decoder least-sq"):
        labelry.Rembrandt(embedding_dim=50).fit(rows)
    with pytest.raises(MemoryBudgetError, match="or a number as embedding_dim"):
        labelry.Rembrandt(embedding_dim="auto").fit(rows)
    for model in (
        labelry.OneVsRest(),
        labelry.Rembrandt(embedding_dim=2, decoder="least-squares", correction=True),
    ):
        with pytest.raises(MemoryBudgetError, match="such as rembrandt, leml or moments"):
            model.fit(rows)
    for name in ("rembrandt", "leml", "moments"):  # what the message promises
        assert system_class(name).by_passes


def test_a_system_that_cannot_gets_the_rows_in_memory(dataset: Dataset, shards: Shards) -> None:
    model = labelry.OneVsRest(n_jobs=1)
    assert not model.by_passes
    expected = model.fit(dataset).predict_topk(dataset.X, 3)
    found = model.fit(shards.rows())
    for ours, theirs in zip(found.predict_topk(dataset.X, 3), expected, strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["rembrandt", "leml", "blend", "one-vs-rest", "tagger"])
def test_rows_are_taken_where_x_is(dataset: Dataset, shards: Shards, name: str) -> None:
    model = system_class(name)(n_jobs=1)
    expected = model.fit(shards).predict_topk(dataset.X, 3)
    found = model.fit(shards.rows(n_jobs=1)).predict_topk(dataset.X, 3)
    for ours, theirs in zip(found, expected, strict=True):
        assert_array_equal(ours, theirs)
    assert model.classes_.tolist() == dataset.label_names
    with pytest.raises(ValueError, match="y must be None: a ShardedRows has its labels with it"):
        model.fit(shards.rows(), dataset.Y)
    with pytest.raises(ValueError, match="fit requires y to be passed"):
        model.fit(dataset.X)


def test_what_goes_with_rows_where_x_is(dataset: Dataset, shards: Shards) -> None:
    model = labelry.Rembrandt(embedding_dim=6, n_jobs=1)
    weights = np.random.default_rng(1).integers(0, 3, N).astype(np.float32)
    expected = model.fit(dataset.X, dataset.Y, sample_weight=weights).score_all(dataset.X)
    rows = Rows(dataset.X, dataset.Y, n_jobs=1)
    assert_array_equal(model.fit(rows, sample_weight=weights).score_all(dataset.X), expected)
    assert model.classes_.tolist() == list(range(C))  # these rows have no names
    with pytest.raises(ValueError, match="names need texts, but X are Rows"):
        labelry.Tagger().fit(shards.rows(), names={"label 1": "first"})


@pytest.mark.parametrize("name", ["rembrandt", "one-vs-rest", "tagger"])
def test_a_model_of_shards_of_texts_takes_texts(name: str, tmp_path: Path) -> None:
    texts = tmp_path / "animals.csv"
    texts.write_text(
        "text,labels\n" + "the red cat,cat\na cat,cat\nthe blue dog,dog\na dog,dog\n" * 5
    )
    shards = write_shards(texts, tmp_path / "shards", shard_bytes=200)
    model = system_class(name)(n_jobs=1).fit(shards.rows())
    model.save(tmp_path / "model")
    loaded = labelry.load(tmp_path / "model")
    assert loaded.predict_topk(["my cat", "your dog"], 1)[0].tolist() == [["cat"], ["dog"]]
    with pytest.raises(ValueError, match="fitted on texts, but got feature vectors"):
        loaded.predict_topk(shards.dataset().X)


def test_the_systems_that_learn_by_passes() -> None:
    found = {name for name in SYSTEMS if system_class(name).by_passes}
    expected = {"rembrandt", "pca", "plst", "cplst", "cca", "compressed-sensing", "ml-cssp"}
    assert found >= expected | {"leml", "moments"}
