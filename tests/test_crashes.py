"""Nothing is lost or half-written when a process is killed at a random moment, or a disk is full.

    python tests/test_crashes.py save 50 FOLDER

kills 50 processes at work in one of four operations. LABELRY_CRASHES says how many the tests kill
in each.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.data import Dataset, read, write
from labelry.data.shard_writer import write_shards
from labelry.errors import DataError, ModelError
from labelry.storage import modelfile

TIMES = int(os.environ.get("LABELRY_CRASHES", "12"))
ROWS = 400

# ---- what is killed -------------------------------------------------------------------------


def save(path: Path, value: int) -> None:
    """A model in which everything depends on `value`, so that a mixture shows."""
    modelfile.save(
        path,
        system=f"system-{value}",
        parameters={"value": value},
        state={"values": [value] * 1000},
        arrays={"a": np.full(100_000, value), "b": np.full(50_000, value, np.float32)},
        label_names=[f"{value}-{i}" for i in range(1000)],
        force=True,
    )


def saved(path: Path) -> int:
    """The `value` of a whole model."""
    model = modelfile.load(path)
    value = int(model.parameters["value"])
    assert model.system == f"system-{value}"
    assert model.state == {"values": [value] * 1000}
    assert model.label_names == [f"{value}-{i}" for i in range(1000)]
    assert all((array == value).all() for array in model.arrays.values())
    return value


def rows(value: int) -> Dataset:
    X = np.full((ROWS, 20), value + 1, dtype=np.float32)
    return Dataset(csr_array(np.eye(ROWS, dtype=np.float32)), csr_array(X))


def converted(path: Path) -> int:
    """The `value` of a whole file."""
    dataset = read(path, n_jobs=1)
    value = int(dataset.X.data[0]) - 1
    assert dataset.X.shape == (ROWS, 20)
    assert (dataset.X.toarray() == value + 1).all()
    assert (dataset.Y.toarray() == np.eye(ROWS)).all()
    return value


class Killer:
    """Kills processes at random moments until so many were still at work.

    The moments come earlier after a process that was done in time, and later after one that was
    not: about half of them are at work, however fast the machine is just then.
    """

    def __init__(self, times: int) -> None:
        self.times = times
        self.latest = 0.05  # seconds

    def numbers(self) -> Iterator[int]:
        number = 0
        while self.times:
            number += 1
            yield number

    def kill(self, work: Callable[[], object]) -> None:
        child = os.fork()
        if child == 0:
            run_child(work)
        time.sleep(random.uniform(0, self.latest))
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL), f"the process failed with {code}"
        self.times -= code != 0
        self.latest *= 0.8 if code == 0 else 1.25


def run_child(work: Callable[[], object]) -> None:
    try:
        work()
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(1)


def replace(killer: Killer, folder: Path, write: Callable, read: Callable, name: str) -> None:
    """Kill what replaces one file or directory by the next: the old or the new is there, whole."""
    path = folder / name
    write(path, 0)
    last = 0
    for value in killer.numbers():
        killer.kill(lambda value=value: write(path, value))
        found = read(path)
        assert found in (last, value), f"found {found} after {last} and {value}"
        last = found
    write(path, last + 1)
    assert read(path) == last + 1
    assert os.listdir(folder) == [name]  # nothing is left of the crashes


def crash_save(killer: Killer, folder: Path) -> None:
    replace(killer, folder, save, saved, "m")


def crash_convert(killer: Killer, folder: Path) -> None:
    def convert(path: Path, value: int) -> None:
        write(rows(value), path, "xc", force=True, n_jobs=1)

    replace(killer, folder, convert, converted, "rows.xc.gz")


def crash_resume(killer: Killer, folder: Path) -> None:
    """Kill what goes on with shards, again and again; in the end all rows are there."""
    source, out = folder / "rows.xc", folder / "shards"
    write(rows(1), source, "xc")

    def go_on() -> None:
        write_shards(source, out, shard_bytes=2000, n_jobs=1)

    for _ in killer.numbers():
        killer.kill(go_on)
        if _is_complete(out):  # another begins
            assert converted(out) == 1
            shutil.rmtree(out)
    go_on()
    assert converted(out) == 1
    assert not list(out.glob(".*"))


def _is_complete(out: Path) -> bool:
    try:
        read(out)
    except DataError:
        return False
    return True


def crash_reload(killer: Killer, folder: Path) -> None:
    """Kill readers and savers of one model while another process reads it all the time."""
    path = folder / "m"
    save(path, 0)

    def read_on() -> None:
        last = 0
        while not (folder / "stop").exists():
            found = saved(path)
            assert found >= last
            last = found

    reader = os.fork()
    if reader == 0:
        run_child(read_on)
    for value in killer.numbers():
        killer.kill((lambda: saved(path)) if value % 2 else (lambda v=value: save(path, v)))
    (folder / "stop").touch()
    assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0
    saved(path)


OPERATIONS = {
    "save": crash_save,
    "convert": crash_convert,
    "resume": crash_resume,
    "reload": crash_reload,
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_random(operation: str, tmp_path: Path) -> None:
    command = [sys.executable, __file__, operation, str(TIMES), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- disks that are full, folders that are read-only ----------------------------------------


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 300 KiB; the test is skipped where none can be made."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk can be mounted only by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def small(value: int) -> Dataset:
    return Dataset(csr_array(np.eye(2, dtype=np.float32)), np.full((2, 2), value, np.float32))


@pytest.mark.slow
def test_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    def model(value: int, size: int) -> None:
        arrays = {"a": np.full(size, value)}
        rest = {"system": "s", "parameters": {}, "state": {}, "label_names": None}
        modelfile.save(disk / "m", arrays=arrays, **rest, force=True)

    with small_disk(tmp_path / "disk") as disk:
        model(1, 10)
        write(small(1), disk / "a.npz")
        before = sorted(os.listdir(disk))
        with pytest.raises(ModelError, match="No space left"):
            model(2, 100_000)
        large = Dataset(csr_array((1, 1), dtype=np.float32), np.ones((1, 200_000), np.float32))
        with pytest.raises(DataError, match=r"a\.npz: cannot be written: No space left"):
            write(large, disk / "a.npz", force=True)
        write(large, tmp_path / "large.npz")
        with pytest.raises(DataError, match="No space left"):
            write_shards(tmp_path / "large.npz", disk / "shards")
        assert sorted(set(os.listdir(disk)) - {"shards"}) == before
        assert modelfile.load(disk / "m").arrays["a"].tolist() == [1] * 10
        assert (read(disk / "a.npz").X == 1).all()


def check_cannot_write(folder: Path, reason: str) -> None:
    with pytest.raises(DataError, match=rf"a\.npz: cannot be written: {reason}"):
        write(small(2), folder / "a.npz", force=True)
    with pytest.raises(ModelError, match=f"cannot save the model to .*: {reason}"):
        save(folder / "m", 1)
    with pytest.raises(DataError, match=f"cannot be written: {reason}"):
        write_shards(folder / "a.npz", folder / "shards")
    assert (read(folder / "a.npz").X == 1).all()
    assert os.listdir(folder) == ["a.npz"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_read_only_folder(tmp_path: Path) -> None:
    write(small(1), tmp_path / "a.npz")
    tmp_path.chmod(0o500)
    try:
        check_cannot_write(tmp_path, "Permission denied")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.slow
def test_read_only_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        write(small(1), disk / "a.npz")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        check_cannot_write(disk, "Read-only file system")


def main(operation: str, times: str, folder: str) -> None:
    random.seed(operation)
    OPERATIONS[operation](Killer(int(times)), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
