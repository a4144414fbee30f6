"""A pass on a Dask cluster: one and two workers here, and a model of the cost of more.

    python benchmarks/cluster.py [--part 0.1] [--width 0.05] [--columns 64] [--folder DIR]

Rows like those of LSHTC (`scale.py`; `--part` of the rows, `--width` of the features) in shards.
Two passes of Rembrandt are timed, X'X P (an iteration of the conjugate gradients) and Y'X Z (the
predictions, back on the labels): from shards in this process on one thread, and on clusters of one
and two worker processes of one thread each, in turns; the best of the repeats. Processor time is
that of the busiest worker: it tells how the work is shared even where others use the machine.
Then what a pass moves, and what the parts of the model below cost here:

    seconds = rows / (workers rate)                  work, the rate measured in this process; not
                                                     more workers than there are tasks
            + sent (log3(workers) + 1) / bandwidth   the matrix, to all workers by a tree
            + sum (log2(workers) + 1) / bandwidth    the sums, by pairs, and the last to the client
            + tasks delay                            of the scheduler

of which the first alone is divided among the workers. `--bandwidth` and `--delay` are for another
network than the inside of this machine.
"""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from distributed import Client, LocalCluster
from scale import make_problem

from labelry.cluster.dask_rows import DaskRows
from labelry.data import Dataset, write
from labelry.data.shard_writer import write_shards
from labelry.data.shards import Shards
from labelry.linalg.rows import Rows

MIB = 1 << 20
WORKERS = (1, 10, 100, 1_000)


class Costs(NamedTuple):
    """What was measured; the rate for one column of the matrix."""

    rate: float  # bytes of rows a second and worker, times columns
    bandwidth: float  # bytes a second, from a worker to the client
    delay: float  # seconds of a task that does nothing


def make_shards(folder: Path, part: float, width: float) -> Shards:
    X, Y, _ = make_problem(part, width=width)
    write(Dataset(Y, X), folder / "rows.npz")
    return write_shards(folder / "rows.npz", folder / "shards", shard_bytes=8 * MIB)


@contextmanager
def cluster(n_workers: int) -> Iterator[Client]:
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": True}
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, **options) as started,
        Client(started) as client,
    ):
        yield client


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def passes(rows: Rows, k: int) -> dict[str, Callable[[], object]]:
    P = np.random.default_rng(0).standard_normal((rows.n_features, k), dtype=np.float32)
    return {"X'X P": lambda: rows.cross("X", "X", P), "Y'X Z": lambda: rows.cross("Y", "X", P)}


class Timed(NamedTuple):
    """Seconds that passed, and those of the processor that the busiest worker took."""

    seconds: float
    processor: float


def timed(work: Callable[[], object], client: Client | None) -> Timed:
    def used() -> dict[str, float]:
        if client is None:
            return {"here": time.process_time()}
        return client.run(time.process_time)

    before = used()
    taken = seconds(work)
    return Timed(taken, max(after - before[who] for who, after in used().items()))


def compare(shards: Shards, k: int, repeats: int, clients: dict[int, Client]) -> float:
    """Print what passes take; return processor seconds of X'X P here."""
    sources: dict[str, tuple[Rows, Client | None]] = {"here": (shards.rows(n_jobs=1), None)}
    for n, client in clients.items():
        sources[f"{n} worker{'s' * (n > 1)}"] = DaskRows(shards.path, client), client
    found: dict[tuple[str, str], list[Timed]] = {}
    for _ in range(repeats + 1):
        for name, (rows, client) in sources.items():
            for what, one in passes(rows, k).items():
                found.setdefault((what, name), []).append(timed(one, client))
    best = {  # without the first, which loads kernels and shards
        key: Timed(*(min(t[1:]) for t in zip(*times, strict=True))) for key, times in found.items()
    }
    for what, name in best:
        one, own = best[what, "1 worker"], best[what, name]
        print(
            f"  {what}  {name:9} {own.seconds:6.2f} s ({one.seconds / own.seconds:.2f})   "
            f"processor {own.processor:6.2f} s ({one.processor / own.processor:.2f})"
        )
    return best["X'X P", "here"].processor


def moved(shards: Shards, k: int, client: Client) -> None:
    """Print the bytes of one pass."""
    rows = DaskRows(shards.path, client)

    def sent_by_workers() -> int:
        counts = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
        return sum(counts.values())

    before = sent_by_workers()
    passes(rows, k)["X'X P"]()
    matrix = 4 * k * rows.n_features
    print(
        f"  a pass X'X P over {rows.n_bytes / MIB:.0f} MiB of rows in {len(shards.shards)} shards: "
        f"{matrix / MIB:.0f} MiB to each worker, {(sent_by_workers() - before) / MIB:.0f} MiB "
        f"sent by the workers (a sum has {matrix / MIB:.0f} MiB)"
    )


def measure(shards: Shards, k: int, taken: float, client: Client) -> Costs:
    array = np.ones(64 * MIB, dtype=np.uint8)
    there = client.scatter(array, hash=False)
    fetch = min(seconds(lambda: client.gather(there)) for _ in range(20))

    def wait(n: int) -> None:
        client.gather([client.submit(int, i, pure=False) for i in range(n)])

    delay = min(seconds(lambda: wait(100)) for _ in range(20)) / 100
    return Costs(shards.n_bytes * k / taken, array.nbytes / fetch, delay)


def predict(costs: Costs, rows: float, n_features: int, k: int, shard: float) -> None:
    """Print the model of a pass for some numbers of workers."""
    matrix = 4 * n_features * k
    print(
        f"  {rows / 1e9:,.0f} GB of rows in shards of {shard / MIB:,.0f} MiB, "
        f"{n_features:,} features, k = {k}: a matrix or sum of {matrix / MIB:,.0f} MiB"
    )
    n_tasks = rows / max(shard, matrix / 2)  # as many additions follow
    alone = 0.0
    for n in WORKERS:
        work = rows * k / costs.rate / min(n, n_tasks)
        move = matrix * (math.log(n, 3) + 1 + math.log2(n) + 1) / costs.bandwidth
        wait = 2 * n_tasks * costs.delay
        total = work + move + wait
        alone = alone or total
        print(
            f"    {n:5,} workers: {total:9,.1f} s = work {work:9,.1f} + moving {move:5.1f} + "
            f"scheduler {wait:5.1f}; {alone / total:6.1f} times as fast, {alone / total / n:4.0%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", type=float, default=0.1)
    parser.add_argument("--width", type=float, default=0.05)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bandwidth", type=float, help="MB/s of a network, for the model")
    parser.add_argument("--delay", type=float, help="milliseconds of a task, for the model")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    k = given.columns
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        shards = make_shards(Path(name), given.part, given.width)
        print(
            f"{shards.n_rows:,} rows, {shards.n_features:,} features, {shards.n_labels:,} labels, "
            f"{shards.n_bytes / MIB:.0f} MiB in {len(shards.shards)} shards, k = {k}; "
            "in brackets: times as fast as one worker"
        )
        with cluster(1) as one, cluster(2) as two:
            taken = compare(shards, k, given.repeats, {1: one, 2: two})
            for client in (one, two):
                moved(shards, k, client)
            costs = measure(shards, k, taken, two)
        print(
            f"  rate {costs.rate / 1e6:,.0f} MB of rows a second times columns, bandwidth "
            f"{costs.bandwidth / 1e6:,.0f} MB/s, {1e3 * costs.delay:.2f} ms a task"
        )
        if given.bandwidth:
            costs = costs._replace(bandwidth=1e6 * given.bandwidth)
        if given.delay:
            costs = costs._replace(delay=1e-3 * given.delay)
        predict(costs, 10e9, 1_000_000, 100, 64 * MIB)
        predict(costs, 1e12, 1_000_000, 100, 64 * MIB)
        predict(costs, 1e12, 1_000_000, 100, 512 * MIB)


if __name__ == "__main__":
    main()
