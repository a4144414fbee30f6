"""The image of examples/docker: its commands, which no Docker runs here, are those of labelry."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from labelry.cli.app import app

FOLDER = Path(__file__).parents[2] / "examples" / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def listed(instruction: str, text: str = DOCKERFILE) -> list[str]:
    (found,) = re.findall(rf"{instruction}:? (\[.*\])$", text, re.MULTILINE)
    return json.loads(found)


def test_the_server_has_the_options_that_are_given() -> None:
    program, name, *options = listed("ENTRYPOINT")
    assert (program, name) == ("labelry", "serve")
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    composed = listed("command", (FOLDER / "compose.yaml").read_text())
    for more in (listed("\nCMD"), composed):
        given = command.make_context(name, [*options, *more], resilient_parsing=True).params
        assert (given["host"], given["port"], given["workers"]) == ("0.0.0.0", 8000, 2)
        assert str(given["model"]) == "/models/tagger.labelry"
    assert given["access_log"]
    assert str(given["api_key_file"]) == "/run/secrets/key"


@pytest.mark.parametrize("working", [True, False])
def test_the_check_of_health(address_of: Callable[..., str], working: bool) -> None:
    program, *code = listed("HEALTHCHECK --start-period=60s CMD")
    assert program == "python"
    address = address_of("texts") if working else "http://127.0.0.1:9"
    code[-1] = code[-1].replace("http://127.0.0.1:8000", address)
    ended = subprocess.run([sys.executable, *code], capture_output=True, check=False)
    assert (ended.returncode == 0) is working
