"""Passes on the worker processes of a cluster: the same sums, whoever dies."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from typer.testing import CliRunner

import labelry
from labelry.cli.app import app
from labelry.data import Dataset, write
from labelry.data.cluster import dask_rows
from labelry.data.cluster.dask_rows import ClusterError, DaskRows, connect
from labelry.data.shard_writer import write_shards
from labelry.data.shards import open_shards
from labelry.errors import DataError, MemoryBudgetError, MissingExtraError
from labelry.linalg.rows import Block, Rows
from labelry.progress import recorded

pytestmark = pytest.mark.slow

N, D, C = 300, 40, 7


@pytest.fixture(scope="module")
def whole() -> Rows:
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (N, D)) * rng.random((N, D))
    Y = rng.random((N, C)) < 0.3
    return Rows(csr_array(X, dtype=np.float32), csr_array(Y, dtype=np.float32), n_jobs=1)


@pytest.fixture(scope="module")
def folder(whole: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    X, Y = whole.gathered("X", "Y")
    write(Dataset(Y, X), folder / "data.npz")
    shards = write_shards(folder / "data.npz", folder / "shards", shard_bytes=5000)
    assert len(shards.shards) in (5, 7, 9)  # an odd number: the halves of the sums are unlike
    return folder / "shards"


@pytest.fixture
def rows(client: Client, folder: Path) -> DaskRows:
    return DaskRows(folder, client)


def dying(flag: Path, add: Callable[..., None]) -> Callable[..., None]:
    """`add`, in a process that ends in the middle of it; only the first that comes to it."""
    path = str(flag)

    def add_or_die(block: Block, *sums: np.ndarray) -> None:
        if block.start > 150:
            try:
                os.open(path, os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        add(block, *sums)

    return add_or_die


def held(client: Client) -> list[str]:
    """What the workers keep because the client holds it."""
    client.nthreads()  # comes after the news of what has been let go
    return list(client.futures)


def test_passes(rows: DaskRows, whole: Rows) -> None:
    M = np.random.default_rng(1).standard_normal((C, 3)).astype(np.float32)
    assert_allclose(rows.cross("X", "Y", M), whole.cross("X", "Y", M), rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(rows.totals(), whole.totals(), strict=True):
        assert_allclose(ours, theirs, rtol=1e-6)
    starts = list(rows.map_blocks(lambda block: (block.start, block.n_rows)))
    assert len(starts) == len(rows.shards.shards)
    assert [a + n for a, n in starts] == [a for a, _ in starts[1:]] + [N]
    for ours, theirs in zip(rows.gathered("X", "Y"), whole.gathered("X", "Y"), strict=True):
        assert_array_equal(ours.toarray(), theirs.toarray())
    assert sum(block.n_rows for block in rows.blocks()) == N
    assert rows.n_passes == 5


def test_what_is_done_to_rows_is_done_on_the_workers(rows: DaskRows, whole: Rows) -> None:
    weights = np.linspace(0, 1, N, dtype=np.float32)
    M = np.eye(D, dtype=np.float32)
    keep = np.arange(N) % 3 > 0
    ours, theirs = (r.unit().weighted(weights).only(keep) for r in (rows, whole))
    assert_allclose(ours.cross("Y", "X", M), theirs.cross("Y", "X", M), atol=1e-4)
    assert_array_equal(*(r.swapped().gathered("X")[0].toarray() for r in (ours, theirs)))


def test_sums_are_added_in_pairs_always_the_same(rows: DaskRows, folder: Path) -> None:
    def add(block: Block, total: np.ndarray) -> None:
        total += block.X.sum(axis=0)

    sums = []
    for block in open_shards(folder).rows(n_jobs=1).blocks():
        sums.append(np.zeros(D, dtype=np.float32))
        add(block, sums[-1])

    def halves(sums: list[np.ndarray]) -> np.ndarray:
        middle = (len(sums) + 1) // 2
        return sums[0] if len(sums) == 1 else halves(sums[:middle]) + halves(sums[middle:])

    assert_array_equal(rows.reduce(add, (D,))[0], halves(sums))


def test_sums_larger_than_shards_take_several_shards_a_task(rows: DaskRows) -> None:
    sizes = [shard.bytes for shard in rows.shards.shards]
    n = len(sizes)
    assert rows._spans(0) == [(i, i + 1) for i in range(n)]
    assert rows._spans(sum(sizes) * 9) == [(0, n)]
    assert rows._spans(sizes[0] + 1)[0] == (0, 2)
    (total,) = rows.reduce(lambda block, out: np.add(out, block.n_rows, out=out), (100_000,))
    assert_array_equal(total, np.full(100_000, N, dtype=np.float32))


def test_a_pass_is_one_phase_and_leaves_nothing_behind(rows: DaskRows, client: Client) -> None:
    with recorded() as record:
        rows.totals()
        list(rows.map_blocks(lambda block: block.start))
    (phase,) = record.as_dict()["phases"]
    assert (phase["name"], phase["times"]) == ("pass on the cluster", 2)
    assert not held(client)
    assert next(rows.map_blocks(lambda block: block.start)) == 0  # the others are let go
    assert not held(client)


def test_rows_that_a_function_captures_are_only_their_sizes(rows: DaskRows) -> None:
    assert len(cloudpickle.dumps(rows)) < 1_000
    there = cloudpickle.loads(cloudpickle.dumps(rows.unit()))
    assert (there.n_rows, there.n_features, there.n_labels, there.n_jobs) == (N, D, C, 1)


def test_a_worker_that_dies_in_a_pass_changes_nothing(rows: DaskRows, tmp_path: Path) -> None:
    def add(block: Block, out: np.ndarray) -> None:
        out += block.X.T @ block.X

    flag = tmp_path / "died"
    (found,) = rows.reduce(dying(flag, add), (D, D))
    assert flag.exists()
    (expected,) = rows.reduce(dying(flag, add), (D, D))  # nobody dies again
    assert_array_equal(found, expected)


def test_a_worker_that_dies_before_its_results_are_fetched(rows: DaskRows, tmp_path: Path) -> None:
    found = list(rows.map_blocks(dying(tmp_path / "died", lambda block: None)))
    assert (tmp_path / "died").exists()
    assert found == [None] * len(rows.shards.shards)


def test_workers_that_die_whatever_is_tried(
    rows: DaskRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_rows, "_LOST", 1)
    for work in (
        lambda: rows.reduce(lambda block, out: os.kill(os.getpid(), signal.SIGKILL), (1,)),
        lambda: list(rows.map_blocks(lambda block: os.kill(os.getpid(), signal.SIGKILL))),
    ):
        with pytest.raises(MemoryBudgetError, match=r"want of memory \(limit .*smaller shards"):
            work()
    assert rows.totals()[3] == N  # there are others by now


PARTS = np.random.default_rng(2).random((9, N)) < 0.2  # a row may be in several, or in none
N_BYTES = 100 * PARTS.sum(axis=1)


def choose_some(block: Block, parts: np.ndarray) -> np.ndarray:
    here = PARTS[parts, block.start : block.start + block.n_rows]
    return np.flatnonzero(here.any(axis=0))


def sums_of_parts(X: csr_array, Y: csr_array, parts: np.ndarray, n_jobs: int) -> Iterator[tuple]:
    among = PARTS[:, PARTS[parts].any(axis=0)]
    for part in parts.tolist():
        mine = among[part] if X.shape[0] < N else PARTS[part]
        yield part, X[mine].toarray().sum(axis=0), Y[mine].toarray().sum(axis=0), os.getpid()


def check_parts(found: Iterator[tuple], whole: Rows) -> set[int]:
    """The processes that worked on the parts."""
    X, Y = (side.toarray() for side in whole.gathered("X", "Y"))
    results = {part: sums for part, *sums in found}
    assert sorted(results) == list(range(9))
    for part, (of_X, of_Y, _) in results.items():
        assert_allclose(of_X, X[PARTS[part]].sum(axis=0), rtol=1e-5)
        assert_array_equal(of_Y, Y[PARTS[part]].sum(axis=0))
    return {process for _, _, process in results.values()}


@pytest.mark.parametrize("room", [1, 10_000, 10**9])
def test_parts_are_worked_on_by_the_workers(
    rows: DaskRows, client: Client, whole: Rows, room: int
) -> None:
    before = held(client)  # of tests that failed on purpose
    found = rows.unit().map_parts(sums_of_parts, choose_some, N_BYTES, room=room, n_jobs=1)
    processes = check_parts(found, whole.unit())
    assert set(held(client)) <= set(before)
    assert os.getpid() not in processes
    assert len(processes) <= 2
    assert rows.n_passes == (9 if room == 1 else 1 + N_BYTES.sum() // (2 * room))


def test_parts_whose_worker_dies_are_worked_on_again(
    rows: DaskRows, whole: Rows, tmp_path: Path
) -> None:
    path = str(tmp_path / "died")

    def work_or_die(X: csr_array, Y: csr_array, parts: np.ndarray, n_jobs: int) -> Iterator[tuple]:
        try:
            os.open(path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return sums_of_parts(X, Y, parts, n_jobs)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    check_parts(rows.map_parts(work_or_die, choose_some, N_BYTES, room=10**6, n_jobs=1), whole)
    assert Path(path).exists()


def test_dask_knows_how_large_rows_are(whole: Rows) -> None:
    X, Y = whole.gathered("X", "Y")
    n_bytes = sum(a.nbytes for A in (X, Y) for a in (A.data, A.indices, A.indptr))
    assert n_bytes < sizeof((X, Y)) < n_bytes + 10_000


def test_a_part_that_does_not_fit_is_refused(rows: DaskRows) -> None:
    rows.memory = 10_000
    with pytest.raises(MemoryBudgetError, match="the largest of 9 parts of the rows"):
        rows.map_parts(sums_of_parts, choose_some, N_BYTES, room=1, n_jobs=1)


def test_tasks_make_their_passes_on_the_workers(rows: DaskRows, whole: Rows) -> None:
    def total(rows: Rows, power: int, n_jobs: int) -> tuple[np.ndarray, int, int]:
        return rows.totals()[power], n_jobs, os.getpid()

    results = list(rows.unit().map_tasks(total, [(0,), (1,), (2,)], n_jobs=7))
    for (found, n_jobs, _), expected in zip(results, whole.unit().totals()[:3], strict=True):
        assert_allclose(found, expected, rtol=1e-6)
        assert n_jobs == 1  # of the workers
    assert os.getpid() not in {process for _, _, process in results}


def test_sparse_sums_are_added_on_the_workers(rows: DaskRows, whole: Rows) -> None:
    def centroids(block: Block) -> csr_array:
        return csr_array(block.side("Y").T @ block.X)

    found = rows.unit().sum_blocks(centroids).toarray()
    assert_allclose(found, whole.unit().sum_blocks(centroids).toarray(), rtol=1e-5)


def test_an_error_on_a_worker_is_raised(rows: DaskRows) -> None:
    def fail(block: Block, out: np.ndarray) -> None:
        raise ValueError(f"at row {block.start}")

    with pytest.raises(ValueError, match="at row "):
        rows.reduce(fail, (1,))
    rows._source = replace(rows._source, fingerprint="0")
    with pytest.raises(DataError, match="has other shards on a worker than on the client"):
        rows.totals()


def test_too_little_memory_is_refused_at_once(client: Client, folder: Path) -> None:
    with pytest.raises(ValueError, match="memory must be at least"):
        DaskRows(folder, client, memory=1000)


def test_shards_at_a_url(client: Client, folder: Path, whole: Rows) -> None:
    rows = DaskRows(folder.as_uri(), client)
    assert rows.shards.path != folder
    assert_allclose(rows.totals()[0], whole.totals()[0], rtol=1e-6)
    assert not list(rows.shards.path.glob("shard-*"))  # the workers fetched them, not the client


def test_train_on_a_cluster(client: Client, folder: Path, tmp_path: Path) -> None:
    def train(out: str, *more: object) -> labelry.Rembrandt:
        options = ("--system", "rembrandt", "--embedding-dim", 3, "--jobs", 1, *more)
        command = map(str, ("train", folder, "--out", tmp_path / out, *options))
        result = CliRunner().invoke(app, list(command), catch_exceptions=False)
        assert result.exit_code == 0
        if more:
            assert f"pass on the cluster: {len(list(folder.glob('shard-*')))} shards" in (
                result.stderr
            )
        return labelry.load(tmp_path / out)

    ours, theirs = train("a", "--scheduler", client.scheduler.address), train("b")
    X = np.eye(D, dtype=np.float32)
    assert_allclose(ours.predict_topk(X, 3)[1], theirs.predict_topk(X, 3)[1], atol=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_a_cluster_that_is_not_there(folder: Path) -> None:
    with pytest.raises(
        ClusterError, match=r"cannot reach a Dask scheduler at tcp://127\.0\.0\.1:1"
    ):
        connect("tcp://127.0.0.1:1", timeout=0.2)
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=0, processes=False, **options) as empty, Client(empty) as client:
        with pytest.raises(ClusterError, match="has no workers"):
            connect(empty.scheduler.address, timeout=0.2)
        with pytest.raises(ClusterError, match="has no workers"):
            DaskRows(folder, client)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "labelry.data.cluster.dask_rows")
    with pytest.raises(MissingExtraError, match=r"labelry\[cluster\]"):
        import labelry.data.cluster.dask_rows  # noqa: F401
