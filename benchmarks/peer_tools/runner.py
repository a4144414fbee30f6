"""What all runners share: the data handed over, what is measured, and how it is written down.

A runner is a script in this folder, run by the interpreter that has its tool:

    python run_TOOL.py DATA SETTINGS JOBS OUT

DATA holds X_train, Y_train and X_test as .npz of scipy (rows of unit length) and the training rows
as train.txt in XC form; SETTINGS is JSON. OUT gets measures.json and labels.npz. The labels of
the test rows are not handed over. Needs numpy and scipy only, of any version that a tool asks for.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, load_npz

TOP = 5  # labels asked for
ONE_ROW = 200  # rows asked one by one
REPEATS, ENOUGH = 3, 10.0  # batches at most, and seconds after which no further one is begun


class Peer:
    """One tool on one dataset. `train`, `batch` and `one` are timed, the rest is not."""

    def __init__(self, data: Path, settings: dict[str, Any], jobs: int, out: Path) -> None:
        self.data, self.settings, self.jobs = data, settings, jobs
        self.model_path = out / "model"
        self.X_train: csr_matrix = load_npz(data / "X_train.npz")
        self.Y_train: csr_matrix = load_npz(data / "Y_train.npz")
        self.X_test: csr_matrix = load_npz(data / "X_test.npz")

    def prepare(self) -> None:
        """Bring the data into the form that the tool reads."""

    def train(self) -> None:
        raise NotImplementedError

    def save(self) -> None:
        """Write the model to `model_path`, and make ready to predict."""
        raise NotImplementedError

    def batch(self) -> Any:
        """What the tool answers for all test rows."""
        raise NotImplementedError

    def labels(self, answer: Any) -> Sequence[Sequence[int]]:
        """Label ids of each row out of the answer of `batch`, best first."""
        return answer

    def row(self, i: int) -> Any:
        """Test row i, in the form in which `one` takes it."""
        return self.X_test[i]

    def one(self, row: Any) -> Any:
        """What the tool answers for a single row."""
        raise NotImplementedError


def measure(kind: type[Peer]) -> None:
    """Train and ask a tool as the command line says."""
    data, settings, jobs, out = sys.argv[1:]
    peer = kind(Path(data), json.loads(settings), int(jobs), Path(out))
    peer.prepare()
    wall, cpu = time.perf_counter(), time.process_time()
    peer.train()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peer.save()
    batch, answer = best_batch(peer)
    labels = as_table(peer.labels(answer), peer.Y_train.shape[1])
    rows = [peer.row(i) for i in range(min(ONE_ROW, len(labels)))]
    one = float(np.median([seconds(peer.one, row)[0] for row in rows]))
    measures = {
        "train_s": wall,
        "train_cpu_s": cpu,
        "batch_ms": 1e3 * batch / len(labels),
        "one_row_ms": 1e3 * one,
        "model_mb": size_on_disk(peer.model_path) / 1e6,
        "peak_mb": peak_memory() / 1e6,
    }
    np.savez_compressed(Path(out) / "labels.npz", labels=labels)
    (Path(out) / "measures.json").write_text(json.dumps(measures))


def best_batch(peer: Peer) -> tuple[float, Any]:
    """Seconds of the quickest of a few batches, and the answer of the last."""
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < ENOUGH:
        took, answer = seconds(peer.batch)
        times.append(took)
    return min(times), answer


def seconds(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - start, result


def as_table(lists: Sequence[Sequence[int]], n_labels: int) -> np.ndarray:
    """Rows of label ids, best first; -1 where a tool gave fewer than it was asked for."""
    table = np.full((len(lists), TOP), -1, dtype=np.int32)
    for found, place in zip(lists, table, strict=True):
        place[: len(found)] = found[:TOP]
    if table.max() >= n_labels:
        raise ValueError(f"answers with label {table.max()} where there are {n_labels}")
    return table


def size_on_disk(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def peak_memory() -> int:
    """Bytes that were resident at most.

    From Linux itself where it can be: ru_maxrss also counts what the parent held when it
    started this process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        if "VmHWM" in lines:
            return 1024 * int(lines["VmHWM"].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
