"""Parquet files that hold more than they seem to."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelry import memory
from labelry.data.tables import read_table_blocks
from labelry.errors import MemoryBudgetError

LONG = ("knee pain " * 10_000).strip()


def rows_of(path: Path) -> list[tuple[str, list[str]]]:
    blocks = read_table_blocks(path, "parquet")
    return [row for texts, names, *_ in blocks for row in zip(texts, names, strict=True)]


def test_copies_of_a_text_are_one_in_memory(tmp_path: Path) -> None:
    n = 20_000
    copies = pa.DictionaryArray.from_arrays(np.zeros(n, dtype=np.int32), pa.array([LONG]))
    lists = pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32), copies)
    path = tmp_path / "copies.parquet"
    pq.write_table(pa.table({"text": copies, "labels": lists}), path)
    assert path.stat().st_size < 1 << 20
    before = memory.peak()
    rows = rows_of(path)
    assert len(rows) == n
    assert {(text, *names) for text, names in rows} == {(LONG, LONG)}
    assert memory.peak() - before < 200 << 20  # not four gigabytes


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_dictionaries_that_give_way_to_plain_texts(compression: str, tmp_path: Path) -> None:
    texts = [f"text {i % 900} é" for i in range(3000)]
    labels = [None if i % 7 == 0 else [f"l{j}" for j in range(i % 4)] for i in range(3000)]
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"text": texts, "labels": labels}),
        path,
        compression=compression,
        dictionary_pagesize_limit=500,
        data_page_size=700,
        row_group_size=1100,
    )
    expected = [(text, names or []) for text, names in zip(texts, labels, strict=True)]
    assert rows_of(path) == expected
    # Of strings of other kinds, and of categories
    table = pa.table({"text": pa.array(texts, pa.large_string()), "labels": labels})
    pq.write_table(table.set_column(0, "text", table["text"].dictionary_encode()), path)
    assert rows_of(path) == expected
    lists = pa.array(labels, pa.large_list(pa.large_string()))
    pq.write_table(pa.table({"text": texts, "labels": lists}), path, use_dictionary=False)
    assert rows_of(path) == expected


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": [LONG * 20], "labels": ["a"], "other": [LONG]}), path)
    packed = tmp_path / "rows.parquet.gz"
    packed.write_bytes(gzip.compress(path.read_bytes() + bytes(1 << 24)))
    monkeypatch.setattr(memory, "available", lambda: 1 << 20)
    with pytest.raises(
        MemoryBudgetError, match=r"a row group of .*rows\.parquet needs .* 1\.0 MiB"
    ):
        rows_of(path)
    with pytest.raises(MemoryBudgetError, match=r"unpacking .*rows\.parquet\.gz needs more than"):
        rows_of(packed)
    pq.write_table(pa.table({"text": ["knee"], "labels": ["a"], "other": [LONG]}), path)
    assert rows_of(path) == [("knee", ["a"])]
