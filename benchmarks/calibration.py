"""How right the tagger's probabilities are, with several seeds: other rows are held out by each.

    python benchmarks/calibration.py DATA [--datasets bibtex] [--qualities fast] [--seeds 5]
    python benchmarks/calibration.py DATA --datasets deb-depends --group-column source

DATA holds a folder per dataset (or set LABELRY_DATA); datasets are named as in benchmarks/peers.py,
so that bibtex:3 is for choosing, and icd-10-cm needs no folder. With --group-column the tagger is
told which rows belong together, by a key of train.jsonl.gz in the folder. ECE is the expected
calibration error of the best label and of the five best, in percent: its mean, its range, and after
it what right probabilities would have, of as many rows. The last column is by how much the
probabilities of the five best are too large on average, in percentage points. P is precision at 1,
3 and 5, also a mean. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from blend import calibration_errors
from linear_tree import DATASETS
from peers import PACKAGED, load

from labelry import Tagger
from labelry.data import Dataset
from labelry.data.files import read_groups
from labelry.metrics import precision_at_k
from labelry.tagging.tagger import QUALITIES


def line(
    data: str,
    quality: str,
    train: Dataset,
    test: Dataset,
    groups: np.ndarray | None,
    n_seeds: int,
    jobs: int,
) -> str:
    errors, excess = np.empty((n_seeds, 2, 2)), np.empty(n_seeds)
    precision = np.empty((n_seeds, 3))
    for seed in range(n_seeds):
        tagger = Tagger(quality=quality, random_state=seed, n_jobs=jobs)
        tagger.fit(train.X, train.Y, groups=groups)
        labels, p = tagger.topk_ids(test.X, 5)
        precision[seed] = [100 * precision_at_k(test.Y, labels, k) for k in (1, 3, 5)]
        excess[seed] = 100 * p.mean() - precision[seed, -1]
        for i, k in enumerate((1, 5)):
            errors[seed, i] = calibration_errors(test.Y, labels[:, :k], p[:, :k])
    shown = " | ".join(
        f"{found.mean():.1f} ({found.min():.1f} to {found.max():.1f}) | {least.mean():.1f}"
        for found, least in (errors[:, i].T for i in (0, 1))
    )
    mean = "/".join(f"{share:.2f}" for share in precision.mean(axis=0))
    return f"| {data} | {quality} | {mean} | {shown} | {excess.mean():+.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--datasets", default=DATASETS)
    parser.add_argument("--qualities", default=",".join(QUALITIES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--group-column")
    arguments = parser.parse_args()
    names = arguments.datasets.split(",")
    if not arguments.data and not set(names) <= set(PACKAGED):
        parser.error("give the folder of the data, or set LABELRY_DATA")
    print("| data | quality | P@1/3/5 | ECE 1 | at least | ECE 5 | at least | too large by |")
    print("|---|---|---|---|---|---|---|---|")
    folder = Path(arguments.data or "")
    for name in names:
        train, test = load(folder, name)
        groups = None
        if arguments.group_column:
            groups = read_groups(folder / name / "train.jsonl.gz", arguments.group_column)
        for quality in arguments.qualities.split(","):
            row = line(name, quality, train, test, groups, arguments.seeds, arguments.jobs)
            print(row, flush=True)


if __name__ == "__main__":
    main()
