"""Measuring a model on rows in memory and on shards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from labelry import OneVsRest
from labelry.data import Dataset, write
from labelry.data.shard_writer import write_shards
from labelry.evaluation.evaluate import evaluate

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    X = random_array((90, 12), density=0.3, rng=rng, dtype=np.float32)
    Y = csr_array((rng.random((90, 4)) < 0.4).astype(np.float32))
    return Dataset(Y, csr_array(X), label_names=NAMES)


def test_shards_measure_as_the_whole(dataset: Dataset, tmp_path: Path) -> None:
    model = OneVsRest(n_jobs=1).fit(dataset)
    write(dataset, tmp_path / "rows.npz")
    shards = write_shards(tmp_path / "rows.npz", tmp_path / "shards", shard_bytes=1000)
    assert len(shards.shards) > 2
    whole = evaluate(model, dataset, threshold=0.0, by_frequency=True)
    parts = evaluate(model, shards, threshold=0.0, by_frequency=True)
    assert parts.pop("seconds") > 0
    assert whole.pop("seconds") > 0
    assert json.dumps(parts) == json.dumps(whole)  # not-a-number is equal here
    assert whole["rows"] == 90
    assert 0 < whole["P@1"] < 100


def test_labels_that_the_model_never_saw_are_missed(dataset: Dataset) -> None:
    known = Dataset(dataset.Y[:, [0, 1]], dataset.X, label_names=NAMES[:2])
    model = OneVsRest(n_jobs=1).fit(known)
    assert evaluate(model, dataset)["R@5"] < evaluate(model, known)["R@5"]


def test_rows_without_a_known_word_are_counted_and_missed() -> None:
    texts, Y = ["red cat", "blue dog"] * 3, csr_array([[1, 0], [0, 1]] * 3)
    model = OneVsRest(n_jobs=1).fit(Dataset(Y, texts=texts))
    found = evaluate(model, Dataset(Y[:5], texts=["zzz", "dog", "", "a dog", "cat"]), ks=[1])
    assert found["rows without a known word"] == 2
    assert found["P@1"] == 60.0
    assert found["AUC"] == 80.0  # all labels are equal for the two rows
    assert "rows without a known word" not in evaluate(
        OneVsRest(n_jobs=1).fit(Dataset(Y, Y)), Dataset(Y, Y), ks=[1]
    )
