"""The figures of the Rembrandt paper, beside ours, from one command each.

    python benchmarks/rembrandt.py DATA aloi         Table 2
    python benchmarks/rembrandt.py DATA features     ALOI with random Fourier features
    python benchmarks/rembrandt.py DATA sweep        Figure 1a, as a picture too
    python benchmarks/rembrandt.py DATA multilabel   Bibtex and Delicious beside one-vs-rest
    python benchmarks/rembrandt.py DATA siblings     Table 4 and Figure 1b on WordNet, picture too

DATA holds a folder per dataset (or set LABELRY_DATA). Prints Markdown; pictures go to --out.
Pictures and the column of Vowpal Wabbit need the bench extra.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelry import PCA, PLST, CompressedSensing, Dataset, OneVsRest, Rembrandt
from labelry.data import read
from labelry.embeddings.comparisons import PLSTSettings
from labelry.embeddings.rembrandt import rembrandt
from labelry.estimators.base import LabelRanker
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge
from labelry.metrics import precision_at_k, sibling_fraction
from labelry.progress import recorded

DECODER = "embedding rows"  # the phase with which the fit of a decoder begins
CS_RIDGE = 1.0  # regressor of random label vectors; chosen on held-out training rows of ALOI


def load(data: str, name: str) -> tuple[Dataset, Dataset]:
    train, test = (read(Path(data) / name / f"{part}.txt.gz") for part in ("train", "test"))
    return train, test


def timed_fit(model: LabelRanker, train: Dataset) -> float:
    start = time.perf_counter()
    model.fit(train)
    return time.perf_counter() - start


def phased_fit(model: LabelRanker, train: Dataset) -> str:
    """Cells of a table: seconds of embedding, regressor and decoder, and of all of training.

    The Gram matrix of the features counts with whichever needs it first.
    """
    with recorded() as record:
        total = timed_fit(model, train)
    seconds = {found["name"]: found["seconds"] for found in record.as_dict()["phases"]}
    if DECODER not in seconds:
        return f"| | | {total:.1f}"
    regressor = seconds.pop("learning to embed rows", 0.0)  # PCA learns it with the embedding
    first, each = list(seconds).index(DECODER), list(seconds.values())
    embedding, decoder = sum(each[:first]), sum(each[first:])
    return f"{embedding:.2f} | {regressor:.2f} | {decoder:.1f} | {total:.1f}"


def figures(model: LabelRanker, test: Dataset) -> tuple[str, float]:
    """P@1/3/5, and milliseconds per row of batch prediction."""
    start = time.perf_counter()
    labels, _ = model.topk_ids(test.X, 5)
    milliseconds = 1000 * (time.perf_counter() - start) / test.n_rows
    values = (100 * precision_at_k(test.Y, labels, k) for k in (1, 3, 5))
    return " / ".join(f"{v:.2f}" for v in values), milliseconds


ALOI_HEADER = """\
| ALOI, error % | paper | labelry | embedding s | regressor s | decoder s | training s | rows/s |
|---|---|---|---|---|---|---|---|"""


def aloi(data: str, jobs: int) -> None:
    train, test = load(data, "aloi")
    common = {"decoder": "logistic", "normalize": False, "n_jobs": jobs}
    embedded = common | {"embedding_dim": 50}
    rows = [
        ("RE + LR", "9.7", Rembrandt(regressor_regularization=1e-6, **embedded)),
        ("PCA + LR", "9.7", PCA(**embedded)),
        ("CS + LR", "10.8", CompressedSensing(regressor_regularization=CS_RIDGE, **embedded)),
        ("LR", "10.8", PCA(embedding_dim=128, **common)),
        ("OAA", "11.5", OneVsRest(C=10.0, n_jobs=jobs)),
    ]
    warm_up = Rembrandt(embedding_dim=5, max_epochs=1, **common)
    warm_up.fit(train.X[:500], train.Y[:500])  # compile before the clock starts
    aloi_table(rows, train, test)
    # The tree gets one predictor less than the classes it is told of: 1,000 are far too few.
    # This number, the rate and the passes were chosen on held-out training rows.
    vowpal_row("LOMtree (Vowpal Wabbit)", "16.5", "--log_multi 16000 -l 0.5", 20, train, test)


def features(data: str, jobs: int) -> None:
    train, test = load(data, "aloi")
    rows = [
        (
            f"RE + {n:,} random features ({kernel}) + LR",
            "3.65 (authors' log, about 6,000)",
            Rembrandt(
                embedding_dim=80,
                decoder="logistic",
                regressor_regularization=1e-6,
                feature_map=kernel,
                n_random_features=n,
                normalize=False,
                n_jobs=jobs,
            ),
        )
        for kernel, n in (("gaussian", 4000),)
    ]
    aloi_table(rows, train, test)


def aloi_table(rows: list[tuple[str, str, LabelRanker]], train: Dataset, test: Dataset) -> None:
    print(ALOI_HEADER)
    for name, paper, model in rows:
        seconds = phased_fit(model, train)
        start = time.perf_counter()
        labels = model.topk_ids(test.X, 1)[0]
        rate = test.n_rows / (time.perf_counter() - start)
        error = 100 - 100 * precision_at_k(test.Y, labels, 1)
        print(f"| {name} | {paper} | {error:.2f} | {seconds} | {rate:,.0f} |", flush=True)


def vowpal_lines(dataset: Dataset) -> Iterator[str]:
    """Rows of a multiclass dataset in the format of Vowpal Wabbit, whose classes start at 1."""
    X = dataset.X
    for label, a, b in zip(dataset.Y.indices, X.indptr[:-1], X.indptr[1:], strict=True):
        pairs = zip(X.indices[a:b], X.data[a:b], strict=True)
        yield f"{label + 1} | " + " ".join(f"f{j}:{v:g}" for j, v in pairs)


def vowpal_row(
    name: str, paper: str, options: str, passes: int, train: Dataset, test: Dataset
) -> None:
    """A line of the table from Vowpal Wabbit."""
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        print(f"| {name} | {paper} | not measured: needs the bench extra | | | | | |")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.vw"
        file.write_text("\n".join(vowpal_lines(train)) + "\n")
        start = time.perf_counter()
        vw = Workspace(
            f"{options} -b 24 --quiet --holdout_off -d {file} --cache_file {file}.cache"
            f" --passes {passes}"
        )
        seconds = time.perf_counter() - start
        texts = [line.split(" ", 1)[1] for line in vowpal_lines(test)]
        start = time.perf_counter()
        predicted = np.array([vw.predict(text) for text in texts])
        rate = test.n_rows / (time.perf_counter() - start)
        vw.finish()
    error = 100 * (predicted - 1 != test.Y.indices).mean()
    print(f"| {name} | {paper} | {error:.2f} | | | | {seconds:.1f} | {rate:,.0f} |", flush=True)


def sweep(data: str, jobs: int, out: Path) -> None:
    train, test = load(data, "aloi")
    dims = (10, 20, 30, 40, 50, 75, 100)
    lines = {}
    print("| k | " + " | ".join(map(str, dims)) + " |\n|---|" + "---|" * len(dims))
    for name, cls, ridge in (
        ("RE + LR", Rembrandt, 1e-6),
        ("PCA + LR", PCA, None),
        ("CS + LR", CompressedSensing, CS_RIDGE),
    ):
        errors = []
        for dim in dims:
            model = cls(
                embedding_dim=dim,
                decoder="logistic",
                normalize=False,
                regressor_regularization=ridge,
                n_jobs=jobs,
            ).fit(train)
            errors.append(100 - 100 * precision_at_k(test.Y, model.topk_ids(test.X, 1)[0], 1))
        print(f"| {name} | " + " | ".join(f"{e:.1f}" for e in errors) + " |", flush=True)
        lines[name] = (dims, errors)
    picture(
        lines,
        out / "aloi-sweep.svg",
        xlabel="embedding dimension k",
        ylabel="ALOI test error, %",
        marker="o",
        ylim=(0, None),
        xticks=dims,
    )


def picture(
    lines: dict[str, tuple[Sequence[float], Sequence[float]]],
    path: Path,
    *,
    marker: str = "",
    **axes_options: Any,
) -> None:
    """Lines with a legend; the same file every time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "labelry", "font.size": 10})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4))
    for (name, (x, y)), colour in zip(
        lines.items(), ("#1f6feb", "#d1495b", "#2e8b57"), strict=False
    ):
        axes.plot(x, y, marker=marker, markersize=4.5, linewidth=1.8, color=colour, label=name)
    axes.legend(frameon=False)
    axes.set(**axes_options)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


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


def siblings(data: str, jobs: int, out: Path, dim: int = 100) -> None:
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
    for name, cls, paper in (
        ("CS", CompressedSensing, "3.08"),
        ("PLST", PLST, "19.65"),
        ("Rembrandt", Rembrandt, "23.61"),
    ):
        model = cls(embedding_dim=dim, decoder="least-squares", n_jobs=jobs)
        seconds = timed_fit(model, train)
        fraction = sibling_fraction(edges, model.label_embedding_)
        print(f"| {name} | {100 * fraction:.2f} | {paper} | {seconds:.1f} |", flush=True)
    spectrum(train, jobs, out)


def spectrum(train: Dataset, jobs: int, out: Path, dim: int = 500) -> None:
    """Figure 1b: the label covariance, and the prediction covariance that it stands in for."""
    rows, how = Rows(train.X, train.Y, n_jobs=jobs), PLSTSettings()
    lines = {}
    places = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    print("\n| eigenvalue number | " + " | ".join(map(str, places)) + " | seconds |")
    print("|---|" + "---|" * len(places) + "---|")
    for name, embed in (
        ("labels (PLST)", lambda rng: PLSTSettings.method.embed(Ridge(rows), dim, how, rng)),
        ("predictions (Rembrandt)", lambda rng: rembrandt(Ridge(rows), dim, rng=rng)),
    ):
        start = time.perf_counter()
        values = embed(np.random.default_rng(0)).values
        seconds = time.perf_counter() - start
        cells = " | ".join(f"{values[p - 1]:.3g}" for p in places)
        print(f"| {name} | {cells} | {seconds:.0f} |", flush=True)
        lines[name] = (np.arange(1, len(values) + 1), values)
    picture(
        lines,
        out / "wordnet-spectrum.svg",
        xlabel="number of the eigenvalue",
        ylabel="eigenvalue (rows)",
        xscale="log",
        yscale="log",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("what", choices=["aloi", "features", "sweep", "multilabel", "siblings"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default="docs/results", help="folder for pictures")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give the data folder, or set LABELRY_DATA")
    options = (arguments.out,) if arguments.what in ("sweep", "siblings") else ()
    globals()[arguments.what](arguments.data, arguments.jobs, *options)


if __name__ == "__main__":
    main()
