"""The number of BLAS threads, held by several at once."""

from __future__ import annotations

import os

import pytest
import scipy.linalg  # noqa: F401  (with numpy's and scipy's BLAS)
from threadpoolctl import threadpool_info, threadpool_limits

from labelry.linalg.blas import library_threads


def numbers() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_who_ends_first_undoes_nothing_and_who_ends_last_undoes_all() -> None:
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


def test_an_error_gives_it_back() -> None:
    before = numbers()
    with pytest.raises(KeyError), library_threads(1):
        raise KeyError
    assert numbers() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_begins_anew() -> None:
    with threadpool_limits(3), library_threads(1):
        child = os.fork()
        if child == 0:
            os._exit(0 if numbers() == {3} else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert numbers() == {1}
