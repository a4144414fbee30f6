"""Shards on a shared path or at any location that fsspec knows: s3, gs, https and others."""

from __future__ import annotations

import os
import re
import shutil
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from scipy.sparse import csr_array

from labelry.data.shards import (
    MANIFEST,
    Shards,
    manifest_fields,
    open_shards,
    read_manifest,
    reading_shards,
    shard_name,
)
from labelry.errors import DataError, MissingExtraError
from labelry.linalg.matrices import Matrix

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/(/*)(.+)")


def as_location(path: str | Path) -> str:
    """Return an absolute path or a URL; `Path` drops slashes of a URL, which are restored.

    >>> as_location(Path("s3://bucket/shards"))
    's3://bucket/shards'
    """
    found = _URL.fullmatch(str(path))
    if not found:
        return os.path.abspath(path)
    scheme, slashes, rest = found.groups()
    return f"{scheme}:/{slashes or ('//' if scheme == 'file' else '/')}{rest}"


def is_url(path: str | Path) -> bool:
    """Return whether this is a URL and not a path of the file system."""
    return _URL.fullmatch(str(path)) is not None


def open_location(path: str | Path, *, cache: str | Path | None = None) -> Shards:
    """Open shards wherever they are.

    Files of a URL are fetched when they are first read, to a directory in `cache` (where temporary
    files go, by default) that is deleted with the `Shards`; each is fetched once.
    """
    if not is_url(path):
        return open_shards(path)
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError("fsspec", "cluster", f"reading {path}") from error
    try:
        filesystem, root = url_to_fs(as_location(path))
    except (ImportError, ValueError) as error:  # of a protocol that is not installed, or not known
        raise DataError(f"cannot be opened: {error}", path=as_location(path)) from error
    local = Path(mkdtemp(prefix="labelry-shards-", dir=cache))
    fetch = _Fetch(filesystem, root, local)
    weakref.finalize(fetch, shutil.rmtree, local, ignore_errors=True)
    fetch(MANIFEST)
    with reading_shards(local):
        manifest = read_manifest(local)
        if not manifest["complete"]:
            raise DataError("the shards are incomplete", path=as_location(path))
        for name in manifest["files"]:
            fetch(name)
        return FetchedShards(local, **manifest_fields(manifest), fetch=fetch)


@dataclass(frozen=True)
class _Fetch:
    """Fetches a file of a location into a local directory, unless it is there already."""

    filesystem: Any
    root: str
    directory: Path

    def __call__(self, name: str) -> Path:
        path = self.directory / name
        if not path.exists():
            part = path.with_suffix(".part")
            try:
                self.filesystem.get_file(f"{self.root}/{name}", str(part))
            except OSError as error:
                why = "it is not there" if isinstance(error, FileNotFoundError) else str(error)
                where = f"{self.root}/{name}"
                raise DataError(f"cannot be fetched: {why}", path=where) from error
            part.rename(path)
        return path


@dataclass(frozen=True, eq=False)
class FetchedShards(Shards):
    """Shards whose files are fetched when they are first read."""

    fetch: _Fetch = field(kw_only=True)

    def _load(self, number: int) -> tuple[Matrix, csr_array]:
        self.fetch(shard_name(number))
        return super()._load(number)


def fingerprint(shards: Shards) -> str:
    """Return a short checksum of the shards: other rows have another one."""
    found: Sequence[Any] = [shards.n_features, shards.n_labels, *map(tuple, shards.shards)]
    return f"{zlib.crc32(repr(found).encode()):08x}"
