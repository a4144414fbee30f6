"""Ctrl-C: the command stops, says what was kept, and leaves no temporary file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from labelry.cli import options
from labelry.data import read
from labelry.estimators import load, system_class

# A test that runs in the background may have inherited that interrupts are ignored.
LABELRY = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from labelry.cli import main
main()
"""
# What takes minutes in compiled code, which no signal interrupts.
COMPUTING = """
import hashlib, pkgutil, sys
def compute(*args, **kwargs):
    print("computing", file=sys.stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
place, _, name = sys.argv.pop(1).rpartition(".")
setattr(pkgutil.resolve_name(place), name, compute)
"""
# Ctrl-C at the moment when a module is first looked for.
STARTING = """
import signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""
# An interrupt amid a lock of Python's is not raised as one.
AMID_A_LOCK = """
import labelry.data
def read(*_, **__):
    try:
        raise KeyboardInterrupt
    finally:
        raise RuntimeError("release unlocked lock")
labelry.data.read = read
"""
ROW = b'{"text": "a b", "labels": ["x"]}\n'
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place for commands, with what they read; their temporary files are in `tmp`."""
    for name in ("work", "tmp"):
        (tmp_path / name).mkdir()
    work = tmp_path / "work"
    os.mkfifo(work / "pipe")
    (work / "old.jsonl").write_text("old")
    texts, labels = ["a b", "b c", "c d", "d a"] * 5, [["x"], ["y"], ["x"], ["z"]] * 5
    system_class("rembrandt")(n_jobs=1).fit(texts, labels).save(work / "model")
    return work


def start(
    folder: Path, *arguments: object, before: str = "", **pipes: int
) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", before + LABELRY, *map(str, arguments)]
    env = os.environ | {"TMPDIR": str(folder.parent / "tmp")}
    return subprocess.Popen(
        command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True, **pipes
    )


def interrupted(process: subprocess.Popen[str]) -> str:
    """What a command says when it is interrupted."""
    with process:
        try:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    return said


def files_in(folder: Path) -> dict[str, bytes]:
    """All files, those in hidden folders too."""
    paths = [path for path in folder.parent.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in paths}


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None


def writing(path: Path, process: subprocess.Popen[str]) -> IO[bytes]:
    """A named pipe, as soon as the command reads it."""
    while True:
        assert process.poll() is None
        with suppress(OSError):  # nobody reads it yet
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(pipe, True)
            return open(pipe, "wb", buffering=0)


@pytest.mark.parametrize(
    "command",
    [
        ["stats", "pipe"],
        ["convert", "pipe", "old.jsonl", "--format", "jsonl", "--force"],
        ["train", "pipe", "--out", "new", "--format", "jsonl"],
        ["tune", "pipe", "--system", "linear-tree", "--out", "new", "--format", "jsonl"],
        ["compare", "pipe", "--systems", "fast", "--format", "jsonl"],
        ["evaluate", "model", "pipe", "--format", "jsonl"],
        ["report", "model", "pipe", "--out", "report.html", "--format", "jsonl"],
        ["embed", "pipe", "--out", "labels.npy", "--format", "jsonl"],
        ["predict", "model", "pipe", "--out", "predicted.jsonl", "--input-format", "jsonl"],
    ],
    ids=" ".join,
)
def test_interrupted_while_reading(folder: Path, command: list[str]) -> None:
    before = files_in(folder)
    process = start(folder, *command)
    with writing(folder / "pipe", process) as pipe:
        pipe.write(ROW)
        assert "labelry: interrupted; no file was changed\n" in interrupted(process)
    assert files_in(folder) == before


@pytest.mark.parametrize(
    ("compute", "command"),
    [
        ("labelry.data.read", ["stats", "rows.jsonl"]),
        ("labelry.estimators.load", ["tree", "model"]),
        (
            "labelry.estimators.base.LabelRanker._fit",
            ["train", "rows.jsonl", "--out", "new", "--system", "knn"],
        ),
        ("labelry.estimators.base.LabelRanker._fit", ["embed", "rows.jsonl", "--out", "v.npy"]),
        (
            "labelry.evaluation.tuning.tune",
            ["tune", "rows.jsonl", "--system", "knn", "--out", "new"],
        ),
        ("labelry.evaluation.evaluate.evaluate", ["evaluate", "model", "rows.jsonl"]),
        ("labelry.report.page.report_page", ["report", "model", "rows.jsonl", "--out", "r.html"]),
        (
            "labelry.estimators.base.LabelRanker.topk_ids",
            ["predict", "model", "rows.jsonl", "-o", "p"],
        ),
        ("labelry.estimators.base.LabelRanker.similar_labels", ["similar", "model", "x"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_interrupted_in_compiled_code(folder: Path, compute: str, command: list[str]) -> None:
    (folder / "rows.jsonl").write_bytes(5 * ROW)
    before = files_in(folder)
    process = start(folder, compute, *command, before=COMPUTING)
    assert process.stderr is not None
    while "computing" not in process.stderr.readline():
        assert process.poll() is None
    said = interrupted(process)
    assert said.endswith("labelry: interrupted; no file was changed\n"), said
    assert files_in(folder) == before


@pytest.mark.parametrize("module", ["labelry.cli.app", "typer", "labelry.cli.serve_command"])
def test_interrupted_while_it_starts(folder: Path, module: str) -> None:
    process = start(folder, module, before=STARTING)
    assert process.communicate(timeout=60)[1] == "labelry: interrupted; no file was changed\n"
    assert process.returncode == 130


def test_an_interrupt_that_does_not_wake_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def interrupted_elsewhere() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        ended.wait()

    monkeypatch.setattr(options, "own_process", True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            options.stoppable(interrupted_elsewhere)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert options.stoppable(divmod, 7, 2) == (3, 1)
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()


def test_an_error_made_of_an_interrupt(folder: Path) -> None:
    process = start(folder, "stats", "pipe", before=AMID_A_LOCK)
    assert process.communicate(timeout=60)[1] == "labelry: interrupted; no file was changed\n"
    assert process.returncode == 130


def test_interrupted_tuning_tells_the_best_so_far(folder: Path) -> None:
    rows = [
        json.dumps({"text": f"w{i % 97} v{i % 31}", "labels": [f"l{i % 97}"]}) for i in range(9000)
    ]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    before = files_in(folder)
    options = ("--system", "linear-tree", "--trials", 200, "--out", "new", "--jobs", 1)
    process = start(folder, "tune", "rows.jsonl", *options)
    assert process.stderr is not None
    while "P@1" not in process.stderr.readline():  # until a trial was judged
        assert process.poll() is None
    said = interrupted(process)
    assert "labelry: interrupted; no file was changed; best so far, with " in said
    assert files_in(folder) == before


def test_interrupted_comparison_leaves_no_process_and_no_file(folder: Path) -> None:
    row = '{"text": "some words in a row", "labels": ["x"]}\n'
    (folder / "rows.jsonl").write_text(2_000 * row)
    before = files_in(folder)
    process = start(folder, "compare", "rows.jsonl", "--systems", "fast,balanced,best")
    temporary = folder.parent / "tmp"
    wait_for(process, lambda: bool(list(temporary.glob("labelry-*/test.jsonl"))))  # before training
    assert "labelry: interrupted; " in interrupted(process)
    assert files_in(folder) == before


def test_interrupted_demo_says_that_the_tagger_is_saved(folder: Path) -> None:
    pytest.importorskip("simple_icd_10_cm")
    process = start(folder, "demo", "--quality", "balanced", stdout=subprocess.PIPE)
    assert process.stdout is not None
    while "On the test documents" not in process.stdout.readline():
        assert process.poll() is None
    assert "labelry: interrupted; the tagger is in icd10.labelry\n" in interrupted(process)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert len(load(folder / "icd10.labelry").classes_) > 1000


def test_interrupted_shards_go_on(folder: Path) -> None:
    row = json.dumps({"text": "some words in a row", "labels": ["x"]}) + "\n"
    (folder / "rows.jsonl").write_text(30_000 * row)
    command = ["convert", "rows.jsonl", "out", "--sharded", "--shard-size", "4KiB"]
    process = start(folder, *command)
    wait_for(process, (folder / "out" / "shard-00002.safetensors").exists)
    said = interrupted(process)
    assert "rows are in out; the same command goes on after these" in said
    assert not list((folder / "out").glob(".*"))
    kept = json.loads((folder / "out" / "shards.json").read_bytes())
    assert 0 < kept["n_rows"] < 30_000
    assert f"{kept['n_rows']:,} rows" in said
    process = start(folder, *command[:-1], "64MiB")
    assert process.communicate()[1]
    assert process.returncode == 0
    assert read(folder / "out").n_rows == 30_000
