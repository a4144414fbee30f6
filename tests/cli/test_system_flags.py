"""Flags of systems: all that is declared is a flag, and what is not allowed is refused at once."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labelry.cli import options
from labelry.cli.app import app, run
from labelry.cli.system_flags import TAGGER, flag_of, parameters_of_system, system_options
from labelry.errors import ParameterError
from labelry.estimators import SYSTEMS, system_class
from labelry.parameters import parameters_of

EVERY = (TAGGER, *SYSTEMS)
NO_FILE = "no-such-file.jsonl"  # what is refused is refused before it is read


def refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> str:
    """The message of a command that is refused, with exit code 2."""
    monkeypatch.setattr(options, "own_process", False)
    monkeypatch.setattr(sys, "argv", ["labelry", *words])
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as ended:
        run()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, ""), said
    return said.err


@pytest.mark.parametrize("system", EVERY)
def test_every_parameter_is_a_flag_with_its_help(system: str) -> None:
    flags = {flag: option for option in system_options(system) for flag in option.opts}
    declared = parameters_of(system_class(system))
    assert flags.keys() | {"--seed", "--jobs"} == {flag_of(name) for name in declared}
    for flag, option in flags.items():
        assert option.help.endswith("."), flag
        assert "\n" not in option.help
    shown = CliRunner().invoke(app, ["train", "--system", system, "--help"], env={"COLUMNS": "160"})
    assert shown.exit_code == 0
    assert all(flag in shown.stdout for flag in flags)


@pytest.mark.parametrize("system", EVERY)
@pytest.mark.parametrize("text", ["nan", "-inf", "1e308", "9" * 400, str(10**21)])
def test_absurd_numbers_are_refused_in_one_sentence(
    system: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for parameter in parameters_of_system(system).values():
        if {int, float}.isdisjoint(parameter.kinds):
            continue
        try:
            parameter.check(float(text))
        except ParameterError:
            pass
        else:  # a float of this size is allowed
            assert math.isfinite(float(text))
            assert float in parameter.kinds
            continue
        words = ("train", NO_FILE, "--out", "none", "--system", system, parameter.flag, text)
        said = refusal(monkeypatch, capsys, *words)
        assert said.startswith(f"labelry: {parameter.flag} must be "), said
        assert said.count("\n") == 1
        assert len(said) < 500


@pytest.mark.parametrize("command", ["train", "embed"])
def test_flags_of_other_systems_are_refused(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (command, NO_FILE, "--out", "none.npy", "--system", "one-vs-rest")
    for foreign in (["--depth", "2"], ["--depth=2"], ["--no-correction"]):
        said = " ".join(refusal(monkeypatch, capsys, *words, *foreign).split())
        flag = foreign[0].partition("=")[0]
        assert f"{flag} is not for one-vs-rest; it has: --loss, --C, --normalize, " in said
    assert "No such option: --dept" in refusal(monkeypatch, capsys, *words, "--dept", "2")
    words = ("tune", NO_FILE, "--depth", "2")
    assert "--depth is for a system: name one" in refusal(monkeypatch, capsys, *words)
    words = (*words, "--system", "oracle")
    assert "unknown system 'oracle'; there are: " in refusal(monkeypatch, capsys, *words)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--loss", "cubic", "--loss must be one of squared_hinge, logistic; got 'cubic'"),
        ("--max-sweeps", "1.5", "--max-sweeps must be a whole number, got '1.5'"),
        ("--max-sweeps", "0", "--max-sweeps must be at least 1, got 0"),
        ("--C", "much", "--C must be a number, got 'much'"),
        ("--seed", "-1", "--seed must be at least 0, got -1"),
        ("--jobs", "-2", "--jobs must be at least -1, got -2"),
    ],
)
def test_messages_name_the_flag(
    flag: str,
    value: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("train", NO_FILE, "--out", "none", "--system", "one-vs-rest", flag, value)
    assert refusal(monkeypatch, capsys, *words) == f"labelry: {message}\n"


def test_rules_over_several_parameters_name_a_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taxonomy = tmp_path / "tree.tsv"
    taxonomy.write_text("a\tb\n")
    words = ("train", NO_FILE, "--out", "none", "--system", "linear-tree")
    said = refusal(monkeypatch, capsys, *words, "--tree", str(taxonomy), "--copies", "1")
    assert said.startswith("labelry: --")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("labelry tune --system linear-t", {"linear-tree"}),
        ("labelry train --system one-vs-rest --max", {"--max-sweeps"}),
        ("labelry train --system=linear-tree --dep", {"--depth"}),
        ("labelry tune --system linear-tree --no-", {"--no-normalize"}),
    ],
)
def test_a_shell_completes_the_flags_of_the_system(words: str, completed: set[str]) -> None:
    asked = {
        "_LABELRY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = CliRunner().invoke(app, [], prog_name="labelry", env=asked)
    assert set(done.stdout.split()) == completed
