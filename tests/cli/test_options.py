"""Every option of every command takes absurd values: one sentence, and exit code 2."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from labelry.cli import options
from labelry.cli.app import app, run
from labelry.errors import DataError

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
REQUIRED = {
    "train": ["--out", "new"],
    "tune": ["--system", "knn"],
    "embed": ["--out", "new.npy"],
    "report": ["--out", "new"],
}
NOTHING = "not here"  # a file or a model; a value that is allowed ends there
VALUES = {
    "nan": "nan",
    "inf": "-inf",
    "1e308": "1e308",
    "400 digits": "9" * 400,
    "10^21": str(10**21),
    "empty": "",
    "not ASCII": "é☃",
}
MOST = 1500  # characters of a message; a list of all systems is the longest


def valued(command: Any) -> list[Any]:
    """The options of a command that take a value."""
    return [p for p in command.params if p.param_type_name == "option" and not p.is_flag]


@pytest.fixture(autouse=True)
def _nothing_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DataError(NOTHING)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labelry.data.icd.icd10cm", refuse)
    monkeypatch.setattr("labelry.server.run.serve", refuse)
    monkeypatch.setenv("COLUMNS", "2000")


def ended(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The exit code of a command."""
    monkeypatch.setattr(options, "own_process", False)
    monkeypatch.setattr(sys, "argv", ["labelry", *words])
    with pytest.raises(SystemExit) as ended:
        run()
    return ended.value.code


@pytest.mark.parametrize("name", COMMANDS)
def test_absurd_values(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = COMMANDS[name]
    given = [NOTHING for p in command.params if p.param_type_name == "argument" and p.required]
    words = [name, *given, *REQUIRED.get(name, [])]
    for option in valued(command):
        for what, value in VALUES.items():
            code = ended([*words, option.opts[0], *[value] * option.nargs], monkeypatch)
            said = capsys.readouterr()
            case = (option.opts[0], what, said)
            assert code == 2, case
            lines = [line for line in said.err.splitlines() if line.strip(" │╭╮╰╯─")]
            lines = [line for line in lines if not line.startswith(("Usage:", "Try "))]
            told = [line for line in lines if not re.search(" Error |^labelry: loading ", line)]
            assert len(told) == 1, case
            assert len(said.err) < MOST + 3 * 2000, case
            assert said.out == "", case
            if what == "empty":
                assert re.search("must not be empty|Invalid value", said.err), case
