"""What the first use of labelry compiles: kernels and seconds of each command, from an empty cache.

    python benchmarks/cold_start.py [KERNELS]

trains, evaluates, predicts and serves a tagger of ICD-10-CM with a NUMBA_CACHE_DIR that is empty at
first, and prints for each command its processor seconds, those of compilation, and the KERNELS (12)
that took most; seconds of a kernel are without those of the kernels that it calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    from labelry.data import write
    from labelry.data.icd import icd10cm

    data = icd10cm()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(data.train, folder / "train.jsonl")
        write(data.test, folder / "test.jsonl")
        model, test = str(folder / "m"), str(folder / "test.jsonl")
        commands = {
            "train": ["train", str(folder / "train.jsonl"), "--out", model, "--quiet"],
            "evaluate": ["evaluate", model, test, "--json", "--quiet"],
            "predict": ["predict", model, test, "--quiet", "--out", str(folder / "p.jsonl")],
            "serve": ["warm", model, "--quiet"],  # what a server does before its first request
        }
        for command, arguments in commands.items():
            _show(command, _measured(folder, arguments), most)


def _measured(folder: Path, arguments: list[str]) -> dict[str, Any]:
    out = folder / "measured.json"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "kernels")}
    command = [sys.executable, __file__, "--measure", str(out), *arguments]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def _show(command: str, found: dict[str, Any], most: int) -> None:
    kernels = sorted(found["kernels"], reverse=True)
    total = sum(seconds for seconds, _ in kernels)
    print(f"{command}: {found['seconds']:.1f} s, {total:.1f} s for {len(kernels)} kernels")
    for seconds, kernel in kernels[:most]:
        print(f"  {seconds:5.2f}  {kernel}")


def _measure(out: Path, arguments: list[str]) -> None:
    """Run a command line, and write what numba compiled meanwhile."""
    from numba.core import event

    from labelry.cli.app import app

    kernels: list[tuple[float, str]] = []
    open_kernels: list[list[float]] = []  # start, and seconds of those that it calls

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            open_kernels.append([time.process_time(), 0.0])

        def on_end(self, event: Any) -> None:
            start, called = open_kernels.pop()
            seconds = time.process_time() - start
            if open_kernels:
                open_kernels[-1][1] += seconds
            function = event.data["dispatcher"].py_func
            kernels.append((seconds - called, f"{function.__module__}.{function.__name__}"))

    with event.install_listener("numba:compile", Listener()):
        app(arguments, standalone_mode=False)
    out.write_text(json.dumps({"seconds": time.process_time(), "kernels": kernels}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _measure(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
