"""What several tests work on; and what is said at the end of a run, so that nobody overlooks it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.checks import StoredCheck
from labelry.data import Dataset, write
from labelry.data.shard_writer import write_shards
from labelry.data.shards import Shards
from labelry.storage.values import pack, unpack

if TYPE_CHECKING:
    from distributed import Client

os.environ["SOURCE_DATE_EPOCH"] = (
    "1700000000"  # models of the same rows and seed are the same files
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    if any("no Chromium" in reason for reason in skipped):
        terminalreporter.write_sep(
            "!",
            "THE PAGE WAS NOT TESTED: no Chromium found (apt-get install chromium)",
            red=True,
            bold=True,
        )
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"measured, not asserted: {value}")


@pytest.fixture(scope="session")
def topic_documents() -> Callable[..., Dataset]:
    """Documents of a few topics, with labels of the topic; the first have no labels."""

    def make(n: int, d: int, c: int, n_topics: int, n_words: float, noise: float = 0.0) -> Dataset:
        rng = np.random.default_rng(0)
        topic = rng.integers(0, n_topics, n)
        words, labels = rng.gamma(0.1, size=(n_topics, d)), rng.gamma(0.2, size=(n_topics, c))
        X = rng.poisson(n_words * (words / words.sum(1, keepdims=True))[topic] + noise)
        likely = np.minimum(2 * (labels / labels.sum(1, keepdims=True))[topic], 0.9)
        Y = rng.random((n, c)) < likely
        Y[:7] = False
        names = [f"label {i}" for i in range(c)]
        return Dataset(
            csr_array(Y, dtype=np.float32), csr_array(X, dtype=np.float32), label_names=names
        )

    return make


@pytest.fixture(scope="session")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Dataset, int], Shards]:
    """A dataset in shards of so many bytes."""

    def make(dataset: Dataset, shard_bytes: int) -> Shards:
        folder = tmp_path_factory.mktemp("shards")
        write(dataset, folder / "data.npz")
        return write_shards(folder / "data.npz", folder / "shards", shard_bytes=shard_bytes)

    return make


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """The client of a cluster of two processes."""
    from distributed import Client, LocalCluster

    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(**workers, **quiet) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def stored():
    """Write a fitted value and read it again, as a model directory does."""

    def again(value: Any, check: StoredCheck | None = None, **sizes: int) -> Any:
        arrays: dict[str, Any] = {}
        plain = json.loads(json.dumps(pack(value, "value", arrays)))
        check = StoredCheck() if check is None else check
        return unpack(type(value), plain, "value", arrays, sizes, check)

    return again
