"""A model is a directory of JSON and safetensors; nothing in it is ever unpickled.

========================  ===================================================================
``model.json``            the system and its parameters, a table of the arrays with their
                          checksums, size and checksum of the other files, its own checksum
``state.json``            other plain data of the estimator (may be large: a vocabulary)
``labels.json``           the label names; absent if a label is just its column number
``about.json``            when and from what it was trained, how the file was read, and its card
                          (`labelry.storage.about`), with a checksum of its own
``arrays.safetensors``    the arrays, memory-mapped when loaded
``training.json``         time and memory of the phases of the training; only if they were
                          recorded (`labelry.progress.recorded`), and no part of the model
========================  ===================================================================

Checksums are CRC-32, which finds accidental damage at several GB/s; they are no protection
against someone who changes a model on purpose. ``model.json`` must be, byte for byte, what
`save` writes for its content, so that even a changed space is found. The same model gives the same
bytes, but for ``about.json``, which holds the date (set SOURCE_DATE_EPOCH to fix it), and
``training.json``, which `load` does not read.

`labelry.storage.replacing` says how a save survives a crash.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from labelry.storage.about import ABOUT, About, read_about
from labelry.storage.replacing import (
    backup_path,
    put_in_place,
    read_stable,
    staged,
    sync,
    write_synced,
)
from labelry.storage.sealed import (
    DTYPES,
    MOST_HEADER,
    decode_json,
    decode_layout,
    encode_json,
    map_file,
    plain_size,
    read_sealed,
    reason,
    seal,
)

FORMAT = "labelry-model"
FORMAT_VERSION = 1

MODEL, STATE, LABELS, ARRAYS = "model.json", "state.json", "labels.json", "arrays.safetensors"
TRAINING = "training.json"

# Bytes of a piece of an array. Each piece has a checksum, so that all processors can work on one
# large array. The size is part of the format.
_PIECE = 1 << 26

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ModelFile:
    """The content of a model directory.

    Attributes
    ----------
    parameters, state : dict
        As saved, except that tuples have become lists.
    arrays : dict of str to ndarray
        Views of the mapped file, whose pages are read when they are first used. The mapping is
        private, so writing to an array never changes the file. (It is not read-only, because
        kernels would then be compiled a second time.)
    version : str
        The labelry version that saved the model.
    about : About
    size_bytes : int
        Size of all files together.
    verified : bool
        True if the checksums of the arrays were compared.
    """

    system: str
    parameters: dict[str, Any]
    state: dict[str, Any]
    label_names: list[str] | list[int] | None
    arrays: dict[str, NDArray[Any]]
    version: str
    about: About
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
    about: About | None = None,
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
    about : About
        If not given: it was trained now, and from no file.
    force : bool
        Replace an existing labelry model (or an empty directory). Any other file or directory at
        the path is never touched.

    Raises
    ------
    ModelError
        If another file is at the path, the content cannot be stored, or writing fails. The former
        content of `path` is then unchanged.

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
    contents = {STATE: encode_json(dict(state), "state")}
    if names is not None:
        contents[LABELS] = encode_json(names, "label_names")
    stored = {name: _storable(name, array) for name, array in arrays.items()}
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "labelry_version": __version__,
        "system": system,
        "parameters": dict(parameters),
        "n_labels": None if names is None else len(names),
    }
    encode_json(header, "parameters")  # a bad parameter is reported before anything is written
    try:
        check = partial(_check_free, force=force)
        with staged(target, check) as staging:
            if (record := current_record()) is not None:
                write_synced(staging / TRAINING, encode_json(record.as_dict(), TRAINING))
            write_synced(staging / ABOUT, (about or About()).encoded())
            _write_files(staging, header, contents, stored)
            put_in_place(staging, target, check)
    except (OSError, SafetensorError, UnicodeEncodeError) as error:
        raise ModelError(f"cannot save the model to {target}: {reason(error)}") from error


def load(path: str | os.PathLike[str], *, verify: bool = True) -> ModelFile:
    """Map a model directory into memory.

    With ``verify=False`` the data of the arrays are not read, so the call takes the same short time
    for a model of any size. Everything else is checked as usual.

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
        named = LABELS in header["files"]
        return ModelFile(
            system=header["system"],
            parameters=header["parameters"],
            state=_read_json(directory, STATE, header),
            label_names=_read_json(directory, LABELS, header) if named else None,
            arrays=arrays,
            version=header["labelry_version"],
            about=read_about(directory),
            size_bytes=size,
            path=directory,
            verified=verify,
        )

    return read_stable(path, read)


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a description of a model, without reading its arrays, state or label names.

    The files must exist in full length; their content is not checked (`load` does that). The entry
    "about" holds an `About` as plain data; "training" the result of `read_training` if there is a
    record, or ``{"damaged": why}``.
    """
    (header, size), about = read_stable(path, lambda d: (_read_header(d), read_about(d)))
    arrays = {
        name: {"dtype": entry["dtype"], "shape": entry["shape"], "bytes": _array_bytes(entry)}
        for name, entry in header["arrays"].items()
    }
    top = ("format", "format_version", "labelry_version", "system", "parameters", "n_labels")
    found = {key: header[key] for key in top} | {"arrays": arrays, "size_bytes": size}
    found["about"] = about.as_dict()
    try:
        record = read_training(path)
    except ModelError as error:
        record = {"damaged": str(error)}
    return found if record is None else found | {"training": record}


def read_training(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the time and memory that training took, or None if they were not recorded.

    The entries are "seconds", "peak_bytes" of memory, and "phases": a list of "name", "times",
    "seconds" and "rise_bytes", the bytes by which the phase raised the peak.

    Raises
    ------
    ModelError
        If the record is damaged; the model can be whole all the same.
    """

    def read(directory: Path) -> dict[str, Any] | None:
        try:
            plain_size(directory / TRAINING, MOST_HEADER)
        except FileNotFoundError:
            return None
        raw = (directory / TRAINING).read_bytes()
        found = decode_json(raw, directory / TRAINING)
        if not _is_record(found):
            raise ModelError(f"{directory / TRAINING} is damaged: it is no record of a training")
        return found

    return read_stable(path, read)


def check_writable(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Raise the ModelError that `save` would meet at `path`; call it before long work.

    Nothing is written. It checks whether another file is at the path, and the permission to write.
    """
    target = Path(os.path.realpath(path))
    try:
        _check_free(target, force)
        if not target.exists():
            _check_free(backup_path(target), force)
        parent = next(parent for parent in target.parents if parent.exists())
    except OSError as error:
        raise ModelError(f"cannot save the model to {target}: {reason(error)}") from error
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ModelError(f"cannot save the model to {target}: {parent} is no writable directory")


def _plain_names(label_names: Sequence[Any] | NDArray[Any]) -> list[str] | list[int]:
    kinds = set(map(type, label_names))
    if all(issubclass(kind, str) for kind in kinds):
        return list(label_names)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return [int(name) for name in label_names]
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ModelError(f"label_names must be all str or all int; got {found}")


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in the form of safetensors: little-endian and in C order."""
    array = np.asarray(array)
    if array.dtype.name not in DTYPES.values():
        allowed = ", ".join(DTYPES.values())
        raise ModelError(f"array {name!r} has dtype {array.dtype}; a model file holds {allowed}")
    if name == "__metadata__":
        raise ModelError("no array can have the name '__metadata__', which safetensors reserves")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _checksums(arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[int]]:
    """Return the CRC-32 of each piece of each array."""
    pieces = {}
    for name, array in arrays.items():
        data = array.reshape(-1).view(np.uint8)
        pieces[name] = [(data[i : i + _PIECE],) for i in range(0, len(data), _PIECE)]
    # Checking a small model takes less time than starting threads.
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
        write_synced(directory / name, content)
        files[name] = {"bytes": len(content), "crc32": zlib.crc32(content)}
    save_file(arrays, directory / ARRAYS)
    # safetensors 0.8 ignores the umask and lets only the owner read what it writes.
    (directory / ARRAYS).chmod((directory / STATE).stat().st_mode & 0o777)
    sync(directory / ARRAYS)
    with open(directory / ARRAYS, "rb") as file:
        prefix = file.read(8)
        layout = prefix + file.read(int.from_bytes(prefix, "little"))
    files[ARRAYS] = {"bytes": (directory / ARRAYS).stat().st_size, "crc32": zlib.crc32(layout)}
    sums = _checksums(arrays)
    table = {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "crc32": sums[name]}
        for name, array in arrays.items()
    }
    write_synced(directory / MODEL, seal(header | {"arrays": table, "files": files}))
    sync(directory)


def _read_header(directory: Path) -> tuple[dict[str, Any], int]:
    """Return the content of model.json, checked, and the size of all files together."""
    file = directory / MODEL
    header = read_sealed(file, FORMAT, FORMAT_VERSION, "a labelry model")
    problem = _find_problem(header)
    if problem:
        raise ModelError(f"{file} is damaged: {problem}")
    sizes = {name: header["files"][name]["bytes"] for name in header["files"]}
    _check_sizes(directory, sizes)
    own = file.stat().st_size + _size_in(directory, ABOUT)
    return header, own + sum(sizes.values())


def _find_problem(header: dict[str, Any]) -> str | None:
    """Return the fault of a header whose checksum is right, if any: only forged ones have one."""

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
        if entry["dtype"] not in DTYPES.values() or not _is_shape(entry["shape"]):
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
    # numpy allows at most 64 dimensions, and bounds an empty array as if its zeros were ones.
    return in_range and len(values) <= 64 and math.prod(v or 1 for v in values) < 2**59


def _is_record(value: Any) -> bool:
    """Return whether this is what `progress.Record.as_dict` gives."""

    def has(part: Any, *names: str) -> bool:
        numbers: list[Any] = [part.get(name) for name in names] if isinstance(part, dict) else [""]
        return all(type(each) in (int, float) and 0 <= each < math.inf for each in numbers)

    return (
        has(value, "seconds", "peak_bytes")
        and isinstance(value.get("phases"), list)
        and all(has(p, "times", "seconds", "rise_bytes") for p in value["phases"])
        and all(isinstance(p.get("name"), str) for p in value["phases"])
    )


def _array_bytes(entry: dict[str, Any]) -> int:
    return math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize


def _check_sizes(directory: Path, sizes: dict[str, int]) -> None:
    for name, expected in sizes.items():
        found = _size_in(directory, name)
        if found != expected:
            how = "truncated" if found < expected else "damaged"
            raise ModelError(
                f"{directory / name} is {how}: it has {found} bytes, expected {expected}"
            )


def _size_in(directory: Path, name: str) -> int:
    try:
        return plain_size(directory / name)
    except FileNotFoundError as error:
        raise ModelError(f"{directory} is damaged: {name} is missing") from error


def _read_json(directory: Path, name: str, header: dict[str, Any]) -> Any:
    raw = (directory / name).read_bytes()
    if zlib.crc32(raw) != header["files"][name]["crc32"]:
        raise ModelError(f"{directory / name} is damaged: its checksum differs")
    value = decode_json(raw, directory / name)
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


def _map_arrays(path: Path, header: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Return views of the mapped file; safetensors' own reader would copy every array."""
    mapped = map_file(path)
    start = 8 + int.from_bytes(mapped[:8], "little")
    if start > len(mapped) or zlib.crc32(mapped[:start]) != header["files"][ARRAYS]["crc32"]:
        raise ModelError(f"{path} is damaged: the checksum of its header differs")
    arrays: dict[str, NDArray[Any]] = {}
    end = start
    for name, entry in decode_layout(mapped[8:start], path):
        said = header["arrays"].get(name)
        # Arrays follow one another without gaps, the widest dtype first, so each is aligned.
        begin, end = end, end + (_array_bytes(said) if said else 0)
        aligned = said is not None and begin % np.dtype(said["dtype"]).itemsize == 0
        if not aligned or entry != _layout_entry(said, begin - start) or end > len(mapped):
            raise ModelError(f"{path} and {MODEL} disagree on array {name!r}")
        arrays[name] = np.ndarray(said["shape"], said["dtype"], buffer=mapped, offset=begin)
    if end != len(mapped) or set(arrays) != set(header["arrays"]):
        raise ModelError(f"{path} and {MODEL} disagree on which arrays there are")
    return {name: arrays[name] for name in header["arrays"]}


def _layout_entry(said: dict[str, Any], begin: int) -> dict[str, Any]:
    """Return the entry in a safetensors header for an array that begins at `begin`."""
    code = next(code for code, dtype in DTYPES.items() if dtype == said["dtype"])
    offsets = [begin, begin + _array_bytes(said)]
    return {"dtype": code, "shape": said["shape"], "data_offsets": offsets}


def _verify(path: Path, arrays: dict[str, NDArray[Any]], header: dict[str, Any]) -> None:
    for name, found in _checksums(arrays).items():
        if found != header["arrays"][name]["crc32"]:
            raise ModelError(f"{path} is damaged: the checksum of array {name!r} differs")


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
            header = decode_json((target / MODEL).read_bytes(), target / MODEL)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError(f"{target} is not a labelry model and is not replaced: remove it first")
    foreign = sorted(names - {MODEL, STATE, LABELS, ARRAYS, ABOUT, TRAINING})
    if foreign:
        raise ModelError(f"{target} is not replaced: it also holds {', '.join(foreign)}")
