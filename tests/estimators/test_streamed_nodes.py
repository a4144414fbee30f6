"""Systems that train on the rows of one node, or one cluster, at a time: from rows not in memory.

Where `test_streamed` has what a pass adds up, here the rows of nodes and clusters are gathered, and
those of a root are visited block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from typer.testing import CliRunner

import labelry
from labelry.cli.app import app
from labelry.data import Dataset, write
from labelry.data.shard_writer import write_shards
from labelry.data.shards import Shards
from labelry.embeddings import local_clusters
from labelry.errors import MemoryBudgetError
from labelry.estimators import system_class
from labelry.linalg import dual_descent
from labelry.linalg.rows import KeptRows, Rows
from labelry.ranking.near_duplicates import drawn_near_duplicates
from labelry.tagging import calibrated_trees

N, D, C, TOPICS = 400, 90, 40, 8

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("linear-tree", {}),
    ("linear-tree", {"depth": 2, "branching": 4}),
    ("linear-tree", {"depth": 2, "branching": 5, "n_trees": 3, "normalize": False}),
    ("linear-tree", {"depth": 2, "branching": 6, "copies": 1}),
    ("linear-tree", {"depth": 3, "branching": 3, "loss": "logistic"}),
    ("linear-tree", {"tree": "rembrandt", "depth": 2, "branching": 4}),
    ("linear-tree", {"tree": "random", "depth": 2, "branching": 4}),
    ("sleec", {"n_clusters": 4, "n_learners": 2, "embedding_dim": 6, "n_label_neighbors": 20}),
    ("sleec", {"n_clusters": 2, "n_learners": 1, "embedding_dim": 6, "normalize": False}),
    ("local-leml", {"n_clusters": 4, "n_learners": 2, "embedding_dim": 6}),
    ("tagger", {"quality": "fast"}),
    ("tagger", {"quality": "fast", "objective": "f1"}),
]


@pytest.fixture(scope="module")
def dataset(topic_documents: Callable[..., Dataset]) -> Dataset:
    documents = topic_documents(N, D, C, TOPICS, n_words=20, noise=0.1)
    X = documents.X.toarray()
    X[7:10] = 0  # rows without features
    return replace(documents, X=csr_array(X), label_names=None)


@pytest.fixture(scope="module")
def shards(dataset: Dataset, sharded: Callable[[Dataset, int], Shards]) -> Shards:
    shards = sharded(dataset, 8000)
    assert len(shards.shards) > 5
    return shards


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks in a root, few rows held out, no near-duplicates, some nodes trained again."""
    monkeypatch.setattr(dual_descent, "BLOCK", 2000)
    monkeypatch.setattr(calibrated_trees, "_HELD_OUT", (25, 50))
    monkeypatch.setattr(calibrated_trees, "_MUCH", 0.1)
    monkeypatch.setattr(calibrated_trees, "_SIMILARITY", 1.1)


def check_same_model(rows: Rows, dataset: Dataset, system: str, settings: dict) -> None:
    """To the last bit, but for what is summed over rows: centroids, centres, an embedding."""
    whole = system_class(system)(n_jobs=1, **settings).fit(dataset)
    other = system_class(system)(n_jobs=1, **settings).fit(rows)
    labels, scores = whole.predict_topk(dataset.X, 3)
    their_labels, their_scores = other.predict_topk(dataset.X, 3)
    assert np.mean(labels == their_labels) > 0.98
    assert_allclose(their_scores, scores, atol=1e-3)
    assert (other.n_rows_, other.n_features_in_) == (N, D)
    assert np.unique(scores.round(3)).size > 20  # there is something to compare


@pytest.mark.parametrize(("system", "settings"), SETTINGS)
def test_the_source_of_the_rows_does_not_matter(
    dataset: Dataset, shards: Shards, system: str, settings: dict
) -> None:
    assert system_class(system).by_passes
    check_same_model(shards.rows(n_jobs=1), dataset, system, settings)
    ten_blocks = Rows(dataset.X, dataset.Y, block_rows=N // 10, n_jobs=1)
    check_same_model(ten_blocks, dataset, system, settings)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("system", "settings"), SETTINGS)
def test_rows_that_do_not_fit_lead_to_the_same_model(
    dataset: Dataset, shards: Shards, system: str, settings: dict
) -> None:
    rows = shards.rows(memory=2 * shards.n_bytes, n_jobs=1)
    assert isinstance(rows.unit().kept(), KeptRows)
    check_same_model(rows, dataset, system, settings)


@pytest.mark.usefixtures("small_parts")
def test_threads_and_nodes_that_do_not_fit_change_nothing(dataset: Dataset, shards: Shards) -> None:
    settings = {"tree": "random", "depth": 2, "branching": 2}
    expected = labelry.LinearLabelTree(n_jobs=1, **settings).fit(dataset)
    rows = shards.rows(memory=42_000)  # a sixth of it is for the rows of nodes
    found = labelry.LinearLabelTree(n_jobs=2, **settings).fit(rows)
    for ours, theirs in zip(
        found.predict_topk(dataset.X, 5), expected.predict_topk(dataset.X, 5), strict=True
    ):
        assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("small_parts")
def test_some_rows_are_clustered_and_the_others_go_to_the_nearest(
    dataset: Dataset, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_clusters, "_MOST_CLUSTERED", 2500)
    settings = {"n_clusters": 3, "n_learners": 2, "embedding_dim": 6}
    check_same_model(shards.rows(memory=2 * shards.n_bytes), dataset, "sleec", settings)
    rows = Rows(dataset.X, dataset.Y, n_jobs=1).unit()
    rng = np.random.default_rng(0)
    partitions = local_clusters.make_partitions(rows, 3, 2, rng=rng)
    for sets in partitions:
        assert_array_equal(np.sort(sets.members), np.arange(N))
        assert sets.sizes.min() > 0
        centres = local_clusters.cluster_centres(rows, sets)
        (X,) = rows.gathered("X")
        nearest = np.argmax((X @ centres).toarray(), axis=1)
        own = np.empty(N, dtype=int)
        own[sets.members] = np.repeat(np.arange(3), sets.sizes)
        assert np.mean(own == nearest) > 0.8


def test_near_duplicates_of_rows_not_in_memory_are_held_out_within_blocks(shards: Shards) -> None:
    (X,) = shards.rows().unit().gathered("X")
    n_wanted = N // 2
    parts = drawn_near_duplicates(shards.rows().unit(), 0.7, n_wanted, np.random.default_rng(0))
    assert n_wanted / 2 < (parts >= 0).sum() <= n_wanted
    bounds = np.cumsum([0, *(shard.rows for shard in shards.shards)])
    for first, last in pairwise(bounds.tolist()):
        found = parts[first:last]
        held_out = np.flatnonzero(found >= 0)
        assert ((found[held_out] >= first) & (found[held_out] < last)).all()
        others = held_out[found[held_out] != first + held_out]
        cosine = (X[first + others] @ X[found[others]].T).diagonal()
        assert (cosine >= 0.7 - 1e-5).all()
    whole = Rows(X, X, block_rows=50)
    assert_array_equal(
        drawn_near_duplicates(whole, 0.7, n_wanted, np.random.default_rng(0)),
        drawn_near_duplicates(Rows(X, X), 0.7, n_wanted, np.random.default_rng(0)),
    )


def test_what_does_not_fit_is_refused_with_what_would_help(shards: Shards) -> None:
    rows = shards.rows(memory=40_000)
    with pytest.raises(MemoryBudgetError, match="on a block of rows, with weights for 90 feat"):
        labelry.LinearLabelTree(tree="random").fit(rows)
    with pytest.raises(MemoryBudgetError, match="a tree of the centroids of 40 labels"):
        labelry.LinearLabelTree().fit(rows)
    for settings, message in (
        ({"quality": "best"}, "quality best, which has all rows in memory.*or quality fast"),
        ({}, "quality balanced, .*or quality fast"),
    ):
        with pytest.raises(MemoryBudgetError, match=message):
            labelry.Tagger(**settings).fit(rows)
    with pytest.raises(MemoryBudgetError, match="a matrix of confusions, which works on all rows"):
        labelry.LinearLabelTree(tree="confusion").fit(rows)
    with pytest.raises(MemoryBudgetError, match=r"in 300 clusters .* or fewer clusters"):
        labelry.SLEEC(n_clusters=300).fit(rows)
    with pytest.raises(ValueError, match="quality must be one of"):
        labelry.Tagger(quality="slow").fit(rows)


def test_the_other_qualities_get_rows_in_memory(dataset: Dataset, shards: Shards) -> None:
    expected = labelry.Tagger(n_jobs=1).fit(dataset).predict_topk(dataset.X, 3)
    found = labelry.Tagger(n_jobs=1).fit(shards.rows(n_jobs=1))
    for ours, theirs in zip(found.predict_topk(dataset.X, 3), expected, strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("small_parts")
def test_the_command_line_trains_the_tagger_within_a_bound(
    dataset: Dataset, tmp_path: Path
) -> None:
    write(dataset, tmp_path / "data.npz")
    shards = write_shards(tmp_path / "data.npz", tmp_path / "shards", shard_bytes=8000)
    command = ["train", str(tmp_path / "shards"), "--out", str(tmp_path / "model")]
    done = CliRunner().invoke(
        app, [*command, "--quality", "fast", "--memory", str(2 * shards.n_bytes)]
    )
    assert done.exit_code == 0, done.output
    assert labelry.load(tmp_path / "model").score(dataset.X, dataset.Y) > 0.5
