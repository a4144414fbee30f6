"""A pass, or a tree, on a Dask cluster: one and two workers here, and a model of the cost of more.

    python benchmarks/cluster.py [pass] [--part 0.1] [--width 0.05] [--columns 64] [--folder DIR]
    python benchmarks/cluster.py tree --part 0.02 --width 0.01

Rows like those of LSHTC (`scale.py`; `--part` of the rows, `--width` of the features) in shards.

**pass** Two passes of Rembrandt are timed, X'X P (an iteration of the conjugate gradients) and
Y'X Z (the predictions, back on the labels): from shards in this process on one thread, and on
clusters of one and two worker processes of one thread each, in turns; the best of the repeats.
Processor time is that of the busiest worker: it tells how the work is shared even where others use
the machine. Then what a pass moves, and what the parts of the model below cost here:

    seconds = rows / (workers rate)                  work, the rate measured in this process; not
                                                     more workers than there are tasks
            + sent (log3(workers) + 1) / bandwidth   the matrix, to all workers by a tree
            + sum (log2(workers) + 1) / bandwidth    the sums, by pairs, and the last to the client
            + tasks delay                            of the scheduler

of which the first alone is divided among the workers. `--bandwidth` and `--delay` are for another
network than the inside of this machine.

**tree** A `LinearLabelTree` of two levels, on the tree that it makes of label centroids: in this
process on one thread, and on one and two workers, in turns. Of the root each worker trains some of
the children on all rows; of the level below, each trains some nodes on the rows that reach them,
which the workers send to each other. The model of the root:

    seconds = rows children / (workers rate)         not more workers than sixteens of children
            + rows / bandwidth                       each worker reads all rows, and keeps them;
            + sweeps rows / bandwidth                where they are more than half its memory, its
                                                     disk, as fast as the network, is read too
            + workers delay

and of the level below, with `parts` the bytes of the rows of all nodes (a row counts for each node
that it reaches) and `passes` how often a worker has room for its share of them:

    seconds = parts children / (workers rate)
            + passes rows / workers / bandwidth      shards, to their workers
            + parts / workers / bandwidth            rows of nodes, from workers to workers
            + weights / bandwidth                    to the client
            + passes 4 workers^2 delay               of the scheduler, a piece of a batch each
"""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, LocalCluster
from numpy.typing import NDArray
from scale import make_problem
from scipy.sparse import csr_array

from labelry import LinearLabelTree
from labelry.data import Dataset, write
from labelry.data.cluster.dask_rows import DaskRows
from labelry.data.shard_writer import write_shards
from labelry.data.shards import Shards
from labelry.linalg.lanes import LANES
from labelry.linalg.rows import BATCHES, Rows
from labelry.trees import Tree

MIB = 1 << 20
WORKERS = (1, 10, 100, 1_000)
# For the model of a tree
_WEIGHTS = 100  # that are left of a label
_ROOM = 2 << 30  # for the rows of nodes on a worker of 24 GiB
_SWEEPS = 20  # the most that a root takes


class Costs(NamedTuple):
    """Of a network."""

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


def sent_by_workers(client: Client) -> int:
    """Bytes so far, to one another and to the client."""
    counts = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
    return sum(counts.values())


def moved(shards: Shards, k: int, client: Client) -> None:
    """Print the bytes of one pass."""
    rows = DaskRows(shards.path, client)
    before = sent_by_workers(client)
    passes(rows, k)["X'X P"]()
    matrix = 4 * k * rows.n_features
    print(
        f"  a pass X'X P over {rows.n_bytes / MIB:.0f} MiB of rows in {len(shards.shards)} shards: "
        f"{matrix / MIB:.0f} MiB to each worker, {(sent_by_workers(client) - before) / MIB:.0f} "
        f"MiB sent by the workers (a sum has {matrix / MIB:.0f} MiB)"
    )


class Level(NamedTuple):
    """What one level of a tree took, and the bytes that workers sent."""

    seconds: float
    processor: float
    sent: int


class TreeRows(DaskRows):
    """Notes what the levels of a tree of two take."""

    def __init__(self, location: Path, client: Client) -> None:
        super().__init__(location, client)
        self.levels: dict[str, Level] = {}

    def map_tasks(self, *given: Any, **options: Any) -> Iterator[Any]:
        return self._noted("root", super().map_tasks(*given, **options))

    def map_batches(self, *given: Any) -> Iterator[Any]:
        return self._noted("below", super().map_batches(*given))

    def _noted(self, name: str, results: Iterable[Any]) -> Iterator[Any]:
        found: list[Any] = []
        before = sent_by_workers(self._client)
        took = timed(lambda: found.extend(results), self._client)
        self.levels[name] = Level(*took, sent_by_workers(self._client) - before)
        return iter(found)


class TreeCosts(NamedTuple):
    """Rates are of bytes of rows, times children of a node, a second and worker."""

    root: float
    below: float
    spread: float  # bytes of the rows of all nodes below the root, for each byte of rows


def compare_trees(shards: Shards, repeats: int, clients: dict[int, Client]) -> TreeCosts:
    """Print what the levels of a tree take, here and on clusters."""
    whole = shards.rows(n_jobs=1)
    tree = LinearLabelTree(depth=2).fit(whole).tree_
    model = LinearLabelTree(tree=tree, n_jobs=1)
    here = min(timed(lambda: model.fit(whole), None).processor for _ in range(repeats + 1))
    best: dict[tuple[str, int], Level] = {}
    for _ in range(repeats + 1):  # the first loads kernels
        for n, client in clients.items():
            rows = TreeRows(shards.path, client)
            model.fit(rows)
            for name, level in rows.levels.items():
                best[name, n] = Level(*map(min, level, best.get((name, n), level)))
    parts = bytes_of_parts(shards, tree)
    n_nodes = len(inner_nodes(tree))
    print(
        f"  a tree of {n_nodes:,} nodes below the root, the rows of which take "
        f"{parts / MIB:.0f} MiB; weights {sum(a.nbytes for a in model.weights_) / MIB:.0f} MiB; "
        f"without a cluster {here:.2f} s of the processor"
    )
    for (name, n), level in sorted(best.items(), key=lambda item: (item[0][0] != "root", item)):
        one = best[name, 1]
        print(
            f"  {name:5}  {n} worker{'s' * (n > 1)} {level.seconds:6.2f} s "
            f"({one.seconds / level.seconds:.2f})   processor {level.processor:6.2f} s "
            f"({one.processor / level.processor:.2f})   sent by workers {level.sent / MIB:.1f} MiB"
        )
    return TreeCosts(
        shards.n_bytes * n_nodes / best["root", 1].processor,
        parts * (shards.n_labels / n_nodes) / best["below", 1].processor,
        parts / shards.n_bytes,
    )


def inner_nodes(tree: Tree) -> NDArray[np.intp]:
    """The nodes below the root that have children."""
    return np.flatnonzero(tree.label < 0)[1:]


def bytes_of_parts(shards: Shards, tree: Tree) -> float:
    """Of the rows of all nodes below the root, a row for each that it reaches."""
    X, Y = shards.rows().gathered("X", "Y")
    reached = csr_array(Y @ tree.label_sets[inner_nodes(tree)].T)
    return float(np.diff(reached.indptr) @ (8.0 * (np.diff(X.indptr) + 1)))


def predict_tree(costs: Costs, tree: TreeCosts, rows: float, n_labels: int) -> None:
    """Print the model of both levels for some numbers of workers."""
    n_nodes = 2 * n_labels**0.5
    parts, weights = rows * tree.spread, 8.0 * _WEIGHTS * n_labels
    print(
        f"  {rows / 1e9:,.0f} GB of rows, {parts / 1e9:,.0f} GB of those of {n_nodes:,.0f} nodes, "
        f"{n_labels:,} labels of {_WEIGHTS} weights"
    )
    for name in ("root", "below"):
        alone = 0.0
        for n in WORKERS:
            n_passes = 1 + int(parts / (_ROOM * n))
            if name == "root":
                work = rows * n_nodes / tree.root / min(n, n_nodes / LANES)
                move = rows * (1 + _SWEEPS if rows > 6 * _ROOM else 1) / costs.bandwidth
                wait = n * costs.delay
            else:
                work = parts * (n_labels / n_nodes) / tree.below / min(n, n_nodes)
                move = (rows * n_passes / n + (n - 1) / n * parts / n + weights) / costs.bandwidth
                wait = BATCHES * n * n * n_passes * costs.delay
            total = work + move + wait
            alone = alone or total
            print(
                f"    {name:5} {n:5,} workers: {total:9,.0f} s = work {work:9,.0f} + moving "
                f"{move:8,.0f} + scheduler {wait:8,.1f}; {alone / total:6.1f} times as fast, "
                f"{alone / total / n:4.0%}"
            )


def measure(client: Client) -> tuple[float, float]:
    """Bytes a second from a worker to the client, and seconds of a task that does nothing."""
    array = np.ones(64 * MIB, dtype=np.uint8)
    there = client.scatter(array, hash=False)
    fetch = min(seconds(lambda: client.gather(there)) for _ in range(20))

    def wait(n: int) -> None:
        client.gather([client.submit(int, i, pure=False) for i in range(n)])

    delay = min(seconds(lambda: wait(100)) for _ in range(20)) / 100
    return array.nbytes / fetch, delay


def predict(costs: Costs, rate: float, rows: float, n_features: int, k: int, shard: float) -> None:
    """Print the model of a pass for some numbers of workers; `rate` is for one column."""
    matrix = 4 * n_features * k
    print(
        f"  {rows / 1e9:,.0f} GB of rows in shards of {shard / MIB:,.0f} MiB, "
        f"{n_features:,} features, k = {k}: a matrix or sum of {matrix / MIB:,.0f} MiB"
    )
    n_tasks = rows / max(shard, matrix / 2)  # as many additions follow
    alone = 0.0
    for n in WORKERS:
        work = rows * k / rate / min(n, n_tasks)
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
    parser.add_argument("what", nargs="?", choices=["pass", "tree"], default="pass")
    parser.add_argument("--part", type=float, default=0.1)
    parser.add_argument("--width", type=float, default=0.05)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bandwidth", type=float, help="MB/s of a network, for the model")
    parser.add_argument("--delay", type=float, help="milliseconds of a task, for the model")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        shards = make_shards(Path(name), given.part, given.width)
        print(
            f"{shards.n_rows:,} rows, {shards.n_features:,} features, {shards.n_labels:,} labels, "
            f"{shards.n_bytes / MIB:.0f} MiB in {len(shards.shards)} shards; "
            "in brackets: times as fast as one worker"
        )
        with cluster(1) as one, cluster(2) as two:
            bandwidth, delay = measure(two)
            print(f"  bandwidth {bandwidth / 1e6:,.0f} MB/s, {1e3 * delay:.2f} ms a task")
            costs = Costs(
                1e6 * given.bandwidth if given.bandwidth else bandwidth,
                1e-3 * given.delay if given.delay else delay,
            )
            run = run_passes if given.what == "pass" else run_tree
            run(shards, given, {1: one, 2: two}, costs)


def run_passes(
    shards: Shards, given: argparse.Namespace, clients: dict[int, Client], costs: Costs
) -> None:
    k = given.columns
    taken = compare(shards, k, given.repeats, clients)
    for client in clients.values():
        moved(shards, k, client)
    rate = shards.n_bytes * k / taken
    print(f"  k = {k}: {rate / 1e6:,.0f} MB of rows a second times columns")
    predict(costs, rate, 10e9, 1_000_000, 100, 64 * MIB)
    predict(costs, rate, 1e12, 1_000_000, 100, 64 * MIB)
    predict(costs, rate, 1e12, 1_000_000, 100, 512 * MIB)


def run_tree(
    shards: Shards, given: argparse.Namespace, clients: dict[int, Client], costs: Costs
) -> None:
    tree = compare_trees(shards, given.repeats, clients)
    print(
        f"  MB of rows a second times children: {tree.root / 1e6:,.0f} of the root, "
        f"{tree.below / 1e6:,.0f} of the nodes below"
    )
    predict_tree(costs, tree, 10e9, 1_000_000)
    predict_tree(costs, tree, 1e12, 1_000_000)


if __name__ == "__main__":
    main()
