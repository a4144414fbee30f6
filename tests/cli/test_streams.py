"""Standard streams that are closed, full or not UTF-8; and data on a terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import labelry
from labelry.cli.streams import standard_output

LABELRY = [sys.executable, "-c", "from labelry.cli import main; main()"]
LABELS = ["☃ snow", "sun"]
CLOSED = "labelry: standard output is closed: redirect it to a file, or to /dev/null\n"
COMMANDS = {
    "train": ["train", "rows.jsonl", "--out", "new", "-f", "--system", "knn"],
    "convert": ["convert", "rows.jsonl", "new.csv", "-f"],
    "predict": ["predict", "model", "rows.jsonl", "-k", "2"],
    "evaluate": ["evaluate", "model", "rows.jsonl", "--json"],
    "stats": ["stats", "rows.jsonl"],
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    texts = ["cold white flakes", "warm bright light"] * 10
    rows = zip(texts, LABELS * 10, strict=True)
    lines = [json.dumps({"text": text, "labels": [label]}) for text, label in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    labelry.NearestNeighbours().fit(texts, [[label] for label in LABELS * 10]).save(
        folder / "model"
    )
    return folder


def run(folder: Path, name: str, redirection: str, **env: str) -> subprocess.CompletedProcess:
    """Run a command as a shell does, with some of its streams led elsewhere."""
    command = ["sh", "-c", f'"$@" {redirection}', "sh", *LABELRY, *COMMANDS[name]]
    return subprocess.run(command, cwd=folder, env=os.environ | env, capture_output=True)


@pytest.mark.parametrize(
    ("name", "redirection"), [*((name, "2>&- <&-") for name in COMMANDS), ("train", "2>/dev/full")]
)
def test_work_goes_on_without_messages(folder: Path, name: str, redirection: str) -> None:
    done = run(folder, name, redirection)
    assert done.returncode == 0
    assert done.stderr == b""
    if name in ("predict", "evaluate", "stats"):
        assert done.stdout.endswith(b"\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_closed_output_is_refused_before_the_work(folder: Path, name: str) -> None:
    done = run(folder, name, ">&-")
    if name in ("train", "convert"):
        assert done.returncode == 0, done.stderr
    else:
        assert (done.returncode, done.stderr.decode()) == (1, CLOSED)


def test_files_do_not_get_the_number_of_a_closed_stream(folder: Path) -> None:
    """A native library writes to number 2 whatever it stands for."""
    noisy = (
        "import os, labelry.cli.app as app\n"
        "from labelry.cli import main\n"
        "app.run = lambda: print(open('mine', 'wb').fileno() > 2 and os.isatty(2) is False)\n"
        "main()\n"
    )
    command = ["sh", "-c", '"$@" <&- 2>&-', "sh", sys.executable, "-c", noisy]
    assert subprocess.run(command, cwd=folder, capture_output=True).stdout == b"True\n"


@pytest.mark.parametrize(
    ("name", "encoding"), [("predict", "ascii"), ("predict", "utf-16"), ("stats", "latin-1")]
)
def test_output_is_utf8(folder: Path, name: str, encoding: str) -> None:
    done = run(folder, name, "", PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    if name == "predict":
        found = [json.loads(line)["labels"][0] for line in said.splitlines()]
        assert found == LABELS * 10
    if name == "stats":
        assert "█" in said


def test_the_locale_of_c(folder: Path) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for name in COMMANDS:
        done = run(folder, name, "", **env)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["predict", "stats"])
def test_full_output_is_an_error(folder: Path, name: str) -> None:
    done = run(folder, name, ">/dev/full")
    assert done.returncode == 1
    assert done.stderr.decode().endswith("No space left on device\n")
    assert b"Traceback" not in done.stderr


def test_data_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    standard_output().write("label_1\n\x1b[31mred\u202e\x9b\n")
    assert sys.stdout.getvalue() == "label_1\n\\u001b[31mred\\u202e\\u009b\n"
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert standard_output() is sys.stdout


@pytest.mark.parametrize("form", ["jsonl", "csv", "xc"])
def test_devices_and_pipes_are_written_to(folder: Path, tmp_path: Path, form: str) -> None:
    predict = [*LABELRY, *COMMANDS["predict"], "--format", form, "--quiet"]
    done = subprocess.run([*predict, "-o", "/dev/full"], cwd=folder, capture_output=True)
    assert done.returncode == 2
    said = b"labelry: /dev/full: cannot be written: No space left on device\n"
    assert done.stderr == said
    assert Path("/dev/full").exists()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([*predict, "-o", pipe], cwd=folder) as process:
        text = pipe.read_text()
    assert process.returncode == 0
    assert text == subprocess.run(predict, cwd=folder, capture_output=True, text=True).stdout
    assert pipe.is_fifo()
