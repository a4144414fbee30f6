"""Every input that fuzzing kept is still read or refused, with compiled kernels, in bounds."""

from __future__ import annotations

import gzip
import importlib.util
import lzma
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from labelry import memory
from labelry.data import read
from labelry.data.names import read_names
from labelry.data.streams import open_input
from labelry.errors import DataError, MemoryBudgetError

from .targets import TARGETS, fuzz

HERE = Path(__file__).parent
SECONDS = int(os.environ.get("LABELRY_FUZZ_SECONDS", "1"))  # for each target
MOST_SECONDS = 2.0  # of processor time, for an input of a few kilobytes
MOST_GROWTH = 500 << 20  # bytes of memory


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_corpus(target: str, tmp_path: Path) -> None:
    before = memory.peak()
    inputs = sorted((HERE / "corpus" / target).iterdir())
    assert inputs
    for file in inputs:
        if seconds(target, file, tmp_path / file.name) > MOST_SECONDS:
            # It may have waited for a compiler; a second time it does not.
            assert seconds(target, file, tmp_path / f"{file.name}-again") < MOST_SECONDS, file
    assert memory.peak() - before < MOST_GROWTH


def seconds(target: str, file: Path, folder: Path) -> float:
    """Processor time for an input."""
    folder.mkdir()
    start = time.process_time()
    fuzz(target, file.read_bytes(), folder)
    return time.process_time() - start


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs labelry[fuzz]")
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz(target: str, tmp_path: Path) -> None:
    seed = "0" if "LABELRY_FUZZ_SECONDS" in os.environ else "1"  # the same each time, by default
    command = [sys.executable, HERE / "run.py", target, str(SECONDS), tmp_path, seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


# ---- what fuzzing and forging found, in words -----------------------------------------------


@pytest.mark.parametrize(
    "label", ["[1]", "{}", "null", "true", "0.5", '""', '"\\ud800"', '"a\\u0000"']
)
def test_odd_labels_have_no_name(tmp_path: Path, label: str) -> None:
    path = tmp_path / "names.jsonl"
    path.write_text(f'{{"label": {label}, "name": "x"}}\n')
    with pytest.raises(DataError, match=r"names\.jsonl:1: "):
        read_names(path)


def test_svmlight_has_no_header_however_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"1 1 3\n0 1:1\n")
    with pytest.raises(DataError, match="found '1' without a colon"):
        read(path, "svmlight")


@pytest.mark.parametrize("format", ["jsonl", "fasttext", "xc", "svmlight"])
def test_an_endless_line_is_refused(tmp_path: Path, format: str) -> None:
    (tmp_path / "bomb").write_bytes(gzip.compress(b"1" * (1 << 26) + b"23", 1))
    with pytest.raises(DataError, match=r"bomb(:1)?: found a line of more than 64 MiB"):
        read(tmp_path / "bomb", format)


def test_more_rows_than_memory_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 1 << 20)
    bombs = {"fasttext": b"\n" * 100_000, "svmlight": b"1 1:1\n" * 100_000}
    for format, content in bombs.items():
        (tmp_path / "bomb").write_bytes(lzma.compress(content))
        with pytest.raises(MemoryBudgetError, match=r"bomb needs more than the 1\.0 MiB"):
            read(tmp_path / "bomb", format)
    np.savez_compressed(tmp_path / "bomb.npz", X=np.zeros((1000, 1000)))
    with pytest.raises(MemoryBudgetError, match=r"bomb\.npz needs more than the 1\.0 MiB"):
        read(tmp_path / "bomb.npz")


def test_a_step_of_zstd_is_bounded(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "bomb").write_bytes(zstandard.compress(bytes(1 << 30)))
    before = memory.peak()
    with open_input(tmp_path / "bomb") as stream:
        assert stream.read(10) == bytes(10)
    assert memory.peak() - before < 200 << 20
