"""Approximate search for neighbours: what libraries offer, beside exact search and our own lists.

    python benchmarks/neighbour_index.py DATA     vectors of a Rembrandt model and generated ones

DATA holds a folder per dataset (or set LABELRY_DATA). Each index is asked for 100 neighbours, as
the decoder asks; found are those of the exact search. Prints Markdown. faiss-cpu, usearch, hnswlib
and pynndescent are measured where they are installed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from labelry import Rembrandt
from labelry.data import read
from labelry.linalg.matrices import scaled_rows
from labelry.ranking.neighbours import Neighbours, make_lists

K = 100
Search = Callable[[np.ndarray], np.ndarray]  # queries -> numbers of their K neighbours
Effort = tuple[str, Search]


def exact(points: np.ndarray, jobs: int) -> Iterator[Effort]:
    decoder = Neighbours(points, None, csr_array((len(points), 1)), K)
    yield ("exact", lambda Q: np.concatenate([near for _, near, _ in decoder.nearest(Q, jobs)]))


def lists(points: np.ndarray, jobs: int) -> Iterator[Effort]:
    made, order = make_lists(points, rng=np.random.default_rng(0), n_jobs=jobs)
    stored = points[order]
    for n_probes in (8, 16, 32):

        def search(Q: np.ndarray, n_probes: int = n_probes) -> np.ndarray:
            return order[made._replace(n_probes=n_probes).search(Q, stored, K, jobs)[0]]

        yield f"{n_probes} probes", search


def faiss_lists(points: np.ndarray, jobs: int) -> Iterator[Effort]:
    faiss = import_module("faiss")
    faiss.omp_set_num_threads(jobs)
    n, dim = points.shape
    index = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(dim), dim, round(2 * np.sqrt(n)), faiss.METRIC_INNER_PRODUCT
    )
    index.train(points)
    index.add(points)
    for index.nprobe in (8, 16, 32):
        yield f"{index.nprobe} probes", lambda Q: index.search(Q, K)[1]


def faiss_graph(points: np.ndarray, jobs: int) -> Iterator[Effort]:
    faiss = import_module("faiss")
    faiss.omp_set_num_threads(jobs)
    index = faiss.IndexHNSWFlat(points.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 128
    index.add(points)
    for index.hnsw.efSearch in (100, 200, 400):
        yield f"ef {index.hnsw.efSearch}", lambda Q: index.search(Q, K)[1]


def usearch(points: np.ndarray, jobs: int) -> Iterator[Effort]:
    index = import_module("usearch.index").Index(
        ndim=points.shape[1], metric="ip", dtype="f32", connectivity=16, expansion_add=128
    )
    index.add(np.arange(len(points)), points, threads=jobs)
    for index.expansion_search in (100, 200, 400):
        yield (
            f"ef {index.expansion_search}",
            lambda Q: index.search(Q, K, threads=jobs).keys.reshape(len(Q), -1),
        )


def hnswlib(points: np.ndarray, jobs: int) -> Iterator[Effort]:
    index = import_module("hnswlib").Index(space="ip", dim=points.shape[1])
    index.init_index(len(points), M=16, ef_construction=128, random_seed=0)
    index.add_items(points, num_threads=jobs)
    for ef in (100, 200, 400):
        index.set_ef(ef)
        yield f"ef {ef}", lambda Q: index.knn_query(Q, K, num_threads=jobs)[0]


def pynndescent(points: np.ndarray, jobs: int) -> Iterator[Effort]:
    index = import_module("pynndescent").NNDescent(
        points, metric="dot", n_neighbors=30, random_state=0, n_jobs=jobs
    )
    index.prepare()
    for epsilon in (0.05, 0.1, 0.2):
        yield f"epsilon {epsilon}", lambda Q, e=epsilon: index.query(Q, K, epsilon=e)[0]


INDEXES = {
    "exact, blocks": exact,
    "labelry, lists": lists,
    "faiss, lists": faiss_lists,
    "faiss, graph": faiss_graph,
    "usearch, graph": usearch,
    "hnswlib, graph": hnswlib,
    "pynndescent, graph": pynndescent,
}


def timed(function: Callable, *arguments: object) -> tuple[float, object]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def cosines(queries: np.ndarray, points: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Cosine of each query with each of its neighbours (unsigned numbers and -1 for none)."""
    near = np.asarray(near).astype(np.int64)
    inner = np.einsum("ik,ijk->ij", queries, points[near])
    return np.where(near >= 0, inner, -np.inf)


def found(near: np.ndarray, truth: np.ndarray, k: int) -> float:
    """Share of the first k that are as near as the k nearest: which of equals does not matter."""
    return float((near[:, :k] >= truth[:, [k - 1]] - 1e-5).mean())


def table(name: str, points: np.ndarray, queries: np.ndarray, indexes: dict, jobs: int) -> None:
    print(f"\n{name}: {points.shape[0]:,} x {points.shape[1]}, {len(queries):,} queries, {jobs=}\n")
    print("| index | build s | effort | found of 10 | found of 100 | ms a query, batch | one row |")
    print("|---|---|---|---|---|---|---|", flush=True)
    (_, search), *_ = exact(points, jobs)
    truth = cosines(queries, points, search(queries))
    for index, make in indexes.items():
        next(make(points[:5000], jobs))[1](queries[:2])  # compile before the clock
        efforts = make(points, jobs)
        built, (effort, search) = timed(next, efforts)
        while True:
            batch, ids = timed(search, queries)
            near = cosines(queries, points, ids)
            alone = [timed(search, queries[i : i + 1])[0] for i in range(100)]
            print(
                f"| {index} | {built:.1f} | {effort} | {found(near, truth, 10):.4f} "
                f"| {found(near, truth, K):.4f} | {1000 * batch / len(queries):.3f} "
                f"| {1000 * np.median(alone):.3f} |",
                flush=True,
            )
            try:
                effort, search = next(efforts)
            except StopIteration:
                break


def repeatable(points: np.ndarray, queries: np.ndarray, indexes: dict) -> None:
    """Whether two builds on two threads find the same neighbours."""
    print("\n| index | two builds on two threads agree |\n|---|---|")
    for index, make in indexes.items():
        first, second = (next(make(points, 2))[1](queries) for _ in range(2))
        print(f"| {index} | {np.mean(np.asarray(first) == np.asarray(second)):.4f} |", flush=True)


def rembrandt_vectors(data: str, n_queries: int, jobs: int) -> tuple[np.ndarray, np.ndarray]:
    """Embedded rows of deb-depends as the decoder keeps them; the queries were not trained on."""
    train = read(Path(data) / "deb-depends" / "train.txt.gz")
    order = np.random.default_rng(0).permutation(train.n_rows)
    new, old = order[:n_queries], np.sort(order[n_queries:])
    model = Rembrandt(embedding_dim=100, n_jobs=jobs).fit(train.X[old], train.Y[old])
    decoder = model.decoder_
    return decoder.points, scaled_rows(model.embed(train.X[new]) * decoder.scale)


def generated_vectors(n: int, dim: int, n_queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Groups of very different sizes in a few topics."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((50, dim), dtype=np.float32)
    groups = topics[rng.integers(50, size=n // 100)]
    groups = groups + 0.7 * rng.standard_normal(groups.shape, dtype=np.float32)
    sizes = rng.zipf(1.5, size=len(groups)).clip(max=1000)
    group = rng.choice(len(groups), size=n + n_queries, p=sizes / sizes.sum())
    points = groups[group] + 0.7 * rng.standard_normal((len(group), dim), dtype=np.float32)
    points = scaled_rows(points)
    return points[:n], points[n:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--rows", type=int, default=500_000, help="generated vectors")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give the data folder, or set LABELRY_DATA")
    indexes = {}
    for name, make in INDEXES.items():
        library = name.split(",")[0]
        if library in ("exact", "labelry"):
            indexes[name] = make
            continue
        with suppress(ImportError):
            import_module(library)
            indexes[name] = make
    print("not installed:", "; ".join(n for n in INDEXES if n not in indexes) or "none")
    jobs = arguments.jobs
    with threadpool_limits(jobs):
        points, queries = rembrandt_vectors(arguments.data, arguments.queries, jobs)
        table("deb-depends", points, queries, indexes, jobs)
        table("of the size of a cluster of SLEEC", points[:6000], queries, indexes, jobs)
    repeatable(points[:6000], queries, indexes)
    with threadpool_limits(jobs):
        points, queries = generated_vectors(arguments.rows, 64, arguments.queries)
        table("generated", points, queries, indexes, jobs)


if __name__ == "__main__":
    main()
