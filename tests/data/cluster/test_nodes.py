"""Systems that train on the rows of a node, or of a cluster of rows: as tasks on workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from typer.testing import CliRunner

import labelry
from labelry.cli.app import app
from labelry.data import Dataset
from labelry.data.cluster.dask_rows import DaskRows
from labelry.data.shards import Shards
from labelry.embeddings import sleec
from labelry.estimators import system_class
from labelry.linalg.rows import StreamedRows
from labelry.trees import linear_train

pytestmark = pytest.mark.slow

N, D, C, TOPICS = 400, 90, 40, 8

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("linear-tree", {}),
    ("linear-tree", {"depth": 2, "branching": 20}),
    ("linear-tree", {"depth": 3, "branching": 3, "n_trees": 2, "loss": "logistic"}),
    ("linear-tree", {"tree": "rembrandt", "depth": 2, "branching": 4}),
    ("sleec", {"n_clusters": 4, "n_learners": 2, "embedding_dim": 6, "n_label_neighbors": 20}),
    ("local-leml", {"n_clusters": 4, "n_learners": 2, "embedding_dim": 6, "normalize": False}),
    ("tagger", {"quality": "fast", "objective": "f1"}),
]


@pytest.fixture(scope="module")
def dataset(topic_documents: Callable[..., Dataset]) -> Dataset:
    documents = topic_documents(N, D, C, TOPICS, n_words=20, noise=0.1)
    X = documents.X.toarray()
    X[7:10] = 0  # rows without features
    return replace(documents, X=csr_array(X))


@pytest.fixture(scope="module")
def shards(dataset: Dataset, sharded: Callable[[Dataset, int], Shards]) -> Shards:
    shards = sharded(dataset, 20_000)
    assert len(shards.shards) > 2
    return shards


def check_same(found: labelry.LabelRanker, expected: labelry.LabelRanker, dataset: Dataset) -> None:
    labels, scores = expected.predict_topk(dataset.X, 3)
    their_labels, their_scores = found.predict_topk(dataset.X, 3)
    assert np.mean(labels == their_labels) > 0.98
    assert_allclose(their_scores, scores, atol=1e-3)
    assert np.unique(scores.round(3)).size > 20  # there is something to compare
    assert_array_equal(found.classes_, expected.classes_)
    assert (found.n_rows_, found.n_features_in_, found.form_) == (N, D, "lists")


@pytest.mark.parametrize(("system", "settings"), SETTINGS)
def test_a_cluster_learns_the_same(
    dataset: Dataset,
    shards: Shards,
    client: Client,
    system: str,
    settings: dict,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = DaskRows(shards.path, client)
    assert isinstance(rows.unit().held(), StreamedRows)
    model, expected = (system_class(system)(n_jobs=1, **settings) for _ in range(2))
    if system == "tagger":  # the rows that it holds out depend on the blocks
        monkeypatch.setattr(StreamedRows, "held", lambda rows: rows)
        expected.fit(shards.rows(n_jobs=1))
    else:
        expected.fit(dataset)
    check_same(model.fit(rows), expected, dataset)
    assert rows.n_passes > 3


@pytest.mark.parametrize(
    ("system", "settings"), [("linear-tree", {"depth": 2}), ("sleec", {"n_clusters": 4})]
)
def test_rows_are_worked_on_by_the_workers(
    shards: Shards, client: Client, system: str, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("this should have been done by a worker")

    for where, name in (
        (DaskRows, "blocks"),
        (linear_train._Trainer, "train"),
        (linear_train, "train_by_blocks"),
        (sleec, "svp"),
    ):
        monkeypatch.setattr(where, name, fail)  # in this process alone
    model = system_class(system)(n_jobs=1, **settings).fit(DaskRows(shards.path, client))
    assert model.n_rows_ == N


def test_from_the_command_line(
    dataset: Dataset, shards: Shards, client: Client, tmp_path: Path
) -> None:
    options = ("--system", "linear-tree", "--depth", "2", "--jobs", "1")
    there = (shards.path.as_uri(), "--scheduler", client.scheduler.address)  # each worker fetches
    for name, where in (("a", there), ("b", (str(shards.path),))):
        command = ["train", *where, "--out", str(tmp_path / name), *options]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0
    check_same(labelry.load(tmp_path / "a"), labelry.load(tmp_path / "b"), dataset)
