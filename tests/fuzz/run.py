"""Fuzz one target with atheris, guided by the branches that inputs reach.

    python tests/fuzz/run.py TARGET SECONDS [FOLDER [SEED]]

Starts from corpus/TARGET; what reaches new branches, and what is a finding (crash-*, timeout-*,
oom-*), is put into FOLDER, by default a temporary one. The exit code is 0 if nothing was found.
With a SEED the same inputs are tried each time, as far as the seconds reach.
Branches of compiled kernels are not seen; what they return is compared with a plain twin.
Three in four directories are changed by `structure.py`, the others byte by byte.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import atheris

READERS = [
    "labelry.data",
    "labelry.storage.modelfile",
    "labelry.storage.sealed",
    "labelry.storage.values",
    "labelry.trees.hierarchy",
]
PACKAGE = Path(*find_spec("labelry").submodule_search_locations)
KERNELS = [  # numba compiles these, and would not know what atheris puts in
    ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if "njit" in path.read_text()
]

with atheris.instrument_imports(include=READERS, exclude=KERNELS):
    sys.path.insert(0, str(Path(__file__).parent))
    from structure import mutate
    from targets import DIRECTORIES, fuzz

CORPUS = Path(__file__).parent / "corpus"
SECONDS_PER_INPUT = 5  # on a busy machine
MOST_GROWTH = 500  # MiB; what a process had at its peak before, or its parent, is not counted
MOST_BYTES = 8192


def main(target: str, seconds: str, found: Path, seed: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="labelry-fuzz-"))
    found.mkdir(parents=True, exist_ok=True)

    def one_input(data: bytes) -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        fuzz(target, data, folder)

    def other_input(data: bytes, max_size: int, seed: int) -> bytes:
        return mutate(data, max_size, seed) if seed % 4 else atheris.Mutate(data, max_size)

    options = [
        f"-max_total_time={seconds}",
        f"-timeout={SECONDS_PER_INPUT}",
        f"-rss_limit_mb={getrusage(RUSAGE_SELF).ru_maxrss // 1024 + MOST_GROWTH}",
        f"-max_len={MOST_BYTES}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
        f"-seed={seed}",
    ]
    mutator = {"custom_mutator": other_input} if target in DIRECTORIES else {}
    warnings.simplefilter("ignore")
    atheris.Setup([sys.argv[0], *options, str(found), str(CORPUS / target)], one_input, **mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    target, seconds, folder, seed = [*sys.argv[1:], *[tempfile.mkdtemp(), "0"][len(sys.argv) - 3 :]]
    main(target, seconds, Path(folder), seed)
