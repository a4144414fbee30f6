"""Byte streams: compressed or plain files in, whole files or nothing out."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import re
import secrets
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from labelry.errors import DataError, MissingExtraError
from labelry.memory import watch
from labelry.storage.replacing import sync

# Compressed bytes per step: few, so that what they unpack to is not much. A byte of gzip gives at
# most a kilobyte, one of xz seven, one of zstd thirty-two.
_STEP = 1 << 11
_MOST_WINDOW = 1 << 27  # bytes that a zstd frame may ask to be kept; what `zstd` itself allows
_MOST_XZ_MEMORY = 1 << 27  # as `xz -9` needs half of that
_BUFFER = 1 << 18
_UNPACKED = 1 << 20  # bytes that are unpacked together

_RENAMES_OPEN_FILES = sys.platform != "win32"

MOST_LINE = 1 << 26  # bytes; without a bound, one line of a small compressed file fills the memory

STANDARD_INPUT = "-"
_COMPRESSIONS = (".gz", ".xz", ".zst")


def last_suffix(path: str | Path) -> str:
    """Return the last suffix in lower case, without that of a compression; "" if none."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def is_standard_input(path: str | Path) -> bool:
    """Return whether a path stands for standard input."""
    return str(path) == STANDARD_INPUT


def is_read_once(path: str | Path) -> bool:
    """Return whether a path is standard input or a pipe, which can be read only once."""
    there = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    return is_standard_input(path) or there


def open_input(path: str | Path) -> io.BufferedReader:
    """Open a plain, gzip, xz or zstd file for reading its decompressed bytes.

    The first bytes tell the compression, not the name. Files of several gzip members, xz streams or
    zstd frames are read whole. The path ``-`` is standard input.

    A DataError says that the file cannot be read; or, at any later read, that its compressed data
    is damaged or truncated.
    """
    try:
        if is_read_once(path):
            key = _key(path)
            pipe = _looked_into.pop(key) if key in _looked_into else _pipe(path)
            return _unpacked(pipe, path)
        return _unpacked(io.BufferedReader(io.FileIO(path), _BUFFER), path)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error


@contextmanager
def seekable_input(path: str | Path, remedy: str) -> Iterator[IO[bytes]]:
    """Open a file as `open_input` does, a compressed one unpacked to a temporary file first.

    The `remedy` is for a MemoryBudgetError, where more comes out than there is memory.
    """
    with open_input(path) as stream:
        if stream.seekable():
            yield stream
            return
        take = watch(f"unpacking {path}", remedy)
        with tempfile.TemporaryFile() as unpacked:
            while part := stream.read(_UNPACKED):
                take(len(part))
                unpacked.write(part)
            unpacked.seek(0)
            yield unpacked


def read_head(path: str | Path, size: int) -> bytes:
    """Read the first bytes, decompressed; a pipe can still be read whole afterwards."""
    if not is_read_once(path):
        with open_input(path) as stream:
            return stream.read(size)
    if _key(path) not in _looked_into:
        _looked_into[_key(path)] = _pipe(path)
    pipe = _looked_into[_key(path)]
    return _unpacked(io.BufferedReader(io.BytesIO(pipe.peek())), path).read(size)


def read_line(stream: io.BufferedReader, path: str | Path, number: int | None = None) -> bytes:
    """Read a line, its end included, or nothing at the end; a DataError if it is endless."""
    line = stream.readline(MOST_LINE)
    if len(line) == MOST_LINE and not line.endswith(b"\n"):
        message = f"found a line of more than {MOST_LINE >> 20} MiB; expected shorter ones"
        raise DataError(message, path=path, line=number)
    return line


# Pipes whose first bytes were read ahead: only the buffer of the pipe still has them.
_looked_into: dict[object, io.BufferedReader] = {}


def _key(path: str | Path) -> object:
    return sys.stdin if is_standard_input(path) else str(path)


def _pipe(path: str | Path) -> io.BufferedReader:
    """Open a pipe."""
    if not is_standard_input(path):
        return io.BufferedReader(_Patient(open(path, "rb", buffering=_BUFFER)), _BUFFER)
    if sys.stdin is None:
        raise DataError("cannot be read: standard input is closed", path=path)
    if sys.stdin.buffer.closed:
        raise DataError("standard input can be read only once", path=path)
    return io.BufferedReader(_Patient(sys.stdin.buffer), _BUFFER)


class _Patient(io.RawIOBase):
    """A pipe whose reads wait for all that is asked for, so that a look at it shows enough."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ended = False  # a terminal would have to be told twice

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = b"" if self._ended else self._stream.read(len(view))
        self._ended = len(data) < len(view)
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _unpacked(file: io.BufferedReader, path: str | Path) -> io.BufferedReader:
    """Return a stream of the decompressed bytes; close the file if it cannot be read."""
    try:
        kind = _compression_of(file.peek(6)[:6])
        return file if kind is None else io.BufferedReader(_Decompressed(file, path, kind), _BUFFER)
    except BaseException:
        file.close()
        raise


@contextmanager
def open_output(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing; what was written appears under `path` only if the block succeeds.

    Compresses by suffix: ``.gz``, ``.xz`` and ``.zst``. The bytes go to a temporary file beside
    `path`, which is synced and renamed at the end, or removed if the block raises: an earlier file
    is kept whole until then. What a killed process left is removed by the next that writes to
    `path`. A device or a pipe (``/dev/stdout``) is written directly.
    """
    target = Path(os.path.realpath(path))  # a link is written through, not replaced
    wrap = _compressor_for(Path(path).suffix.lower())
    if target.is_dir():
        raise DataError("cannot be written: Is a directory", path=path)
    direct = target.exists() and not target.is_file()
    try:
        part, file = _open_part(target, direct)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", path=path) from error
    try:
        with file:
            with wrap(file) as out:
                yield out
            if direct:
                return
            file.flush()
            os.fsync(file.fileno())
            if _RENAMES_OPEN_FILES:
                os.replace(part, target)  # still locked, so that nobody takes it for abandoned
        if not _RENAMES_OPEN_FILES:
            os.replace(part, target)
        sync(target.parent)
    except OSError as error:
        if error.filename is not None:  # of another file, which the block works with
            raise
        raise DataError(f"cannot be written: {error.strerror or error}", path=path) from error
    finally:
        if not direct:
            part.unlink(missing_ok=True)


def _open_part(target: Path, direct: bool) -> tuple[Path, BinaryIO]:
    """Make a temporary file of `target`, locked for as long as it is open; or open it directly."""
    if direct:
        return target, open(target, "wb", buffering=_BUFFER)
    _remove_abandoned(target)
    while True:
        part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
        file = open(part, "xb", buffering=_BUFFER)  # noqa: SIM115
        _lock(file, wait=True)
        if part.exists():  # nobody took it for abandoned before it was locked
            return part, file
        file.close()


def _lock(file: BinaryIO, *, wait: bool) -> bool:
    """Mark a file as in use, until it is closed or the process ends; False if that cannot be."""
    try:
        import fcntl  # Windows has none: what was abandoned stays

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


def _remove_abandoned(target: Path) -> None:
    """Delete temporary files of `target` that no process has locked."""
    is_part = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}\.part").fullmatch
    for name in filter(is_part, os.listdir(target.parent)):
        part = target.parent / name
        with suppress(OSError), open(part, "rb") as file:  # it may be finished meanwhile
            if _lock(file, wait=False):
                part.unlink()


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file that appears when it is whole."""
    with open_output(path) as file:
        file.write(content)


def _compression_of(magic: bytes) -> str | None:
    if magic.startswith(b"\x1f\x8b"):
        return "gzip"
    if magic.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    # A zstd file starts with a frame, or with a skippable frame as pzstd writes it.
    skippable = magic[1:4] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F
    return "zstd" if skippable or magic.startswith(b"\x28\xb5\x2f\xfd") else None


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("zstandard", "formats", "reading or writing zstd") from error
    return zstandard


def _decompressor_for(kind: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Make a decompressor for one member (stream, frame), and the error it raises."""
    if kind == "gzip":
        return lambda: zlib.decompressobj(wbits=31), zlib.error
    if kind == "xz":
        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_XZ_MEMORY), lzma.LZMAError
    zstandard = _zstandard()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    return decompressor.decompressobj, zstandard.ZstdError


def _compressor_for(suffix: str) -> Callable[[Any], AbstractContextManager[Any]]:
    if suffix == ".gz":  # no name and no time inside: the same data gives the same bytes
        return lambda file: gzip.GzipFile("", "wb", 6, fileobj=file, mtime=0)
    if suffix == ".xz":
        return lambda file: lzma.LZMAFile(file, "wb")
    if suffix == ".zst":
        compressor = _zstandard().ZstdCompressor()
        return lambda file: compressor.stream_writer(file, closefd=False)
    return nullcontext


class _Decompressed(io.RawIOBase):
    """The decompressed bytes of a file; damage anywhere is a DataError.

    The standard library's readers are not used: they raise five kinds of errors, and the one
    for xz takes a damaged second stream for the end of the file.
    """

    def __init__(self, file: IO[bytes], path: str | Path, kind: str) -> None:
        self._file = file  # before what may fail: it is closed in any case
        self._new_member, self._error = _decompressor_for(kind)
        self._path = path
        self._kind = kind
        self._member: Any = None  # the decompressor at work; None between two members
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            self._input = self._input or self._read_file()
            if not self._input:
                return 0
            self._output = memoryview(self._decompress())
        view = memoryview(buffer).cast("B")
        n = min(len(view), len(self._output))
        view[:n] = self._output[:n]
        self._output = self._output[n:]
        return n

    def close(self) -> None:
        self._file.close()
        super().close()

    def _read_file(self) -> bytes:
        try:
            data = self._file.read(_STEP)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", path=self._path) from error
        if not data and self._member is not None:
            message = "truncated: found the end of the file, expected more compressed data"
            raise DataError(f"the {self._kind} data is {message}", path=self._path)
        return data

    def _decompress(self) -> bytes:
        if self._member is None:
            self._input = self._input.lstrip(b"\0")  # padding between members is legal
            if not self._input:
                return b""
            self._member = self._new_member()
        try:
            output: bytes = self._member.decompress(self._input)
        except self._error as error:
            message = f"the {self._kind} data is damaged: {error}"
            raise DataError(message, path=self._path) from error
        if self._member.eof:
            self._input, self._member = self._member.unused_data, None
        else:
            self._input = b""
        return output
