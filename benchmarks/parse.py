"""Read the same large multilabel file with labelry and with scikit-learn, side by side.

    python benchmarks/parse.py --mb 200

Checks that both give the same matrices, then prints MB/s of the decompressed text, the ratio,
and the peak of memory in relation to the arrays that are returned.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from labelry.data.dataset import Dataset
from labelry.data.sparse_text import read_sparse_text, write_sparse_text

N_FEATURES, N_LABELS = 200_000, 30_000
BYTES_PER_ROW = 1150  # about, and rather too few


def power_law(rng: np.random.Generator, n_rows: int, n_columns: int, per_row: int) -> csr_array:
    """Random rows in which a few columns are frequent and most are rare."""
    sizes = 1 + rng.poisson(per_row - 1, n_rows)
    rows = np.repeat(np.arange(n_rows), sizes)
    columns = (n_columns * rng.random(len(rows)) ** 3).astype(np.int64)
    entries = np.unique(rows * n_columns + columns)
    values = np.round(rng.lognormal(-3.0, 1.0, len(entries)), 6).astype(np.float32)
    indptr = np.searchsorted(entries // n_columns, np.arange(n_rows + 1))
    return csr_array((values, entries % n_columns, indptr), shape=(n_rows, n_columns))


def generate(folder: Path, megabytes: int) -> None:
    rng = np.random.default_rng(0)
    n_rows = megabytes * 1_000_000 // BYTES_PER_ROW
    X = power_law(rng, n_rows, N_FEATURES, 80)
    Y = power_law(rng, n_rows, N_LABELS, 5)
    Y.data[:] = 1
    dataset = Dataset(Y, X)
    write_sparse_text(dataset, folder / "warm-up.txt")
    start = time.perf_counter()
    write_sparse_text(dataset, folder / "xc.txt")
    seconds = time.perf_counter() - start
    size = (folder / "xc.txt").stat().st_size / 1e6
    print(f"{'labelry, writing XC':32} {seconds:7.2f} s  {size / seconds:7.1f} MB/s")
    write_sparse_text(dataset, folder / "svmlight.txt", header=False)
    with (
        open(folder / "svmlight.txt", "rb") as plain,
        gzip.open(folder / "svmlight.txt.gz", "wb", compresslevel=1) as packed,
    ):
        shutil.copyfileobj(plain, packed, 1 << 20)


def array_bytes(dataset: Dataset) -> int:
    parts = (dataset.X, dataset.Y)
    return sum(m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in parts)


def measure_memory(folder: Path, _: int) -> None:
    (folder / "small.txt").write_bytes(b"1 1:1\n1,2 1:2\n")
    read_sparse_text(folder / "small.txt")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dataset = read_sparse_text(folder / "svmlight.txt")
    peak = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    final = array_bytes(dataset)
    print(
        f"peak memory of labelry: {peak / 1e6:.0f} MB above the start, "
        f"{peak / final:.2f}x the final arrays of {final / 1e6:.0f} MB"
    )


def measure_first_call(folder: Path, _: int) -> None:
    path = folder / "tiny.txt"
    path.write_bytes(b"1 1:1\n1,2 1:2\n")
    start = time.perf_counter()
    read_sparse_text(path)
    print(f"{'first call ever (compiles)':32} {time.perf_counter() - start:7.2f} s")


def timed(
    readers: dict[str, Callable[[], Any]], megabytes: float, repeats: int
) -> dict[str, float]:
    """Print the best of `repeats` runs of each, taken in turn."""
    best = dict.fromkeys(readers, np.inf)
    for _ in range(repeats):
        for name, function in readers.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    for name, seconds in best.items():
        print(f"{name:32} {seconds:7.2f} s  {megabytes / seconds:7.1f} MB/s")
    return best


def check_equal(ours: Dataset, X: Any, labels: list[tuple[float, ...]]) -> None:
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(
            getattr(ours.X, part), getattr(X, part), strict=part == "data"
        )
    np.testing.assert_array_equal(np.diff(ours.Y.indptr), [len(row) for row in labels])
    np.testing.assert_array_equal(ours.Y.indices, np.concatenate(labels))
    print("both readers give identical matrices")


def compare(folder: Path, repeats: int) -> None:
    path = folder / "svmlight.txt"
    megabytes = path.stat().st_size / 1e6

    def theirs() -> Any:
        return load_svmlight_file(str(path), multilabel=True, dtype=np.float32)

    print(f"file: {megabytes:.0f} MB of svmlight text; each the best of {repeats}")
    check_equal(read_sparse_text(path), *theirs())
    seconds = timed(
        {
            "scikit-learn, svmlight": theirs,
            "labelry, svmlight": lambda: read_sparse_text(path),
            "labelry, svmlight, one thread": lambda: read_sparse_text(path, n_jobs=1),
            "labelry, XC": lambda: read_sparse_text(folder / "xc.txt"),
            "labelry, svmlight.gz": lambda: read_sparse_text(f"{path}.gz"),
        },
        megabytes,
        repeats,
    )
    theirs_s, ours, one_thread, *_ = seconds.values()
    print(f"labelry is {theirs_s / ours:.1f}x as fast, {theirs_s / one_thread:.1f}x on one thread")


STAGES = {"first-call": measure_first_call, "generate": generate, "memory": measure_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=200, help="size of the text, in MB (200)")
    parser.add_argument("--repeats", type=int, default=2, help="take the best of so many runs (2)")
    parser.add_argument("--stage", choices=list(STAGES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        STAGES[args.stage](args.folder, args.mb)
        return
    with tempfile.TemporaryDirectory() as folder:
        # In processes of their own: a large process would hide the peak of what it starts.
        for stage in STAGES:
            command = [sys.executable, __file__, "--stage", stage, "--folder", folder]
            cold = {"NUMBA_CACHE_DIR": f"{folder}/cache"} if stage == "first-call" else {}
            subprocess.run([*command, "--mb", str(args.mb)], check=True, env=os.environ | cold)
        compare(Path(folder), args.repeats)


if __name__ == "__main__":
    main()
