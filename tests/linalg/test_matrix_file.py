"""Matrices in a temporary file come back as they were."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import gettempdir
from typing import IO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, issparse, random_array

from labelry.linalg import matrix_file
from labelry.linalg.matrix_file import MatrixFile
from labelry.linalg.rows import Block, KeptRows, Rows, StreamedRows

SHAPES = st.tuples(st.integers(0, 40), st.integers(1, 3000))


@given(st.lists(st.tuples(SHAPES, st.booleans()), max_size=5), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_items_come_back_in_any_order(matrices: list, per_item: int) -> None:
    rng = np.random.default_rng(0)
    file, expected = MatrixFile(), []
    for first in range(0, len(matrices), per_item):
        item = []
        for (n, d), sparse in matrices[first : first + per_item]:
            A = random_array((n, d), density=0.1, random_state=rng, dtype=np.float32)
            item.append(csr_array(A) if sparse else A.toarray())
        file.append(*item)
        expected.append(item)
    assert len(file) == len(expected)
    for number in [*reversed(range(len(file))), *range(len(file))]:
        for ours, theirs in zip(file[number], expected[number], strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == theirs.dtype
            assert issparse(ours) == issparse(theirs)
            dense = (A.toarray() if issparse(A) else A for A in (ours, theirs))
            assert_array_equal(*dense)


def test_views_outlive_their_file_and_memory_is_let_go() -> None:
    def n_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    def n_mapped() -> int:
        return Path("/proc/self/maps").read_text().count("(deleted)")

    before = n_open(), n_mapped()
    file = MatrixFile()
    file.append(np.arange(5.0))
    (view,) = file[0]
    del file
    assert view.tolist() == [0, 1, 2, 3, 4]
    del view
    assert (n_open(), n_mapped()) == before


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(buffering: int, dir: str) -> IO[bytes]:
        assert dir == str(tmp_path)
        return open("/dev/full", "wb", buffering=buffering)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # what was found before
    monkeypatch.setattr("labelry.linalg.matrix_file.TemporaryFile", full)
    with pytest.raises(OSError, match=f"in {tmp_path}: No space left.*; set TMPDIR"):
        MatrixFile().append(np.zeros(1 << 16))


@pytest.mark.parametrize("large", ["here", "missing"])
def test_large_files_are_not_put_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, large: str
) -> None:
    (tmp_path / "here").mkdir()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(matrix_file, "_LARGE_FILES", str(tmp_path / large))
    expected = str(tmp_path / large) if large == "here" else gettempdir()
    assert MatrixFile()._directory == expected


class Stream(StreamedRows):
    """Rows in three blocks, read anew in each pass."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.n_rows, rows.n_features, rows.n_labels, n_bytes=1000, memory=100)
        self._rows = rows
        self.n_read = 0

    def blocks(self):
        for block in self._rows.blocks():
            self.n_read += 1
            yield block


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_made_once(weighted: bool, sparse: bool) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.random((30, 4), dtype=np.float32), csr_array(np.eye(30, 5, dtype=np.float32))
    weights = rng.random(30) if weighted else None
    source = Stream(Rows(csr_array(X) if sparse else X, Y, weights=weights, block_rows=12))
    assert source.kept() is source  # is as it was given
    made: list[int] = []

    def double(block: Block) -> Block:
        made.append(block.start)
        return block._replace(X=block.X * np.float32(2))

    kept = source.mapped(double).kept()
    assert isinstance(kept, KeptRows)
    for _ in range(3):
        blocks = list(kept.blocks())
        assert [block.start for block in blocks] == [0, 12, 24]
    assert made == [0, 12, 24]
    assert source.n_read == 3
    whole = Rows(2 * X, Y, weights=weights)
    M = rng.random((5, 2), dtype=np.float32)
    assert_allclose(kept.cross("X", "Y", M), whole.cross("X", "Y", M), rtol=1e-6)
