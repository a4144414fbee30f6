from __future__ import annotations

import threading

import pytest

from labelry.linalg import parallel
from labelry.linalg.parallel import run


def thread_of(number: int) -> tuple[int, threading.Thread]:
    return number, threading.current_thread()


def test_one_thread_is_the_caller_s() -> None:
    found = run(thread_of, [(i,) for i in range(3)], 1)
    assert found == [(i, threading.current_thread()) for i in range(3)]


def test_a_command_s_main_thread_only_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_apart", False)
    parallel.keep_main_thread_free()
    assert threading.current_thread() is threading.main_thread()
    numbers, threads = zip(*run(thread_of, [(i,) for i in range(10)], 1), strict=True)
    assert numbers == tuple(range(10))
    assert len(set(threads)) == 1
    assert threading.main_thread() not in threads

    def nested(number: int) -> bool:  # of one thread, what a task runs is run in its own
        here = threading.current_thread()
        return run(thread_of, [(number,)], 1) == [(number, here)]

    assert all(run(nested, [(i,) for i in range(3)], 1))
    with pytest.raises(ZeroDivisionError):
        run(divmod, [(1, 0)], 1)
