"""Threads for kernels that release the GIL.

Kernels are compiled with ``nogil=True`` and get their share of the work as arguments. So the same
number of threads gives the same bytes, any number of Python threads may call at once, and no
threading layer of numba is used.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice, pairwise
from typing import Any, TypeVar

import numpy as np

from labelry.arrays import Ints

T = TypeVar("T")


def cpu_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def resolve_jobs(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` asks for; None or -1 is all processors."""
    if n_jobs is None or n_jobs == -1:
        return cpu_count()
    if n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, or None or -1 for all cores; got {n_jobs}")
    return n_jobs


@cache
def _pool(n_jobs: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_jobs, thread_name_prefix="labelry")


# After a fork the child has no worker threads: it makes new ones when needed.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], n_jobs: int) -> list[T]:
    """Return ``[function(*task) for task in tasks]``, with at most `n_jobs` calls at a time."""
    tasks = list(tasks)
    return list(stream(function, tasks, min(n_jobs, len(tasks))))


def stream(
    function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], n_jobs: int
) -> Iterator[T]:
    """Yield the results of `run` in order, holding at most ``2 * n_jobs`` of them at a time.

    `tasks` is iterated in the thread of the caller, so it may read a file. A task must not call
    `run` or `stream` itself.
    """
    iterator = iter(tasks)
    if n_jobs <= 1:
        yield from (function(*task) for task in iterator)
        return
    # `n_jobs` tasks run and as many wait, so no thread is idle while the caller takes a result.
    pool = _pool(n_jobs)
    pending = deque(pool.submit(function, *task) for task in islice(iterator, 2 * n_jobs))
    try:
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(function, *task) for task in islice(iterator, 1))
            yield result
    finally:
        for future in pending:
            future.cancel()


def spans(n: int, n_parts: int) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into at most `n_parts` contiguous, nearly equal, non-empty spans."""
    n_parts = max(1, min(n_parts, n))
    bounds = [n * i // n_parts for i in range(n_parts + 1)]
    return list(pairwise(bounds))


def run_spans(
    kernel: Callable[..., object], arguments: tuple[Any, ...], n: int, n_jobs: int
) -> None:
    """Call ``kernel(*arguments, first, last)`` for spans of ``range(n)``, one for each thread."""
    run(kernel, [(*arguments, *span) for span in spans(n, n_jobs)], n_jobs)


def balanced_spans(indptr: Ints, n_parts: int) -> list[tuple[int, int]]:
    """Cut the rows of a CSR matrix into spans of nearly equal numbers of nonzeros.

    Rows of a power-law matrix differ a thousandfold, so equal row counts are not equal work.
    """
    n_rows = len(indptr) - 1
    if n_rows <= 1 or n_parts <= 1:
        return [(0, n_rows)]
    # Each row costs about as much as two nonzeros more, even when it is empty.
    work = np.asarray(indptr, dtype=np.int64) + 2 * np.arange(n_rows + 1)
    targets = work[0] + (work[-1] - work[0]) * np.arange(1, n_parts) // n_parts
    cuts = np.searchsorted(work, targets)
    bounds = np.unique(np.concatenate([[0], cuts, [n_rows]]))
    return [(int(a), int(b)) for a, b in pairwise(bounds)]
