"""Read labelry's own files: JSON with a checksum, and mapped arrays.

Checksums are CRC-32, which finds accidental damage at several GB/s; they are no protection
against someone who changes a file on purpose. A sealed file must be, byte for byte, what `seal`
writes for its content, so that even a changed space is found.
"""

from __future__ import annotations

import json
import mmap
import stat
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelry.errors import ModelError

MOST_HEADER = 1 << 28  # most bytes of a header, which states the sizes of the other files

DTYPES = {"BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64"}
DTYPES |= {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
DTYPES |= {f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}


def encode_json(value: object, what: str) -> bytes:
    """Return strict JSON in ASCII, one item a line; the same value gives the same bytes."""
    try:
        _check_keys(value)
        text = json.dumps(value, allow_nan=False, separators=(",\n", ": "))
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"{what} cannot be stored as JSON: {error}") from error
    return text.encode("ascii") + b"\n"


def _check_keys(value: object) -> None:
    """Refuse keys that JSON would silently turn into strings."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a string")
            _check_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_keys(item)


def seal(header: dict[str, Any]) -> bytes:
    """Return the JSON of a header, with its checksum as the last item; see `read_sealed`."""
    return encode_json(header | {"crc32": zlib.crc32(encode_json(header, "a header"))}, "a header")


def read_sealed(file: Path, format: str, version: int, kind: str) -> dict[str, Any]:
    """Read a header that `seal` wrote, for a `format` of at most this `version`.

    Raises
    ------
    ModelError
        If the directory of the file is not `kind`, is of a newer format, or is damaged.
    """
    directory = file.parent
    try:
        plain_size(file, MOST_HEADER)
        raw = file.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{directory} is not {kind}: it has no {file.name}") from error
    header = decode_json(raw, file)
    if not isinstance(header, dict) or header.get("format") != format:
        raise ModelError(f"{directory} is not {kind}: its {file.name} is of something else")
    found = header.get("format_version")
    if isinstance(found, int) and found > version:
        raise ModelError(
            f"{directory} was made by a newer labelry (format {found}); this one reads up to "
            f"{version}: upgrade labelry"
        )
    content = {key: value for key, value in header.items() if key != "crc32"}
    try:
        sealed = seal(content)
    except ModelError as error:  # NaN, which json.loads takes
        raise ModelError(f"{file} is damaged: it is not strict JSON") from error
    if raw != sealed:
        raise ModelError(f"{file} is damaged: its checksum differs")
    return content


def plain_size(file: Path, most: int | None = None) -> int:
    """Return the size of a plain file; refuse links (they may leave the directory) and pipes."""
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no file"
        raise ModelError(f"{file} is {kind}; expected a file in the directory itself")
    if most is not None and found.st_size > most:
        raise ModelError(
            f"{file} is damaged: it has {found.st_size} bytes, expected at most {most}"
        )
    return found.st_size


def decode_json(raw: bytes, path: Path) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: it is not JSON") from error


def map_file(path: Path) -> mmap.mmap:
    """Map a file into memory; changes of the memory never reach the file."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def array_views(mapped: mmap.mmap, path: Path) -> dict[str, NDArray[Any]]:
    """Return views of a mapped file that safetensors wrote and a checksum found whole."""
    start = 8 + int.from_bytes(mapped[:8], "little")
    views = {}
    for name, entry in decode_layout(mapped[8:start], path):
        offset = start + entry["data_offsets"][0]
        views[name] = np.ndarray(entry["shape"], DTYPES[entry["dtype"]], mapped, offset)
    return views


def decode_layout(raw: bytes, path: Path) -> list[tuple[str, dict[str, Any]]]:
    """List the arrays of a safetensors header with dtype, shape and place, in file order."""
    try:
        return sorted(json.loads(raw).items(), key=lambda item: item[1]["data_offsets"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: its header is not that of safetensors") from error


def reason(error: Exception) -> str:
    """Return the message of an error, without the path that it may name."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
