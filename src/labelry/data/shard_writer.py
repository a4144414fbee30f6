"""Any input to a directory of shards: in constant memory, and to be continued after a crash.

A shard gets its name only when it is whole, and then ``shards.json`` is replaced by one that
lists it. So whatever happens, ``shards.json`` says how many rows are safely there, and the same
call goes on after these. Rows of texts are read twice: first for their words and labels, then
to write them.
"""

from __future__ import annotations

import json
import logging
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy.sparse import csr_array, issparse

from labelry._version import __version__
from labelry.data.canonical import make_csr
from labelry.data.dataset import Dataset
from labelry.data.files import read_blocks
from labelry.data.formats import recognise
from labelry.data.shards import (
    FEATURES,
    FORMAT,
    FORMAT_VERSION,
    LABELS,
    MANIFEST,
    OTHER_FILES,
    TEXT,
    TEXT_ARRAYS,
    Shard,
    Shards,
    from_manifest,
    is_shards,
    open_shards,
    read_manifest,
    reading_shards,
    rows_between,
    shard_name,
)
from labelry.data.streams import write_file
from labelry.data.tables import TABLE_FORMATS
from labelry.data.text import TextFeatures
from labelry.errors import DataError
from labelry.linalg.matrices import Matrix, stacked
from labelry.progress import phase
from labelry.storage.replacing import locked
from labelry.storage.sealed import seal
from labelry.storage.values import pack

log = logging.getLogger("labelry")

SHARD_BYTES = 64 << 20
_SHARD = re.compile(r"shard-\d{5,}\.safetensors")
_PART = re.compile(r"\..*\.part")  # what a crash leaves of a file that was not whole


def write_shards(
    source: str | Path,
    directory: str | Path,
    format: str | None = None,
    *,
    text_features: TextFeatures | None = None,
    shard_bytes: int = SHARD_BYTES,
    force: bool = False,
    **reading: Any,
) -> Shards:
    """Write the rows of a file of any format to a directory of shards, or go on with it.

    The rows, labels and names are those of `labelry.data.read`; features of texts are those of
    ``TextFeatures().fit_transform``. Memory is for a few shards and, with texts, the vocabulary;
    only an npz file is read whole.

    Parameters
    ----------
    format
        Format of the source; told from the content if not given.
    text_features
        Makes features of texts; not fitted.
    shard_bytes
        Size of a shard in memory and on disk, about. A bound on memory in training must be at
        least four times that.
    force
        Replace shards that are there, complete or not. Otherwise complete shards, or some of
        another input, are a DataError.
    **reading
        As for `labelry.data.read_blocks`.
    """
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes must be at least 1, got {shard_bytes}")
    source, directory = Path(source), Path(directory)
    format = format or recognise(source)
    with_texts = format in TABLE_FORMATS
    features = text_features or TextFeatures(n_jobs=reading.get("n_jobs"))
    origin = _origin(source, format, features if with_texts else None, reading)
    with _claimed(directory):
        begun = _begun(directory, origin, force)
        blocks = read_blocks(source, format, **reading)
        if begun is not None:
            blocks = _after(blocks, begun["n_rows"])
            if with_texts:
                known = from_manifest(directory, begun)
                blocks = _encoded(blocks, known.text_features, known.label_names)
        else:
            if with_texts:
                names = _survey(read_blocks(source, format, **reading), features)
                blocks = _encoded(blocks, features, names)
            first = next(blocks, None)
            if first is None or first.X is None:
                missing = "rows; expected at least one" if first is None else "features"
                raise DataError(f"found no {missing}", path=source)
            blocks = chain([first], blocks)
            begun = _begin(directory, origin, first, features if with_texts else None)
        writer = _Writer(directory, begun, shard_bytes)
        try:
            with phase("writing shards", unit="rows") as advance:
                for block in blocks:
                    writer.add(block.X, block.Y)
                    advance(block.n_rows)
                writer.finish()
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(writer.kept)
            raise
    return open_shards(directory)


# What is there already


def _origin(
    source: Path, format: str, features: TextFeatures | None, reading: dict[str, Any]
) -> dict[str, Any]:
    """Return a description of the source: a later call may continue only with the same."""
    try:
        found = source.stat()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=source) from error
    if not stat.S_ISREG(found.st_mode):
        raise DataError("expected a file: it may have to be read twice", path=source)
    params = None if features is None else features.get_params() | {"n_jobs": None}
    options = {name: value for name, value in reading.items() if name != "n_jobs"}
    origin = {
        "file": source.name,
        "bytes": found.st_size,
        "modified_ns": found.st_mtime_ns,
        "format": format,
        "reading": {name: None if v is None else str(v) for name, v in sorted(options.items())},
        "text_features": params,
    }
    return json.loads(json.dumps(origin))  # as it will be read back


@contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    """Have the directory to oneself; if nothing comes of it, it is not left behind empty."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory, wait=False) as held:
            if held is False:
                raise DataError("another process is writing shards to it", path=directory)
            try:
                yield
            finally:
                if not any(directory.iterdir()):
                    directory.rmdir()
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", path=directory) from error


def _begun(directory: Path, origin: dict[str, Any], force: bool) -> dict[str, Any] | None:
    """Return the manifest of shards to continue; None to begin, after emptying the directory."""
    for file in directory.iterdir():
        if _PART.fullmatch(file.name):
            file.unlink()
    names = sorted(file.name for file in directory.iterdir())
    foreign = [name for name in names if name not in OTHER_FILES and not _SHARD.fullmatch(name)]
    if foreign:
        raise DataError(f"is no directory of shards: it holds {foreign[0]}", path=directory)
    if force or not is_shards(directory):
        for name in names:
            (directory / name).unlink()
        return None
    with reading_shards(directory):
        manifest = read_manifest(directory)
    if manifest["complete"]:
        message = "the shards already exist; expected none, or the option force"
        raise DataError(message, path=directory)
    if manifest["origin"] != origin:
        other = f"({manifest['origin']['file']}, or it was changed, or is read with other options)"
        message = f"has begun with another input {other}; the option force begins anew"
        raise DataError(message, path=directory)
    log.info("going on after %s rows that are in %s", f"{manifest['n_rows']:,}", directory)
    return manifest


def _begin(
    directory: Path, origin: dict[str, Any], first: Dataset, features: TextFeatures | None
) -> dict[str, Any]:
    """Write what is known before the rows, and the first manifest."""
    state, arrays = (None, {}) if features is None else features.to_state()
    known = {LABELS: first.label_names, FEATURES: first.feature_names, TEXT: state}
    files = {name: json.dumps(v).encode() for name, v in known.items() if v is not None}
    if features is not None:
        files[TEXT_ARRAYS] = save(arrays)
    for name, content in files.items():
        write_file(directory / name, content)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "labelry_version": __version__,
        "complete": False,
        "n_rows": 0,
        "n_features": first.n_features,
        "n_labels": first.n_labels,
        "origin": origin,
        "source": pack(first.source, "source", {}),
        "files": {name: _entry(content) for name, content in files.items()},
        "shards": [],
    }
    write_file(directory / MANIFEST, seal(manifest))
    return manifest


# Rows on their way


def _survey(blocks: Iterator[Dataset], features: TextFeatures) -> list[str]:
    """Learn the words of texts, and find the names of all labels, sorted."""
    names: set[str] = set()

    def texts() -> Iterator[list[str]]:
        for block in blocks:
            names.update(block.label_names or ())
            yield block.texts or []
            advance(block.n_rows)

    with phase("counting words", unit="rows") as advance:
        features.fit_blocks(texts())
    return sorted(names)


def _encoded(blocks: Iterator[Dataset], features: Any, names: Any) -> Iterator[Dataset]:
    """Blocks of texts, of which each has its own labels, as features and labels of all."""
    column = {name: j for j, name in enumerate(names)}
    for block in blocks:
        own = block.label_names or []
        target = np.fromiter((column[name] for name in own), np.int32, len(own))
        Y = make_csr(block.Y.data, target[block.Y.indices], block.Y.indptr, len(names))
        X = features.transform(block.texts or [])
        yield Dataset(Y, X, label_names=names, source=block.source)


def _after(blocks: Iterator[Dataset], n_rows: int) -> Iterator[Dataset]:
    """Yield the blocks without the first rows."""
    for block in blocks:
        skipped = min(n_rows, block.n_rows)
        n_rows -= skipped
        if skipped < block.n_rows:
            yield block.take(np.arange(skipped, block.n_rows)) if skipped else block


class _Writer:
    """Collects rows, and writes a shard whenever there are enough."""

    def __init__(self, directory: Path, manifest: dict[str, Any], shard_bytes: int) -> None:
        self._directory = directory
        self._manifest = manifest
        self._shard_bytes = shard_bytes
        self._pending: list[tuple[Matrix, csr_array]] = []
        self._n_bytes = 0

    @property
    def kept(self) -> str:
        """Return what is kept if the conversion is interrupted."""
        n_rows = read_manifest(self._directory)["n_rows"]  # ours may be one shard ahead
        return f"{n_rows:,} rows are in {self._directory}; the same command goes on after these"

    def add(self, X: Matrix, Y: csr_array) -> None:
        self._pending.append((X, Y))
        self._n_bytes += int(_row_bytes(X, Y).sum())
        if self._n_bytes < self._shard_bytes:
            return
        X, Y = self._joined()
        ends = np.cumsum(_row_bytes(X, Y))
        first, written = 0, 0
        while written + self._shard_bytes <= ends[-1]:
            last = max(int(np.searchsorted(ends, written + self._shard_bytes, "right")), first + 1)
            self._write_shard(rows_between(X, first, last), rows_between(Y, first, last))
            first, written = last, int(ends[last - 1])
        if first < len(ends):
            self._pending = [(rows_between(X, first, len(ends)), rows_between(Y, first, len(ends)))]
        self._n_bytes = int(ends[-1]) - written

    def finish(self) -> None:
        if self._pending:
            self._write_shard(*self._joined())
        self._manifest["complete"] = True
        self._write_manifest()

    def _joined(self) -> tuple[Matrix, csr_array]:
        """Take all rows that wait to be written."""
        X, Y = (stacked(list(parts)) for parts in zip(*self._pending, strict=True))
        self._pending = []
        return X, Y

    def _write_shard(self, X: Matrix, Y: csr_array) -> None:
        content = save(_arrays(X, Y))
        shards = self._manifest["shards"]
        write_file(self._directory / shard_name(len(shards)), content)
        nonzeros = X.nnz if issparse(X) else np.count_nonzero(X)
        shards.append(Shard(Y.shape[0], int(nonzeros), int(Y.nnz), **_entry(content))._asdict())
        self._manifest["n_rows"] += Y.shape[0]
        self._write_manifest()

    def _write_manifest(self) -> None:
        write_file(self._directory / MANIFEST, seal(self._manifest))


def _row_bytes(X: Matrix, Y: csr_array) -> NDArray[np.int64]:
    """Return the bytes of each row in a shard."""
    row = 8 * np.diff(X.indptr).astype(np.int64) if issparse(X) else 4 * X.shape[1]
    return row + 4 * np.diff(Y.indptr).astype(np.int64) + 8


def _arrays(X: Matrix, Y: csr_array) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for name, matrix in (("X", X), ("Y", Y)):
        if not issparse(matrix):
            arrays[name] = np.ascontiguousarray(matrix)
            continue
        for part in ("indptr", "indices", "data"):
            arrays[f"{name}.{part}"] = getattr(matrix, part)
    if (arrays["Y.data"] == 1).all():
        del arrays["Y.data"]
    return arrays


def _entry(content: bytes) -> dict[str, int]:
    return {"bytes": len(content), "crc32": zlib.crc32(content)}
