"""Writing shards: the same data as reading at once, whatever interrupts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from labelry.data import Dataset, TextFeatures, read, write
from labelry.data import files as files_module
from labelry.data.npz import write_npz
from labelry.data.shard_writer import write_shards
from labelry.data.shards import open_shards
from labelry.errors import DataError
from labelry.storage import replacing, sealed

ROWS = 300


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Texts with labels that come in no order, in small blocks of rows."""
    rng = np.random.default_rng(0)
    path = tmp_path / "texts.jsonl"
    with path.open("w") as file:
        for i in range(ROWS):
            words = [f"w{j}" for j in rng.integers(0, 200, rng.integers(0, 30))]
            labels = [f"l{j}" for j in rng.choice(40, rng.integers(0, 4), replace=False)]
            if i == ROWS - 1:
                labels.append("a name that comes last")
            file.write(json.dumps({"text": " ".join(words), "labels": labels}) + "\n")
    return path


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module.read_blocks, "__kwdefaults__", _with_small_blocks())


def _with_small_blocks() -> dict:
    return {**files_module.read_blocks.__kwdefaults__, "block_rows": 37}


def assert_same(directory: Path, dataset: Dataset) -> None:
    back = read(directory)
    assert_array_equal(back.X.toarray(), dataset.X.toarray())
    assert_array_equal(back.Y.toarray(), dataset.Y.toarray())
    assert back.label_names == dataset.label_names


def in_memory(texts: Path) -> Dataset:
    dataset = read(texts)
    X = TextFeatures().fit_transform(dataset.texts)
    return Dataset(dataset.Y, X, label_names=dataset.label_names)


def test_texts_become_the_features_of_texts_at_once(texts: Path, tmp_path: Path) -> None:
    shards = write_shards(texts, tmp_path / "out", shard_bytes=3000)
    assert len(shards.shards) > 5
    assert max(shard.bytes for shard in shards.shards) < 4500  # with its header
    assert sum(shard.rows for shard in shards.shards) == shards.n_rows == ROWS
    assert_same(tmp_path / "out", in_memory(texts))
    fitted = TextFeatures().fit(read(texts).texts)
    assert shards.text_features.vocabulary_ == fitted.vocabulary_
    assert_array_equal(shards.text_features.idf_, fitted.idf_)


@pytest.mark.parametrize("name", ["data.txt", "data.svm.gz", "data.npz"])
def test_feature_formats(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(1)
    X = csr_array(rng.random((150, 12), dtype=np.float32) * (rng.random((150, 12)) < 0.5))
    Y = csr_array((rng.random((150, 7)) < 0.4).astype(np.float32))
    write(Dataset(Y, X), tmp_path / name)
    dataset = read(tmp_path / name)
    shards = write_shards(tmp_path / name, tmp_path / "out", shard_bytes=1000)
    assert len(shards.shards) > 3
    assert shards.text_features is None
    assert_same(tmp_path / "out", dataset)


def test_multiclass_names(tmp_path: Path) -> None:
    (tmp_path / "classes.svm").write_text("".join(f"{i % 3 * 10} 1:{i}\n" for i in range(1, 50)))
    write_shards(tmp_path / "classes.svm", tmp_path / "out", shard_bytes=200)
    assert read(tmp_path / "out").label_names == ["0", "10", "20"]
    assert_same(tmp_path / "out", read(tmp_path / "classes.svm"))


def test_a_row_larger_than_a_shard_is_one(tmp_path: Path) -> None:
    X = csr_array(np.ones((3, 100), dtype=np.float32))
    write(Dataset(csr_array(np.eye(3)), X), tmp_path / "wide.npz")
    shards = write_shards(tmp_path / "wide.npz", tmp_path / "out", shard_bytes=10)
    assert [shard.rows for shard in shards.shards] == [1, 1, 1]


# In a process of its own: each child dies on the spot when it is about to rename file number k.
CRASHES = """
import os, sys
from labelry.data import shard_writer, shards, streams
from labelry.data.text import TextFeatures
from labelry.errors import DataError

source, directory = sys.argv[1:]
replace = os.replace

def convert(crash_at=None):
    calls = 0
    def counted(*names):
        nonlocal calls
        if calls == crash_at:
            os._exit(9)
        calls += 1
        replace(*names)
    os.replace = counted
    return shard_writer.write_shards(source, directory, shard_bytes=3000, n_jobs=1)

TextFeatures(n_jobs=1).fit_blocks([["a a", "a b"]]).transform(["a"])  # so that no child compiles
# Of a shard, the manifest follows: 4 files before the first, then turns of both.
for k in (0, 2, 3, 4, 5, 1, 2, 1):
    child = os.fork()
    if child == 0:
        try:
            convert(crash_at=k)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    try:
        shards.open_shards(directory)
    except DataError as error:
        print(error)
    else:
        raise SystemExit("incomplete shards were opened")
print(convert().n_rows)
"""


def test_a_crash_at_any_point_can_be_continued(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = subprocess.run(
        [sys.executable, "-c", CRASHES, texts, out], capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    assert "it has no shards.json" in lines[0]
    assert "the shards are incomplete (0 rows so far): run the command" in lines[3]
    assert lines[-1] == str(ROWS)
    so_far = [int(line.split("(")[1].split()[0]) for line in lines[3:-1]]
    assert so_far == sorted(so_far)
    assert so_far[-1] > 0
    assert_same(out, in_memory(texts))
    assert not list(out.glob(".*"))  # nothing is left of the crashes


def test_finished_shards_and_other_things_are_not_replaced(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_shards(texts, out)
    with pytest.raises(DataError, match="already exist; expected none, or the option force"):
        write_shards(texts, out)
    write_shards(texts, out, shard_bytes=3000, force=True)
    assert len(open_shards(out).shards) > 5
    (out / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"is no directory of shards: it holds notes.txt"):
        write_shards(texts, out, force=True)
    assert (out / "notes.txt").read_text() == "mine"


def test_another_input_is_not_mixed_in(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_shards(texts, out, shard_bytes=3000)
    manifest = json.loads((out / "shards.json").read_text())
    del manifest["crc32"]
    manifest["complete"] = False
    (out / "shards.json").write_bytes(sealed.seal(manifest))
    with pytest.raises(DataError, match=r"begun with another input \(texts.jsonl, .* options\)"):
        write_shards(texts, out, label_column="", shard_bytes=3000)
    with texts.open("a") as file:
        file.write('{"text": "one more"}\n')
    with pytest.raises(DataError, match="begun with another input"):
        write_shards(texts, out, shard_bytes=3000)
    assert write_shards(texts, out, force=True).n_rows == ROWS + 1


def test_two_at_once_are_refused(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        replacing.locked(tmp_path / "out"),
        pytest.raises(DataError, match="another process is writing shards to it"),
    ):
        write_shards(texts, tmp_path / "out")


def test_an_error_in_the_input_leaves_nothing_behind(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "a", "labels": ["x"]}\n{"text": 3}\n')
    with pytest.raises(DataError, match=r"bad.jsonl:2: found the text 3"):
        write_shards(bad, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_rows_and_no_features(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("0 3 2\n")
    with pytest.raises(DataError, match="found no rows"):
        write_shards(tmp_path / "empty.txt", tmp_path / "out")
    write_npz(Dataset(csr_array(np.eye(3))), tmp_path / "labels.npz")
    with pytest.raises(DataError, match="found no features"):
        write_shards(tmp_path / "labels.npz", tmp_path / "out")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        write_shards(tmp_path / "missing.txt", tmp_path / "out", "xc")
    with pytest.raises(ValueError, match="shard_bytes must be at least 1, got 0"):
        write_shards(tmp_path / "empty.txt", tmp_path / "out", shard_bytes=0)
