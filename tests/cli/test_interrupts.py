"""Ctrl-C: the command stops, says what was kept, and leaves no temporary file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labelry.data import read

# A test that runs in the background may have inherited that interrupts are ignored.
LABELRY = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from labelry.cli import main
main()
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes"),
]


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LABELRY, *map(str, arguments)]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


def interrupted(process: subprocess.Popen[str]) -> str:
    """What a command says when it is interrupted."""
    try:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    "command",
    [
        ["stats", "pipe"],
        ["convert", "pipe", "old.jsonl", "--format", "jsonl", "--force"],
        ["train", "pipe", "--out", "model", "--format", "jsonl"],
    ],
    ids=lambda command: command[0],
)
def test_interrupted_while_reading(tmp_path: Path, command: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "old.jsonl").write_text("old")
    process = start(tmp_path, *command)
    with open(tmp_path / "pipe", "wb", buffering=0) as pipe:  # waits until the command reads
        pipe.write(b'{"text": "a b", "labels": ["x"]}\n')
        assert "labelry: interrupted; no file was changed\n" in interrupted(process)
    assert sorted(os.listdir(tmp_path)) == ["old.jsonl", "pipe"]
    assert (tmp_path / "old.jsonl").read_text() == "old"


def test_interrupted_shards_go_on(tmp_path: Path) -> None:
    row = json.dumps({"text": "some words in a row", "labels": ["x"]}) + "\n"
    (tmp_path / "rows.jsonl").write_text(30_000 * row)
    command = ["convert", "rows.jsonl", "out", "--sharded", "--shard-size", "4KiB"]
    process = start(tmp_path, *command)
    while not (tmp_path / "out" / "shard-00002.safetensors").exists():
        assert process.poll() is None
    said = interrupted(process)
    assert "rows are in out; the same command goes on after these" in said
    assert not list((tmp_path / "out").glob(".*"))
    kept = json.loads((tmp_path / "out" / "shards.json").read_bytes())
    assert 0 < kept["n_rows"] < 30_000
    assert f"{kept['n_rows']:,} rows" in said
    process = start(tmp_path, *command[:-1], "64MiB")
    assert process.communicate()[1]
    assert process.returncode == 0
    assert read(tmp_path / "out").n_rows == 30_000
