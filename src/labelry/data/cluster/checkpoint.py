"""Jobs that resume after an interruption: the result of each pass is kept until the model is saved.

An algorithm is a deterministic function of the results of its passes. So an algorithm does not need
code for resuming: it starts again and reads the results of finished passes from files. The files
are safetensors in one directory, and each has another name until it is complete. ``job.json`` says
to which job they belong. Numbers and arrays are kept, and so are the results for parts of the rows,
part by part. A pass that returns the rows themselves is repeated.
"""

from __future__ import annotations

import json
import logging
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from labelry._version import __version__
from labelry.data.cluster.locations import fingerprint
from labelry.data.shards import Shards
from labelry.data.streams import write_file
from labelry.errors import ModelError
from labelry.linalg.matrices import Matrix
from labelry.linalg.rows import Block, Cut, DerivedRows, Parts, StreamedRows, Work
from labelry.storage.replacing import locked
from labelry.storage.sealed import array_views, map_file, read_sealed, seal
from labelry.storage.values import NamedArrays, pack, unpack_plain

JOB, FORMAT, FORMAT_VERSION = "job.json", "labelry-passes", 1

log = logging.getLogger("labelry")
T = TypeVar("T")


class _Journal:
    """Where the passes of a job are kept, and how many it has made so far."""

    def __init__(self, directory: Path, job: str) -> None:
        self.directory = directory
        self.job = job
        self.n_passes = 0
        self.replaying = True

    def next_path(self) -> Path:
        self.n_passes += 1
        return self.directory / f"pass-{self.n_passes:05d}"

    def write(self, path: Path, value: Any) -> None:
        arrays: NamedArrays = {}
        text = json.dumps({"job": self.job, "value": pack(value, "value", arrays)})
        # As an array too: a value is one file, whole or not there.
        arrays["json"] = np.frombuffer(text.encode(), dtype=np.uint8)
        write_file(path, save({name: np.ascontiguousarray(a) for name, a in arrays.items()}))

    def read(self, path: Path) -> Any:
        arrays = array_views(map_file(path), path)
        found = json.loads(arrays["json"].tobytes())
        if found["job"] != self.job:
            raise ModelError(f"{path} is a pass of another job: begin anew without --resume")
        return unpack_plain(found["value"], "value", arrays)

    def kept(self, path: Path) -> Any:
        """Return the result of a pass, if it is there and so were all before it."""
        return self.read(path) if self.replaying and path.exists() else None


class CheckpointedRows(DerivedRows):
    """Rows that keep the result of each pass in a directory and do not repeat a pass found there.

    From the first pass on that is missing, or has other shapes than asked for, passes are repeated.
    """

    def __init__(self, source: StreamedRows, journal: _Journal) -> None:
        super().__init__(source)
        self.known = source.known
        self._source = source
        self._journal = journal

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        return self._source.n_workers

    def write_rows(self, rows: StreamedRows) -> StreamedRows:
        return CheckpointedRows(self._source.write_rows(rows), self._journal)

    def blocks(self) -> Iterator[Block]:
        return self._source.blocks()

    def map_blocks(self, function: Callable[[Block], T]) -> Iterator[T]:
        path = self._journal.next_path()
        kept = self._journal.kept(path)
        self._journal.replaying = isinstance(kept, dict) and "n_results" in kept
        if not self._journal.replaying or kept["n_results"] is None:
            return self._keeping(self._source.map_blocks(function), path)
        return (self._journal.read(_part(path, i)) for i in range(kept["n_results"]))

    def _keeping(self, results: Iterator[T], path: Path) -> Iterator[T]:
        """Yield the results and write each one first; the count, written last, marks the end."""
        n_results, plain = 0, True
        for n_results, result in enumerate(results, 1):
            plain = plain and _is_plain(result)
            if plain:
                self._journal.write(_part(path, n_results - 1), result)
            yield result
        self._journal.write(path, {"n_results": n_results if plain else None})

    def map_batches(
        self, cut: Cut, work: Work[T], batches: Sequence[Parts], together: int, n_jobs: int
    ) -> Iterator[Iterable[T]]:
        def make(first: int) -> Iterator[Iterable[T]]:
            rest = batches[first:]
            return map(list, self._source.map_batches(cut, work, rest, together, n_jobs))

        return self._each(make, batches)

    def map_tasks(
        self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], *, n_jobs: int
    ) -> Iterator[T]:
        def make(first: int) -> Iterator[T]:
            return self._source.map_tasks(function, tasks[first:], n_jobs=n_jobs)

        return self._each(make, tasks)

    def _each(self, make: Callable[[int], Iterator[T]], tasks: Sequence[Iterable[Any]]) -> Any:
        """Yield the result of each task; ``make(first)`` computes those that are not kept."""
        return self._results(make, [_digest(task) for task in tasks], self._journal.next_path())

    def _results(
        self, make: Callable[[int], Iterator[T]], digests: list[int], path: Path
    ) -> Iterator[T]:
        for i, digest in enumerate(digests):
            kept = self._journal.kept(_part(path, i))
            if not isinstance(kept, dict) or kept.get("task") != digest:
                break
            yield kept["result"]
        else:
            return
        self._journal.replaying = False
        for j, result in enumerate(make(i), start=i):
            self._journal.write(_part(path, j), {"task": digests[j], "result": result})
            yield result

    def sum_blocks(self, function: Callable[[Block], Matrix]) -> Matrix:
        return self._kept_or_made(
            lambda kept: isinstance(kept, dict) and "sum" in kept,
            lambda: {"sum": self._source.sum_blocks(function)},
        )["sum"]

    def reduce(
        self,
        add: Callable[..., None],
        *shapes: tuple[int, ...],
        dtype: type[np.floating] = np.float32,
    ) -> list[NDArray]:
        return self._kept_or_made(
            lambda kept: isinstance(kept, list) and [s.shape for s in kept] == list(shapes),
            lambda: self._source.reduce(add, *shapes, dtype=dtype),
        )

    def _kept_or_made(self, fits: Callable[[Any], bool], make: Callable[[], Any]) -> Any:
        """Return the result of a pass, from its file if that fits; otherwise make and write it."""
        path = self._journal.next_path()
        kept = self._journal.kept(path)
        self._journal.replaying = fits(kept)
        if not self._journal.replaying:
            kept = make()
            self._journal.write(path, kept)
        return kept


@contextmanager
def checkpointed(
    rows: StreamedRows, directory: str | Path, job: dict[str, Any], *, resume: bool = False
) -> Iterator[CheckpointedRows]:
    """Keep the passes over `rows` in `directory` until the body of the ``with`` has succeeded.

    `job` is plain data that identifies the passes; `job_of` makes it for a model and its shards.
    With `resume` the passes that an interrupted job left in the directory are used, otherwise they
    are deleted. A directory that another job is using, with passes of another job, or of something
    else, is a ModelError.
    """
    directory = Path(directory)
    plain = json.loads(json.dumps(pack(job, "job", {})))
    header = seal({"format": FORMAT, "format_version": FORMAT_VERSION, "job": plain})
    with ExitStack() as until_done:
        _claim(directory, until_done)
        if any(directory.iterdir()):
            kept = read_sealed(directory / JOB, FORMAT, FORMAT_VERSION, "a directory of passes")
            if resume:
                _check_same(directory, plain, kept["job"])
            else:
                for path in directory.iterdir():
                    path.unlink()
        if not (directory / JOB).exists():
            write_file(directory / JOB, header)
        try:
            yield CheckpointedRows(rows, _Journal(directory, sha256(header).hexdigest()))
        except BaseException:
            log.info("its passes so far are kept in %s: --resume goes on with them", directory)
            raise
        with locked(directory.parent):  # so that no other job opens what is being deleted
            shutil.rmtree(directory)


def _claim(directory: Path, until_done: ExitStack) -> None:
    """Make the directory and hold its lock, or refuse one that another job is using."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.parent):
        directory.mkdir(exist_ok=True)
        if until_done.enter_context(locked(directory, wait=False)) is False:
            raise ModelError(
                f"{directory} is in use by another training with the same --out: wait until it "
                "ends, or give another --out"
            )


def _check_same(directory: Path, job: dict[str, Any], there: dict[str, Any]) -> None:
    """Refuse passes of another job."""
    if there != job:
        names = [name for name in job if job[name] != there.get(name)]
        raise ModelError(
            f"{directory} has passes of another job, of other {' and '.join(names)}: give the "
            "same, or begin anew without --resume"
        )


def job_of(system: str, parameters: Mapping[str, Any], shards: Shards) -> dict[str, Any]:
    """Return what the passes of a job depend on: not the number of threads."""
    return {
        "system": system,
        "parameters": {name: v for name, v in parameters.items() if name != "n_jobs"},
        "data": fingerprint(shards),
        "labelry version": __version__,
    }


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}-{number:05d}")


def _digest(task: Iterable[Any]) -> int:
    """Return a checksum of a task: tasks for another number of workers have others."""
    return zlib.crc32(json.dumps([np.asarray(part).tolist() for part in task]).encode())


def _is_plain(value: Any) -> bool:
    """Return whether a value survives writing and reading; tuples may become lists."""
    if isinstance(value, list) or type(value) is tuple:
        return all(map(_is_plain, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    return value is None or isinstance(value, (bool, int, float, str))
