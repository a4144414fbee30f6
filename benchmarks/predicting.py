"""Label many rows with the real command: rows a second, and peak memory at two sizes.

    python benchmarks/predicting.py --rows 100000 1000000

Texts as JSON lines and feature vectors as XC text are generated; `labelry predict` reads them from
standard input, with one thread and with two. Memory should not depend on the number of rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LABELRY = [sys.executable, "-m", "labelry"]
N_LABELS, N_WORDS, N_TRAIN, WORDS_PER_ROW = 1_000, 20_000, 20_000, 30
BLOCK = 20_000


def rows(n_rows: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of labels (n,) and words (n, WORDS_PER_ROW): a label has ten words of its own."""
    rng = np.random.default_rng(seed)
    for start in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - start)
        labels = rng.integers(N_LABELS, size=n)
        words = (N_WORDS * rng.random((n, WORDS_PER_ROW)) ** 3).astype(np.int64)
        own = rng.random(words.shape) < 0.2
        drawn = 10 * labels[:, None] + rng.integers(10, size=words.shape)
        yield labels, np.where(own, drawn, words)


def write_texts(path: Path, n_rows: int, seed: int) -> None:
    with path.open("w") as file:
        for labels, words in rows(n_rows, seed):
            for label, row in zip(labels.tolist(), words.tolist(), strict=True):
                text = " ".join(f"word{word}" for word in row)
                file.write(json.dumps({"text": text, "labels": [f"label {label}"]}) + "\n")


def write_features(path: Path, n_rows: int, seed: int) -> None:
    with path.open("w") as file:
        file.write(f"{n_rows} {N_WORDS} {N_LABELS}\n")
        for labels, words in rows(n_rows, seed):
            for label, row in zip(labels.tolist(), words.tolist(), strict=True):
                pairs = " ".join(f"{word}:1" for word in sorted(set(row)))
                file.write(f"{label} {pairs}\n")


def run(arguments: list[str], source: Path | None = None) -> tuple[float, float]:
    """Seconds and peak memory in MB of a command; its output goes to nowhere."""
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    if source is not None:
        actions.append((os.POSIX_SPAWN_OPEN, 0, str(source), os.O_RDONLY, 0))
    start = time.perf_counter()
    process = os.posix_spawn(
        sys.executable, [*LABELRY, *arguments], os.environ, file_actions=actions
    )
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"labelry {' '.join(arguments)} failed")
    return time.perf_counter() - start, used.ru_maxrss / 1000


def measure(kind: str, folder: Path, sizes: list[int]) -> None:
    write, suffix = (write_texts, "jsonl") if kind == "texts" else (write_features, "txt")
    train, model = folder / f"train.{suffix}", folder / f"{kind}.labelry"
    write(train, N_TRAIN, seed=0)
    quality = ["--quality", "fast", "--quiet"]
    run(["train", str(train), "--out", str(model), *quality])
    data = folder / f"new.{suffix}"
    for size in sizes:
        write(data, size, seed=2)
        ways = [("jsonl", "1"), ("jsonl", "2")]
        if size == min(sizes):
            ways += [("csv", "2"), ("xc", "2")]
        for way in ways:
            seconds, peak = predict(model, data, *way)
            print(
                f"{kind}: {size:9,} rows to {way[0]:5} --jobs {way[1]}: {seconds:5.1f} s, "
                f"{size / seconds:7,.0f} rows/s, peak {peak:4,.0f} MB",
                flush=True,
            )


def predict(model: Path, data: Path, form: str, jobs: str) -> tuple[float, float]:
    return run(["predict", str(model), "--format", form, "--jobs", jobs, "--quiet"], data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", default=["texts", "features"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="labelry-predicting-") as name:
        for kind in arguments.kinds:
            measure(kind, Path(name), arguments.rows)


if __name__ == "__main__":
    main()
