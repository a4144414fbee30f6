"""The blend without and with the names of the labels, and labels that it knows by name only.

    python benchmarks/label_names.py DATA [--datasets icd10cm,wordnet-hypernym] [--test] [--jobs 1]

DATA holds a folder per dataset (or set LABELRY_DATA); icd10cm needs the demo extra. A fifth of the
training rows is tested on, near-duplicates together; with --test, the test rows. "Hidden": all
training rows of a twentieth of the labels are taken away; the share of these labels that are then
first, or among the first five, on the rows taken away. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from blend import without_near_duplicates
from scipy.sparse import csr_array

from labelry import Blend
from labelry.data import Dataset, read
from labelry.data.icd import icd10cm
from labelry.data.labels import align
from labelry.data.text import TextFeatures
from labelry.metrics import (
    expected_calibration_error,
    inverse_propensity,
    precision_at_k,
    psp_at_k,
    recall_at_k,
)

HIDDEN = 0.05  # share of the labels


class Texts(NamedTuple):
    train: Dataset
    test: Dataset
    names: list[str]  # of the labels of the training rows


def load(name: str, data: Path) -> Texts:
    if name == "icd10cm":
        train, test, titles, _ = icd10cm()
        assert train.label_names is not None
        return Texts(train, test, [titles[label] for label in train.label_names])
    train, test = (read(data / name / f"{part}.jsonl.gz") for part in ("train", "test"))
    with gzip.open(data / name / "label_names.tsv.gz", "rt") as file:
        names = {label: f"{words} : {gloss}" for label, words, gloss in map(split_line, file)}
    return Texts(train, test, [names[label] for label in train.label_names or []])


def split_line(line: str) -> list[str]:
    return line.rstrip("\n").split("\t")


def split(texts: Texts, test: bool) -> tuple[Dataset, Dataset]:
    """Rows to fit to and rows to test on."""
    if test:
        return texts.train, texts.test
    X = TextFeatures().fit_transform(texts.train.texts or [])
    rng = np.random.default_rng(0)
    return without_near_duplicates(texts.train, X, X.shape[0] // 5, rng)


class Fitted(NamedTuple):
    features: TextFeatures
    model: Blend

    def ask(self, data: Dataset) -> tuple[csr_array, np.ndarray, np.ndarray]:
        labels, p = self.model.topk_ids(self.features.transform(data.texts or []), 5)
        return data.Y, labels, np.where(labels < 0, 0, p)


def fit(train: Dataset, names: list[str] | None, n_jobs: int) -> Fitted:
    features = TextFeatures(n_jobs=n_jobs)
    X = features.fit_transform(train.texts or [])
    named = None if names is None else features.transform(names)
    return Fitted(features, Blend(n_jobs=n_jobs).fit(X, train.Y, label_features=named))


def figures(model: Fitted, tested: Dataset, names: list[str]) -> str:
    Y, labels, p = model.ask(tested)
    counts, n_rows = model.model.label_counts_, model.model.n_rows_
    Y = align(Y, tested.label_names, names)  # test rows may have labels of their own
    weights = inverse_propensity(counts, n_rows, n_labels=Y.shape[1])
    precision = "/".join(f"{100 * precision_at_k(Y, labels, k):.1f}" for k in (1, 3, 5))
    psp = "/".join(f"{100 * psp_at_k(Y, labels, k, weights):.1f}" for k in (1, 3, 5))
    ece = "/".join(
        f"{100 * expected_calibration_error(Y, labels[:, :k], p[:, :k]):.1f}" for k in (1, 5)
    )
    return f"{precision} | {psp} | {ece}"


def found_by_name(train: Dataset, names: list[str] | None, n_jobs: int) -> str:
    rng = np.random.default_rng(0)
    hidden = rng.permutation(train.n_labels)[: int(HIDDEN * train.n_labels)]
    taken = train.Y[:, hidden].sum(axis=1) > 0
    _, labels, _ = fit(train.take(~taken), names, n_jobs).ask(train.take(taken))
    place = np.full(train.n_labels + 1, -1)  # the last for labels of -1
    place[hidden] = np.arange(len(hidden))
    Y = train.take(taken).Y[:, hidden]
    return "/".join(f"{100 * recall_at_k(Y, place[labels], k):.1f}" for k in (1, 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--datasets", default="icd10cm,wordnet-hypernym")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("give the folder of the data, or set LABELRY_DATA")
    print("| data | names | P@1/3/5 | PSP@1/3/5 | ECE 1/5 | hidden, found at 1/5 |")
    print("|---|---|---|---|---|---|")
    for name in arguments.datasets.split(","):
        texts = load(name, Path(arguments.data))
        train, tested = split(texts, arguments.test)
        for names in (None, texts.names):
            row = figures(fit(train, names, arguments.jobs), tested, train.label_names or [])
            hidden = "-" if names is None else found_by_name(train, names, arguments.jobs)
            print(f"| {name} | {'with' if names else 'without'} | {row} | {hidden} |", flush=True)


if __name__ == "__main__":
    main()
