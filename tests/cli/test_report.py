"""labelry report, as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from labelry.cli.app import app
from labelry.errors import DataError, ModelError
from labelry.storage import modelfile

WORDS = {"cat": "cat purrs whiskers", "dog": "dog barks bone", "fish": "fish swims water"}


def labelry(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents about animals, names of these, and a tagger trained by the command line."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(140):
        animals = rng.choice(list(WORDS), size=rng.integers(1, 3), replace=False).tolist()
        words = rng.permutation(" ".join(WORDS[a] for a in animals).split())
        lines.append(json.dumps({"text": " ".join(words), "labels": animals}) + "\n")
    (folder / "train.jsonl").write_text("".join(lines[:100]))
    (folder / "test.jsonl").write_text("".join(lines[100:]))
    (folder / "names.tsv").write_text("cat\tFelis catus\nhorse\tEquus\n")
    model = folder / "m.labelry"
    done = labelry("train", folder / "train.jsonl", "--out", model, "--jobs", 1, "-q")
    assert done.exit_code == 0, done.output
    return folder


def test_it_writes_one_page(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = labelry("report", folder / "m.labelry", folder / "test.jsonl", "--out", out, "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert "open it in a browser" in done.output
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>\n<html")
    assert "Measured on <bdi>test.jsonl</bdi>" in page
    assert "reading train.jsonl" in page
    assert "learning to re-rank" in page
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_what_is_there_is_not_replaced_unless_told(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    command = ("report", folder / "m.labelry", folder / "test.jsonl", "--out", out, "--jobs", 1)
    done = labelry(*command)
    assert isinstance(done.exception, ValueError)
    assert "already exists; use --force" in str(done.exception)
    assert out.read_text() == "mine"
    quiet = labelry(*command, "--force", "-q")
    assert quiet.exit_code == 0
    assert quiet.output == ""
    assert "Felis catus" not in out.read_text()
    assert labelry(*command, "-f", "-q", "--names", folder / "names.tsv").exit_code == 0
    assert "Felis catus" in out.read_text()


def test_errors_leave_no_file(folder: Path, tmp_path: Path) -> None:
    model, test, out = folder / "m.labelry", folder / "test.jsonl", tmp_path / "report.html"
    foreign = tmp_path / "names.tsv"
    foreign.write_text("horse\tEquus\n")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for arguments, kind in (
        ((folder / "none", test), ModelError),
        ((model, folder / "none.jsonl"), DataError),
        ((model, empty), (DataError, ValueError)),
        ((model, test, "--names", foreign), ValueError),
    ):
        done = labelry("report", *arguments, "--out", out, "-q")
        assert isinstance(done.exception, kind), arguments
        assert not out.exists()
    assert labelry("report", model, test).exit_code == 2  # no --out


def test_features_and_a_model_of_another_system(tmp_path: Path) -> None:
    rows = "".join(f"{i % 3} {i % 3}:1 3:{i % 2}\n" for i in range(30))
    (tmp_path / "d.txt").write_text(f"30 4 3\n{rows}")
    model, out = tmp_path / "m.labelry", tmp_path / "r.html"
    flags = ("--system", "plst", "--embedding-dim", 2, "--jobs", 1, "-q")
    assert labelry("train", tmp_path / "d.txt", "--out", model, *flags).exit_code == 0
    done = labelry("report", model, tmp_path / "d.txt", "--out", out, "-q", "--seed", 3)
    assert done.exit_code == 0, done.exception
    assert "30 rows, 3 labels" in out.read_text()


def test_training_keeps_what_it_took_beside_a_model_that_is_the_same_each_time(
    folder: Path, tmp_path: Path
) -> None:
    model = folder / "m.labelry"
    again = tmp_path / "again.labelry"
    train = ("train", folder / "train.jsonl", "--out", again, "--jobs", 1, "-q")
    assert labelry(*train).exit_code == 0
    names = {file.name for file in model.iterdir()}
    assert names == {file.name for file in again.iterdir()}
    assert modelfile.TRAINING in names
    for name in names - {modelfile.TRAINING}:
        assert (model / name).read_bytes() == (again / name).read_bytes()
    found = json.loads(labelry("inspect", model, "--json").stdout)["training"]
    assert found["phases"][0]["name"] == "reading train.jsonl"
    assert found["peak_bytes"] > 1 << 20
    shown = labelry("inspect", model).stdout
    assert "learning to re-rank" in shown
    assert "in all" in shown


def test_a_damaged_record_is_told_and_the_rest_is_there(folder: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.labelry", tmp_path / "r.html"
    train = ("train", folder / "train.jsonl", "--out", model, "--quality", "fast", "--jobs", 1)
    assert labelry(*train, "-q").exit_code == 0
    (model / modelfile.TRAINING).write_text("{")
    assert "is damaged" in " ".join(labelry("inspect", model).stdout.split())
    assert labelry("report", model, folder / "test.jsonl", "--out", out, "-q").exit_code == 0
    assert "training.json is damaged" in out.read_text()
