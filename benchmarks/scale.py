"""A label embedding of a problem of the LSHTC challenge's shape, on one machine.

    python benchmarks/scale.py [--part 0.01] [--dim 500]

At --part 1: 2.4 million rows, 1.6 million features with 42 draws a row, 325,000 labels, 3.2 a row,
power-law both, with a planted low-rank signal: each row is about one of 2,000 topics, and a
topic has features and labels of its own. The paper took 8,006 s for k = 500 with six faster
cores and 48 GB. Prints time of each phase, passes, iterations, peak memory, GB/s beside the
triad, and how well the embedding knows the topics; then exact top-5 prediction with the
least-squares decoder (paper: 60 examples a second).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from passes import triad_bandwidth
from scipy.sparse import csr_array

from labelry import memory
from labelry.embeddings.rembrandt import rembrandt
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge
from labelry.ranking.linear import least_squares_decoder

N_TOPICS = 2_000
_BLOCK = 100_000


def make_problem(
    part: float, seed: int = 0, width: float | None = None
) -> tuple[csr_array, csr_array, np.ndarray]:
    """Features, labels, and the topic of each label.

    `part` of the rows; `width` of the features and labels, by default the root of `part`.
    """
    rng = np.random.default_rng(seed)
    width = part**0.5 if width is None else width
    n, d, c = int(2_400_000 * part), int(1_600_000 * width), int(325_000 * width)
    topic_of_feature = rng.integers(0, N_TOPICS, d).astype(np.int32)
    topic_of_label = rng.integers(0, N_TOPICS, c).astype(np.int32)
    features, labels = ([], [])
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        topics = _power_law(rng, N_TOPICS, size)
        features.append(_draw(rng, topics, topic_of_feature, size, 42, own=0.4))
        labels.append(_draw(rng, topics, topic_of_label, size, 4, own=0.8))
    X, Y = (_stack(parts, width) for parts, width in ((features, d), (labels, c)))
    return X, Y, topic_of_label


def _power_law(rng: np.random.Generator, n: int, size: int | tuple[int, int]) -> np.ndarray:
    """Ranks 0..n-1 with probability about 1 / (rank + 1)."""
    return np.minimum((n + 1.0) ** rng.random(size) - 1, n - 1).astype(np.int64)


def _draw(
    rng: np.random.Generator,
    topics: np.ndarray,
    topic_of: np.ndarray,
    size: int,
    per_row: int,
    own: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Columns of each row, sorted and distinct: some of the row's own topic, the rest of any."""
    width = len(topic_of)
    by_topic = np.argsort(topic_of, kind="stable")
    first = np.searchsorted(topic_of[by_topic], np.arange(N_TOPICS))
    count = np.maximum(np.bincount(topic_of, minlength=N_TOPICS), 1)
    rank = ((count[topics, None] + 1.0) ** rng.random((size, per_row)) - 1).astype(np.int64)
    mine = by_topic[np.minimum(first[topics, None] + rank, width - 1)]
    columns = np.where(
        rng.random((size, per_row)) < own, mine, _power_law(rng, width, (size, per_row))
    )
    columns.sort(axis=1)
    keep = np.ones(columns.shape, dtype=bool)
    keep[:, 1:] = columns[:, 1:] != columns[:, :-1]
    return columns[keep].astype(np.int32), keep.sum(axis=1)


def _stack(parts: list[tuple[np.ndarray, np.ndarray]], width: int) -> csr_array:
    indices = np.concatenate([p[0] for p in parts])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([p[1] for p in parts]))])
    data = np.ones(len(indices), dtype=np.float32)
    return csr_array((data, indices, indptr.astype(np.int32)), shape=(len(indptr) - 1, width))


def peak_memory() -> float:
    return memory.peak() / 2**30


class TimedRows(Rows):
    """Rows that add up the time of the passes and the floats they touch."""

    seconds = 0.0
    n_bytes = 0.0

    def cross(self, a: str, b: str, M: np.ndarray) -> np.ndarray:
        start = time.perf_counter()
        out = super().cross(a, b, M)  # type: ignore[arg-type]
        self.seconds += time.perf_counter() - start
        sizes = {"X": self._X.nnz, "Y": self._Y.nnz}
        # A row of M for each nonzero of B, and a row of the result in and out for each of A.
        self.n_bytes += 4.0 * M.shape[1] * (sizes[b] + 2 * sizes[a])
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=float, default=0.01, help="share of the full number of rows")
    parser.add_argument("--dim", type=int, default=500)
    parser.add_argument("--regularization", type=float, default=128.0)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=None)
    arguments = parser.parse_args()
    n_jobs = resolve_jobs(arguments.jobs)
    start = time.perf_counter()
    X, Y, topics = make_problem(arguments.part)
    X = scaled_rows(X)
    print(
        f"{X.shape[0]:,} rows, {X.shape[1]:,} features ({X.nnz / X.shape[0]:.1f} a row), "
        f"{Y.shape[1]:,} labels ({Y.nnz / X.shape[0]:.1f} a row); made in "
        f"{time.perf_counter() - start:.0f} s; {peak_memory():.1f} GiB",
        flush=True,
    )
    triad = triad_bandwidth(n_jobs)
    rows = TimedRows(X, Y, n_jobs=n_jobs)
    start = time.perf_counter()
    ridge = Ridge(rows, method="cg", tolerance=arguments.tolerance)
    embedding = rembrandt(
        ridge, arguments.dim, regularization=arguments.regularization, rng=np.random.default_rng(0)
    )
    seconds = time.perf_counter() - start
    print(
        f"embedding k = {arguments.dim}: {seconds:.0f} s (paper 8,006 s), of which passes "
        f"{rows.seconds:.0f} s; {rows.n_passes} passes over column chunks, {ridge.n_iterations} "
        f"iterations, {rows.n_bytes / rows.seconds / 1e9:.1f} GB/s "
        f"(triad {triad:.1f}); peak {peak_memory():.1f} GiB",
        flush=True,
    )
    report_quality(embedding.vectors, Y, topics)
    start = time.perf_counter()
    regressor = ridge.solve(embedding.vectors, arguments.regularization)
    print(
        f"regressor: {time.perf_counter() - start:.0f} s; peak {peak_memory():.1f} GiB", flush=True
    )
    queries = X[: arguments.queries]
    decoder = least_squares_decoder(embedding.vectors)
    start = time.perf_counter()
    labels, _ = decoder.topk(regressor(queries, n_jobs), 5, n_jobs)
    rate = len(labels) / (time.perf_counter() - start)
    hits = np.mean([Y[[i], labels[i, 0]].sum() > 0 for i in range(len(labels))])
    print(f"exact top 5: {rate:,.0f} rows/s (paper 60/s); P@1 on training rows {100 * hits:.1f}")
    print(f"peak {peak_memory():.1f} GiB")


def report_quality(V: np.ndarray, Y: csr_array, topics: np.ndarray) -> None:
    """Share of frequent labels whose nearest frequent label has the same topic."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    frequent = np.argsort(-counts)[:2000]
    U = scaled_rows(V[frequent])
    S = U @ U.T
    np.fill_diagonal(S, -2)
    same = topics[frequent] == topics[frequent][S.argmax(axis=1)]
    print(
        f"nearest of the 2,000 most frequent labels is of the same topic: {100 * same.mean():.1f} %"
    )


if __name__ == "__main__":
    main()
