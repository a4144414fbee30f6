"""What a served model answers beyond the estimator's own calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.server import served as module
from labelry.server.served import identity, joined, load_served


def test_filter_of_a_model_that_cannot_score_all(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, _ = load_served(models["tree"])
    assert not served.scores_all
    texts = ["cat dog", "fish"]
    ids, scores = served.topk(texts, 4)
    allowed = np.unique(ids[0, [1, 3]])
    found, values = served.topk_among(texts, 2, allowed)
    keep = np.isin(ids, allowed)
    assert found.tolist() == [row[k].tolist() for row, k in zip(ids, keep, strict=True)]
    assert values.tolist() == [row[k].tolist() for row, k in zip(scores, keep, strict=True)]
    monkeypatch.setattr(module, "WIDE", 2)
    found, values = served.topk_among(texts[:1], 2, allowed)
    assert found.tolist() == [[ids[0, 1], -1]]  # the other is not among the best two
    assert values[0, 1] == -np.inf


def test_filter_of_a_model_that_scores_all(models: dict[str, Path]) -> None:
    served, _ = load_served(models["features"])
    assert served.scores_all
    X = csr_array(np.array([[1, 0, 0, 0.5], [0, 2, 0, 0]], dtype=np.float32))
    ids, scores = served.topk_among(X, 3, np.array([1, 3]))
    own = served.model.score_all(X)
    for row, (labels, values) in enumerate(zip(ids, scores, strict=True)):
        assert sorted(labels.tolist()) == [1, 3]
        np.testing.assert_array_equal(values, own[row, labels])
        assert values[0] >= values[1]


def test_rows_of_several_requests() -> None:
    assert joined([["a"], ["b", "c"]]) == ["a", "b", "c"]
    one, two = csr_array(np.eye(2, dtype=np.float32)), csr_array(np.ones((1, 2), np.float32))
    both = joined([one, two])
    assert both.toarray().tolist() == [[1, 0], [0, 1], [1, 1]]
    assert both.dtype == np.float32
    assert both.indices.dtype == np.int32


def test_identity_changes_with_every_file(models: dict[str, Path], tmp_path: Path) -> None:
    assert identity(tmp_path / "nothing") == (None,) * 5
    served, seen = load_served(models["texts"])
    assert seen == identity(models["texts"])
    assert served.fingerprint == load_served(models["texts"])[0].fingerprint
    assert served.fingerprint != load_served(models["tree"])[0].fingerprint
    copy = tmp_path / "copy"
    copy.mkdir()
    states = {identity(copy)}
    for file in sorted(models["texts"].iterdir()):
        (copy / file.name).write_bytes(file.read_bytes())
        states.add(identity(copy))
    assert len(states) == 6
