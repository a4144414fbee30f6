from __future__ import annotations

import threading

import pytest

from labelry.linalg.parallel import run


def thread_of(number: int) -> tuple[int, threading.Thread]:
    return number, threading.current_thread()


def test_one_thread_is_the_caller_s() -> None:
    found = run(thread_of, [(i,) for i in range(3)], 1)
    assert found == [(i, threading.current_thread()) for i in range(3)]


def test_two_threads_keep_order_and_raise() -> None:
    numbers, threads = zip(*run(thread_of, [(i,) for i in range(10)], 2), strict=True)
    assert numbers == tuple(range(10))
    assert threading.current_thread() not in threads
    with pytest.raises(ZeroDivisionError):
        run(divmod, [(1, 0), (1, 1)], 2)
