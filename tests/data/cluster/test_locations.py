"""Shards at a URL: fetched once, when they are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.data import Dataset, write
from labelry.data.cluster.locations import (
    FetchedShards,
    as_location,
    fingerprint,
    is_url,
    open_location,
)
from labelry.data.shard_writer import write_shards
from labelry.data.shards import Shards
from labelry.errors import DataError, MissingExtraError

N, D = 60, 8


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    X = csr_array(np.arange(N * D).reshape(N, D) % 5, dtype=np.float32)
    names = [f"label {i}" for i in range(D)]
    write(Dataset(X.copy(), X, label_names=names), tmp_path / "data.npz")
    return write_shards(tmp_path / "data.npz", tmp_path / "shards", shard_bytes=1500)


@pytest.fixture
def url(shards: Shards) -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    memory.put(str(shards.path), "/bucket/shards", recursive=True)
    yield "memory://bucket/shards"
    memory.rm("/bucket", recursive=True)


def test_names_of_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_location("shards") == str(tmp_path / "shards")
    for url in ("s3://bucket/a", "https://host/a", "file:///a/b", "gs://bucket"):
        assert is_url(url)
        assert is_url(Path(url))
        assert as_location(url) == as_location(Path(url)) == url
    assert not is_url("shards/a:b")
    assert not is_url("c:/shards")


def test_shards_of_a_url_are_fetched_when_they_are_read(
    shards: Shards, url: str, tmp_path: Path
) -> None:
    found = open_location(url, cache=tmp_path)
    assert isinstance(found, FetchedShards)
    assert found.path.parent == tmp_path
    assert found.label_names == shards.label_names
    assert fingerprint(found) == fingerprint(shards)
    assert not list(found.path.glob("shard-*"))
    found.rows(n_jobs=1).gathered("X", "Y")
    fsspec.filesystem("memory").rm("/bucket/shards/shard-*")
    X, Y = found.rows(n_jobs=1).gathered("X", "Y")  # from the copies
    expected = shards.rows(n_jobs=1).gathered("X", "Y")
    assert_array_equal(X.toarray(), expected[0].toarray())
    assert_array_equal(Y.toarray(), expected[1].toarray())
    path = found.path
    del found, X, Y
    assert not path.exists()


def test_what_cannot_be_fetched(shards: Shards, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"nowhere/shards.json: cannot be fetched: it is not"):
        open_location("memory://nowhere")
    with pytest.raises(DataError, match="cannot be opened: Protocol not known: unheard"):
        open_location("unheard://of")
    found = open_location(url)
    fsspec.filesystem("memory").pipe_file("/bucket/shards/shard-00000.safetensors", b"else")
    with pytest.raises(DataError, match="its checksum differs"):
        found.rows().gathered("X")
    with pytest.raises(DataError, match="is not a directory of shards"):
        open_location(shards.path.parent)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"labelry\[cluster\]"):
        open_location(url)


def test_blocks_of_some_shards(shards: Shards) -> None:
    assert len(shards.shards) > 3
    first, n_rows = shards.shards[0].rows, sum(shard.rows for shard in shards.shards[1:3])
    blocks = list(shards.rows(n_jobs=1).blocks_between(1, 3))
    (X,) = shards.rows(n_jobs=1).gathered("X")
    assert [block.start for block in blocks] == [first, first + shards.shards[1].rows]
    found = np.concatenate([block.X.toarray() for block in blocks])
    assert_array_equal(found, X.toarray()[first : first + n_rows])


def test_other_rows_have_another_fingerprint(shards: Shards, tmp_path: Path) -> None:
    X = csr_array(np.eye(N, D), dtype=np.float32)
    write(Dataset(X, X), tmp_path / "other.npz")
    other = write_shards(tmp_path / "other.npz", tmp_path / "other")
    assert fingerprint(other) != fingerprint(shards)
