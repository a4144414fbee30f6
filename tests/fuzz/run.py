"""Fuzz one target with atheris, guided by the branches that inputs reach.

    python tests/fuzz/run.py TARGET SECONDS [FOLDER]

Starts from corpus/TARGET; what reaches new branches, and what is a finding (crash-*, timeout-*,
oom-*), is put into FOLDER, by default a temporary one. The exit code is 0 if nothing was found.
Branches of compiled kernels are not seen; what they return is compared with a plain twin.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import atheris

READERS = ["labelry.data", "labelry.modelfile", "labelry.state", "labelry.trees.hierarchy"]
KERNELS = ["labelry.data.parse_kernels", "labelry.data.text_kernels"]  # numba compiles these

with atheris.instrument_imports(include=READERS, exclude=KERNELS):
    sys.path.insert(0, str(Path(__file__).parent))
    from targets import fuzz

CORPUS = Path(__file__).parent / "corpus"
SECONDS_PER_INPUT = 5  # on a busy machine
MOST_GROWTH = 500  # MiB; what a process had at its peak before, or its parent, is not counted
MOST_BYTES = 8192


def main(target: str, seconds: str, found: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="labelry-fuzz-"))
    found.mkdir(parents=True, exist_ok=True)

    def one_input(data: bytes) -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        fuzz(target, data, folder)

    options = [
        f"-max_total_time={seconds}",
        f"-timeout={SECONDS_PER_INPUT}",
        f"-rss_limit_mb={getrusage(RUSAGE_SELF).ru_maxrss // 1024 + MOST_GROWTH}",
        f"-max_len={MOST_BYTES}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]
    warnings.simplefilter("ignore")
    atheris.Setup([sys.argv[0], *options, str(found), str(CORPUS / target)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    target, seconds, *folder = sys.argv[1:]
    main(target, seconds, Path(folder[0] if folder else tempfile.mkdtemp()))
