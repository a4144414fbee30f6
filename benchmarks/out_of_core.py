"""Training from shards: time beside memory, and a training set four times the bound on memory.

    python benchmarks/out_of_core.py [--rows 2500000] [--bound 128] [--jobs 1] [--folder DIR]

Documents of 25 topics, up to 30 words and 3 labels each; 8 bytes a word. For systems that learn by
sums over rows there are 1,400 words and 500 labels; for trees, which train on the rows themselves,
30,000 words and 25 labels, drawn with less noise. Training on rows takes longer, so for trees all
is a quarter: rows, bound, shards, and the blocks that dual coordinate descent works on.

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
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from labelry import memory
from labelry.data import Dataset, read, write
from labelry.data.shard_writer import write_shards
from labelry.data.shards import open_shards
from labelry.errors import DataError
from labelry.estimators import system_class
from labelry.evaluation.evaluate import evaluate
from labelry.linalg import dual_descent

N_TOPICS, LENGTH = 25, 30
DATA = {"sums": (1_400, 500, 0.7), "trees": (30_000, 25, 0.9)}  # words, labels, of the topic


class Case(NamedTuple):
    """A system, the data that it gets, and its settings; None: not tried under the bound."""

    system: str
    kind: str
    timed: dict[str, Any]
    bounded: dict[str, Any] | None = None


TWO_LEVELS = {"branching": 5, "depth": 2}  # nodes below the root have no room either
CLUSTERS = {"embedding_dim": 20, "n_learners": 1}
CASES = {  # settings under the bound are smaller, for the patience of whoever waits
    "rembrandt": Case("rembrandt", "sums", {}, {"embedding_dim": 30, "decoder": "least-squares"}),
    "rembrandt-least-squares": Case("rembrandt", "sums", {"decoder": "least-squares"}),
    "rembrandt-logistic": Case("rembrandt", "sums", {"decoder": "logistic", "max_epochs": 2}),
    "pca": Case("pca", "sums", {}),
    "plst": Case("plst", "sums", {}),
    "cplst": Case("cplst", "sums", {}),
    "leml": Case("leml", "sums", {"n_rounds": 1}, {"embedding_dim": 20, "n_rounds": 1}),
    "moments": Case("moments", "sums", {}, {"n_topics": 25}),
    "sleec": Case("sleec", "sums", CLUSTERS),
    "linear-tree": Case("linear-tree", "trees", {}, {}),
    "deep-tree": Case("linear-tree", "trees", TWO_LEVELS, TWO_LEVELS),
    "tagger": Case("tagger", "trees", {"quality": "fast"}, {"quality": "fast"}),
}
MIB = 1 << 20
QUARTER = 4  # of all that trees get
MODEL = 32 * MIB  # that the model of a tree may take


def make_dataset(n_rows: int, seed: int, kind: str) -> Dataset:
    """Rows whose words and labels are mostly of one topic."""
    n_words, n_labels, own_labels = DATA[kind]
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

    X, Y = draw(n_words, LENGTH, own=0.5), draw(n_labels, 3, own=own_labels)
    return Dataset(Y, X)


def fit(case: Case, settings: dict[str, Any], source: Any, bound: int | None, n_jobs: int) -> Any:
    model = system_class(case.system)(**settings, n_jobs=n_jobs)
    if isinstance(source, Dataset):
        return model.fit(source)
    return model.fit(source.rows(memory=bound, n_jobs=n_jobs))


def compare_times(folder: Path, n_rows: int, n_jobs: int, kind: str, names: list[str]) -> None:
    dataset = make_dataset(n_rows, 1, kind)
    write(dataset, folder / "part.npz")
    shards = write_shards(folder / "part.npz", folder / "part", shard_bytes=16 * MIB)
    print(f"{n_rows:,} rows, {shards.n_bytes / MIB:.0f} MiB, {len(shards.shards)} shards")
    for name in names:
        case = CASES[name]
        times: dict[str, list[float]] = {"memory": [], "shards": []}
        fit(case, case.timed, make_dataset(2_000, 2, kind), None, n_jobs)  # loads the kernels
        for _ in range(2):
            for where, source in (("memory", dataset), ("shards", shards)):
                start = time.perf_counter()
                fit(case, case.timed, source, None, n_jobs)
                times[where].append(time.perf_counter() - start)
        a, b = min(times["memory"]), min(times["shards"])
        print(f"  {name:23} memory {a:6.2f} s  shards {b:6.2f} s  ratio {b / a:.2f}", flush=True)


def train_bounded(folder: Path, name: str, bound: int | None, n_jobs: int) -> dict[str, Any]:
    """What a child process does: train, under the bound if there is one; measure on new rows."""
    case = CASES[name]
    settings, is_tree = case.bounded or {}, case.kind == "trees"
    if is_tree:
        dual_descent.BLOCK //= QUARTER
    small = make_dataset(2_000, 2, case.kind)
    fit(case, settings, small, None, n_jobs)  # loads the kernels
    test = read(folder / "test.npz")
    shards = open_shards(folder / "shards")
    before = memory.peak()
    if bound is not None:  # which is not for the model
        set_limit(bound + (MODEL if is_tree else 0))
    start = time.perf_counter()
    source = shards.dataset() if bound is None else shards
    model = fit(case, settings, source, bound, n_jobs)
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
    # What is let go returns to the system, so that the limit is on what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(MIB)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout)


def convert(folder: Path, given: argparse.Namespace, kind: str) -> None:
    write(make_dataset(given.rows, 0, kind), folder / "all.txt")
    write(make_dataset(5_000, 3, kind), folder / "test.npz")
    start = time.perf_counter()
    found = run_child(
        "--folder", folder, "--child", "convert", "--jobs", given.jobs, "--shard", given.shard
    )
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
    parser.add_argument("--shard", type=int, default=16, help="MiB")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--systems", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child == "convert":
        shards = write_shards(
            given.folder / "all.txt",
            given.folder / "shards",
            shard_bytes=given.shard * MIB,
            n_jobs=given.jobs,
        )
        print(json.dumps({"bytes": shards.n_bytes, "peak": memory.peak()}))
        return
    if given.child:
        name, bounded = given.child.split(":")
        bound = given.bound * MIB if bounded == "bounded" else None
        if name == "read":
            print(json.dumps(read_bounded(given.folder, bound)))
        else:
            print(json.dumps(train_bounded(given.folder, name, bound, given.jobs)))
        return
    for kind in DATA:
        names = [name for name in given.systems if CASES[name].kind == kind]
        if names:
            if kind == "trees":
                given.rows, given.bound, given.shard = (
                    n // QUARTER for n in (given.rows, given.bound, given.shard)
                )
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                compare(Path(folder), given, kind, names)


def compare(folder: Path, given: argparse.Namespace, kind: str, names: list[str]) -> None:
    compare_times(folder, given.rows // (20 if kind == "sums" else 5), given.jobs, kind, names)
    names = [name for name in names if CASES[name].bounded is not None]
    if not names:
        return
    convert(folder, given, kind)
    size = open_shards(folder / "shards").n_bytes
    times = size / MIB / given.bound
    print(f"{size / MIB:,.0f} MiB of rows, {times:.1f} times the bound of {given.bound} MiB")
    common = ("--folder", folder, "--bound", given.bound, "--jobs", given.jobs)
    print("  reading", run_child(*common, "--child", "read:bounded"), flush=True)
    for name in names:
        for how in ("bounded", "memory"):
            found = run_child(*common, "--child", f"{name}:{how}")
            print(f"  {name:11} {how:8}", found, flush=True)


if __name__ == "__main__":
    main()
