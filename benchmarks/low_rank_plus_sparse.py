"""Rembrandt before and after the sparse correction of its shortlists.

    python benchmarks/low_rank_plus_sparse.py DATA [--sets bibtex delicious] [--jobs 2]

DATA holds a folder per dataset (or set LABELRY_DATA). Prints Markdown. Candidates of the training
rows come from models that have not seen them (three folds); their cost has a column of its own.
With --held-out a fifth of the training rows stands in for the test rows.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from labelry import Dataset, Rembrandt
from labelry.data import read
from labelry.linalg.matrices import scaled_rows
from labelry.metrics import precision_at_k
from labelry.ranking.correction import fit_correction, log_odds, out_of_fold

SETS = ("bibtex", "delicious", "deb-depends", "wordnet-hypernym")
DECODERS = ("neighbours", "logistic")


def figures(test: Dataset, labels: np.ndarray) -> str:
    return " / ".join(f"{100 * precision_at_k(test.Y, labels, k):.2f}" for k in (1, 3, 5))


def measure(train: Dataset, test: Dataset, decoder: str, size: int, jobs: int) -> list[str]:
    """The cells of one row of the table."""

    def shortlists(rows: np.ndarray) -> object:
        model = Rembrandt(decoder=decoder, n_jobs=jobs).fit(train.X[rows], train.Y[rows])
        return lambda new: model.topk_ids(train.X[new], size)

    rng = np.random.default_rng(0)
    clock = [time.perf_counter()]
    model = Rembrandt(decoder=decoder, n_jobs=jobs).fit(train.X, train.Y)
    clock.append(time.perf_counter())
    candidates, scores = out_of_fold(train.n_rows, shortlists, rng=rng)
    clock.append(time.perf_counter())
    X, X_test = scaled_rows(train.X), scaled_rows(test.X)
    correction = fit_correction(X, train.Y, candidates, log_odds(scores), n_jobs=jobs, rng=rng)
    clock.append(time.perf_counter())
    before, scores = model.topk_ids(test.X, size)
    clock.append(time.perf_counter())
    after, _ = correction.rerank(X_test, before, log_odds(scores), 5, jobs)
    clock.append(time.perf_counter())
    fit, folds, correct, predict, rerank = np.diff(clock)
    return [
        figures(test, before),
        figures(test, after),
        f"{correction.weights.nnz:,}",
        *(f"{seconds:.1f}" for seconds in (fit, folds, correct)),
        *(f"{1e6 * seconds / test.n_rows:.0f}" for seconds in (predict, rerank)),
    ]


def compile_kernels(train: Dataset, jobs: int) -> None:
    """Run everything once on a few rows, before the clock starts."""
    few = train.split(min(300, train.n_rows // 2))[1]
    for decoder in DECODERS:
        measure(few, few, decoder, 10, jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--decoders", nargs="+", choices=DECODERS, default=DECODERS)
    parser.add_argument("--shortlist", type=int, default=50, help="candidates for each row")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give the data folder, or set LABELRY_DATA")
    print(
        "| | decoder | P@1/3/5 before | after | weights | Rembrandt s | folds s | correction s "
        "| predict µs/row | re-rank µs/row |"
    )
    print("|---" * 10 + "|")
    for name in arguments.sets:
        folder = Path(arguments.data) / name
        train, test = (read(folder / f"{part}.txt.gz") for part in ("train", "test"))
        if arguments.held_out:
            train, test = train.split(0.2)
        compile_kernels(train, arguments.jobs)
        size = min(arguments.shortlist, train.n_labels)
        for decoder in arguments.decoders:
            cells = measure(train, test, decoder, size, arguments.jobs)
            print(f"| {name} | {decoder} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
