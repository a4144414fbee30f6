"""labelry tune: what it says, what to type next, and the model it leaves."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import labelry
from labelry.cli.app import app
from labelry.cli.reading import Reading
from labelry.cli.tune_command import flags_of

WORDS = {"cat": "cat purrs whiskers", "dog": "dog barks bone", "fish": "fish swims water"}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"doc": f"{words} number {i}", "labels": [animal]}) + "\n"
        for i in range(12)
        for animal, words in WORDS.items()
    ]
    path = tmp_path / "animals.jsonl"
    path.write_text("".join(lines))
    return path


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.stderr, result.exception)
    return result


def test_the_winner_can_be_trained_by_the_command_that_is_printed(
    documents: Path, tmp_path: Path
) -> None:
    given = ("tune", documents, "--system", "one-vs-rest", "--trials", 4, "--jobs", 1, "--seed", 2)
    tuned = tmp_path / "tuned labelry"
    done = run(*given, "--text-column", "doc", "--max-sweeps", 50, "--out", tuned)
    lines = done.stderr.splitlines()
    assert sum(" s  P@1 " in line for line in lines) == 4 + 2 + 2
    assert sum("(defaults)" in line for line in lines) == 3
    assert "by which the best was chosen" in done.stderr
    (line,) = done.stdout.splitlines()
    program, *words = shlex.split(line)
    assert program == "labelry"
    assert words[:2] == ["train", str(documents)]
    assert words[2:4] == ["--text-column", "doc"]
    assert words[words.index("--max-sweeps") + 1] == "50"
    again = tmp_path / "again"
    words[words.index("--out") + 1] = str(again)
    run(*words, "-q")
    one, other = labelry.load(tuned), labelry.load(again)
    assert one.get_params() == other.get_params()
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_json(documents: Path) -> None:
    given = ("tune", documents, "--system", "knn", "--trials", 3, "--measure", "nDCG@5")
    done = run(*given, "--text-column", "doc", "--budget", "5m", "--jobs", 1, "--json", "-q")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["system"], found["measure"], found["held_out_rows"]) == ("knn", "nDCG@5", 7)
    assert found["score"] >= found["default_score"]
    assert [len(rung["trials"]) for rung in found["rungs"]] == [3, 2, 2]
    best = found["rungs"][-1]["trials"][0]
    assert best["parameters"] == found["parameters"]
    assert (best["score"], best["error"]) == (found["score"], None)
    assert found["command"].startswith(f"labelry train {documents} --text-column doc --out MODEL")


def test_it_refuses_before_it_reads(tmp_path: Path) -> None:
    none = tmp_path / "none.jsonl"
    for system in ("tagger", "oracle"):
        error = run("tune", none, "--system", system, code=1).exception
        assert f"no ranges to tune '{system}'; there are for: one-vs-rest" in str(error)
    wrong = run("tune", none, "--system", "knn", "--C", 2, code=2).stderr
    assert "--C is not for knn" in wrong
    (tmp_path / "file").touch()
    error = run("tune", none, "--system", "knn", "--out", tmp_path / "file", code=1).exception
    assert isinstance(error, labelry.ModelError)


def test_parameters_as_flags() -> None:
    parameters = {"n_trees": 3, "C": 0.5, "normalize": False, "correction": True, "tree": object()}
    expected = "--n-trees 3 --C 0.5 --no-normalize --correction --tree FILE"
    assert flags_of(parameters) == expected.split()
    assert Reading(jobs=3).flags() == []
    assert Reading(input_format="csv", label_separator=";").flags() == [
        *("--input-format", "csv"),
        *("--label-separator", ";"),
    ]
