"""Training from shards: time beside memory, and a training set four times the bound on memory.

    python benchmarks/out_of_core.py [--rows 2500000] [--bound 128] [--jobs 1] [--folder DIR]

Documents of 25 topics, up to 30 words of 1,400 and 3 labels of 500 each; 8 bytes a word.

1. A twentieth of the rows, with the settings that systems have by themselves: each
   trains in memory and from shards that are in the cache of the operating system, in turns; the
   better of two times each.
2. The rows are written as XC text, and made into shards as by `labelry convert --sharded`, in a
   process whose peak memory is told.
3. All rows, more than four times `--bound` MiB: each system trains in a process that may allocate
   `--bound` MiB beyond what the program itself has taken, and no more (RLIMIT_DATA, which counts
   private writable mappings too); and in another that has them all in memory. Precision is on
   new rows. That the bound is real shows in reading all rows under it: that fails.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelry import memory
from labelry.data import Dataset, read, write
from labelry.data.shard_writer import write_shards
from labelry.data.shards import open_shards
from labelry.errors import DataError
from labelry.evaluation import evaluate
from labelry.systems import system_class

N_TOPICS, N_WORDS, N_LABELS, LENGTH = 25, 1_400, 500, 30
TIMED: dict[str, dict[str, Any]] = {
    "rembrandt": {},
    "leml": {"n_rounds": 1},
    "moments": {},
}
BOUNDED: dict[str, dict[str, Any]] = {  # smaller, for the patience of whoever waits
    "rembrandt": {"embedding_dim": 30, "decoder": "least-squares"},
    "leml": {"embedding_dim": 20, "n_rounds": 1},
    "moments": {"n_topics": 25},
}
MIB = 1 << 20


def make_dataset(n_rows: int, seed: int) -> Dataset:
    """Rows whose words and labels are mostly of one topic."""
    rng = np.random.default_rng(seed)
    topic = (N_TOPICS * rng.random(n_rows) ** 2).astype(np.int64)  # of unlike sizes

    def draw(width: int, per_row: int, own: float) -> csr_array:
        per_topic = width // N_TOPICS
        mine = topic[:, None] * per_topic + rng.integers(0, per_topic, (n_rows, per_row))
        any_topic = (width * rng.random((n_rows, per_row)) ** 3).astype(np.int64)
        columns = np.where(rng.random((n_rows, per_row)) < own, mine, any_topic).astype(np.int32)
        columns.sort(axis=1)
        keep = np.ones(columns.shape, dtype=bool)
        keep[:, 1:] = columns[:, 1:] != columns[:, :-1]
        indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int32)
        data = np.ones(indptr[-1], dtype=np.float32)
        return csr_array((data, columns[keep], indptr), shape=(n_rows, width))

    X, Y = draw(N_WORDS, LENGTH, own=0.5), draw(N_LABELS, 3, own=0.7)
    return Dataset(Y, X)


def fit(system: str, settings: dict[str, Any], source: Any, bound: int | None, n_jobs: int) -> Any:
    model = system_class(system)(**settings, n_jobs=n_jobs)
    if isinstance(source, Dataset):
        return model.fit_dataset(source)
    return model.fit_rows(source.rows(memory=bound, n_jobs=n_jobs))


def compare_times(folder: Path, n_rows: int, n_jobs: int) -> None:
    dataset = make_dataset(n_rows, seed=1)
    write(dataset, folder / "part.npz")
    shards = write_shards(folder / "part.npz", folder / "part", shard_bytes=16 * MIB)
    print(f"{n_rows:,} rows, {shards.n_bytes / MIB:.0f} MiB, {len(shards.shards)} shards")
    for system, settings in TIMED.items():
        times: dict[str, list[float]] = {"memory": [], "shards": []}
        fit(system, settings, make_dataset(2_000, seed=2), None, n_jobs)  # loads the kernels
        for _ in range(2):
            for name, source in (("memory", dataset), ("shards", shards)):
                start = time.perf_counter()
                fit(system, settings, source, None, n_jobs)
                times[name].append(time.perf_counter() - start)
        a, b = min(times["memory"]), min(times["shards"])
        print(f"  {system:10} memory {a:6.2f} s  shards {b:6.2f} s  ratio {b / a:.2f}")


def train_bounded(folder: Path, system: str, bound: int | None, n_jobs: int) -> dict[str, Any]:
    """What a child process does: train, under the bound if there is one; measure on new rows."""
    settings = BOUNDED[system]
    fit(system, settings, make_dataset(2_000, seed=2), None, n_jobs)  # loads the kernels
    test = read(folder / "test.npz")
    shards = open_shards(folder / "shards")
    before = memory.peak()
    set_limit(bound)
    start = time.perf_counter()
    source = shards.dataset() if bound is None else shards
    model = fit(system, settings, source, bound, n_jobs)
    seconds = time.perf_counter() - start
    result = {"seconds": round(seconds, 1), "program MiB": before // MIB}
    result["peak MiB"] = memory.peak() // MIB
    measures = evaluate(model, test)
    return result | {name: round(measures[name], 2) for name in ("P@1", "P@3", "P@5")}


def read_bounded(folder: Path, bound: int | None) -> dict[str, Any]:
    """What a child process does to see that the bound is real."""
    shards = open_shards(folder / "shards")
    set_limit(bound)
    try:
        shards.dataset()
    except (MemoryError, DataError) as error:  # the second where a file cannot be mapped
        return {"all rows": type(error).__name__}
    return {"all rows": "fit: the bound is not real"}


def set_limit(bound: int | None) -> None:
    if bound is not None:
        limit = _status("VmData") + bound
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _status(name: str) -> int:
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(name))
    return int(line.split()[1]) * 1024


def run_child(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def convert(folder: Path, n_rows: int, n_jobs: int) -> None:
    write(make_dataset(n_rows, seed=0), folder / "all.txt")
    write(make_dataset(5_000, seed=3), folder / "test.npz")
    start = time.perf_counter()
    found = run_child("--folder", folder, "--child", "convert", "--jobs", n_jobs)
    seconds = time.perf_counter() - start
    text = (folder / "all.txt").stat().st_size
    print(
        f"convert: {text / MIB:,.0f} MiB of text to {found['bytes'] / MIB:,.0f} MiB of shards in "
        f"{seconds:.0f} s, peak memory {found['peak'] / MIB:,.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_500_000)
    parser.add_argument("--bound", type=int, default=128, help="MiB")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--systems", nargs="+", default=list(BOUNDED))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child == "convert":
        shards = write_shards(
            given.folder / "all.txt",
            given.folder / "shards",
            shard_bytes=16 * MIB,
            n_jobs=given.jobs,
        )
        print(json.dumps({"bytes": shards.n_bytes, "peak": memory.peak()}))
        return
    if given.child:
        system, bounded = given.child.split(":")
        bound = given.bound * MIB if bounded == "bounded" else None
        if system == "read":
            print(json.dumps(read_bounded(given.folder, bound)))
        else:
            print(json.dumps(train_bounded(given.folder, system, bound, given.jobs)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        compare_times(folder, given.rows // 20, given.jobs)
        convert(folder, given.rows, given.jobs)
        size = open_shards(folder / "shards").n_bytes
        times = size / MIB / given.bound
        print(f"{size / MIB:,.0f} MiB of rows, {times:.1f} times the bound of {given.bound} MiB")
        common = ("--folder", folder, "--bound", given.bound, "--jobs", given.jobs)
        print("  reading", run_child(*common, "--child", "read:bounded"))
        for system in given.systems:
            for how in ("bounded", "memory"):
                print(f"  {system:10} {how:8}", run_child(*common, "--child", f"{system}:{how}"))


if __name__ == "__main__":
    main()
