"""The examples run as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# What each must print, and arguments.
EXPECTED = {
    "label_documents.py": ("Other joint disorder", "('home', ", "is right for"),
    "own_features.py": ("Rembrandt: 9", "one-vs-rest, C ="),
    "taxonomy.py": ("((cat,dog),(cow,hen));", "['dog' 'hen']"),
    "label_embeddings.py": ("M25 Other joint disorder", "E10", "labels.vec"),
    "standard_library.py": ("posts.csv: 3", "new.csv: "),
    "out_of_core.py": ("42,593 rows", "shards\nP@1 8", "[['M25'"),
}


def test_every_example_is_tested() -> None:
    elsewhere = {"server_client.py"}  # tests/cli/test_serve.py has a server to ask
    assert {file.name for file in EXAMPLES.glob("*.py")} == {*EXPECTED, *elsewhere}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_it_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, tmp_path],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    assert done.returncode == 0, done.stderr
    for text in EXPECTED[name]:
        assert text in done.stdout
