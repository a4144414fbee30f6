"""Bound the number of BLAS threads while several threads of the process work at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_controller = cache(ThreadpoolController)  # the libraries of this process; finding them takes time


@cache
def _blas() -> list[Any]:
    return _controller().select(user_api="blas").lib_controllers


class _Hold:
    """The number of BLAS threads, which is one number for the whole process.

    While callers run, it is the smallest that one of them asked for; when none runs, it is the one
    from before. If each caller set and restored it, the last could restore what another had set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[int] = []  # the limits of running callers
        self._before: list[int] = []  # the threads of each library when no caller ran

    def add(self, limit: int) -> None:
        with self._lock:
            if not self._wanted:
                self._before = [library.num_threads for library in _blas()]
            self._wanted.append(limit)
            self._set([min(self._wanted)] * len(self._before))

    def remove(self, limit: int) -> None:
        with self._lock:
            self._wanted.remove(limit)
            self._set([min(self._wanted)] * len(self._before) if self._wanted else self._before)

    def forget(self) -> None:
        """Forget the callers: after a fork they do not run in the child."""
        if self._wanted:
            self._set(self._before)
        self._lock, self._wanted = threading.Lock(), []

    def _set(self, numbers: list[int]) -> None:
        for library, number in zip(_blas(), numbers, strict=True):
            library.set_num_threads(number)


_hold = _Hold()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hold.forget)


@contextmanager
def library_threads(limit: int) -> Iterator[None]:
    """Hold BLAS and OpenMP to `limit` threads; OpenMP has a number for each caller's thread."""
    _hold.add(limit)
    try:
        with _controller().limit(limits=limit, user_api="openmp"):
            yield
    finally:
        _hold.remove(limit)
