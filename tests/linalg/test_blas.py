"""The number of BLAS threads, held by several at once.

Each check has a process of its own: the number is one for a whole process, and tests that ran
before, or threads that they left, may have a say in it.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import scipy.linalg  # noqa: F401  (with numpy's and scipy's BLAS)
from threadpoolctl import threadpool_info, threadpool_limits

from labelry.linalg.blas import library_threads


def numbers() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def who_ends_first_undoes_nothing_and_who_ends_last_undoes_all() -> None:
    with threadpool_limits(3):
        first, second, third = library_threads(2), library_threads(1), library_threads(2)
        first.__enter__()
        second.__enter__()
        assert numbers() == {1}
        first.__exit__(None, None, None)
        assert numbers() == {1}
        third.__enter__()
        second.__exit__(None, None, None)
        assert numbers() == {2}
        third.__exit__(None, None, None)
        assert numbers() == {3}


def an_error_gives_it_back() -> None:
    before = numbers()
    with pytest.raises(KeyError), library_threads(1):
        raise KeyError
    assert numbers() == before


def a_forked_process_begins_anew() -> None:
    with threadpool_limits(3), library_threads(1):
        child = os.fork()
        if child == 0:
            os._exit(0 if numbers() == {3} else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert numbers() == {1}


CHECKS = {
    check.__name__: check
    for check in (
        who_ends_first_undoes_nothing_and_who_ends_last_undoes_all,
        an_error_gives_it_back,
        a_forked_process_begins_anew,
    )
}


@pytest.mark.parametrize("check", CHECKS)
def test_threads_of_blas(check: str) -> None:
    if "fork" in check and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    done = subprocess.run([sys.executable, __file__, check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
