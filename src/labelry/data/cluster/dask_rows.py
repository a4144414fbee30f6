"""Passes over shards, and work on parts of their rows, on the workers of a Dask cluster.

A pass is a function of blocks of rows, which captures thin matrices. The function is sent to every
worker once. A task runs it on one shard, which its worker maps or fetches. The workers add the sums
of shards in pairs, and only the total comes back. The pairs are always the same, so the total does
not depend on the number of workers, on their speed, or on a worker that dies and is replaced.

For work on parts of the rows, each worker cuts its shards into the rows of each batch of parts. The
pieces of a batch go to one worker, which works on the batch and returns the result.

Functions travel by pickle, as always between the processes of a Dask cluster: whoever can reach
a scheduler can run anything on its workers. No model, and no file, is ever unpickled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import sparray

from labelry.data.cluster.locations import as_location, fingerprint, open_location
from labelry.data.shards import ShardedRows, Shards
from labelry.errors import DataError, LabelryError, MemoryBudgetError, MissingExtraError
from labelry.linalg.matrices import Matrix, stacked_pairs, summed
from labelry.linalg.rows import Block, Cut, Parts, Work
from labelry.memory import available, human
from labelry.progress import phase

try:
    from dask.sizeof import sizeof
    from distributed import Client, Future, as_completed, get_worker
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker
except ImportError as error:
    raise MissingExtraError("distributed", "cluster", "training on a cluster") from error

T = TypeVar("T")

_SUMS_PER_SHARD = 2  # if sums are larger than a shard by this factor, a task takes more shards
_RESTART = 60.0  # seconds that a worker may take to start again
_LOST = 3  # attempts at a pass if all workers that have its function die

_turn = threading.Lock()  # one task at a time runs in a process, and uses all its threads


class ClusterError(LabelryError):
    """A cluster that cannot be reached, or that lost its workers."""


def connect(address: str, *, timeout: float = 30) -> Client:
    """Return a client of a scheduler that has at least one worker within `timeout` seconds."""
    try:
        client = Client(address, timeout=timeout)
    except (OSError, ValueError) as error:
        raise ClusterError(f"cannot reach a Dask scheduler at {address}: {error}") from error
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        client.close()
        raise ClusterError(f"the scheduler at {address} has no workers") from error
    return client


@dataclass(frozen=True)
class Source:
    """Where workers find the shards, and how they work on them."""

    location: str
    fingerprint: str
    memory: int | None
    n_jobs: int

    def rows(self) -> ShardedRows:
        """Return all rows; this process alone makes the passes."""
        shards = _opened(self.location, self.fingerprint)
        return shards.rows(memory=self.memory, n_jobs=self.n_jobs)

    def blocks(self, first: int, last: int) -> Iterator[Block]:
        """Yield the blocks of the shards from `first` to `last`, without `last`."""
        return self.rows().blocks_between(first, last)


class DaskRows(ShardedRows):
    """Rows in shards that the workers of a cluster can read.

    The `location` is a directory of shards under a path that client and workers share, or a URL of
    fsspec; a worker fetches a shard of a URL once, to its local directory. `memory` bounds the
    bytes that work on the rows takes, on each worker and on the client; half of what the one with
    the least has, by default. ::

        rows = DaskRows("/mnt/shards", distributed.Client("tcp://scheduler:8786"))
        model = labelry.Tagger(quality="fast").fit(rows)
    """

    def __init__(self, location: str | Path, client: Client, *, memory: int | None = None) -> None:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        if not workers:
            raise ClusterError("the cluster has no workers")
        limits = [w["memory_limit"] for w in workers if w["memory_limit"]]
        self._limit = min(limits) if limits else None
        if memory is None:
            memory = min([available(), *limits]) // 2
        n_jobs = min(w["nthreads"] for w in workers)
        super().__init__(open_location(location), memory=memory, n_jobs=n_jobs)
        self._client = client
        self._source = Source(as_location(location), fingerprint(self.shards), memory, n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        # A function that captures rows for their sizes takes no more than these to a worker.
        return {name: v for name, v in vars(self).items() if name not in ("_client", "shards")}

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        """Return the current number of workers, which may change at any time."""
        return max(1, len(self._client.nthreads()))

    def blocks(self) -> Iterator[Block]:
        """Bring the blocks of rows to the client, in order."""
        return self.map_blocks(lambda block: block)

    def map_blocks(self, function: Callable[[Block], T]) -> Iterator[T]:
        """Yield ``function(block)`` for each block of rows, in order; this is one pass.

        A result stays on its worker until the caller asks for it.
        """
        self.n_passes += 1

        def each(blocks: Iterable[Block]) -> list[T]:
            return [function(block) for block in blocks]

        n = len(self.shards.shards)

        def start(done: int) -> list[Future]:
            return self._start(self._sent(each), [(i, i + 1) for i in range(done, n)])

        return chain.from_iterable(self._fetched(start, n, "pass on the cluster", "shards"))

    def _fetched(
        self, start: Callable[[int], list[Future]], n: int, name: str, unit: str
    ) -> Iterator[Any]:
        """Yield the results of `n` tasks, in order; ``start(done)`` starts the remaining ones."""
        done = lost = 0
        with self._errors_told(), phase(name, n, unit) as advance:
            while done < n:
                futures = start(done)[::-1]
                try:
                    while futures:
                        result = futures.pop().result()
                        done += 1
                        advance(1)
                        yield result
                except FutureCancelledError:
                    lost += 1
                    if lost == _LOST:
                        raise

    def map_tasks(
        self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], *, n_jobs: int
    ) -> Iterator[T]:
        self.n_passes += 1

        def start(done: int) -> list[Future]:
            given = [(self._source, task) for task in tasks[done:]]
            # Tasks go round the workers: Dask would give two to one.
            return self._submitted(_on_rows, self._sent(function), given, lambda i, n: i % n)

        return self._fetched(start, len(tasks), "tasks on the cluster", "tasks")

    def map_batches(
        self, cut: Cut, work: Work[T], batches: Sequence[Parts], together: int, n_jobs: int
    ) -> Iterator[Iterable[T]]:
        for first in range(0, len(batches), together):
            self.n_passes += 1
            some = batches[first : first + together]

            def start(done: int, some: Sequence[Parts] = some) -> list[Future]:
                return self._start_batches(cut, work, some[done:])

            yield from self._fetched(start, len(some), "parts on the cluster", "batches")

    def _start_batches(self, cut: Cut, work: Work[T], batches: Sequence[Parts]) -> list[Future]:
        """Start `work` on each batch; the workers send the rows of a batch to one of them."""

        def cut_all(blocks: Iterable[Block]) -> list[tuple[Matrix, Matrix]]:
            found = [[cut(parts, block) for parts in batches] for block in blocks]
            return [stacked_pairs(pieces) for pieces in zip(*found, strict=True)]

        submit, functions = self._client.submit, (self._sent(cut_all), self._sent(work))
        cuts = self._start(functions[0], self._spans(self.n_bytes // self.n_workers))
        futures = []
        for i, parts in enumerate(batches):
            # First all pieces, then the batches in order: the largest are the first.
            pieces = [submit(itemgetter(i), mine, pure=False, priority=1) for mine in cuts]
            given = (functions, parts, self._source.n_jobs, *pieces)
            futures.append(submit(_on_batch, *given, pure=False, priority=-i))
        return futures

    def sum_blocks(self, function: Callable[[Block], Matrix]) -> Matrix:
        self.n_passes += 1

        def total(blocks: Iterable[Block]) -> list[Matrix]:
            return [summed(map(function, blocks))]

        return self._total(total, self._spans(0))[0]

    def reduce(
        self,
        add: Callable[..., None],
        *shapes: tuple[int, ...],
        dtype: type[np.floating] = np.float32,
    ) -> list[NDArray]:
        self.n_passes += 1

        def total(blocks: Iterable[Block]) -> list[NDArray]:
            sums = [np.zeros(shape, dtype=dtype) for shape in shapes]
            for block in blocks:
                add(block, *sums)
            return sums

        n_bytes = sum(int(np.prod(shape)) for shape in shapes) * np.dtype(dtype).itemsize
        return self._total(total, self._spans(n_bytes // _SUMS_PER_SHARD))

    def _total(
        self, total: Callable[[Iterable[Block]], list[Matrix]], spans: list[tuple[int, int]]
    ) -> list[Matrix]:
        """Return the sum of ``total(blocks)`` over all spans of shards."""
        with self._errors_told():
            for _ in range(_LOST - 1):
                with suppress(FutureCancelledError):
                    return self._total_once(total, spans)
            return self._total_once(total, spans)

    def _total_once(
        self, total: Callable[[Iterable[Block]], list[Matrix]], spans: list[tuple[int, int]]
    ) -> list[Matrix]:
        parts = self._start(self._sent(total), spans)
        last = self._added(parts)
        sizes = {part.key: b - a for part, (a, b) in zip(parts, spans, strict=True)}
        finished = as_completed(parts)
        del parts  # a worker keeps what the client holds
        with phase("pass on the cluster", len(self.shards.shards), "shards") as advance:
            for part in finished:
                if part.status != "finished":
                    break
                advance(sizes[part.key])
            return last.result()

    def _added(self, sums: list[Future]) -> Future:
        """Add sums in pairs until one is left; neighbours are on the same worker mostly."""
        if len(sums) == 1:
            return sums[0]
        middle = (len(sums) + 1) // 2
        halves = self._added(sums[:middle]), self._added(sums[middle:])
        # Before other shards are begun, so that few sums wait on a worker.
        return self._client.submit(_added, *halves, pure=False, priority=1)

    def _start(self, sent: Future, spans: list[tuple[int, int]]) -> list[Future]:
        """Start the function that was sent on the blocks of each span of shards."""
        given = [(self._source, *span) for span in spans]
        # Each worker has neighbouring shards, the same in every pass: they are in its memory, and
        # most sums are of two that it has.
        return self._submitted(_work, sent, given, lambda i, n: i * n // len(spans))

    def _submitted(
        self,
        work: Callable[..., Any],
        sent: Future,
        given: list[tuple[Any, ...]],
        place: Callable[[int, int], int],
    ) -> list[Future]:
        """Start ``work(sent, *arguments)``; the i-th runs on worker ``place(i, n_workers)``."""
        workers = sorted(self._client.nthreads())
        return [
            self._client.submit(
                work,
                sent,
                *arguments,
                pure=False,
                workers=[workers[place(i, len(workers))]],
                allow_other_workers=True,
            )
            for i, arguments in enumerate(given)
        ]

    def _sent(self, function: Callable[..., Any]) -> Future:
        """Send a function to every worker."""
        self._client.wait_for_workers(1, timeout=_RESTART)  # the only worker may be restarting
        (sent,) = self._client.scatter([function], broadcast=True, hash=False)
        return sent

    def _spans(self, n_bytes: int) -> list[tuple[int, int]]:
        """Return spans of consecutive shards that have at least `n_bytes` together."""
        spans, first, size = [], 0, 0
        for last, shard in enumerate(self.shards.shards, start=1):
            size += shard.bytes
            if size >= n_bytes or last == len(self.shards.shards):
                spans.append((first, last))
                first, size = last, 0
        return spans

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        try:
            yield
        except (KilledWorker, FutureCancelledError, TimeoutError) as error:
            if self._client.status != "running":
                raise ClusterError("the connection to the scheduler was lost") from error
            limit = "" if self._limit is None else f" (limit {human(self._limit)})"
            raise MemoryBudgetError(
                f"workers died again and again in a pass over {self._source.location}, most likely "
                f"for want of memory{limit}: give workers more memory or fewer threads, make "
                "smaller shards, or set smaller dimensions"
            ) from error


def _work(function: Callable[[Iterable[Block]], T], source: Source, first: int, last: int) -> T:
    """Run one task on a worker."""
    with _turn:
        return function(source.blocks(first, last))


def _on_rows(function: Callable[..., T], source: Source, task: tuple[Any, ...]) -> T:
    with _turn:
        return function(source.rows(), *task, source.n_jobs)


def _on_batch(
    functions: tuple[Cut, Work[T]], parts: Parts, n_jobs: int, *pieces: tuple[Matrix, Matrix]
) -> list[T]:
    # functions[0] is an argument so that Dask keeps it: it cuts pieces again if a worker dies.
    with _turn:
        return list(functions[1](*stacked_pairs(pieces), parts, n_jobs))


def _added(a: list[Matrix], b: list[Matrix]) -> list[Matrix]:
    # Not in place: if this worker dies, the same parts are added again.
    return [x + y for x, y in zip(a, b, strict=True)]


@sizeof.register(sparray)
def _n_bytes(A: sparray) -> int:
    """Return the bytes of a sparse array; Dask itself knows those of sparse matrices only."""
    return sum(sizeof(part) for part in vars(A).values())


@lru_cache(maxsize=4)
def _opened(location: str, expected: str) -> Shards:
    """Open the shards at a location, once in each process of the cluster."""
    shards = open_location(location, cache=get_worker().local_directory)
    if fingerprint(shards) != expected:
        raise DataError("has other shards on a worker than on the client", path=location)
    return shards
