"""Datasets larger than memory: a directory of shards, mapped into memory one after the other.

=======================  =====================================================================
``shards.json``          sizes; rows, nonzeros, bytes and checksum of each shard; size and
                         checksum of the files below; what the shards were made from and how
                         that was read; whether they are complete; its own checksum
``shard-00000...``       some rows each, as safetensors: ``X.indptr``, ``X.indices``, ``X.data``
                         (or a dense ``X``), ``Y.indptr``, ``Y.indices`` and, unless it is all
                         ones, ``Y.data``
``labels.json``          the label names, if there are any
``features.json``        the feature names, if there are any
``text.json``, ``text.safetensors``   the `TextFeatures` that made X, if the rows were texts
=======================  =====================================================================

`labelry.data.shard_writer` makes such a directory.
"""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry import memory as machine
from labelry.checks import StoredCheck
from labelry.data.dataset import Dataset, Features
from labelry.data.text import TextFeatures
from labelry.errors import DataError, ModelError
from labelry.linalg.matrices import Matrix, consecutive_rows
from labelry.linalg.parallel import balanced_spans, spans
from labelry.linalg.rows import Block, Known, StreamedRows
from labelry.storage.about import Source
from labelry.storage.sealed import array_views, map_file, plain_size, read_sealed
from labelry.storage.values import unpack

MANIFEST, LABELS, FEATURES = "shards.json", "labels.json", "features.json"
TEXT, TEXT_ARRAYS = "text.json", "text.safetensors"
OTHER_FILES = (MANIFEST, LABELS, FEATURES, TEXT, TEXT_ARRAYS)
FORMAT, FORMAT_VERSION = "labelry-shards", 1

_BLOCKS_OF_BOUND = 8  # blocks that the bound on memory has room for: copies, and work on them
_SHARDS_OF_BOUND = 4  # shards that it must have room for: one in use, one ahead, and work


class Shard(NamedTuple):
    """The sizes of a shard, and those of its file."""

    rows: int
    nonzeros: int  # of X
    labels: int  # nonzeros of Y
    bytes: int
    crc32: int


def shard_name(number: int) -> str:
    """Return the file name of a shard.

    >>> shard_name(12)
    'shard-00012.safetensors'
    """
    return f"shard-{number:05d}.safetensors"


def is_shards(path: str | Path) -> bool:
    """Return whether this path is a directory of shards, complete or not."""
    return (Path(path) / MANIFEST).is_file()


@dataclass(frozen=True, eq=False)
class Shards:
    """A dataset in a directory of shards; `open_shards` gives it.

    Beside its sizes it has `label_names`, `feature_names` and `text_features`, the `TextFeatures`
    that made X out of texts; each is None where there are none. X and Y take `n_bytes`. `source` is
    the file that they were made from.
    """

    path: Path
    n_rows: int
    n_features: int
    n_labels: int
    files: dict[str, dict[str, int]]
    shards: tuple[Shard, ...]
    source: Source
    _whole: set[int] = field(default_factory=set)  # shards whose checksums were found right

    @property
    def n_bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @cached_property
    def label_names(self) -> list[str] | None:
        return self._read_names(LABELS, self.n_labels)

    @cached_property
    def feature_names(self) -> list[str] | None:
        return self._read_names(FEATURES, self.n_features)

    @cached_property
    def text_features(self) -> TextFeatures | None:
        state = self._read_json(TEXT)
        if state is None:
            return None
        path = self.path / TEXT_ARRAYS
        with reading_shards(path):
            mapped = map_file(path)
            _check_crc(mapped, self.files[TEXT_ARRAYS]["crc32"], path)
            features = TextFeatures.from_state(state, array_views(mapped, path))
            if features.n_features_out_ != self.n_features:
                raise ValueError(f"{TEXT} is of {features.n_features_out_} features")
            return features

    def rows(self, *, memory: int | None = None, n_jobs: int | None = None) -> ShardedRows:
        """Return the rows for training, whose passes stay within `memory` bytes."""
        return ShardedRows(self, memory=memory, n_jobs=n_jobs)

    def dataset(self) -> Dataset:
        """Read all rows into memory; raise a MemoryBudgetError if they do not fit."""
        machine.require(
            2 * self.n_bytes,  # parts, and the whole that is made of them
            f"reading all of {self.path}",
            "read it in blocks, or train a system that learns by passes",
        )
        X, Y = self.rows().gathered("X", "Y")
        return self._named(X, Y)

    def datasets(self) -> Iterator[Dataset]:
        """Yield the rows of one shard after the other."""
        return (self._named(X, Y) for X, Y in self.load())

    def load(self, first: int = 0, last: int | None = None) -> Iterator[tuple[Matrix, csr_array]]:
        """X and Y of one shard after the other, views; a thread reads the next shard meanwhile."""
        numbers = range(len(self.shards))[first:last]
        with ThreadPoolExecutor(1, thread_name_prefix="labelry-read") as pool:
            coming = pool.submit(self._load, numbers[0])
            for number in numbers[1:]:
                loaded, coming = coming.result(), pool.submit(self._load, number)
                yield loaded
                del loaded  # its memory is needed
            yield coming.result()

    def _named(self, X: Features, Y: csr_array) -> Dataset:
        names, features = self.label_names, self.feature_names
        return Dataset(Y, X, label_names=names, feature_names=features, source=self.source)

    def _load(self, number: int) -> tuple[Matrix, csr_array]:
        """Map a shard and touch all of it, so that it is in memory when it is needed.

        Nothing is unmapped here: a mapping ends with the last view of it, and its memory is free.
        """
        shard, path = self.shards[number], self.path / shard_name(number)
        with reading_shards(path):
            mapped = map_file(path)
            if number in self._whole:
                if hasattr(mmap, "MADV_WILLNEED"):
                    mapped.madvise(mmap.MADV_WILLNEED)
                np.frombuffer(mapped, np.uint8)[:: mmap.PAGESIZE].max()
            else:
                _check_crc(mapped, shard.crc32, path)
            arrays = array_views(mapped, path)
            X = arrays["X"] if "X" in arrays else _csr(arrays, "X", self.n_features)
            Y = _csr(arrays, "Y", self.n_labels)
            if number not in self._whole:
                _check_matrix(X, (shard.rows, self.n_features))
                _check_matrix(Y, (shard.rows, self.n_labels))
            self._whole.add(number)
            return X, Y

    def _read_names(self, name: str, size: int) -> list[str] | None:
        names = self._read_json(name)
        if names is not None:
            are_texts = isinstance(names, list) and all(isinstance(text, str) for text in names)
            if not are_texts or not len(names) == len(set(names)) == size:
                raise DataError(f"expected {size} distinct names", path=self.path / name)
        return names

    def _read_json(self, name: str) -> Any:
        if name not in self.files:
            return None
        path = self.path / name
        with reading_shards(path):
            raw = path.read_bytes()
            _check_crc(raw, self.files[name]["crc32"], path)
            return json.loads(raw)


class ShardedRows(StreamedRows):
    """Passes over shards: the next is read while one is worked on, the last is let go.

    A block is a shard, or a part of it where the bound on memory asks for less.

    `memory` is the number of bytes that passes, and what is computed in them, should stay within,
    beyond the program itself; at least four times the largest shard.
    """

    def __init__(
        self, shards: Shards, *, memory: int | None = None, n_jobs: int | None = None
    ) -> None:
        sizes = (shards.n_rows, shards.n_features, shards.n_labels)
        super().__init__(*sizes, n_bytes=shards.n_bytes, memory=memory, n_jobs=n_jobs)
        self.shards = shards
        least = _SHARDS_OF_BOUND * max(shard.bytes for shard in shards.shards)
        if memory is not None and memory < least:
            raise ValueError(
                f"memory must be at least {machine.human(least)}, {_SHARDS_OF_BOUND} times the "
                f"largest shard, got {machine.human(memory)}; or make smaller shards"
            )

    @cached_property
    def known(self) -> Known:  # type: ignore[override]
        """Return what the shards know beside their rows; it is read when it is first asked for."""
        names, features = self.shards.label_names, self.shards.text_features
        return Known(label_names=names, text_features=features, source=self.shards.source)

    def blocks(self) -> Iterator[Block]:
        return self.blocks_between(0, len(self.shards.shards))

    def blocks_between(self, first: int, last: int) -> Iterator[Block]:
        """Yield the blocks of the shards from `first` to `last`, without `last`."""
        start = sum(shard.rows for shard in self.shards.shards[:first])
        for X, Y in self.shards.load(first, last):
            for a, b in self._cut(X):
                yield Block(rows_between(X, a, b), rows_between(Y, a, b), None, start + a)
            start += Y.shape[0]
            del X, Y  # before the next is asked for: their memory is needed

    def _cut(self, X: Matrix) -> Sequence[tuple[int, int]]:
        """Yield the rows of a shard in parts of about the same size."""
        n_bytes = 8 * X.nnz if issparse(X) else X.nbytes
        n_parts = 1 if self.memory is None else 1 + n_bytes * _BLOCKS_OF_BOUND // self.memory
        return balanced_spans(X.indptr, n_parts) if issparse(X) else spans(X.shape[0], n_parts)


def open_shards(path: str | Path) -> Shards:
    """Open a directory of shards; each is checked when it is read for the first time.

    A DataError says if there are none, or if they are incomplete, damaged or of a newer format.
    """
    path = Path(path)
    with reading_shards(path):
        manifest = read_manifest(path)
        if not manifest["complete"]:
            found = f"the shards are incomplete ({manifest['n_rows']:,} rows so far)"
            remedy = "run the command that makes them again, and it will go on"
            raise DataError(f"{found}: {remedy}", path=path)
        if not manifest["shards"]:
            raise ValueError("there is no shard")
        return from_manifest(path, manifest)


def from_manifest(path: Path, manifest: dict[str, Any]) -> Shards:
    """Open the shards that a manifest lists, complete or not."""
    fields = manifest_fields(manifest)
    shards = fields["shards"]
    if sum(shard.rows for shard in shards) != manifest["n_rows"]:
        raise ValueError(f"the shards do not have {manifest['n_rows']} rows together")
    if not set(manifest["files"]) <= set(OTHER_FILES):
        raise ValueError(f"{MANIFEST} names other files than {', '.join(OTHER_FILES)}")
    sizes = {shard_name(i): shard.bytes for i, shard in enumerate(shards)}
    sizes |= {name: entry["bytes"] for name, entry in manifest["files"].items()}
    for name, size in sizes.items():
        found = plain_size(path / name)
        if found != size:
            raise DataError(f"is damaged: found {found} bytes, expected {size}", path=path / name)
    return Shards(path, **fields)


def manifest_fields(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `Shards` that a manifest holds."""
    fields = {name: manifest[name] for name in ("n_rows", "n_features", "n_labels", "files")}
    fields["shards"] = tuple(Shard(**entry) for entry in manifest["shards"])
    fields["source"] = unpack(Source, manifest["source"], "source", {}, {}, StoredCheck())
    return fields


def read_manifest(path: Path) -> dict[str, Any]:
    """Read what shards.json says; a ModelError where there is none, or it is damaged."""
    return read_sealed(path / MANIFEST, FORMAT, FORMAT_VERSION, "a directory of shards")


@contextmanager
def reading_shards(path: Path) -> Iterator[None]:
    """Turn what can go wrong with files into a DataError."""
    try:
        yield
    except DataError:
        raise
    except ModelError as error:
        raise DataError(str(error)) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=error.filename or path) from error
    # Of right checksum: made by someone else.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"does not hold valid shards: {error}", path=path) from error


def _csr(arrays: dict[str, NDArray[Any]], name: str, n_columns: int) -> csr_array:
    indptr, indices = arrays[f"{name}.indptr"], arrays[f"{name}.indices"]
    data = arrays.get(f"{name}.data")
    if data is None:
        data = np.ones(len(indices), dtype=np.float32)
    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_columns))


def rows_between(A: Matrix, first: int, last: int) -> Matrix:
    """Return ``A[first:last]`` without a copy of the entries."""
    if last - first == A.shape[0]:
        return A
    return consecutive_rows(A, first, last) if issparse(A) else A[first:last]


def _check_crc(content: bytes | mmap.mmap, expected: int, path: Path) -> None:
    if zlib.crc32(content) != expected:
        raise DataError("is damaged: its checksum differs", path=path)


def _check_matrix(A: Matrix, shape: tuple[int, int]) -> None:
    """Refuse what kernels would trip over, which do not check."""
    if A.shape != shape or A.dtype != np.float32:
        raise ValueError(f"a shard has {A.shape} {A.dtype} values, expected {shape} float32")
    if issparse(A):
        A.check_format(full_check=True)
        if not A.has_canonical_format:
            raise ValueError("the columns of a row are not in order, or not distinct")
    if not np.isfinite(A.data if issparse(A) else A).all():
        raise ValueError("not all values are finite")
