"""A stored model that was changed is refused, or answers: no crash, no hang, no end of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FORGE = Path(__file__).parent / "forge.py"
FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("format-*/*.zip"))
STEP = 1 if "LABELRY_FUZZ_SECONDS" in os.environ else 20  # all cases for `make fuzz`
N_GROUPS = 4
MOST_SECONDS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("group", range(N_GROUPS))
def test_a_forged_model_is_refused_or_answers(group: int) -> None:
    fixtures = FIXTURES[group::N_GROUPS]
    command = [sys.executable, "-X", "faulthandler", FORGE, str(STEP), *fixtures]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
    )
    lines = done.stdout.splitlines() or ["nothing"]
    assert done.returncode == 0, f"{lines[-1]}\n{done.stderr[-4000:]}"
    ended = [line for line in lines if " refused, " in line]
    assert len(ended) == len(fixtures)
    assert not [line for line in ended if ": 0 refused" in line or ", 0 answered" in line]
