"""The API against its own description: requests made from it, right and wrong, by schemathesis.

Statuses, kinds of content, bodies, methods that are not allowed and their headers are checked, and
that no answer is a failure. ``LABELRY_SCHEMA_EXAMPLES=1000`` tries more requests of each path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from labelry.server import drawing
from labelry.server.drawing import Drawing

SECONDS = 300  # for an answer
EXAMPLES = os.environ.get("LABELRY_SCHEMA_EXAMPLES", "20")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "n_paths"),
    [
        ("tagger", ("--phases", "examples,coverage,fuzzing"), 9),
        ("features", ("--phases", "fuzzing", "--include-path", "/v1/predict"), 1),
    ],
)
def test_the_api_is_as_it_says(
    address_of: Callable[..., str],
    model: str,
    options: tuple[str, ...],
    n_paths: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    async def draw(_: Any, fingerprint: str) -> Drawing:  # at once, where it would take seconds
        return Drawing(fingerprint, drawing.gzip.compress(b"map"))

    monkeypatch.setattr(drawing, "_draw", draw)
    address = address_of(model, max_batch=4, timeout=SECONDS)
    with suppress(HTTPError):  # 409 if there is none
        urlopen(f"{address}/v1/map")
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("run", f"{address}/openapi.json", "--no-color", "--generation-deterministic"),
        *("--max-examples", EXAMPLES, *options),
        *("--request-timeout", str(SECONDS), "--suppress-health-check", "all"),  # slow machines
        # Not every request that the description allows is right: it must have text or features,
        # whichever the model takes, not too many of them, and labels that it has.
        *("--exclude-checks", "positive_data_acceptance"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    assert f"Tested: {n_paths}\n" in done.stdout
    if tried := re.search(r"(\d+) generated", done.stdout):
        record_property(
            "measured", f"requests that schemathesis made to a {model} model: {tried[1]}"
        )
