"""Streams: every compression read whole, every damage one DataError, no half-written file."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from labelry import data
from labelry.data.streams import open_input, open_output, read_head
from labelry.errors import DataError, MissingExtraError

# Incompressible, so that each compressed file is longer than one step of the decompressor.
NOISE = np.random.default_rng(0).bytes(300_000)

COMPRESS = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
COMPRESSED = [kind for kind in COMPRESS if kind != "plain"]


def read(path: Path) -> bytes:
    with open_input(path) as stream:
        return stream.read()


@pytest.mark.parametrize("data", [b"", b"x", b"one\ntwo\n", NOISE, b"0" * 3_000_000])
@pytest.mark.parametrize("kind", COMPRESS)
def test_reads_by_content_whatever_the_suffix(tmp_path: Path, kind: str, data: bytes) -> None:
    path = tmp_path / "data.txt"
    path.write_bytes(COMPRESS[kind](data))
    assert read(path) == data


@pytest.mark.parametrize("kind", COMPRESSED)
def test_reads_all_members_and_the_padding_between(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    padding = bytes(4 << 14)  # longer than one step
    parts = [COMPRESS[kind](part) for part in (b"one\n", b"", NOISE, b"two\n")]
    path.write_bytes(parts[0] + parts[1] + padding + parts[2] + parts[3] + padding)
    assert read(path) == b"one\n" + NOISE + b"two\n"


def test_reads_zstd_that_starts_with_a_skippable_frame(tmp_path: Path) -> None:
    path = tmp_path / "data"
    skippable = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    path.write_bytes(skippable + COMPRESS["zstd"](b"one\n"))
    assert read(path) == b"one\n"


@pytest.mark.parametrize("kind", COMPRESSED)
def test_is_an_ordinary_binary_stream(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(COMPRESS[kind]("é\nb\n".encode()))
    with open_input(path) as stream:
        assert stream.readline() == "é\n".encode()
        assert stream.peek(1)[:1] == b"b"
        assert io.TextIOWrapper(stream, "utf-8").read() == "b\n"
    assert stream.closed


@pytest.mark.parametrize("cut", [7, 100, 20_000, -8, -1])
@pytest.mark.parametrize("kind", COMPRESSED)
def test_truncation_is_one_error(tmp_path: Path, kind: str, cut: int) -> None:
    path = tmp_path / "cut"
    path.write_bytes(COMPRESS[kind](NOISE)[:cut])
    with pytest.raises(DataError, match=rf"cut: the {kind} data is truncated"):
        read(path)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_truncated_second_member_is_found_after_the_first_is_read(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "cut"
    path.write_bytes(COMPRESS[kind](b"one\n") + COMPRESS[kind](NOISE)[:-5])
    with open_input(path) as stream:
        assert stream.read(4) == b"one\n"
        with pytest.raises(DataError, match="truncated"):
            stream.read()


@pytest.mark.parametrize("kind", COMPRESSED)
def test_damage_and_trailing_garbage_are_errors(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bad"
    whole = COMPRESS[kind](NOISE)
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 0xFF
    for content in (bytes(damaged), whole + b"garbage after the end"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"bad: the {kind} data is (damaged|truncated)"):
            read(path)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing: cannot be read: No such file"):
        open_input(tmp_path / "nothing")
    with pytest.raises(DataError, match="Is a directory"):
        open_input(tmp_path)
    with pytest.raises(DataError, match="Is a directory"), open_output(tmp_path):
        pass
    with pytest.raises(DataError, match="cannot be written"), open_output(tmp_path / "no" / "x"):
        pass


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(COMPRESS["zstd"](b"x"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"labelry\[formats\]"):
        open_input(path)
    with pytest.raises(MissingExtraError), open_output(path):
        pass


@pytest.mark.parametrize(
    ("suffix", "magic"),
    [(".gz", b"\x1f\x8b"), (".xz", b"\xfd7zXZ"), (".zst", b"\x28\xb5\x2f\xfd"), (".txt", b"on")],
)
def test_output_compresses_by_suffix(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"data{suffix}"
    for _ in range(2):
        with open_output(path) as out:
            out.write(b"one\n")
            out.write(NOISE)
    assert path.read_bytes().startswith(magic)
    assert read(path) == b"one\n" + NOISE
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".txt"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failed_output_leaves_the_old_file(
    tmp_path: Path, suffix: str, error: type[BaseException]
) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(b"old")

    def write_and_fail() -> None:
        with open_output(path) as out:
            out.write(NOISE)
            raise error

    with pytest.raises(error):
        write_and_fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_output_is_invisible_until_the_end_and_follows_links(tmp_path: Path) -> None:
    path, link = tmp_path / "data", tmp_path / "link"
    path.write_bytes(b"old")
    link.symlink_to(path)
    with open_output(link) as out:
        out.write(b"new")
        out.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert link.is_symlink()


def test_output_to_a_device_is_direct() -> None:
    with open_output(os.devnull) as out:
        out.write(b"gone")
    assert not Path(os.devnull).is_file()


def test_gzip_output_is_reproducible(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        with open_output(tmp_path / name) as out:
            out.write(b"same")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


class Trickle(io.RawIOBase):
    """A pipe that gives three bytes at a time, and counts how often it was at its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ends = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        part, self.data = self.data[:3], self.data[3:]
        buffer[: len(part)] = part
        self.ends += not part
        return len(part)


@pytest.mark.parametrize("kind", COMPRESS)
def test_standard_input_can_be_looked_at_before_it_is_read(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"one\ntwo\n" * 20_000
    pipe = Trickle(COMPRESS[kind](data))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(pipe)))
    assert read_head("-", 10) == read_head("-", 10) == data[:10]
    with open_input("-") as stream:
        assert stream.read() == data
    assert pipe.ends == 1  # a person at a terminal ends it once
    with pytest.raises(DataError, match="standard input can be read only once"):
        open_input("-")


def test_standard_input_that_is_truncated_or_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = io.BytesIO(gzip.compress(NOISE)[:-9])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(cut))
    with pytest.raises(DataError, match="the gzip data is truncated"), open_input("-") as stream:
        stream.read()
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        open_input("-")


def test_the_start_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert read_head(path, 4) == b"one\n"


@contextmanager
def pipe_of(content: bytes, path: Path) -> Iterator[Path]:
    """A named pipe that a thread writes to, once."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    try:
        yield path
    finally:
        writer.join()


TABLE = b"".join(
    b'{"text": "document %d", "labels": ["a", "b%d"]}\n' % (i, i % 3) for i in range(9000)
)
XC = b"20000 2 2\n" + b"".join(b"%d 0:%d\n" % (i % 2, i + 1) for i in range(20_000))


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, lzma.compress], ids=["plain", "gz", "xz"]
)
@pytest.mark.parametrize(("content", "n_rows"), [(TABLE, 9000), (XC, 20_000)], ids=["jsonl", "xc"])
def test_a_pipe_loses_no_row(content: bytes, n_rows: int, compress: Any, tmp_path: Path) -> None:
    with pipe_of(compress(content), tmp_path / "pipe") as path:
        assert data.read(path).n_rows == n_rows
    with pipe_of(compress(content), tmp_path / "again") as path:
        assert sum(block.n_rows for block in data.read_blocks(path)) == n_rows


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "ft", "npz", "svm"])
def test_every_format_can_come_from_a_pipe(suffix: str, tmp_path: Path) -> None:
    of_texts = suffix not in ("npz", "svm")
    with pipe_of(TABLE if of_texts else XC, tmp_path / "pipe") as pipe:
        dataset = data.read(pipe)
    data.write(dataset, tmp_path / f"file.{suffix}")
    content = (tmp_path / f"file.{suffix}").read_bytes()
    with pipe_of(content, tmp_path / "again") as pipe:
        found = data.read(pipe)
    assert found.n_rows == dataset.n_rows
    assert (found.Y != dataset.Y).nnz == 0


def test_a_pipe_can_be_looked_at_twice(tmp_path: Path) -> None:
    with pipe_of(b"knee pain\n" * 3, tmp_path / "pipe") as path:
        assert read_head(path, 4) == b"knee"
        assert read_head(path, 9) == b"knee pain"
        with open_input(path) as stream:
            assert stream.read() == b"knee pain\n" * 3
