"""labelry beside every public linear tool: accuracy, time, size of the model and memory.

    python benchmarks/peers.py DATA [--datasets bibtex,delicious] [--tools omikuji-bonsai,...]

DATA holds a folder per dataset (or set LABELRY_DATA). A dataset such as bibtex:3 is a fifth of its
training rows in place of the test rows, near-duplicates together, drawn with seed 3: more than one
draw tells luck from a difference. icd-10-cm and icd-10-cm-codes need no folder: phrases to be
tagged with one of 1,763 categories, or of 46,881 codes, as words of the package simple-icd-10-cm
(`pip install 'labelry[demo]'`). Each tool is installed from PyPI into a
virtual environment of its own on first use, trains and predicts in a process of its own (see
benchmarks/peer_tools), and is scored here. A tool that cannot be installed or fails is named in
the table with the reason. Tables go to OUT/peers-DATASET.md and are printed.

Results are kept in the folder of the environments as they come: --resume measures only what is
missing there, --table-only nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from blend import held_out
from peer_tools.catalogue import NOTES, TOOLS, Tool
from scipy.sparse import csr_matrix, save_npz

from labelry import __version__
from labelry.data import Dataset, TextFeatures, read, write
from labelry.data.icd import icd10cm
from labelry.linalg.matrices import scaled_rows
from labelry.metrics import inverse_propensity, precision_at_k, psp_at_k

DATASETS = "bibtex,delicious,deb-depends,wordnet-hypernym"
PACKAGED = {"icd-10-cm": False, "icd-10-cm-codes": True}  # whether its labels are all codes
RUNNERS = Path(__file__).parent / "peer_tools"
CUTOFFS = (1, 3, 5)
COLUMNS = {  # heading: measure and its format
    "train s": ("train_s", ".1f"),
    "CPU s": ("train_cpu_s", ".1f"),
    "batch ms/row": ("batch_ms", ".3f"),
    "one row ms": ("one_row_ms", ".3f"),
    "model MB": ("model_mb", ".1f"),
    "peak MB": ("peak_mb", ".0f"),
}


class ToolError(Exception):
    """Why there are no measures of a tool, in one line."""


@dataclass(frozen=True)
class Bench:
    """Where things are, and what is asked of all tools alike."""

    envs: Path
    jobs: int
    timeout: float
    started: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")

    def result_path(self, dataset: str, name: str) -> Path:
        return self.envs / "results" / dataset / f"{name}.json"

    def result(self, dataset: str, name: str) -> dict[str, Any] | None:
        path = self.result_path(dataset, name)
        return json.loads(path.read_text()) if path.exists() else None

    def measure(self, name: str, dataset: str, data: Path, train: Dataset, test: Dataset) -> None:
        """Run a tool, score it and keep the result; a failure is a result too."""
        facts: dict[str, Any] = {
            "started": self.started,
            "jobs": self.jobs,
            "machine": machine(),
            "labelry": __version__,
            "settings": TOOLS[name].settings_for(dataset.partition(":")[0]),
            "data": f"{train.n_rows:,} training rows, {train.n_features:,} features, "
            f"{train.n_labels:,} labels; {test.n_rows:,} test rows",
        }
        path = self.result_path(dataset, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory() as out:
                self.run(TOOLS[name], facts["settings"], data, Path(out))
                measures = json.loads((Path(out) / "measures.json").read_text())
                labels = np.load(Path(out) / "labels.npz")["labels"]
            np.savez_compressed(path.with_suffix(".npz"), labels=labels)
            facts |= {"measures": measures, **scores(train, test, labels)}
        except ToolError as error:
            facts["error"] = str(error)
        path.write_text(json.dumps(facts, indent=1))
        say(f"{dataset}: {line(name, facts)}")

    def run(self, tool: Tool, settings: dict[str, Any], data: Path, out: Path) -> None:
        script = RUNNERS / f"run_{tool.runner}.py"
        command = [self.interpreter(tool), script, data, json.dumps(settings), self.jobs, out]
        threads = {f"{kind}_NUM_THREADS": str(self.jobs) for kind in ("OMP", "OPENBLAS", "MKL")}
        call(command, timeout=self.timeout, environment={**os.environ, **threads})

    def interpreter(self, tool: Tool) -> Path:
        """The Python that has a tool, with a virtual environment made where there is none."""
        if not tool.installs:
            return Path(sys.executable)
        folder = self.envs / tool.runner
        python, stamp = folder / "bin" / "python", folder / "installed.txt"
        wanted = "\n".join(tool.installs)
        if not stamp.exists() or stamp.read_text() != wanted:
            say(f"installing {wanted.splitlines()[-1]}")
            call([sys.executable, "-m", "venv", folder])
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            for packages in tool.installs:
                call([*pip, *packages.split()])
            stamp.write_text(wanted)
        return python


def call(
    command: list[Any], timeout: float | None = None, environment: dict[str, str] | None = None
) -> None:
    try:
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"not finished in {timeout:.0f} s") from None
    if done.returncode < 0:
        raise ToolError(f"ended by {signal.Signals(-done.returncode).name}")
    if done.returncode > 0:
        raise ToolError(reason(done.stderr))


def reason(stderr: str) -> str:
    """The last line that speaks of an error, short, without folders of this machine."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines or ["gave no reason"]
    return re.sub(r"(?:/[^\s/:'\"]+)+/", "", telling[-1]).replace("|", "/")[:160]


def scores(train: Dataset, test: Dataset, labels: np.ndarray) -> dict[str, list[float]]:
    weights = inverse_propensity(train.Y.sum(axis=0), train.n_rows)
    return {
        "P": [100 * precision_at_k(test.Y, labels, k) for k in CUTOFFS],
        "PSP": [100 * psp_at_k(test.Y, labels, k, weights) for k in CUTOFFS],
    }


def hand_over(train: Dataset, test: Dataset, folder: Path) -> None:
    """Write the rows for the runners, test labels kept back."""
    for name, matrix in (("X_train", train.X), ("Y_train", train.Y), ("X_test", test.X)):
        save_npz(folder / f"{name}.npz", csr_matrix(matrix), compressed=False)
    write(train, folder / "train.txt", format="xc")


def read_scaled(path: Path) -> Dataset:
    rows = read(path)
    return Dataset(rows.Y, X=scaled_rows(rows.X))


def machine() -> str:
    """Cores and name of the processor."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    return f"{os.cpu_count()} cores, {found[1] if found else platform.processor()}"


def cells(result: dict[str, Any]) -> list[str]:
    """Of one line, after the name of the tool."""
    if "error" in result:
        return [result["error"]] + [""] * (len(COLUMNS) + 1)
    ranked = ["/".join(f"{value:.1f}" for value in result[name]) for name in ("P", "PSP")]
    return ranked + [f"{result['measures'][name]:{form}}" for name, form in COLUMNS.values()]


def line(name: str, result: dict[str, Any], told: Sequence[str] = ()) -> str:
    last = [result[key] for key in told]
    return f"| {' | '.join([TOOLS[name].title, *cells(result), *last])} |"


def page(dataset: str, bench: Bench) -> str:
    """The table of a dataset with all results that there are, and how they came about."""
    kept = {name: bench.result(dataset, name) for name in TOOLS}
    found = {name: result for name, result in kept.items() if result is not None}
    if not found:
        raise SystemExit(f"there are no results of {dataset} yet")

    def facts(key: str) -> str:
        return " and ".join(sorted({str(result[key]) for result in found.values()}))

    # What differs is told with each line: only lines of one machine can be compared in time.
    told = [
        key for key in ("started", "machine") if len({result[key] for result in found.values()}) > 1
    ]
    headings = ["tool", "P@1/3/5", "PSP@1/3/5", *COLUMNS, *told]
    when = "in several runs" if "started" in told else f"on {facts('started')}"
    lines = [
        f"# {dataset}: labelry beside other linear tools",
        "",
        f"`python benchmarks/peers.py DATA --datasets {dataset}`: labelry {facts('labelry')}, "
        f"{facts('data')}. Measured {when} with {facts('machine')}.",
        "",
        f"| {' | '.join(headings)} |",
        "|---" * len(headings) + "|",
        *(line(name, result, told) for name, result in found.items()),
        NOTES.format(jobs=facts("jobs")),
        *(f"- {TOOLS[name].title}: {said(result['settings'])}" for name, result in found.items()),
    ]
    return "\n".join(lines)


def said(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "none"


def measure_all(data: Path, dataset: str, tools: list[str], resume: bool, bench: Bench) -> None:
    """Measure the tools on a dataset, one after the other."""
    if resume:
        kept = {name: bench.result(dataset, name) or {"error": "none yet"} for name in tools}
        tools = [name for name in tools if "error" in kept[name]]
    if not tools:
        return
    train, test = load(data, dataset)
    with tempfile.TemporaryDirectory() as folder:
        hand_over(train, test, Path(folder))
        for name in tools:
            bench.measure(name, dataset, Path(folder), train, test)


def load(data: Path, dataset: str) -> tuple[Dataset, Dataset]:
    """Rows to train with and rows to judge by, of unit length."""
    name, drawn, seed = dataset.partition(":")
    if name in PACKAGED:
        train, test = phrases(full_codes=PACKAGED[name])
    else:
        train, test = (read_scaled(data / name / f"{part}.txt.gz") for part in ("train", "test"))
    return held_out(train, int(seed)) if drawn else (train, test)


def phrases(full_codes: bool) -> tuple[Dataset, Dataset]:
    """ICD-10-CM as tf-idf of the words of its phrases."""
    found = icd10cm(full_codes=full_codes)
    words = TextFeatures(min_df=2).fit(found.train.texts)
    return tuple(  # type: ignore[return-value]
        Dataset(part.Y, X=scaled_rows(words.transform(part.texts)))
        for part in (found.train, found.test)
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", nargs="?", default=os.environ.get("LABELRY_DATA"), help="default: LABELRY_DATA")
    add(
        "--datasets", default=DATASETS, help=f"folders of DATA (or FOLDER:SEED), default {DATASETS}"
    )
    add("--tools", default=",".join(TOOLS), help=f"default all: {', '.join(TOOLS)}")
    add("--jobs", type=int, default=2, help="threads of each tool, default 2")
    add(
        "--out",
        type=Path,
        default=Path("docs/results"),
        help="folder of the tables, default docs/results",
    )
    add(
        "--envs",
        type=Path,
        default=cache / "labelry-peers",
        help="folder of environments and results, default labelry-peers in the user's cache",
    )
    add("--timeout", type=float, default=3600, help="seconds of a tool on a dataset, default 3600")
    add("--resume", action="store_true", help="measure only what has no result, or failed")
    add("--table-only", action="store_true", help="write the tables from results that are there")
    found = parser.parse_args()
    found.datasets, found.tools = found.datasets.split(","), found.tools.split(",")
    packaged = all(name.partition(":")[0] in PACKAGED for name in found.datasets)
    if not (found.data or found.table_only or packaged):
        parser.error("give the folder of the data, or set LABELRY_DATA")
    for name in found.tools:
        if name not in TOOLS:
            parser.error(f"unknown tool {name!r}; there are: {', '.join(TOOLS)}")
    for name in found.datasets:
        folder, drawn, seed = name.partition(":")
        there = found.table_only or folder in PACKAGED or (Path(found.data) / folder).is_dir()
        if not there:
            parser.error(f"no folder {folder!r} in the folder of the data")
        if drawn and not seed.isdecimal():
            parser.error(f"the seed of held-out rows must be a whole number, got {name!r}")
    return found


def main() -> None:
    asked = options()
    bench = Bench(asked.envs.resolve(), asked.jobs, asked.timeout)
    for dataset in asked.datasets:
        if not asked.table_only:
            tools = [name for name in asked.tools if TOOLS[name].is_there]
            measure_all(Path(asked.data or "."), dataset, tools, asked.resume, bench)
        text = page(dataset, bench)
        print(f"{text}\n", flush=True)
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / f"peers-{dataset.replace(':', '-held-out-')}.md").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
