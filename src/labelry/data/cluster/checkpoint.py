"""Jobs that go on after they stopped: what each pass came to is kept until the model is saved.

An algorithm is a deterministic function of what its passes come to. So it need not know how to go
on: it starts again, and gets the results of the passes that were finished before from files. They
are safetensors in a directory, each under another name until it is whole; ``job.json`` says what
they are of. Numbers and arrays are kept, and what was found in parts of the rows, part by part; a
pass that brings rows themselves is made again.
"""

from __future__ import annotations

import json
import logging
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from labelry.storage.sealed import array_views, map_file, read_sealed, seal
from labelry.storage.values import Arrays, pack, unpack_plain

JOB, FORMAT, FORMAT_VERSION = "job.json", "labelry-passes", 1

log = logging.getLogger("labelry")
T = TypeVar("T")


class _Journal:
    """Where the passes of a job are kept, and how many it has made so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.n_passes = 0
        self.replaying = True


class CheckpointedRows(DerivedRows):
    """Rows whose passes are kept in a directory; those that are there already are not repeated.

    From the first pass that is not there, or not of the shapes asked for, all are made anew.
    """

    def __init__(self, source: StreamedRows, journal: _Journal) -> None:
        super().__init__(source)
        self.known = source.known
        self._source = source
        self._journal = journal

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        return self._source.n_workers

    def keep(self, rows: StreamedRows) -> StreamedRows:
        return CheckpointedRows(self._source.keep(rows), self._journal)

    def blocks(self) -> Iterator[Block]:
        return self._source.blocks()

    def map_blocks(self, function: Callable[[Block], T]) -> Iterator[T]:
        path = self._next_path()
        kept = self._kept(path)
        self._journal.replaying = isinstance(kept, dict) and "n_results" in kept
        if not self._journal.replaying or kept["n_results"] is None:
            return self._keeping(self._source.map_blocks(function), path)
        return (_read(_part(path, i)) for i in range(kept["n_results"]))

    def _keeping(self, results: Iterator[T], path: Path) -> Iterator[T]:
        """The results, each written before it is given; their number says that they are all."""
        n_results, plain = 0, True
        for n_results, result in enumerate(results, 1):
            plain = plain and _is_plain(result)
            if plain:
                _write(_part(path, n_results - 1), result)
            yield result
        _write(path, {"n_results": n_results if plain else None})

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
        """The result of each task, written before it is given; ``make(first)`` has the others."""
        return self._results(make, [_digest(task) for task in tasks], self._next_path())

    def _results(
        self, make: Callable[[int], Iterator[T]], digests: list[int], path: Path
    ) -> Iterator[T]:
        for i, digest in enumerate(digests):
            kept = self._kept(_part(path, i))
            if not isinstance(kept, dict) or kept.get("task") != digest:
                break
            yield kept["result"]
        else:
            return
        self._journal.replaying = False
        for j, result in enumerate(make(i), start=i):
            _write(_part(path, j), {"task": digests[j], "result": result})
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
        """The result of a pass: from its file, if that is there and fits, or made and written."""
        path = self._next_path()
        kept = self._kept(path)
        self._journal.replaying = fits(kept)
        if not self._journal.replaying:
            kept = make()
            _write(path, kept)
        return kept

    def _next_path(self) -> Path:
        self._journal.n_passes += 1
        return self._journal.directory / f"pass-{self._journal.n_passes:05d}"

    def _kept(self, path: Path) -> Any:
        return _read(path) if self._journal.replaying and path.exists() else None


@contextmanager
def checkpointed(
    rows: StreamedRows, directory: str | Path, job: dict[str, Any], *, resume: bool = False
) -> Iterator[CheckpointedRows]:
    """Rows whose passes are kept in `directory` until what is done with them has succeeded.

    `job` is plain data that identifies the passes; `job_of` makes it for a model and its shards.
    With `resume` the passes that an interrupted job left in the directory are used, otherwise they
    are deleted. A directory with passes of another job, or something else, is a ModelError.
    """
    directory = Path(directory)
    plain = json.loads(json.dumps(pack(job, "job", {})))
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "job": plain}
    if directory.exists():
        there = read_sealed(directory / JOB, FORMAT, FORMAT_VERSION, "a directory of passes")["job"]
        if resume and there != plain:
            names = [name for name in plain if plain[name] != there.get(name)]
            raise ModelError(
                f"{directory} has passes of another job, of other {' and '.join(names)}: give the "
                "same, or begin anew without --resume"
            )
        if not resume:
            shutil.rmtree(directory)
    if not directory.exists():
        directory.mkdir(parents=True)
        write_file(directory / JOB, seal(header))
    try:
        yield CheckpointedRows(rows, _Journal(directory))
    except BaseException:
        log.info("its passes so far are kept in %s: --resume goes on with them", directory)
        raise
    shutil.rmtree(directory)


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
    """A number that differs where tasks differ, such as those for another number of workers."""
    return zlib.crc32(json.dumps([np.asarray(part).tolist() for part in task]).encode())


def _is_plain(value: Any) -> bool:
    """Whether it comes back as it was: tuples come back as lists, which is all the same."""
    if isinstance(value, list) or type(value) is tuple:
        return all(map(_is_plain, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    return value is None or isinstance(value, (bool, int, float, str))


def _write(path: Path, value: Any) -> None:
    arrays: Arrays = {}
    text = json.dumps(pack(value, "value", arrays))
    # As an array too: a value is one file, whole or not there.
    arrays["json"] = np.frombuffer(text.encode(), dtype=np.uint8)
    write_file(path, save({name: np.ascontiguousarray(a) for name, a in arrays.items()}))


def _read(path: Path) -> Any:
    arrays = array_views(map_file(path), path)
    return unpack_plain(json.loads(arrays["json"].tobytes()), "value", arrays)
