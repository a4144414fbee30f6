"""One pass, cross(X, X, M), against scipy in the same run, and against the memory limit.

    python benchmarks/passes.py [--rows 200000] [--columns 128]

X is a power-law CSR matrix; the triad a = b + s * c shows what the memory can do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from labelry.linalg.kernels import csr_parts, scatter_rows
from labelry.linalg.matrices import product
from labelry.linalg.parallel import resolve_jobs, run, spans
from labelry.linalg.rows import Rows


def power_law(n_rows: int, n_features: int, per_row: int, seed: int = 0) -> csr_array:
    """Rows of `per_row` draws from a 1/rank distribution over shuffled features."""
    rng = np.random.default_rng(seed)
    rank = (n_features ** rng.random(n_rows * per_row)).astype(np.int64) - 1
    indices = rng.permutation(n_features).astype(np.int32)[np.minimum(rank, n_features - 1)]
    data = rng.random(n_rows * per_row, dtype=np.float32)
    indptr = np.arange(0, n_rows * per_row + 1, per_row)
    X = csr_array((data, indices, indptr), shape=(n_rows, n_features))
    X.sum_duplicates()
    return X


def best_time(function: Callable[[], object], repeats: int = 5) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@njit(nogil=True, cache=True, fastmath=True)
def _triad(a: np.ndarray, b: np.ndarray, c: np.ndarray, i0: int, i1: int) -> None:
    for i in range(i0, i1):
        a[i] = b[i] + 2.5 * c[i]


def triad_bandwidth(n_jobs: int, size: int = 1 << 26) -> float:
    """GB/s of a = b + s * c on arrays far larger than any cache."""
    a, b, c = (np.ones(size, dtype=np.float32) for _ in range(3))
    tasks = [(a, b, c, i0, i1) for i0, i1 in spans(size, n_jobs)]
    return 12 * size / best_time(lambda: run(_triad, tasks, n_jobs)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=200_000)
    parser.add_argument("--per-row", type=int, default=42)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=None)
    arguments = parser.parse_args()
    n_jobs = resolve_jobs(arguments.jobs)
    X = power_law(arguments.rows, arguments.features, arguments.per_row)
    rng = np.random.default_rng(1)
    M = rng.standard_normal((arguments.features, arguments.columns), dtype=np.float32)
    rows = Rows(X, n_jobs=n_jobs)
    Z = product(X, M, n_jobs)
    out = np.zeros_like(M)
    columns = spans(arguments.columns, n_jobs)
    scatter = [(csr_parts(X), Z, out, 0, X.shape[0], *c, 0) for c in columns]

    bytes_read = X.nnz * (8 + 4 * arguments.columns)  # a row of M for each nonzero
    print(f"X {X.shape[0]:,} x {X.shape[1]:,}, {X.nnz:,} nonzeros, {arguments.columns} columns")
    print(f"triad: {triad_bandwidth(n_jobs):.1f} GB/s with {n_jobs} threads")
    print(f"{'':12s} {'scipy s':>8s} {'labelry s':>9s} {'ratio':>6s} {'GB/s':>6s}")
    for name, theirs, ours, n_bytes in [
        ("X M", lambda: X @ M, lambda: product(X, M, n_jobs), bytes_read),
        # The transposed product reads and writes a row of the result for each nonzero.
        ("X' Z", lambda: X.T @ Z, lambda: run(scatter_rows, scatter, n_jobs), 2 * bytes_read),
        ("X' (X M)", lambda: X.T @ (X @ M), lambda: rows.cross("X", "X", M), 3 * bytes_read),
    ]:
        scipy_seconds, seconds = best_time(theirs), best_time(ours)
        print(
            f"{name:12s} {scipy_seconds:8.3f} {seconds:9.3f} {scipy_seconds / seconds:6.2f}"
            f" {n_bytes / seconds / 1e9:6.1f}"
        )


if __name__ == "__main__":
    main()
