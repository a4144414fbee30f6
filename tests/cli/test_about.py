"""The card of a model, and what its files are read by, on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from labelry.cli.app import app

ROWS = "note,codes\nknee pain,knee;pain\narm pain,arm;pain\nknee swollen,knee\narm broken,arm\n"
READ = ("--text-column", "note", "--label-column", "codes", "--label-separator", ";")


def labelry(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def train(tmp_path: Path) -> list[object]:
    (tmp_path / "train.csv").write_text(ROWS)
    model = tmp_path / "m.labelry"
    options = (*READ, "--quality", "fast", "--jobs", 1, "-q")
    return ["train", tmp_path / "train.csv", "--out", model, *options]


def test_the_card_is_kept_and_shown(train: list[object], tmp_path: Path) -> None:
    (tmp_path / "card.toml").write_text('title = "Old"\nexamples = ["one"]\ndescription = "Notes"')
    (tmp_path / "examples.txt").write_text("knee pain\n\narm pain\n")
    flags = ("--card", tmp_path / "card.toml", "--title", "Bones")
    labelry(*train, *flags, "--examples", tmp_path / "examples.txt", "--examples", "my knee")
    about = json.loads(labelry("inspect", tmp_path / "m.labelry", "--json").stdout)["about"]
    assert about["card"] == {
        "title": "Bones",
        "description": "Notes",
        "examples": ["knee pain", "arm pain", "my knee"],
    }
    assert about["rows"] == 4
    shown = labelry("inspect", tmp_path / "m.labelry").stdout
    for part in ("Bones", "my knee", "train.csv, csv, sha256", "codes", ";", about["trained"]):
        assert part in shown


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("titel = 'x'", "has titel; expected title, description, examples"),
        ("title", "is not TOML"),
        ("title = 3", "title must be a text, got 3"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_card_that_is_none(
    train: list[object], tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "card.toml").write_text(content)
    done = labelry(*train, "--card", tmp_path / "card.toml", code=2)
    assert message in " ".join(done.output.replace("│", " ").split())
    assert not (tmp_path / "m.labelry").exists()


def test_a_pipe_given_by_path_loses_no_row(train: list[object], tmp_path: Path) -> None:
    labelry(*train)
    (tmp_path / "texts.txt").write_text("knee pain and some more words\n" * 20_000)
    run = f"{sys.executable} -m labelry"
    predict = f"{run} predict {tmp_path}/m.labelry <(cat {tmp_path}/texts.txt) -k 1 -q | wc -l"
    train_again = f"{run} train <(cat {tmp_path}/train.csv) --out {tmp_path}/n --quality fast -q"
    script = f"{predict}; {train_again} --text-column note --label-column codes --format csv"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 20_000, done.stderr
    source = json.loads(labelry("inspect", tmp_path / "n", "--json").stdout)["about"]["source"]
    assert (source["sha256"], source["label_separator"]) == (None, ";")


def test_other_files_are_read_as_the_training_file(train: list[object], tmp_path: Path) -> None:
    labelry(*train)
    model, test = tmp_path / "m.labelry", tmp_path / "train.csv"
    found = json.loads(labelry("evaluate", model, test, "--json", "-q").stdout)
    assert found["rows"] == 4
    assert found["P@1"] == 100
    lines = labelry("predict", model, test, "-k", 1, "-q").stdout.splitlines()
    assert len(lines) == 4
    found = json.loads(labelry("explain", model, test, "--row", 1, "-k", 1, "--json").stdout)
    assert found["explanations"][0]["label"] in ("arm", "pain")
    (tmp_path / "other.csv").write_text("note,labels\nknee pain,knee|pain\n")
    flags = ("--label-column", "labels", "--label-separator", "|", "--json", "-q")
    found = json.loads(labelry("evaluate", model, tmp_path / "other.csv", *flags).stdout)
    assert found["R@3"] == 100


def test_training_warns_and_says_what_comes_next(train: list[object], tmp_path: Path) -> None:
    done = labelry(*[word for word in train if word != "-q"])
    assert "labels: codes" not in done.stderr  # all of it was given
    assert f"labelry evaluate {tmp_path}/m.labelry TEST" in done.stderr
    (tmp_path / "none.csv").write_text("text,labels\na,\nb,\n")
    done = labelry("train", tmp_path / "none.csv", "--out", tmp_path / "x", code=1)
    assert "no row has a label" in str(done.exception)
    done = labelry("stats", tmp_path / "train.csv", *READ[:4], "--label-separator", "none")
    assert "2 labels have ';' inside and no row has several labels" in done.stderr
    assert "say so with --label-separator" in done.stderr


def test_evaluation_ends_in_a_sentence_and_warns_of_unknown_labels(
    train: list[object], tmp_path: Path
) -> None:
    labelry(*train)
    evaluate = ("evaluate", tmp_path / "m.labelry", tmp_path / "train.csv")
    done = labelry(*evaluate, "-q")
    assert done.stdout.endswith("the first label is right for 4 of 4 documents\n")
    assert done.stderr == ""
    done = labelry(*evaluate, "-q", "--label-separator", "none")
    assert "50 % of the labels in this file are unknown to the model, such as" in done.stderr


def test_predictions_keep_the_columns_of_the_input(train: list[object], tmp_path: Path) -> None:
    labelry(*train)
    (tmp_path / "new.csv").write_text('id,note,codes\n7,"knee, pain",x\n8,arm pain,\n')
    predict = ("predict", tmp_path / "m.labelry", tmp_path / "new.csv", "-q")
    lines = labelry(*predict, "--format", "csv", "-k", 1).stdout.splitlines()
    assert lines[0] == "id,note,codes,label_1,score_1"
    assert lines[1].startswith('7,"knee, pain",x,')
    lines = labelry(*predict, "--format", "csv", "--threshold", 0, "--keep", "id").stdout
    assert lines.splitlines()[0] == "id,labels"
    assert sorted(lines.splitlines()[2].removeprefix("8,").split(";")) == ["arm", "knee", "pain"]
    row = json.loads(labelry(*predict, "-k", 1, "--keep", "id,codes").stdout.splitlines()[0])
    assert (row["id"], row["codes"], row["labels"]) == ("7", "x", row["labels"])
    assert len(row["labels"]) == 1
    assert "id" not in json.loads(labelry(*predict).stdout.splitlines()[0])
    done = labelry(*predict, "--keep", "ids", code=1)
    assert "the kept column 'ids'; did you mean 'id'?" in str(done.exception)
