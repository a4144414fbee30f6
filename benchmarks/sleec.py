"""The figures of the SLEEC paper, beside ours, from one command each.

    python benchmarks/sleec.py DATA table      P@1/3/5 and times, with the systems of the paper
    python benchmarks/sleec.py DATA figure1a   error of global SVD, local SVD and SLEEC by dimension
    python benchmarks/sleec.py DATA figure2    P@1 by the number of learners
    python benchmarks/sleec.py DATA scale      training cost at four sizes; a WikiLSHTC learner
    python benchmarks/sleec.py DATA speed      prediction beside LEML's, which scores all labels

DATA holds a folder per dataset (or set LABELRY_DATA). Prints Markdown; the figures also become
pictures in docs/results (needs matplotlib).
"""

from __future__ import annotations

import argparse
import os
import time
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scale import make_problem, peak_memory
from scipy.sparse import csr_array

from labelry import LEML, SLEEC, Dataset, Rembrandt
from labelry.data import read
from labelry.embeddings.sleec import neighbour_gram, svp
from labelry.estimators.base import LabelRanker
from labelry.estimators.registry import SYSTEMS, system_class
from labelry.linalg.rows import Rows
from labelry.linalg.sketch import randomized_eigh
from labelry.metrics import precision_at_k

# P@1/3/5: Table 1b of the paper; CPLST, CS and ML-CSSP as published for the same data.
PAPER = {
    "bibtex": {
        "sleec": "65.57 / 40.02 / 29.30",
        "leml": "62.53 / 38.4 / 28.21",
        "fastxml": "63.73 / 39.00 / 28.54",
        "wsabie": "54.77 / 32.38 / 23.98",
        "one-vs-rest": "61.83 / 36.44 / 26.46",
        "cplst": "62.4 / 37.8 / 27.6",
        "compressed-sensing": "58.9 / 33.5 / 23.7",
        "ml-cssp": "45.0 / 30.4 / 23.5",
    },
    "delicious": {
        "sleec": "68.42 / 61.83 / 56.80",
        "leml": "65.66 / 60.54 / 56.08",
        "fastxml": "69.44 / 63.62 / 59.10",
        "wsabie": "64.12 / 58.13 / 53.64",
        "one-vs-rest": "65.01 / 58.90 / 53.26",
        "cplst": "65.3 / 60.0 / 55.3",
        "compressed-sensing": "61.4 / 56.5 / 52.1",
        "ml-cssp": "63.0 / 56.3 / 50.2",
    },
}
COMPARED = ["sleec", "leml", "local-leml", "wsabie", "cplst", "compressed-sensing", "ml-cssp"]
COMPARED += ["knn", "fastxml", "lpsr", "one-vs-rest"]
WIKILSHTC_ROWS, HOURS = 1_778_351, 4  # of a learner in the paper, on one core
WIKILSHTC_LABELS = 325_056


def load(data: str, name: str) -> tuple[Dataset, Dataset]:
    train, test = (read(Path(data) / name / f"{part}.txt.gz") for part in ("train", "test"))
    return train, test


def precisions(model: LabelRanker, test: Dataset) -> tuple[list[float], float]:
    """P@1/3/5, and milliseconds per row of batch prediction."""
    start = time.perf_counter()
    labels, _ = model.topk_ids(test.X, 5)
    milliseconds = 1000 * (time.perf_counter() - start) / test.n_rows
    return [100 * precision_at_k(test.Y, labels, k) for k in (1, 3, 5)], milliseconds


def table(data: str, jobs: int, datasets: list[str]) -> None:
    for name in datasets:
        train, test = load(data, name)
        print(f"\n| {name} | paper P@1/3/5 | labelry P@1/3/5 | training s | prediction ms |")
        print("|---|---|---|---|---|")
        systems = {s: system_class(s) for s in COMPARED if s in SYSTEMS}
        systems["sleec"] = SLEEC
        for system in sorted(systems, key=COMPARED.index):
            if (name, system) == ("deb-depends", "lpsr"):  # one-vs-rest, then twice its weights
                continue
            report(name, system, systems[system](n_jobs=jobs), train, test)
        # The same dimension without local embeddings: what is theirs, and what the neighbours'.
        for decoder in ("least-squares", "neighbours"):
            model = Rembrandt(embedding_dim=100, decoder=decoder, n_jobs=jobs)
            report(name, f"rembrandt, {decoder}, k = 100", model, train, test)


def report(data: str, name: str, model: LabelRanker, train: Dataset, test: Dataset) -> None:
    few = np.arange(min(200, train.n_rows))
    type(model)(n_jobs=model.n_jobs).fit(train.X[few], train.Y[few])  # compile before the clock
    start = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - start
    values, milliseconds = precisions(model, test)
    ours = " / ".join(f"{v:.2f}" for v in values)
    paper = PAPER.get(data, {}).get(name, "")
    print(f"| {name} | {paper} | {ours} | {seconds:.1f} | {milliseconds:.3f} |", flush=True)


def svd_errors(Y: csr_array, dims: list[int], jobs: int) -> np.ndarray:
    """||Y - Y_k||^2 for each k."""
    rows = Rows(np.zeros((Y.shape[0], 1)), Y, n_jobs=jobs)
    pairs = randomized_eigh(
        lambda Q: rows.cross("Y", "Y", Q),
        Y.shape[1],
        max(dims),
        n_passes=3,
        rng=np.random.default_rng(0),
    )
    captured = np.concatenate([[0], np.cumsum(pairs.values, dtype=float)])
    return (Y.data**2).sum() - captured[np.minimum(dims, len(captured) - 1)]


def figure1a(data: str, jobs: int, out: str) -> None:
    train, _ = load(data, "deb-depends")
    dims = [10, 25, 50, 100, 200]
    model = SLEEC(n_learners=1, embedding_dim=10, n_jobs=jobs).fit(train)
    learner = model.fitted_.learners[0]
    parts = [train.Y[rows] for rows in np.split(np.asarray(learner.rows), learner.row_bounds[1:-1])]
    energy = (train.Y.data**2).sum()
    errors = {
        "global SVD": svd_errors(train.Y, dims, jobs) / energy,
        "local SVD": sum(svd_errors(part, dims, jobs) for part in parts) / energy,
    }
    grams = [neighbour_gram(part, model.n_label_neighbors, jobs) for part in parts]
    total = sum((G.data**2).sum() for G in grams)
    errors["SLEEC, objective 4"] = np.array(
        [
            sum(
                svp(G, k, rng=np.random.default_rng(0), n_jobs=jobs)[1][-1] * (G.data**2).sum()
                for G in grams
            )
            / total
            for k in dims
        ]
    )
    print("| deb-depends, error % | " + " | ".join(f"k = {k}" for k in dims) + " |")
    print("|---|" + "---|" * len(dims))
    for name, values in errors.items():
        print(f"| {name} | " + " | ".join(f"{100 * v:.1f}" for v in values) + " |")
    series = {name: 100 * values for name, values in errors.items()}
    draw(dims, series, "dimension", "error %", Path(out) / "sleec-figure1a.svg")


def changed(model: LabelRanker, **fields: Any) -> LabelRanker:
    """Return the same model, but for some fields of its fitted value."""
    same = copy(model)
    same.trained_ = replace(model.trained_, fitted=replace(model.fitted_, **fields))
    return same


def figure2(data: str, jobs: int, out: str, most: int) -> None:
    train, test = load(data, "deb-depends")
    model = SLEEC(n_learners=most, n_jobs=jobs).fit(train)
    counts = [n for n in (1, 2, 3, 5, 8, 10, 15) if n <= most]
    values = []
    for n in counts:
        fewer = changed(model, learners=model.fitted_.learners[:n])
        values.append(precisions(fewer, test)[0])
    print("| learners | P@1 | P@3 | P@5 |\n|---|---|---|---|")
    for n, row in zip(counts, values, strict=True):
        print(f"| {n} | " + " | ".join(f"{v:.2f}" for v in row) + " |", flush=True)
    draw(
        counts,
        {"SLEEC": [v[0] for v in values]},
        "learners",
        "P@1",
        Path(out) / "sleec-figure2.svg",
    )


def draw(x: list[int], series: dict[str, object], xlabel: str, ylabel: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "labelry"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for name, y in series.items():
        axes.plot(x, y, marker="o", label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_ylim(bottom=None if ylabel == "P@1" else 0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def scale(jobs: int, part: float, out: str) -> None:
    print("| rows | features | labels | clusters | training s | ms a row | peak GiB |")
    print("|---|---|---|---|---|---|---|")
    SLEEC(n_learners=1, n_clusters=2, n_jobs=jobs).fit(*make_problem(0.0005)[:2])  # compile
    sizes, times = [], []
    for share in (part / 8, part / 4, part / 2, part):
        X, Y, _ = make_problem(share)
        model = SLEEC(n_learners=1, embedding_dim=50, n_jobs=jobs)
        start = time.perf_counter()
        model.fit(X, Y)
        seconds = time.perf_counter() - start
        print(
            f"| {X.shape[0]:,} | {X.shape[1]:,} | {Y.shape[1]:,} | {model.errors_.size} "
            f"| {seconds:.1f} | {1000 * seconds / X.shape[0]:.2f} | {peak_memory():.1f} |",
            flush=True,
        )
        sizes.append(X.shape[0])
        times.append(seconds)
    draw(sizes, {"one learner": times}, "rows", "training s", Path(out) / "sleec-scale.svg")
    hours = seconds / X.shape[0] * WIKILSHTC_ROWS / 3600
    print(
        f"\nAt the last rate a learner on WikiLSHTC's {WIKILSHTC_ROWS:,} rows takes {hours:.2f} h "
        f"with {jobs} threads (paper: {HOURS} h on one core)."
    )


def speed(jobs: int, part: float) -> None:
    """SLEEC's prediction does not see the number of labels; LEML's label vectors are repeated."""
    X, Y, _ = make_problem(part)
    sleec = SLEEC(n_learners=1, embedding_dim=50, n_jobs=jobs).fit(X, Y)
    leml = LEML(embedding_dim=50, n_rounds=1, n_jobs=jobs).fit(X, Y)
    own, trained = leml.label_embedding_, leml.trained_
    print("| labels | SLEEC ms, batch | one row | LEML ms, batch | one row | ratio | one row |")
    print("|---|---|---|---|---|---|---|")
    mine = [per_row(sleec, X[:rows]) for rows in (500, 1)]
    for c in (Y.shape[1], WIKILSHTC_LABELS, 1_000_000):
        fitted = replace(trained.fitted, label_embedding=np.resize(own, (c, own.shape[1])))
        leml.trained_ = replace(trained, fitted=fitted, classes=np.arange(c))
        theirs = [per_row(leml, X[:rows]) for rows in (500, 1)]
        cells = [f"{1000 * v:.2f}" for v in (*mine, *theirs)]
        cells += [f"{b / a:.0f}" for a, b in zip(mine, theirs, strict=True)]
        print(f"| {c:,} | {' | '.join(cells)} |", flush=True)


def per_row(model: LabelRanker, X: csr_array) -> float:
    """Seconds; the best of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        model.topk_ids(X, 5)
        times.append(time.perf_counter() - start)
    return min(times) / X.shape[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("what", choices=["table", "figure1a", "figure2", "scale", "speed"])
    parser.add_argument("--datasets", default="bibtex,delicious,deb-depends", help="of the table")
    parser.add_argument("--learners", type=int, default=15, help="most learners of figure 2")
    parser.add_argument("--part", type=float, default=0.05, help="share of the rows in scale")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default="docs/results", help="folder of the pictures")
    arguments = parser.parse_args()
    if arguments.data is None and arguments.what not in ("scale", "speed"):
        parser.error("give the data folder, or set LABELRY_DATA")
    if arguments.what == "table":
        table(arguments.data, arguments.jobs, arguments.datasets.split(","))
    elif arguments.what == "figure1a":
        figure1a(arguments.data, arguments.jobs, arguments.out)
    elif arguments.what == "figure2":
        figure2(arguments.data, arguments.jobs, arguments.out, arguments.learners)
    elif arguments.what == "scale":
        scale(arguments.jobs, arguments.part, arguments.out)
    else:
        speed(arguments.jobs, arguments.part)


if __name__ == "__main__":
    main()
