"""labelry warm: nobody waits for what it has compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labelry.cli import main

# Runs a command line and prints how many kernels it compiled.
COUNTED = """
import os, sys
from labelry.cli.app import app
from labelry.compilation import clock
counted = clock()
app(sys.argv[1:], standalone_mode=False)
from labelry.server.served import load_served
from pathlib import Path
if sys.argv[1] == "predict":
    served, _ = load_served(Path(sys.argv[2]))
    served.similar(1, 2)
print("compiled", counted.kernels)
"""


def run(cache: Path, *arguments: object) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", COUNTED, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_is_warm_compiles_nothing_more(tmp_path: Path) -> None:
    cache, file, out = tmp_path / "kernels", tmp_path / "a.jsonl", tmp_path / "model"
    report = json.loads(run(cache, "warm", "--json", "--quiet").splitlines()[0])
    assert report["kernels"] > 50
    assert report["cache"].startswith(str(cache))
    lines = [
        {"text": f"word{i % 7} thing{i % 11} part{i % 13} other{i}", "labels": [f"a{i % 7}"]}
        for i in range(400)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for command in (
        ("train", file, "--out", out, "--quiet"),
        ("evaluate", out, file, "--quiet"),
        ("predict", out, file, "-k", 2, "--quiet"),
        ("warm", out, "--quiet"),
    ):
        assert run(cache, *command).splitlines()[-1] == "compiled 0"


def test_a_model_is_warmed_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import labelry

    model = labelry.Rembrandt(embedding_dim=1, decoder="least-squares", n_jobs=1)
    model.fit(["cat sits", "dog barks"] * 3, [["cat"], ["dog"]] * 3).save(tmp_path / "m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["labelry", "warm", str(tmp_path / "m")])
        with pytest.raises(SystemExit, match="0"):
            main()
    told = capfd.readouterr().err
    assert "asking m" in told
    assert "kernels in" in told
