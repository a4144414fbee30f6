"""The example in the help of every command, run as it stands there."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import labelry
from labelry.cli.app import app
from labelry.data import read, write

LABELRY = [sys.executable, "-c", "from labelry.cli import main; main()"]
COMMANDS = [str(command.name) for command in app.registered_commands]
PARTS = {
    "knee": "knee patella meniscus",
    "arm": "arm elbow forearm",
    "hip": "hip pelvis joint",
    "eye": "eye retina lens",
}
NOT_RUN = {"demo": "trains for minutes and then serves; test_demo.py runs it on a part of the data"}


def example(command: str) -> list[str]:
    """The words of the example, from the help as it is shown."""
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "250"}).stdout
    found = re.findall(r"^\s*Example: (labelry .*?)\s*$", shown, flags=re.MULTILINE)
    assert len(found) == 1, f"{command} --help must have one line 'Example: labelry ...'"
    program, name, *words = shlex.split(found[0])
    assert (program, name) == ("labelry", command)
    return words


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(command: str) -> None:
    assert example(command)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples name."""
    folder = tmp_path_factory.mktemp("help")
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(120):
        parts = rng.choice(list(PARTS), size=rng.integers(1, 3), replace=False).tolist()
        words = [*" ".join(PARTS[part] for part in parts).split(), "acute", "pain", "in", "left"]
        text = " ".join(rng.permutation(words)[:6])
        lines.append(json.dumps({"text": text, "labels": parts}) + "\n")
    (folder / "train.jsonl.gz").write_bytes(gzip.compress("".join(lines[:90]).encode()))
    (folder / "test.jsonl.gz").write_bytes(gzip.compress("".join(lines[90:]).encode()))
    (folder / "new.jsonl").write_text('{"text": "the left knee"}\n{"text": "an eye"}\n')
    train = read(folder / "train.jsonl.gz")
    labelry.Tagger(n_jobs=1).fit(train).save(folder / "tagger.labelry")
    tree = labelry.LinearLabelTree(depth=2, n_jobs=1).fit(train)
    tree.save(folder / "linear-tree.labelry")
    labelry.Moments(n_topics=2, n_jobs=1).fit(train).save(folder / "moments.labelry")
    X = labelry.TextFeatures(min_df=1).fit_transform(train.texts)
    write(labelry.Dataset(train.Y, X), folder / "train.txt.gz")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in NOT_RUN])
def test_examples_work(command: str, files: Path, tmp_path: Path) -> None:
    words = example(command)
    folder = tmp_path / "here"
    shutil.copytree(files, folder)
    written = folder / words[words.index("--out") + 1] if "--out" in words else None
    if written is not None and written.exists():
        shutil.rmtree(written)
    if command == "serve":
        words[words.index("--port") + 1] = "0"  # another program may have that one
    said = run_until_it_serves if command == "serve" else run
    assert said([command, *words], folder)
    assert written is None or written.exists()


def run(words: list[str], folder: Path) -> str:
    """What a command prints, on either stream."""
    done = subprocess.run(
        [*LABELRY, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def run_until_it_serves(words: list[str], folder: Path) -> str:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*LABELRY, *words], cwd=folder, env={**os.environ}, **pipes) as process:
        try:
            assert process.stdout.readline() == "labelry: loading tagger.labelry\n"
            line = process.stdout.readline()
            assert "serving tagger.labelry at http://" in line
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    return line
