"""Shards as a source of rows: the same passes as in memory, within a bound; damage is found."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import random_array

from labelry.data import Dataset, read, read_blocks, recognise, write
from labelry.data.shard_writer import write_shards
from labelry.data.shards import Shards, open_shards
from labelry.errors import DataError, MemoryBudgetError
from labelry.linalg.rows import Rows
from labelry.storage import sealed

N, D, C = 211, 31, 17
SHARD = 4000


def make_dataset(dense: bool = False) -> Dataset:
    X = random_array(
        (N, D), density=0.3, random_state=np.random.default_rng(0), format="csr", dtype=np.float32
    )
    Y = random_array(
        (N, C), density=0.1, random_state=np.random.default_rng(1), format="csr", dtype=np.float32
    )
    Y.data[:] = 1
    return Dataset(Y, X.toarray() if dense else X, label_names=[f"label {i}" for i in range(C)])


def make_shards(folder: Path, dataset: Dataset, shard_bytes: int = SHARD) -> Shards:
    write(dataset, folder / "data.npz", force=True)
    return write_shards(folder / "data.npz", folder / "shards", shard_bytes=shard_bytes)


@pytest.fixture(params=[False, True], ids=["sparse", "dense"])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    return make_dataset(request.param)


@pytest.fixture
def shards(tmp_path: Path, dataset: Dataset) -> Shards:
    return make_shards(tmp_path, dataset)


@pytest.mark.parametrize("bound", [None, 4, 6])
def test_passes_are_those_of_memory(shards: Shards, dataset: Dataset, bound: int | None) -> None:
    largest = max(shard.bytes for shard in shards.shards)
    rows = shards.rows(memory=None if bound is None else bound * largest, n_jobs=1)
    whole = Rows(dataset.X, dataset.Y, n_jobs=1)
    M = np.random.default_rng(2).standard_normal((D, 4)).astype(np.float32)
    for a in ("X", "Y"):
        assert_allclose(rows.cross(a, "X", M), whole.cross(a, "X", M), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(rows.totals(), whole.totals(), strict=True):
        assert_allclose(ours, theirs, rtol=1e-6)
    blocks = list(rows.map_blocks(lambda block: (block.start, block.n_rows)))
    assert len(shards.shards) > 3
    assert len(blocks) == len(shards.shards) if bound is None else len(blocks) > len(shards.shards)
    ends = np.cumsum([n for _, n in blocks])
    assert [start for start, _ in blocks] == [0, *ends[:-1].tolist()]
    assert ends[-1] == N


def test_blocks_are_views_of_files_and_are_let_go(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, make_dataset())

    def n_held() -> int:  # others may wait for the garbage collector
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sum(f"{tmp_path}/" in line for line in lines)

    mapped = []
    for block in shards.rows(n_jobs=1).blocks():
        base = block.X.data
        while isinstance(base, np.ndarray):
            base = base.base
        mapped.append(type(getattr(base, "obj", base)).__name__)
        assert 1 <= n_held() <= 3  # one in use, one ahead, one that the loop has not yet let go
    assert set(mapped) == {"mmap"}
    del block, base
    assert n_held() == 0


def test_a_pass_that_is_given_up_leaves_no_thread(shards: Shards) -> None:
    blocks = shards.rows(n_jobs=1).blocks()
    next(blocks)
    blocks.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("labelry-read")]


def test_reading_gives_the_dataset_back(shards: Shards, dataset: Dataset) -> None:
    assert recognise(shards.path) == "shards"
    back = read(shards.path)
    dense = [A if isinstance(A, np.ndarray) else A.toarray() for A in (back.X, dataset.X)]
    assert isinstance(back.X, np.ndarray) == isinstance(dataset.X, np.ndarray)
    assert_array_equal(*dense)
    assert_array_equal(back.Y.toarray(), dataset.Y.toarray())
    assert back.label_names == dataset.label_names
    blocks = list(read_blocks(shards.path, block_rows=10, n_features=D + 2))
    assert max(block.n_rows for block in blocks) == 10
    assert {block.X.shape[1] for block in blocks} == {D + 2}
    assert_array_equal(np.vstack([b.Y.toarray() for b in blocks]), dataset.Y.toarray())
    with pytest.raises(DataError, match="found 31 features; expected 3, as n_features"):
        read(shards.path, n_features=3)
    with pytest.raises(DataError, match="the format shards; expected jsonl"):
        read(shards.path, text_column="text")


def test_relevances_and_rows_without_anything_stay(tmp_path: Path) -> None:
    data = make_dataset()
    X, Y = data.X.copy(), data.Y.copy()
    X.data[X.indptr[5] : X.indptr[60]] = 0
    X.eliminate_zeros()
    Y.data[::3] = 0.25
    Y.data[Y.indptr[90] : Y.indptr[140]] = 0
    Y.eliminate_zeros()
    back = make_shards(tmp_path, Dataset(Y, X)).dataset()
    assert_array_equal(back.X.toarray(), X.toarray())
    assert_array_equal(back.Y.toarray(), Y.toarray())
    assert back.label_names is None


def test_too_small_a_bound_is_refused(shards: Shards) -> None:
    with pytest.raises(ValueError, match=r"memory must be at least .*, 4 times the largest shard"):
        shards.rows(memory=100)


def test_too_much_for_the_memory_is_refused(shards: Shards, monkeypatch) -> None:
    monkeypatch.setattr("labelry.memory.available", lambda: 1000)
    with pytest.raises(MemoryBudgetError, match=r"reading all of .*shards needs about .* blocks"):
        shards.dataset()


@pytest.mark.parametrize("name", ["shard-00001.safetensors", "labels.json", "shards.json"])
def test_damage_is_found(tmp_path: Path, name: str) -> None:
    shards = make_shards(tmp_path, make_dataset())
    file = shards.path / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}.* is damaged|{name}: is damaged"):
        read(shards.path)


def test_a_missing_or_cut_file_is_found_at_once(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, make_dataset())
    file = shards.path / "shard-00002.safetensors"
    os.truncate(file, 100)
    with pytest.raises(DataError, match=r"shard-00002.*: is damaged: found 100 bytes, expected"):
        open_shards(shards.path)
    file.unlink()
    with pytest.raises(DataError, match=r"shard-00002.*: cannot be read: No such file"):
        open_shards(shards.path)


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a directory of shards: it has no shards\.json"):
        open_shards(tmp_path)
    (tmp_path / "shards.json").write_text('{"format": "something"}')
    with pytest.raises(DataError, match=r"its shards\.json is of something else"):
        open_shards(tmp_path)
    newer = {"format": "labelry-shards", "format_version": 2}
    (tmp_path / "shards.json").write_bytes(sealed.seal(newer))
    with pytest.raises(DataError, match="made by a newer labelry"):
        open_shards(tmp_path)


def test_a_forged_shard_cannot_lead_kernels_astray(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, make_dataset())
    forged = Shards(shards.path, N, D - 1, C, shards.files, shards.shards, shards.source)
    with pytest.raises(DataError, match="does not hold valid shards"):
        list(forged.load())
