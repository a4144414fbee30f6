"""The blend beside its parts: accuracy, calibration, time to train and predict, size of the model.

    python benchmarks/blend.py DATA [--datasets bibtex,delicious] [--rerankers average]
        [--objectives precision] [--without-parts] [--held-out] [--jobs 1]

DATA holds a folder per dataset (or set LABELRY_DATA). With --held-out a fifth of the training rows
is tested on in place of the test rows, near-duplicates together: for choosing. ECE is the expected
calibration error of the best label and of the five best, in percent, and in brackets what it would
be on average if the probabilities were right: so many rows tell it no better. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from linear_tree import DATASETS, one_by_one, precisions, size_on_disk
from scipy.sparse import csr_array

from labelry import Blend, LinearLabelTree, Rembrandt
from labelry.data import Dataset, read
from labelry.estimators.base import LabelRanker
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.metrics import expected_calibration_error, inverse_propensity, psp_at_k
from labelry.metrics.matching import Matched
from labelry.metrics.scoring import CALIBRATION_BINS, calibration_error, calibration_totals
from labelry.ranking.hold_out import hold_out

ONE_ROW = 200  # rows asked one by one


def load(folder: Path, hold_rows_out: bool) -> tuple[Dataset, Dataset]:
    train = read(folder / "train.txt.gz")
    return held_out(train) if hold_rows_out else (train, read(folder / "test.txt.gz"))


def held_out(train: Dataset, seed: int = 0) -> tuple[Dataset, Dataset]:
    """The rows without a fifth, and of that those without near-duplicates among the others."""
    return without_near_duplicates(train, train.X, train.n_rows // 5, np.random.default_rng(seed))


def without_near_duplicates(
    data: Dataset, X: csr_array, n_wanted: int, rng: np.random.Generator
) -> tuple[Dataset, Dataset]:
    """Rows to fit to, and one row of each of the groups of near-duplicates that are held out."""
    rows = Rows(scaled_rows(X), data.Y)
    held = hold_out(
        rows, n_wanted, n_wanted, Blend().similarity, rng, of_group=1, keep_labels=False
    )
    return data.take(held.seen), data.take(held.chosen)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def calibration(Y: csr_array, labels: np.ndarray, p: np.ndarray) -> str:
    """Expected calibration error, and that of hits drawn with the predicted probabilities."""
    found, least = calibration_errors(Y, labels, p)
    return f"{found:.1f} ({least:.1f})"


def calibration_errors(Y: csr_array, labels: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Both in percent: the second is what probabilities that are right would have by chance."""
    rng = np.random.default_rng(0)
    p = np.where(labels < 0, 0, p)
    drawn = Matched(Y, labels, rng.random((20, *p.shape)) < p)
    least = [
        calibration_error(calibration_totals(replace(drawn, hits=hits), p, CALIBRATION_BINS))
        for hits in drawn.hits
    ]
    return 100 * expected_calibration_error(Y, labels, p), 100 * float(np.mean(least))


def line(data: str, name: str, model: LabelRanker, train: Dataset, test: Dataset) -> str:
    few = slice(0, 400)
    model.fit(train.X[few], train.Y[few]).topk_ids(test.X[few], 5)  # compiles
    fit = cpu_seconds(lambda: model.fit(train.X, train.Y))
    found: list[np.ndarray] = []
    batch = cpu_seconds(lambda: found.extend(model.topk_ids(test.X, 5))) / test.X.shape[0]
    labels, scores = found
    ece = "-"
    if model.probabilities:
        ece = ", ".join(calibration(test.Y, labels[:, :k], scores[:, :k]) for k in (1, 5))
    one = one_by_one(model, test, cpu_seconds, ONE_ROW)
    weights = inverse_propensity(model.label_counts_, model.n_rows_)
    scored = "/".join(f"{100 * psp_at_k(test.Y, labels, k, weights):.1f}" for k in (1, 3, 5))
    return (
        f"| {data} | {name} | {precisions(test, labels)} | {scored} | {ece} | {fit:.1f} "
        f"| {1e3 * batch:.2f} | {1e3 * one:.2f} | {size_on_disk(model) / 1e6:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--datasets", default=DATASETS)
    parser.add_argument("--rerankers", default="average")
    parser.add_argument("--objectives", default="precision")
    parser.add_argument("--without-parts", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("give the folder of the data, or set LABELRY_DATA")
    print(
        "| data | system | P@1/3/5 | PSP@1/3/5 | ECE 1, 5 "
        "| train CPU s | batch ms/row | one row ms | MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.datasets.split(","):
        train, test = load(Path(arguments.data) / name, arguments.held_out)
        models: dict[str, LabelRanker] = {}
        if not arguments.without_parts:
            models["linear tree"] = LinearLabelTree(n_trees=3, n_jobs=arguments.jobs)
            models["neighbours"] = Rembrandt(n_jobs=arguments.jobs)
        kinds, aims = (names.split(",") for names in (arguments.rerankers, arguments.objectives))
        for kind, aim in product(kinds, aims):
            model = Blend(reranker=kind, objective=aim, n_jobs=arguments.jobs)
            models[f"blend, {kind}, {aim}"] = model
        for system, model in models.items():
            print(line(name, system, model, train, test), flush=True)


if __name__ == "__main__":
    main()
