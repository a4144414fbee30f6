"""The figures of the Rembrandt paper, beside ours, from one command each.

    python benchmarks/rembrandt.py DATA aloi         Table 2
    python benchmarks/rembrandt.py DATA features     ALOI with random Fourier features
    python benchmarks/rembrandt.py DATA sweep        Figure 1a as a picture (needs matplotlib)
    python benchmarks/rembrandt.py DATA multilabel   Bibtex and Delicious beside one-vs-rest
    python benchmarks/rembrandt.py DATA siblings     Table 4 and Figure 1b on WordNet

DATA holds a folder per dataset (or set LABELRY_DATA). Prints Markdown.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from pathlib import Path

import numpy as np

from labelry import (
    PCA,
    PLST,
    CompressedSensing,
    Dataset,
    OneVsRest,
    Rembrandt,
)
from labelry.data import read
from labelry.estimator import LabelRanker
from labelry.metrics import precision_at_k, sibling_fraction


def load(data: str, name: str) -> tuple[Dataset, Dataset]:
    train, test = (read(Path(data) / name / f"{part}.txt.gz") for part in ("train", "test"))
    return train, test


def timed_fit(model: LabelRanker, train: Dataset) -> float:
    start = time.perf_counter()
    model.fit_dataset(train)
    return time.perf_counter() - start


def figures(model: LabelRanker, test: Dataset) -> tuple[str, float]:
    """P@1/3/5, and milliseconds per row of batch prediction."""
    start = time.perf_counter()
    labels, _ = model.topk_ids(test.X, 5)
    milliseconds = 1000 * (time.perf_counter() - start) / test.n_rows
    values = (100 * precision_at_k(test.Y, labels, k) for k in (1, 3, 5))
    return " / ".join(f"{v:.2f}" for v in values), milliseconds


def aloi(data: str, jobs: int) -> None:
    train, test = load(data, "aloi")
    common = {"decoder": "logistic", "normalize": False, "n_jobs": jobs}
    rows = [
        ("RE + LR", "9.7", Rembrandt(embedding_dim=50, regressor_regularization=1e-6, **common)),
        ("PCA + LR", "9.7", PCA(embedding_dim=50, **common)),
        (
            "CS + LR",
            "10.8",
            CompressedSensing(embedding_dim=50, regressor_regularization=1e-6, **common),
        ),
        ("LR", "10.8", PCA(embedding_dim=128, **common)),
        ("OAA", "11.5", OneVsRest(loss="logistic", C=10.0, n_jobs=jobs)),
    ]
    warm_up = Rembrandt(embedding_dim=5, max_epochs=1, **common)
    warm_up.fit(train.X[:500], train.Y[:500])  # compile before the clock starts
    start = time.perf_counter()
    Rembrandt(embedding_dim=50, decoder="least-squares", normalize=False).fit_dataset(train)
    print(
        f"embedding and regressor alone, k = 50: {time.perf_counter() - start:.1f} s (paper: 4 s)\n"
    )
    aloi_table(rows, train, test)
    lomtree(train, test)


def features(data: str, jobs: int) -> None:
    train, test = load(data, "aloi")
    rows = [
        (
            f"RE + {n:,} random features ({kernel}) + LR",
            "3.65 (authors' log, about 6,000)",
            Rembrandt(
                embedding_dim=50,
                decoder="logistic",
                regressor_regularization=1e-6,
                feature_map=kernel,
                n_random_features=n,
                normalize=False,
                n_jobs=jobs,
            ),
        )
        for kernel, n in (("gaussian", 4000), ("gaussian", 6000))
    ]
    aloi_table(rows, train, test)


def aloi_table(rows: list[tuple[str, str, LabelRanker]], train: Dataset, test: Dataset) -> None:
    print("| ALOI, test error % | paper | labelry | training s | prediction, rows/s |")
    print("|---|---|---|---|---|")
    for name, paper, model in rows:
        seconds = timed_fit(model, train)
        start = time.perf_counter()
        labels = model.topk_ids(test.X, 1)[0]
        rate = test.n_rows / (time.perf_counter() - start)
        error = 100 - 100 * precision_at_k(test.Y, labels, 1)
        print(f"| {name} | {paper} | {error:.2f} | {seconds:.1f} | {rate:,.0f} |", flush=True)


def lomtree(train: Dataset, test: Dataset, passes: int = 3) -> None:
    """The paper's last column, from Vowpal Wabbit."""
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        print("| LOMtree | 16.5 | not measured: needs vowpalwabbit (bench extra) | | |")
        return
    start = time.perf_counter()
    vw = Workspace(f"--log_multi {train.n_labels} --quiet -b 24 --learning_rate 4")

    def lines(dataset: Dataset) -> list[str]:
        X = dataset.X
        return [
            f"{label + 1} | "
            + " ".join(f"{j}:{v:g}" for j, v in zip(X.indices[a:b], X.data[a:b], strict=True))
            for label, a, b in zip(dataset.Y.indices, X.indptr[:-1], X.indptr[1:], strict=True)
        ]

    texts = lines(train)
    for _ in range(passes):
        for text in texts:
            vw.learn(text)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    predicted = np.array([vw.predict(text.split(" ", 1)[1]) for text in lines(test)])
    rate = test.n_rows / (time.perf_counter() - start)
    error = 100 * (predicted - 1 != test.Y.indices).mean()
    cells = f"16.5 | {error:.2f} | {seconds:.1f} | {rate:,.0f} |"
    print(f"| LOMtree (Vowpal Wabbit, {passes} passes) | {cells}")


def sweep(data: str, jobs: int, out: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    train, test = load(data, "aloi")
    dims = (10, 20, 30, 40, 50, 75, 100)
    figure, axes = plt.subplots(figsize=(5, 3.5))
    print("| k | " + " | ".join(map(str, dims)) + " |\n|---|" + "---|" * len(dims))
    for cls, name in ((Rembrandt, "RE + LR"), (PCA, "PCA + LR")):
        errors = []
        for dim in dims:
            model = cls(
                embedding_dim=dim,
                decoder="logistic",
                normalize=False,
                regressor_regularization=1e-6,
                n_jobs=jobs,
            ).fit_dataset(train)
            errors.append(100 - 100 * precision_at_k(test.Y, model.topk_ids(test.X, 1)[0], 1))
        print(f"| {name} | " + " | ".join(f"{e:.1f}" for e in errors) + " |", flush=True)
        axes.plot(dims, errors, marker="o", label=name)
    axes.set(xlabel="embedding dimension k", ylabel="ALOI test error (%)", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(out)


def multilabel(data: str, jobs: int) -> None:
    print("| | bibtex P@1/3/5 | training s | ms/row | delicious P@1/3/5 | training s | ms/row |")
    print("|---|---|---|---|---|---|---|")
    sets = [load(data, name) for name in ("bibtex", "delicious")]
    systems = [
        ("one-vs-rest, squared hinge", lambda: OneVsRest(n_jobs=jobs)),
        ("Rembrandt + neighbours", lambda: Rembrandt(embedding_dim=150, n_jobs=jobs)),
        (
            "Rembrandt + least squares",
            lambda: Rembrandt(embedding_dim=150, decoder="least-squares", n_jobs=jobs),
        ),
        (
            "Rembrandt + logistic",
            lambda: Rembrandt(embedding_dim=150, decoder="logistic", n_jobs=jobs),
        ),
        ("PLST + neighbours", lambda: PLST(embedding_dim=150, n_jobs=jobs)),
        ("CS + neighbours", lambda: CompressedSensing(embedding_dim=150, n_jobs=jobs)),
    ]
    for name, make in systems:
        cells = []
        for train, test in sets:
            small = make().fit(train.X[:200], train.Y[:200])  # compile before the clock starts
            small.topk_ids(test.X[:10], 5)
            model = make()
            seconds = timed_fit(model, train)
            values, milliseconds = figures(model, test)
            cells += [values, f"{seconds:.2f}", f"{milliseconds:.3f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def siblings(data: str, jobs: int, dim: int = 100) -> None:
    folder = Path(data) / "wordnet-hypernym"
    train, _ = load(data, "wordnet-hypernym")
    column = {name: j for j, name in enumerate((folder / "labels.txt").read_text().split())}
    with gzip.open(folder / "hierarchy.tsv.gz", "rt") as file:
        pairs = [line.split() for line in file]
    # Parents need numbers too, whether they are labels or not.
    for _, parent in pairs:
        column.setdefault(parent, len(column))
    edges = np.array(
        [(column[c], column[p]) for c, p in pairs if column.get(c, 1 << 30) < train.n_labels]
    )
    rng = np.random.default_rng(0)
    counts = np.bincount(edges[:, 1])
    fraternal = edges[edges[:, 1] == counts.argmax(), 0][0]
    print("| WordNet, k = 100 | sibling fraction % | LSHTC in the paper % | seconds |")
    print("|---|---|---|---|")
    constant = sibling_fraction(edges, np.full(train.n_labels, fraternal))
    print(f"| most fraternal | {100 * constant:.2f} | 0.32 | |")
    random = sibling_fraction(edges, rng.integers(0, train.n_labels, train.n_labels))
    print(f"| random | {100 * random:.2f} | | |")
    spectra = {}
    for name, cls, paper in (
        ("CS", CompressedSensing, "3.08"),
        ("PLST", PLST, "19.65"),
        ("Rembrandt", Rembrandt, "23.61"),
    ):
        model = cls(embedding_dim=dim, decoder="least-squares", n_jobs=jobs)
        seconds = timed_fit(model, train)
        fraction = sibling_fraction(edges, model.label_embedding_)
        spectra[name] = model.spectrum_
        print(f"| {name} | {100 * fraction:.2f} | {paper} | {seconds:.1f} |", flush=True)
    places = (1, 2, 5, 10, 20, 50, 100)
    print("\n| spectrum, relative to the first | " + " | ".join(map(str, places)) + " |")
    print("|---|" + "---|" * len(places))
    for name in ("PLST", "Rembrandt"):
        values = spectra[name] / spectra[name][0]
        print(f"| {name} | " + " | ".join(f"{values[p - 1]:.3f}" for p in places) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("what", choices=["aloi", "features", "sweep", "multilabel", "siblings"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default="docs/results/aloi-sweep.svg", help="picture of the sweep")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give the data folder, or set LABELRY_DATA")
    if arguments.what == "sweep":
        sweep(arguments.data, arguments.jobs, arguments.out)
    else:
        globals()[arguments.what](arguments.data, arguments.jobs)


if __name__ == "__main__":
    main()
