"""How much memory there is, and what is refused because there is too little."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry import memory
from labelry.data import Dataset
from labelry.data.statistics import describe
from labelry.errors import MemoryBudgetError
from labelry.estimators import SYSTEMS, system_class

GIB = 1 << 30
limited = pytest.mark.skipif(memory.resource is None, reason="needs limits of processes")


def limit_addresses(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))


def test_a_job_that_cannot_fit_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 3 * GIB)
    caplog.set_level(logging.INFO)
    memory.require(3 * GIB, "a model", "take less")
    assert caplog.messages == ["a model needs about 3.0 GiB of memory (3.0 GiB available)"]
    error = "a model needs about 3.0 GiB of memory but only 3.0 GiB is available: take less"
    with pytest.raises(MemoryBudgetError, match=error):
        memory.require(3 * GIB + 1, "a model", "take less")
    take = memory.watch("a file", "read less")
    take(2 * GIB)
    take(GIB)
    with pytest.raises(MemoryBudgetError, match=r"a file needs more than the 3.0 GiB of .*less"):
        take(1)


def test_numbers_of_bytes_for_people() -> None:
    sizes = [0, 1023, 1024, 1536, 5 * GIB, 1024 * GIB, 3 << 50]
    said = ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "1.0 TiB", "3072.0 TiB"]
    assert [memory.human(size) for size in sizes] == said


@limited
def test_the_limit_of_addresses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = memory.available()
    assert 0 < before < 1 << 50
    limit_addresses(monkeypatch, memory.resource.RLIM_INFINITY)
    assert memory.address_space() == sys.maxsize
    limit_addresses(monkeypatch, 1 << 50)
    assert (1 << 50) - 100 * GIB < memory.address_space() < 1 << 50  # less what is taken
    limit_addresses(monkeypatch, 1000)
    assert memory.available() == memory.address_space() == 0


def test_the_peak_is_at_least_what_is_held() -> None:
    held = np.ones(1 << 20)
    assert held.nbytes < memory.peak() < 1 << 45


@limited
@pytest.mark.parametrize(("platform", "expected"), [("linux", 3 * 1024), ("darwin", 3)])
def test_the_peak_without_a_proc(
    platform: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.Path, "exists", lambda _: False)
    monkeypatch.setattr(memory.sys, "platform", platform)
    monkeypatch.setattr("resource.getrusage", lambda _: SimpleNamespace(ru_maxrss=3))
    assert memory.peak() == expected
    monkeypatch.setattr(memory, "resource", None)
    assert memory.peak() == 0


@limited
@pytest.mark.slow
def test_commands_say_that_a_limit_is_too_small_to_start() -> None:
    labelry = f"{sys.executable} -c 'from labelry.cli import main; main()' inspect none"
    command = ["sh", "-c", f"ulimit -v 900000; {labelry}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "of virtual memory on this machine: raise the limit of the process" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("system", ["tagger", *SYSTEMS])
def test_columns_that_cannot_fit_are_refused(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: GIB)
    X = csr_array(([1.0, 1.0], [0, 2**31 - 2], [0, 1, 2]), shape=(2, 2**31 - 1), dtype=np.float32)
    error = r"model of 2,147,483,647 features and 2 labels needs about .*: number the features"
    with pytest.raises(MemoryBudgetError, match=error):
        system_class(system)().fit(X, np.array(["a", "b"]))
    Y = csr_array(X)
    with pytest.raises(MemoryBudgetError, match="of 3 features and 2,147,483,647 labels needs"):
        system_class(system)().fit(np.eye(3, dtype=np.float32)[:2], Y)


def test_labels_that_cannot_be_counted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: GIB)
    wide: Any = csr_array(([1.0], [7], [0, 1]), shape=(1, 2**31 - 1), dtype=np.float32)
    with pytest.raises(MemoryBudgetError, match="counting rows of 2,147,483,647 labels needs"):
        describe(Dataset(wide, csr_array(np.eye(1, dtype=np.float32))))
