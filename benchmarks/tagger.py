"""The tagger's qualities: accuracy, calibration, time to train and to predict, size of the model.

    python benchmarks/tagger.py DATA [--datasets bibtex,delicious] [--qualities fast] [--jobs 1]

DATA holds a folder per dataset (or set LABELRY_DATA). With --held-out a fifth of the training rows
is tested on in place of the test rows, near-duplicates together: for choosing. ECE is the expected
calibration error of the best label and of the five best, in percent. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from blend import ONE_ROW, cpu_seconds, load
from linear_tree import DATASETS, one_by_one, precisions, size_on_disk

from labelry import Tagger
from labelry.data import Dataset
from labelry.metrics import expected_calibration_error
from labelry.tagging.tagger import QUALITIES


def line(data: str, tagger: Tagger, train: Dataset, test: Dataset) -> str:
    few = slice(0, 400)
    tagger.fit(train.X[few], train.Y[few]).topk_ids(test.X[few], 5)  # compiles
    fit = cpu_seconds(lambda: tagger.fit(train.X, train.Y))
    found: list[tuple] = []
    batch = cpu_seconds(lambda: found.append(tagger.topk_ids(test.X, 5))) / test.X.shape[0]
    one = one_by_one(tagger, test, cpu_seconds, ONE_ROW)
    labels, scores = found[0]
    shown = "-"
    if tagger.probabilities:
        errors = (expected_calibration_error(test.Y, labels[:, :k], scores[:, :k]) for k in (1, 5))
        shown = ", ".join(f"{100 * error:.2f}" for error in errors)
    return (
        f"| {data} | {tagger.quality} | {precisions(test, labels)} | {shown} | {fit:.1f} "
        f"| {1e3 * batch:.2f} | {1e3 * one:.2f} | {size_on_disk(tagger) / 1e6:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--datasets", default=DATASETS)
    parser.add_argument("--qualities", default=",".join(QUALITIES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("give the folder of the data, or set LABELRY_DATA")
    print("| data | quality | P@1/3/5 | ECE 1, 5 | train CPU s | batch ms/row | one row ms | MB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.datasets.split(","):
        train, test = load(Path(arguments.data) / name, arguments.held_out)
        for quality in arguments.qualities.split(","):
            tagger = Tagger(quality=quality, n_jobs=arguments.jobs)
            print(line(name, tagger, train, test), flush=True)


if __name__ == "__main__":
    main()
