"""Jobs that go on after they stopped."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from typer.testing import CliRunner

import labelry
from labelry.cli.app import app
from labelry.data import Dataset, write
from labelry.data.cluster.checkpoint import checkpointed, job_of
from labelry.data.shard_writer import write_shards
from labelry.data.shards import ShardedRows, Shards
from labelry.errors import ModelError
from labelry.estimators import system_class
from labelry.linalg.rows import Block, Rows, StreamedRows

N, D, C = 120, 20, 6


def job_for(model, shards):
    return job_of(model.system, model.get_params(deep=False), shards)


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    rng = np.random.default_rng(0)
    X, Y = rng.poisson(0.5, (N, D)), rng.random((N, C)) < 0.3
    write(
        Dataset(csr_array(Y, dtype=np.float32), csr_array(X, dtype=np.float32)), tmp_path / "a.npz"
    )
    shards = write_shards(tmp_path / "a.npz", tmp_path / "shards", shard_bytes=3000)
    assert len(shards.shards) > 2
    return shards


class Stopped(BaseException):
    """Not an `Exception`: as a keyboard interrupt."""


class StoppingRows(ShardedRows):
    """Rows that end the job in the middle of a pass."""

    def __init__(self, shards: Shards, last: int, memory: int | None = None) -> None:
        super().__init__(shards, memory=memory, n_jobs=1)
        self.last = last

    def map_blocks(self, function: Callable[[Block], Any]) -> Any:
        return self._pass_over(self.blocks, function)

    def write_rows(self, rows: StreamedRows) -> StreamedRows:
        kept = super().write_rows(rows)
        kept.map_blocks = partial(self._pass_over, kept.blocks)
        return kept

    def _pass_over(
        self, blocks: Callable[[], Iterator[Block]], function: Callable[[Block], Any]
    ) -> Iterator[Any]:
        def stop(block: Block) -> Any:
            if block.start:
                raise Stopped
            return function(block)

        self.n_passes += 1
        return map(stop if self.n_passes == self.last + 1 else function, blocks())


@contextmanager
def interrupted(
    rows: Rows, directory: Path, job: dict[str, Any], *, resume: bool = False
) -> Iterator[Rows]:
    """Rows of a job that ends in an interrupt when all its passes are made."""
    job_rows = checkpointed(rows, directory, job, resume=resume)
    with pytest.raises(Stopped), job_rows as kept:  # noqa: PT012
        yield kept
        raise Stopped


def fit(rows: Rows, system: str) -> Any:
    parameters = {"rembrandt": {"embedding_dim": 3}, "leml": {"embedding_dim": 2, "n_rounds": 1}}
    return system_class(system)(n_jobs=1, **parameters.get(system, {})).fit(rows)


@pytest.mark.parametrize("system", ["rembrandt", "leml", "moments"])
def test_a_job_goes_on_where_it_was_interrupted(
    shards: Shards, system: str, tmp_path: Path
) -> None:
    whole = shards.rows(n_jobs=1)
    expected = fit(whole, system)
    n_passes = whole.n_passes
    passes = tmp_path / "passes"
    done = 0
    for last in (2, n_passes - done - 3):  # interrupted in the third pass; then near the end
        rows = StoppingRows(shards, last)
        with pytest.raises(Stopped), checkpointed(rows, passes, {}, resume=True) as kept:
            fit(kept, system)
        done += last
        assert rows.n_passes == last + 1
    rows = StoppingRows(shards, -1)
    with checkpointed(rows, passes, {}, resume=True) as kept:
        model = fit(kept, system)
        assert passes.exists()
    assert rows.n_passes == n_passes - done  # the others were not repeated
    assert kept._journal.n_passes == n_passes
    assert not passes.exists()
    X = np.eye(D, dtype=np.float32)
    for ours, theirs in zip(model.predict_topk(X, 3), expected.predict_topk(X, 3), strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        ("linear-tree", {"tree": "random", "depth": 2, "branching": 2}),
        ("sleec", {"n_clusters": 3, "n_learners": 2, "embedding_dim": 2}),
        ("local-leml", {"n_clusters": 3, "n_learners": 1, "embedding_dim": 2}),
    ],
)
def test_nodes_and_clusters_that_were_trained_are_not_trained_again(
    shards: Shards, system: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    def train(rows: Rows) -> Any:
        return system_class(system)(n_jobs=1, **settings).fit(rows)

    bound = max(5 * shards.n_bytes // 2, 4 * max(shard.bytes for shard in shards.shards))
    whole = StoppingRows(shards, -1, bound)
    expected, passes = train(whole), tmp_path / "passes"
    rows = StoppingRows(shards, whole.n_passes - 2, bound)
    with pytest.raises(Stopped), checkpointed(rows, passes, {}) as kept:
        train(kept)
    rows = StoppingRows(shards, -1, bound)
    with checkpointed(rows, passes, {}, resume=True) as kept:
        model = train(kept)
    assert 0 < rows.n_passes <= whole.n_passes // 2
    X = np.eye(D, dtype=np.float32)
    for ours, theirs in zip(model.predict_topk(X, 3), expected.predict_topk(X, 3), strict=True):
        assert_array_equal(ours, theirs)


def test_work_on_parts_goes_on_with_the_part_at_which_it_stopped(
    shards: Shards, tmp_path: Path
) -> None:
    done: list[int] = []

    def work(X: csr_array, Y: csr_array, parts: Any, n_jobs: int) -> Iterator[Any]:
        if len(done) == 3:
            raise Stopped
        done.extend(parts.tolist())
        yield parts.tolist(), X, X.shape[0]

    def choose(block: Block, parts: Any) -> Any:
        return np.flatnonzero(np.isin((block.start + np.arange(block.n_rows)) % 6, parts))

    def parts(rows: Rows, sizes: list[int]) -> list[Any]:
        return list(rows.map_parts(work, choose, np.array(sizes), room=10, n_jobs=1))

    with pytest.raises(Stopped), checkpointed(shards.rows(), tmp_path / "p", {}) as rows:
        parts(rows, [10] * 6)
    assert done == [0, 1, 2]
    done = []
    with interrupted(shards.rows(), tmp_path / "p", {}, resume=True) as rows:
        found = parts(rows, [10] * 6)
    assert done == [3, 4, 5]
    assert [mine for mine, _, _ in found] == [[0], [1], [2], [3], [4], [5]]
    for part, (_, X, n) in enumerate(found):
        expected = shards.dataset().X[part::6]
        assert_array_equal(X.toarray(), expected.toarray())
        assert n == expected.shape[0]
    done = []
    with checkpointed(shards.rows(), tmp_path / "p", {}, resume=True) as rows:
        parts(rows, [5, 5, 5])  # other batches
    assert done == [0, 1, 2]


def test_what_passes_give_comes_back_as_it_was(shards: Shards, tmp_path: Path) -> None:
    def work(rows: Rows) -> tuple[list[Any], list[Any], list[Block], list[Any]]:
        sums = rows.reduce(lambda b, *s: None, (2, 0), (3,), dtype=np.float64)
        pairs = list(rows.map_blocks(lambda b: (b.start, b.X.toarray(), None, [b.n_rows > 0])))
        blocks = list(rows.map_blocks(lambda block: block))
        return sums, pairs, blocks, rows.reduce(lambda block, out: np.add(out, 1, out=out), (1,))

    with interrupted(shards.rows(), tmp_path / "p", {}) as rows:
        first = work(rows)
    source = shards.rows()
    with checkpointed(source, tmp_path / "p", {}, resume=True) as rows:
        again = work(rows)
    assert source.n_passes == 1  # that of the blocks, which are rows
    for ours, theirs in zip(again[0] + again[3], first[0] + first[3], strict=True):
        assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
        assert ours.flags.writeable
    for ours, theirs in zip(again[1], first[1], strict=True):
        assert_array_equal(ours[1], theirs[1])
        assert (ours[0], *ours[2:]) == (theirs[0], *theirs[2:])
    for ours, theirs in zip(again[2], first[2], strict=True):
        assert isinstance(ours, Block)
        assert_array_equal(ours.X.toarray(), theirs.X.toarray())


def test_from_a_pass_of_other_shapes_all_are_made_anew(shards: Shards, tmp_path: Path) -> None:
    def count(rows: Rows, width: int) -> float:
        rows.reduce(lambda b, out: None, (2,))
        rows.reduce(lambda b, out: None, (width,))
        return float(rows.reduce(lambda b, out: np.add(out, width, out=out), (1,))[0][0])

    with interrupted(shards.rows(), tmp_path / "p", {}) as rows:
        count(rows, 3)
    source = shards.rows()
    with checkpointed(source, tmp_path / "p", {}, resume=True) as rows:
        assert count(rows, 4) == 4 * len(shards.shards)
    assert source.n_passes == 2


def test_passes_that_were_not_read_to_their_end_are_repeated(
    shards: Shards, tmp_path: Path
) -> None:
    with interrupted(shards.rows(), tmp_path / "p", {}) as rows:
        next(rows.map_blocks(lambda block: block.start))
    source = shards.rows()
    with checkpointed(source, tmp_path / "p", {}, resume=True) as rows:
        assert len(list(rows.map_blocks(lambda block: block.start))) == len(shards.shards)
    assert source.n_passes == 1


def test_another_job_is_refused(shards: Shards, tmp_path: Path) -> None:
    rows, passes = shards.rows(), tmp_path / "passes"
    job = job_for(labelry.Rembrandt(embedding_dim=3), shards)
    with interrupted(rows, passes, job) as kept:
        kept.totals()
    other = job_for(labelry.Rembrandt(embedding_dim=4), shards)
    with (
        pytest.raises(ModelError, match="passes of another job, of other parameters"),
        checkpointed(rows, passes, other, resume=True),
    ):
        pass
    with (
        pytest.raises(ModelError, match="of other system and parameters and data"),
        checkpointed(rows, passes, job_for(labelry.LEML(), shards) | {"data": ""}, resume=True),
    ):
        pass
    threads = labelry.Rembrandt(embedding_dim=3, n_jobs=2)
    with checkpointed(rows, passes, job_for(threads, shards), resume=True):
        assert len(list(passes.iterdir())) == 2
    with interrupted(rows, passes, job):
        pass
    with checkpointed(rows, passes, other) as kept:  # begins anew
        assert [path.name for path in passes.iterdir()] == ["job.json"]


def test_a_directory_belongs_to_one_job_at_a_time(shards: Shards, tmp_path: Path) -> None:
    passes = tmp_path / "passes"
    with checkpointed(shards.rows(), passes, {"seed": 0}) as rows:
        rows.totals()
        before = sorted(path.name for path in passes.iterdir())
        for resume in (False, True):
            with (
                pytest.raises(ModelError, match=r"is in use by another training .* another --out"),
                checkpointed(shards.rows(), passes, {"seed": 1}, resume=resume),
            ):
                pass
        assert sorted(path.name for path in passes.iterdir()) == before
    assert not passes.exists()
    with checkpointed(shards.rows(), passes, {"seed": 1}) as rows:  # the lock has ended
        rows.totals()


@pytest.mark.parametrize("by_blocks", [False, True])
def test_a_pass_of_another_job_is_refused(shards: Shards, tmp_path: Path, by_blocks: bool) -> None:
    def work(rows: Rows) -> Any:
        return list(rows.map_blocks(lambda b: b.start)) if by_blocks else rows.totals()

    for seed in (0, 1):
        with interrupted(shards.rows(), tmp_path / str(seed), {"seed": seed}) as rows:
            work(rows)
    # The first part of a pass by blocks, or the one file of another.
    file = "pass-00001-00000" if by_blocks else "pass-00001"
    (tmp_path / "1" / file).replace(tmp_path / "0" / file)
    with (
        pytest.raises(ModelError, match=rf"{file} is a pass of another job: begin anew without"),
        checkpointed(shards.rows(), tmp_path / "0", {"seed": 0}, resume=True) as rows,
    ):
        work(rows)


def test_a_crash_before_the_job_was_written_is_no_obstacle(shards: Shards, tmp_path: Path) -> None:
    for resume in (False, True):
        (tmp_path / "passes").mkdir()
        with checkpointed(shards.rows(), tmp_path / "passes", {}, resume=resume) as rows:
            rows.totals()


def test_where_there_are_no_locks_a_job_runs(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with checkpointed(shards.rows(), tmp_path / "passes", {}) as rows:
        assert len(rows.totals()) == 4
    write_shards(tmp_path / "a.npz", tmp_path / "again")


def test_nothing_else_is_deleted(shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with (
        pytest.raises(ModelError, match="is not a directory of passes"),
        checkpointed(shards.rows(), tmp_path / "mine", {}),
    ):
        pass
    assert (tmp_path / "mine" / "file").exists()


def test_the_command_line_goes_on(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*more: str, system: str = "rembrandt") -> Any:
        command = ["train", str(shards.path), "--system", system, "--jobs", "1", *more]
        return CliRunner().invoke(app, command)

    out = ("--embedding-dim", "3", "--out", str(tmp_path / "model"))
    calls = []

    def reduce(self: ShardedRows, *given: Any, **options: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return Rows.reduce(self, *given, **options)

    monkeypatch.setattr(ShardedRows, "reduce", reduce)
    stopped = train(*out)
    assert stopped.exit_code == 130
    assert "--resume goes on with them" in stopped.stderr
    other = train(*out[2:], "--embedding-dim", "4", "--resume")
    assert "of other parameters" in str(other.exception)
    assert train(*out, "--resume").exit_code == 0
    first = len(calls)
    calls[:] = [None] * 3
    assert train(*out[:-1], str(tmp_path / "whole")).exit_code == 0
    assert len(calls) - 3 == first - 1  # only the pass that was interrupted was begun twice
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.npz", "shards", "model", "whole"}
    arrays = [(tmp_path / m / "arrays.safetensors").read_bytes() for m in ("model", "whole")]
    assert arrays[0] == arrays[1]


def test_what_has_no_passes_has_none_to_resume(shards: Shards, tmp_path: Path) -> None:
    out = ["--system", "one-vs-rest", "--out", str(tmp_path / "model")]
    found = CliRunner().invoke(app, ["train", str(shards.path), *out, "--resume"])
    assert found.exit_code == 2
    assert "for systems that learn by passes; one-vs-rest" in " ".join(found.stderr.split())
    found = CliRunner().invoke(app, ["train", str(tmp_path / "a.npz"), *out, "--scheduler", "a:1"])
    assert "--scheduler is for training from shards" in " ".join(found.stderr.split())
