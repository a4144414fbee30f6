"""Statistics by hand, and against dense arithmetic."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy import sparse

from labelry.data.dataset import Dataset
from labelry.data.statistics import describe

Y = sparse.csr_array(
    np.array(
        [
            [1, 1, 0, 0],
            [1, 0, 0, 0],
            [1, 0, 0, 0],
            [1, 0, 1, 0],
            [1, 0, 1, 0],
            [1, 0, 0, 0],
            [0, 0, 0, 0],
            [0, 0, 0, 0],
        ]
    )
)
EXPECTED = {
    "n_rows": 8,
    "n_labels": 4,
    "labels_per_row_mean": 9 / 8,
    "labels_per_row_max": 2,
    "rows_per_label_mean": 9 / 4,
    "rows_per_label_median": 1.5,
    "rows_per_label_max": 6,
    "labels_without_rows": 1,
    "rows_without_labels": 2,
    "tail_label_share": 3 / 4,
    "tail_occurrence_share": 3 / 9,
    "label_frequencies": [6, 2, 1, 0],
}


def test_labels_by_hand():
    found = describe(Dataset(Y)).to_dict()
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    for name in ("n_features", "density", "rows_without_features", "words_per_document_mean"):
        assert found[name] is None


def test_shards_one_at_a_time(topic_documents, sharded):
    dataset = topic_documents(300, 40, 15, 3, n_words=10)
    shards = sharded(dataset, 4000)
    assert len(shards.shards) > 2
    assert describe(shards).to_dict() == describe(dataset).to_dict()


@pytest.mark.parametrize("maker", [np.array, sparse.csr_array])
def test_features_by_hand(maker):
    X = maker([[1.0, 0, -2], [0, 0, 0], [0, 3, 0], [0, 0, 0]])
    stats = describe(Dataset(sparse.csr_array((4, 1)), X=X))
    assert stats.n_features == 3
    assert stats.features_per_row_mean == 3 / 4
    assert stats.density == 3 / 12
    assert stats.rows_without_features == 2


def test_stored_zeros_do_not_count():
    A = sparse.csr_array((np.array([1.0, 0.0, 0.0]), [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    stats = describe(Dataset(A, X=A))
    assert stats.label_frequencies.tolist() == [1, 0]
    assert stats.rows_without_labels == stats.rows_without_features == 1
    assert stats.features_per_row_mean == 0.5
    assert A.nnz == 3, "the dataset stays as it was"


def test_words_by_hand():
    stats = describe(Dataset(sparse.csr_array((3, 1)), texts=["one two\tthree\n", "", "four"]))
    assert stats.words_per_document_mean == 4 / 3
    assert stats.words_per_document_max == 3


def test_tail_is_five_rows_or_fewer():
    labels = np.zeros((6, 2))
    labels[:, 0] = 1
    labels[:5, 1] = 1
    stats = describe(Dataset(sparse.csr_array(labels)))
    assert stats.tail_label_share == 0.5
    assert stats.tail_occurrence_share == 5 / 11


def test_random_data_against_dense_arithmetic():
    rng = np.random.default_rng(0)
    dense = rng.random((200, 37)) < rng.random(37) ** 4
    stats = describe(Dataset(sparse.csr_array(dense)))
    rows = dense.sum(axis=0)
    assert stats.label_frequencies.tolist() == sorted(rows.tolist(), reverse=True)
    assert stats.label_frequencies.dtype == np.int64
    assert stats.labels_per_row_mean == pytest.approx(dense.sum(axis=1).mean())
    assert stats.labels_per_row_max == dense.sum(axis=1).max()
    assert stats.rows_per_label_median == np.median(rows)
    assert stats.tail_label_share == pytest.approx(np.mean(rows <= 5))
    assert stats.tail_occurrence_share == pytest.approx(rows[rows <= 5].sum() / rows.sum())


def test_nothing_at_all():
    stats = describe(Dataset(sparse.csr_array((0, 0)), X=np.zeros((0, 0)), texts=[]))
    values = {k: v for k, v in asdict(stats).items() if k != "label_frequencies"}
    assert set(values.values()) == {0}
    assert stats.label_frequencies.size == 0


def test_to_dict_is_plain_data():
    data = Dataset(Y, X=Y, texts=["a"] * 8)
    found = describe(data).to_dict()
    assert json.loads(json.dumps(found)) == found
