"""A model is a directory of JSON and safetensors; nothing in it is ever unpickled.

========================  ===================================================================
``model.json``            what made the model, its parameters, a table of the arrays with their
                          checksums, size and checksum of the other files, its own checksum
``state.json``            other plain data of the estimator (may be large: a vocabulary)
``labels.json``           the label names; absent if a label is just its column number
``arrays.safetensors``    the arrays, memory-mapped when loaded
``training.json``         what the phases of the training took; only if they were recorded
                          (`labelry.progress.recorded`), and no part of the model
========================  ===================================================================

Checksums are CRC-32, which finds accidental damage at several GB/s; they are no protection
against someone who changes a model on purpose. ``model.json`` must be, byte for byte, what
`save` writes for its content, so that even a changed space is found. No time or host is in
these files: the same model gives the same bytes. What took how long is in ``training.json``, which
`load` does not read.

**How a save survives a crash.** The files are written to a hidden sibling directory
(``.NAME.labelry-tmp-*``) and synced. Then one rename puts it in place. To replace a model, the
two directories are exchanged in one step (Linux ``renameat2``) and the old one, now under
the hidden name, is deleted. Where the system cannot exchange, the old model first moves to
``.NAME.labelry-old``; a crash before the new one has its place leaves only that, so `load` reads it
when the path itself is missing, and the next `save` moves it back before anything else.

A saver holds a lock (``flock``) on its hidden directory, which ends with the process: a hidden
directory without lock is what a crash left, and the next save to that path deletes it. The
parent directory is locked while names change, so that savers of one path take turns. Saving
needs a POSIX system; loading does not.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import mmap
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from labelry._version import __version__
from labelry.errors import ModelError
from labelry.linalg import parallel
from labelry.progress import current_record

FORMAT = "labelry-model"
FORMAT_VERSION = 1

MODEL, STATE, LABELS, ARRAYS = "model.json", "state.json", "labels.json", "arrays.safetensors"
TRAINING = "training.json"

_MOST_HEADER = 1 << 28  # bytes of a header; other files say in it how large they are

_DTYPES = {"BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64"}
_DTYPES |= {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
_DTYPES |= {f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}

# An array has one checksum per piece of this size (part of the format), so that all processors
# can work on one large array.
_PIECE = 1 << 26

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ModelFile:
    """What a model directory holds.

    Attributes
    ----------
    system : str
        Name of the system that the model was trained with.
    parameters, state : dict
        As saved, except that tuples have become lists.
    label_names : list of str or of int, or None
    arrays : dict of str to ndarray
        Views of the mapped file: pages are read when they are first touched. The mapping is
        private, so writing to an array never reaches the file. (It is not read-only because
        a kernel would then be compiled a second time.)
    version : str
        The labelry version that saved the model.
    size_bytes : int
        Size of all files together.
    path : Path
        Where it was found.
    verified : bool
        Whether the checksums of the arrays were compared.
    """

    system: str
    parameters: dict[str, Any]
    state: dict[str, Any]
    label_names: list[str] | list[int] | None
    arrays: dict[str, NDArray[Any]]
    version: str
    size_bytes: int
    path: Path
    verified: bool = True


def save(
    path: str | os.PathLike[str],
    *,
    system: str,
    parameters: Mapping[str, Any],
    state: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    label_names: Sequence[str] | Sequence[int] | NDArray[Any] | None,
    force: bool = False,
) -> None:
    """Write a model directory, whole or not at all; missing parent directories are made.

    An array that is not C-contiguous is copied; the others are written from where they are.

    Parameters
    ----------
    parameters, state : mapping
        Plain JSON data: None, bool, int, finite float, str, lists, and dicts with str keys.
    arrays : mapping of str to ndarray
        Of any bool, int, uint or float dtype up to 64 bits, and any shape.
    force : bool
        Replace an existing labelry model (or an empty directory). Anything else that is in
        the way is never touched.

    Raises
    ------
    ModelError
        If something is in the way, the content cannot be stored, or writing fails. What was
        at `path` before is still there, whole.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/knee.labelry"
    >>> save(path, system="rembrandt", parameters={"embedding_dim": 2}, state={},
    ...      arrays={"V": np.eye(2, dtype=np.float32)}, label_names=["M25", "S83"])
    >>> load(path).label_names
    ['M25', 'S83']
    """
    target = Path(os.path.realpath(path))
    names = None if label_names is None else _plain_names(label_names)
    contents = {STATE: _encode(dict(state), "state")}
    if names is not None:
        contents[LABELS] = _encode(names, "label_names")
    stored = {name: _storable(name, array) for name, array in arrays.items()}
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "labelry_version": __version__,
        "system": system,
        "parameters": dict(parameters),
        "n_labels": None if names is None else len(names),
    }
    _encode(header, "parameters")  # a bad parameter is reported before anything is written
    try:
        with _staging(target, force) as staging:
            if (record := current_record()) is not None:
                _write(staging / TRAINING, _encode(record.as_dict(), TRAINING))
            _write_files(staging, header, contents, stored)
            _place(staging, target, force)
    except (OSError, SafetensorError, UnicodeEncodeError) as error:
        raise ModelError(f"cannot save the model to {target}: {_reason(error)}") from error


def load(path: str | os.PathLike[str], *, verify: bool = True) -> ModelFile:
    """Map a model directory into memory.

    With ``verify=False`` the arrays' data are not read, which makes the call immediate however
    large the model is; everything else is checked all the same.

    Raises
    ------
    ModelError
        If there is no model, or it is damaged, foreign, or of a newer format.
    """

    def read(directory: Path) -> ModelFile:
        header, size = _read_header(directory)
        arrays = _map_arrays(directory / ARRAYS, header)
        if verify:
            _verify(directory / ARRAYS, arrays, header)
        return ModelFile(
            system=header["system"],
            parameters=header["parameters"],
            state=_read_json(directory, STATE, header),
            label_names=_read_json(directory, LABELS, header)
            if LABELS in header["files"]
            else None,
            arrays=arrays,
            version=header["labelry_version"],
            size_bytes=size,
            path=directory,
            verified=verify,
        )

    return _read_stable(path, read)


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a model without reading its arrays, state or label names.

    Files must be there in full length; their content is not checked (`load` does that). "training"
    is there where it was recorded: see `training`; or ``{"damaged": why}``.
    """
    header, size = _read_stable(path, _read_header)
    arrays = {
        name: {"dtype": entry["dtype"], "shape": entry["shape"], "bytes": _n_bytes(entry)}
        for name, entry in header["arrays"].items()
    }
    top = ("format", "format_version", "labelry_version", "system", "parameters", "n_labels")
    found = {key: header[key] for key in top} | {"arrays": arrays, "size_bytes": size}
    try:
        record = training(path)
    except ModelError as error:
        record = {"damaged": str(error)}
    return found if record is None else found | {"training": record}


def training(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What the training of a model took, or None where nobody recorded it.

    "seconds" in all, "peak_bytes" of memory, and "phases": a list of "name", "times", "seconds"
    and "rise_bytes", by how much the phase raised the peak.

    Raises
    ------
    ModelError
        If the record is damaged; the model itself is none the worse for it.
    """

    def read(directory: Path) -> dict[str, Any] | None:
        try:
            plain_size(directory / TRAINING, _MOST_HEADER)
        except FileNotFoundError:
            return None
        raw = (directory / TRAINING).read_bytes()
        found = _decode(raw, directory / TRAINING)
        if not _is_record(found):
            raise ModelError(f"{directory / TRAINING} is damaged: it is no record of a training")
        return found

    return _read_stable(path, read)


def check_writable(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Raise the ModelError that `save` would meet at `path`; call it before long work.

    Nothing is written. It looks at what is in the way and at the permission to write there.
    """
    target = Path(os.path.realpath(path))
    try:
        _check_free(target, force)
        if not target.exists():
            _check_free(_backup(target), force)
        parent = next(parent for parent in target.parents if parent.exists())
    except OSError as error:
        raise ModelError(f"cannot save the model to {target}: {_reason(error)}") from error
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ModelError(f"cannot save the model to {target}: {parent} is no writable directory")


# ---- content: Python values <-> files -------------------------------------------------------


def _encode(value: object, what: str) -> bytes:
    """Strict JSON in ASCII, items on lines of their own; the same value gives the same bytes."""
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


def _plain_names(label_names: Sequence[Any] | NDArray[Any]) -> list[str] | list[int]:
    kinds = set(map(type, label_names))
    if all(issubclass(kind, str) for kind in kinds):
        return list(label_names)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return [int(name) for name in label_names]
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ModelError(f"label_names must be all str or all int; got {found}")


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """`array` as safetensors wants it: little-endian and C-contiguous, copied only if it is not."""
    array = np.asarray(array)
    if array.dtype.name not in _DTYPES.values():
        allowed = ", ".join(_DTYPES.values())
        raise ModelError(f"array {name!r} has dtype {array.dtype}; a model file holds {allowed}")
    if name == "__metadata__":
        raise ModelError("no array can have the name '__metadata__', which safetensors reserves")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _checksums(arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[int]]:
    """CRC-32 of each piece of each array."""
    pieces = {}
    for name, array in arrays.items():
        data = array.reshape(-1).view(np.uint8)
        pieces[name] = [(data[i : i + _PIECE],) for i in range(0, len(data), _PIECE)]
    # A small model is checked before threads would have started.
    n_jobs = parallel.cpu_count() if sum(a.nbytes for a in arrays.values()) > _PIECE else 1
    tasks = (piece for name in pieces for piece in pieces[name])
    found = iter(parallel.run(zlib.crc32, tasks, n_jobs))
    return {name: list(islice(found, len(pieces[name]))) for name in pieces}


def _write_files(
    directory: Path,
    header: dict[str, Any],
    contents: dict[str, bytes],
    arrays: dict[str, NDArray[Any]],
) -> None:
    files = {}
    for name, content in contents.items():
        _write(directory / name, content)
        files[name] = {"bytes": len(content), "crc32": zlib.crc32(content)}
    save_file(arrays, directory / ARRAYS)
    # safetensors 0.8 ignores the umask and lets only the owner read what it writes.
    (directory / ARRAYS).chmod((directory / STATE).stat().st_mode & 0o777)
    _sync(directory / ARRAYS)
    with open(directory / ARRAYS, "rb") as file:
        prefix = file.read(8)
        layout = prefix + file.read(int.from_bytes(prefix, "little"))
    files[ARRAYS] = {"bytes": (directory / ARRAYS).stat().st_size, "crc32": zlib.crc32(layout)}
    sums = _checksums(arrays)
    table = {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "crc32": sums[name]}
        for name, array in arrays.items()
    }
    _write(directory / MODEL, seal(header | {"arrays": table, "files": files}))
    _sync(directory)


def seal(header: dict[str, Any]) -> bytes:
    """Encode a header with, last, its checksum; `read_sealed` gives it back."""
    return _encode(header | {"crc32": zlib.crc32(_encode(header, MODEL))}, MODEL)


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some filesystems cannot sync a directory
            raise
    finally:
        os.close(descriptor)


# ---- reading --------------------------------------------------------------------------------


def read_sealed(file: Path, format: str, version: int, kind: str) -> dict[str, Any]:
    """Return what `seal` wrote, for a `format` of at most this `version`.

    Raises
    ------
    ModelError
        Says that the directory of the file is not `kind`, of a newer format, or damaged.
    """
    directory = file.parent
    try:
        plain_size(file, _MOST_HEADER)
        raw = file.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{directory} is not {kind}: it has no {file.name}") from error
    header = _decode(raw, file)
    if not isinstance(header, dict) or header.get("format") != format:
        raise ModelError(f"{directory} is not {kind}: its {file.name} is of something else")
    found = header.get("format_version")
    if isinstance(found, int) and found > version:
        raise ModelError(
            f"{directory} was made by a newer labelry (format {found}); this one reads up to "
            f"{version}: upgrade labelry"
        )
    try:
        content = {key: value for key, value in header.items() if key != "crc32"}
        sealed = seal(content)
    except ModelError as error:  # NaN, which json.loads takes
        raise ModelError(f"{file} is damaged: it is not strict JSON") from error
    if raw != sealed:
        raise ModelError(f"{file} is damaged: its checksum differs")
    return content


def plain_size(file: Path, most: int | None = None) -> int:
    """Size of a file, if it is one: a link could lead out of the directory, a pipe never end."""
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no file"
        raise ModelError(f"{file} is {kind}; expected a file in the directory itself")
    if most is not None and found.st_size > most:
        raise ModelError(
            f"{file} is damaged: it has {found.st_size} bytes, expected at most {most}"
        )
    return found.st_size


def _read_header(directory: Path) -> tuple[dict[str, Any], int]:
    """Return the content of model.json, checked, and the size of all files together."""
    file = directory / MODEL
    header = read_sealed(file, FORMAT, FORMAT_VERSION, "a labelry model")
    problem = _find_problem(header)
    if problem:
        raise ModelError(f"{file} is damaged: {problem}")
    sizes = {name: header["files"][name]["bytes"] for name in header["files"]}
    _check_sizes(directory, sizes)
    return header, file.stat().st_size + sum(sizes.values())


def _find_problem(header: dict[str, Any]) -> str | None:
    """Say what is wrong with a header of right checksum; only a hand-made one has something."""

    def has(value: object, **kinds: Any) -> bool:
        return isinstance(value, dict) and all(isinstance(value.get(k), kinds[k]) for k in kinds)

    if header.get("format_version") != FORMAT_VERSION:
        return f"format_version is {header.get('format_version')!r}"
    if not has(header, labelry_version=str, system=str, parameters=dict, arrays=dict, files=dict):
        return "labelry_version, system, parameters, arrays or files are missing"
    if header.get("n_labels", "") is not None and not has(header, n_labels=int):
        return "n_labels is missing"
    for name, entry in header["arrays"].items():
        if not has(entry, dtype=str, shape=list, crc32=list):
            return f"array {name!r} lacks dtype, shape or checksums"
        if entry["dtype"] not in _DTYPES.values() or not _is_shape(entry["shape"]):
            return f"array {name!r} has no valid dtype and shape"
    expected = {STATE, ARRAYS} | (set() if header["n_labels"] is None else {LABELS})
    if set(header["files"]) != expected:
        return f"its files should be {', '.join(sorted(expected))}"
    if not all(has(entry, bytes=int, crc32=int) for entry in header["files"].values()):
        return "a file lacks its size or checksum"
    if header["files"][ARRAYS]["bytes"] < 8:
        return f"{ARRAYS} is too small"
    return None


def _is_shape(values: list[Any]) -> bool:
    in_range = all(type(value) is int and 0 <= value < 2**63 for value in values)
    # numpy has at most 64 dimensions, and limits an empty array as if its zeros were ones.
    return in_range and len(values) <= 64 and math.prod(v or 1 for v in values) < 2**59


def _is_record(value: Any) -> bool:
    """Whether this is what `progress.Record.as_dict` gives."""

    def is_number(value: Any) -> bool:
        return type(value) in (int, float) and 0 <= value < math.inf

    def has(part: Any, *names: str) -> bool:
        return isinstance(part, dict) and all(is_number(part.get(name)) for name in names)

    return (
        has(value, "seconds", "peak_bytes")
        and isinstance(value.get("phases"), list)
        and all(has(p, "times", "seconds", "rise_bytes") for p in value["phases"])
        and all(isinstance(p.get("name"), str) for p in value["phases"])
    )


def _n_bytes(entry: dict[str, Any]) -> int:
    return math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize


def _check_sizes(directory: Path, sizes: dict[str, int]) -> None:
    for name, expected in sizes.items():
        try:
            found = plain_size(directory / name)
        except FileNotFoundError as error:
            raise ModelError(f"{directory} is damaged: {name} is missing") from error
        if found != expected:
            how = "truncated" if found < expected else "damaged"
            raise ModelError(
                f"{directory / name} is {how}: it has {found} bytes, expected {expected}"
            )


def _decode(raw: bytes, path: Path) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: it is not JSON") from error


def _read_json(directory: Path, name: str, header: dict[str, Any]) -> Any:
    raw = (directory / name).read_bytes()
    if zlib.crc32(raw) != header["files"][name]["crc32"]:
        raise ModelError(f"{directory / name} is damaged: its checksum differs")
    value = _decode(raw, directory / name)
    is_right = (
        isinstance(value, list)
        and len(value) == header["n_labels"]
        and set(map(type, value)) in (set(), {str}, {int})
        if name == LABELS
        else isinstance(value, dict)
    )
    if not is_right:
        raise ModelError(f"{directory / name} does not hold what {MODEL} says")
    return value


def map_file(path: Path) -> mmap.mmap:
    """Map a file into memory; what is written to the memory never reaches the file."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def array_views(mapped: mmap.mmap, path: Path) -> dict[str, NDArray[Any]]:
    """Return views of a mapped file that safetensors wrote and a checksum found whole."""
    start = 8 + int.from_bytes(mapped[:8], "little")
    return {
        name: np.ndarray(
            entry["shape"],
            _DTYPES[entry["dtype"]],
            buffer=mapped,
            offset=start + entry["data_offsets"][0],
        )
        for name, entry in _decode_layout(mapped[8:start], path)
    }


def _map_arrays(path: Path, header: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Return views of the mapped file; safetensors' own reader would copy every array."""
    mapped = map_file(path)
    start = 8 + int.from_bytes(mapped[:8], "little")
    if start > len(mapped) or zlib.crc32(mapped[:start]) != header["files"][ARRAYS]["crc32"]:
        raise ModelError(f"{path} is damaged: the checksum of its header differs")
    arrays: dict[str, NDArray[Any]] = {}
    end = start
    for name, entry in _decode_layout(mapped[8:start], path):
        said = header["arrays"].get(name)
        # Arrays follow one another without gaps, the widest dtype first, so each is aligned.
        begin, end = end, end + (_n_bytes(said) if said else 0)
        aligned = said is not None and begin % np.dtype(said["dtype"]).itemsize == 0
        if not aligned or entry != _layout_entry(said, begin - start) or end > len(mapped):
            raise ModelError(f"{path} and {MODEL} disagree on array {name!r}")
        arrays[name] = np.ndarray(said["shape"], said["dtype"], buffer=mapped, offset=begin)
    if end != len(mapped) or set(arrays) != set(header["arrays"]):
        raise ModelError(f"{path} and {MODEL} disagree on which arrays there are")
    return {name: arrays[name] for name in header["arrays"]}


def _decode_layout(raw: bytes, path: Path) -> list[tuple[str, dict[str, Any]]]:
    """List the arrays of a safetensors header with dtype, shape and place, in file order."""
    try:
        return sorted(json.loads(raw).items(), key=lambda item: item[1]["data_offsets"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: its header is not that of safetensors") from error


def _layout_entry(said: dict[str, Any], begin: int) -> dict[str, Any]:
    """Return what a safetensors header says of an array that begins at `begin`."""
    code = next(code for code, dtype in _DTYPES.items() if dtype == said["dtype"])
    offsets = [begin, begin + _n_bytes(said)]
    return {"dtype": code, "shape": said["shape"], "data_offsets": offsets}


def _verify(path: Path, arrays: dict[str, NDArray[Any]], header: dict[str, Any]) -> None:
    for name, found in _checksums(arrays).items():
        if found != header["arrays"][name]["crc32"]:
            raise ModelError(f"{path} is damaged: the checksum of array {name!r} differs")


def _read_stable(path: str | os.PathLike[str], read: Callable[[Path], T]) -> T:
    """`read` the model directory; again if a save replaced it meanwhile."""
    while True:
        located = _locate(path)
        try:
            result = read(located[0])
        except (ModelError, OSError) as error:
            if _locate(path) != located:
                continue
            if isinstance(error, ModelError):
                raise
            where = error.filename or located[0]
            raise ModelError(f"cannot read {where}: {_reason(error)}") from error
        if _locate(path) == located:
            return result


def _locate(path: str | os.PathLike[str]) -> tuple[Path, tuple[int, ...]]:
    """Return the directory to read, and an identity that changes when another replaces it."""
    target = Path(os.path.realpath(path))
    # The path twice: a save may put the new model there while we look for the old one.
    for directory in (Path(path), _backup(target), Path(path)):
        try:
            found = directory.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ModelError(f"cannot read {directory}: {_reason(error)}") from error
        if not stat.S_ISDIR(found.st_mode):
            raise ModelError(f"{directory} is a file; a labelry model is a directory")
        return directory, (found.st_dev, found.st_ino, found.st_ctime_ns)
    raise ModelError(f"there is no model at {path}: the path does not exist")


# ---- putting a directory in its place -------------------------------------------------------


def _backup(target: Path) -> Path:
    return target.parent / f".{target.name}.labelry-old"


@contextmanager
def _staging(target: Path, force: bool) -> Iterator[Path]:
    """Make a hidden directory beside `target`; whatever has that name at the end is deleted."""
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.labelry-tmp-"
    staging = target.parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        with locked(target.parent):
            _recover(target)
            for sibling in target.parent.iterdir():
                if sibling.name.startswith(prefix):
                    _remove_abandoned(sibling)
            _check_free(target, force)
            staging.mkdir()
            stack.callback(shutil.rmtree, staging, ignore_errors=True)
            stack.enter_context(locked(staging))
        yield staging


@contextmanager
def locked(directory: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a directory; yields False if it cannot be had."""
    import fcntl  # Windows has none, and can still load models

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            held = True
        except OSError:  # another has it, or the filesystem (some network ones) has no such locks
            held = False
        yield held
    finally:
        os.close(descriptor)


def _remove_abandoned(staging: Path) -> None:
    # Its owner may be deleting it, or be another user: either is no reason not to save.
    with suppress(OSError), locked(staging, wait=False) as held:
        if held:
            shutil.rmtree(staging, ignore_errors=True)


def _recover(target: Path) -> None:
    """Finish what a crashed `_swap` left; call it with the parent locked."""
    if not _backup(target).exists():
        return
    if target.exists():
        shutil.rmtree(_backup(target))
    else:
        os.rename(_backup(target), target)


def _check_free(target: Path, force: bool) -> None:
    """Raise unless `target` may be written."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ModelError(f"{target} is a file and is not replaced: remove it first")
    if not force:
        raise ModelError(f"{target} already exists: use force=True (--force) to replace it")
    names = set(os.listdir(target))
    if not names:
        return
    header = None
    if MODEL in names:
        with suppress(ModelError):
            header = _decode((target / MODEL).read_bytes(), target / MODEL)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError(f"{target} is not a labelry model and is not replaced: remove it first")
    foreign = sorted(names - {MODEL, STATE, LABELS, ARRAYS, TRAINING})
    if foreign:
        raise ModelError(f"{target} is not replaced: it also holds {', '.join(foreign)}")


def _place(staging: Path, target: Path, force: bool) -> None:
    """Give the finished directory its name; an old model takes the name of `staging`."""
    with locked(target.parent):
        _recover(target)
        _check_free(target, force)
        if target.exists() and os.listdir(target):
            if not _exchange(staging, target):
                _swap(staging, target)
        else:
            os.rename(staging, target)
        _sync(target.parent)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False if the system or the filesystem cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    at_cwd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE in <fcntl.h>, <linux/fs.h>
    return rename is not None and rename(at_cwd, bytes(a), at_cwd, bytes(b), exchange) == 0


def _swap(staging: Path, target: Path) -> None:
    """As `_exchange`, in steps that `_recover` and `_locate` can make good after a crash."""
    os.rename(target, _backup(target))
    try:
        os.rename(staging, target)
    except OSError:
        os.rename(_backup(target), target)
        raise
    os.rename(_backup(target), staging)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
