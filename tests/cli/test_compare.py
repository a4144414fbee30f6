"""labelry compare: a table of several systems, each from processes of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from labelry.cli.app import app
from labelry.cli.compare_command import Contender, parse_systems

WORDS = {"cat": "cat purrs whiskers", "dog": "dog barks bone", "fish": "fish swims water"}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"text": f"{words} number {i}", "labels": [animal]}) + "\n"
        for i in range(12)
        for animal, words in WORDS.items()
    ]
    path = tmp_path / "animals.jsonl"
    path.write_text("".join(lines))
    return path


def test_parameters_become_flags() -> None:
    found = parse_systems("best, linear-tree:n_trees=3:prune=0.2,knn:normalize=True")
    assert found == [
        Contender("best", ["--quality", "best"]),
        Contender(
            "linear-tree:n_trees=3:prune=0.2",
            ["--system", "linear-tree", "--n-trees", "3", "--prune", "0.2"],
        ),
        Contender("knn:normalize=True", ["--system", "knn", "--normalize"]),
    ]


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ("ovr", "unknown system 'ovr'; there are: fast, balanced"),
        ("knn:5", "'5' in 'knn:5' should be parameter=value"),
        (" ,", "at least one name"),
    ],
)
def test_bad_lists(systems: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        parse_systems(systems)


def test_each_system_is_measured_and_a_failure_has_its_reason(documents: Path) -> None:
    systems = "knn,fast,one-vs-rest:C=-1"
    done = CliRunner().invoke(
        app, ["compare", str(documents), "--systems", systems, "--json", "--quiet", "--jobs", "1"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["systems"]
    assert list(found) == systems.split(",")
    assert found["one-vs-rest:C=-1"] == {"failed": "labelry: --C must be positive, got -1.0"}
    for name in ("knn", "fast"):
        assert found[name]["rows"] == 9
        assert found[name]["P@1"] == 100.0
        assert min(found[name][m] for m in ("train_seconds", "model_bytes", "peak_bytes")) > 0


@pytest.mark.slow
def test_a_table_on_given_test_rows(documents: Path) -> None:
    done = CliRunner().invoke(
        app, ["compare", str(documents), str(documents), "--systems", "knn,lpsr:nonsense=1"]
    )
    assert done.exit_code == 0, done.output
    header, row = (line.split() for line in done.stdout.splitlines()[:2])
    assert header[:6] == ["P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"]
    assert row[:2] == ["knn", "100.00"]
    assert "lpsr:nonsense=1: No such option: --nonsense" in " ".join(done.stdout.split())


def test_nothing_to_show_is_a_failure(documents: Path) -> None:
    done = CliRunner().invoke(
        app, ["compare", str(documents), "--systems", "one-vs-rest:C=-1", "--quiet"]
    )
    assert done.exit_code == 1
