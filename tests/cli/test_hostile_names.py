"""Names that are markup or control a terminal: every command shows them as they are written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labelry.cli.app import app
from labelry.estimators import system_class

WORDS = {
    "[/b]": "cat purrs",
    "[spam]": "dog barks",
    "\x1b[31mred": "fish swims",
    "two\nlines\x07": "bird flies",
    "over\rwritten": "ant digs",
    "\u202eturned": "cow eats",
    "\x9b31mone byte": "owl hoots",
}
SHOWN = {name: json.dumps(name)[1:-1] for name in WORDS}
CONTROL = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
ODD = "[b]\x1b[31mrows.jsonl"  # the name of a file may be as odd as that of a label


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    names = list(WORDS)
    labels = [[a, b] for a in names for b in names if a < b]
    texts = [" ".join(WORDS[name] for name in row) for row in labels]
    rows = [
        json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)
    ]
    (folder / ODD).write_text("\n".join(rows))
    for system, given in {
        "tagger": {},
        "rembrandt": {"embedding_dim": 3},
        "label-tree": {},
        "moments": {"n_topics": 2},
    }.items():
        system_class(system)(**given, n_jobs=1).fit(texts, labels).save(folder / system)
    return folder


def said(*words: str, code: int = 0) -> str:
    """Run a command in the folder; return what it printed, where no control character may be."""
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
    assert done.exit_code == code, (done.output, done.exception)
    text = done.output + (str(done.exception) if code else "")
    assert not CONTROL.search(text), text
    return text


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_tables() -> None:
    text = said("similar", "rembrandt", "[/b]")
    assert all(shown in text for name, shown in SHOWN.items() if name != "[/b]")
    text = said("topics", "moments", "-k", "7")
    assert all(shown in text for shown in SHOWN.values())
    said("inspect", "tagger")


@pytest.mark.parametrize("name", WORDS)
def test_explanations(name: str) -> None:
    text = said("explain", "tagger", WORDS[name], "--label", name)
    assert text.startswith(f"{SHOWN[name]}: ")


def test_trees() -> None:
    text = said("tree", "label-tree", "--depth", "5")
    assert all(shown in text for shown in SHOWN.values())


def test_names_of_files() -> None:
    shown = json.dumps(ODD)[1:-1]
    assert shown in said("stats", ODD)
    assert f"reading {shown}: " in said("evaluate", "tagger", ODD, "--by-frequency")
    text = said("train", ODD, "--out", "[b]\x1b[31m", "--system", "knn")
    assert "saving [b]\\u001b[31m: " in text
    assert said("predict", "tagger", ODD, "-o", "out\x1b.jsonl")


def test_json_keeps_the_names() -> None:
    found = json.loads(said("similar", "rembrandt", "[/b]", "--json"))
    assert {row["label"] for row in found["similar"]} == WORDS.keys() - {"[/b]"}
    found = json.loads(said("topics", "moments", "--json"))["topics"]
    assert {name for topic in found for name in topic["labels"]} == WORDS.keys()
