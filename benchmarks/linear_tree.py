"""The linear label tree: accuracy, time to train, time of a prediction and size of the model.

    python benchmarks/linear_tree.py DATA [--datasets bibtex,delicious] [--trees 1,3] [--jobs 2]

DATA holds a folder per dataset (or set LABELRY_DATA). With --held-out a tenth of the training rows
is judged in place of the test rows: for choosing. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from labelry import LinearLabelTree
from labelry.data import Dataset, read
from labelry.estimators.base import LabelRanker
from labelry.metrics import precision_at_k

DATASETS = "bibtex,delicious,wordnet-hypernym,deb-depends"
ONE_ROW = 300  # rows asked one by one


def load(folder: Path, held_out: bool) -> tuple[Dataset, Dataset]:
    train = read(folder / "train.txt.gz")
    if not held_out:
        return train, read(folder / "test.txt.gz")
    order = np.random.default_rng(0).permutation(train.Y.shape[0])
    cut = len(order) // 10
    parts = (np.sort(order[cut:]), np.sort(order[:cut]))
    return tuple(Dataset(train.Y[rows], X=train.X[rows]) for rows in parts)  # type: ignore[return-value]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one_by_one(model: LabelRanker, test: Dataset, clock: Callable[..., float], most: int) -> float:
    """Median seconds of a prediction of one row, by a clock such as `seconds`."""
    rows = [test.X[[i]].astype(np.float32) for i in range(min(most, test.X.shape[0]))]
    return float(np.median([clock(lambda row=row: model.topk_ids(row, 5)) for row in rows]))  # type: ignore[misc]


def precisions(test: Dataset, labels: np.ndarray) -> str:
    return "/".join(f"{100 * precision_at_k(test.Y, labels, k):.1f}" for k in (1, 3, 5))


def size_on_disk(model: LabelRanker) -> int:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def line(name: str, train: Dataset, test: Dataset, n_trees: int, n_jobs: int) -> str:
    model = LinearLabelTree(n_trees=n_trees, n_jobs=n_jobs)
    few = slice(0, 200)
    model.fit(train.X[few], train.Y[few]).topk_ids(test.X[few], 5)  # compiles
    cpu = time.process_time()
    fit = seconds(lambda: model.fit(train.X, train.Y))
    cpu = time.process_time() - cpu
    found: list[np.ndarray] = []
    batch = seconds(lambda: found.append(model.topk_ids(test.X, 5)[0])) / test.X.shape[0]
    one = one_by_one(model, test, seconds, ONE_ROW)
    return (
        f"| {name} | {n_trees} | {precisions(test, found[0])} | {fit:.1f} | {cpu:.1f} "
        f"| {1e3 * batch:.3f} | {1e6 * one:.0f} | {size_on_disk(model) / 1e6:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--datasets", default=DATASETS)
    parser.add_argument("--trees", default="1,3")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--held-out", action="store_true")
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("give the folder of the data, or set LABELRY_DATA")
    print("| data | trees | P@1/3/5 | train s | CPU s | batch ms/row | one row us | MB on disk |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.datasets.split(","):
        train, test = load(Path(arguments.data) / name, arguments.held_out)
        for n_trees in map(int, arguments.trees.split(",")):
            print(line(name, train, test, n_trees, arguments.jobs), flush=True)


if __name__ == "__main__":
    main()
