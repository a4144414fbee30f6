"""The figures of the method-of-moments paper, beside ours.

    python benchmarks/moments.py figures DATA      AUC per document, time, memory against K
    python benchmarks/moments.py recovery          error of the parameters against N, as a picture
    python benchmarks/moments.py scale --part 0.05 K = 100 on a problem of WikiLSHTC's shape

`figures` is Table 3 and Figure 2 on Bibtex, Delicious, deb-depends and wordnet-hypernym, with
LEML beside it where labelry has it. DATA holds a folder per dataset (or set LABELRY_DATA).
Each fit has a process of its own, so that peak memory (data included) is its own. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scale import make_problem, peak_memory
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from labelry import LEML, Dataset, Moments
from labelry.data import read
from labelry.embeddings.moments.bounds import SampleSizeWarning
from labelry.embeddings.moments.model import MomentsSettings, learn_topics
from labelry.embeddings.moments.topics import Topics
from labelry.estimators.base import LabelRanker
from labelry.linalg.rows import Rows
from labelry.metrics.scoring import auc_totals

DATASETS = ("bibtex", "delicious", "deb-depends", "wordnet-hypernym")
TOPICS = (50, 75, 100, 125, 150)
SIZES = (4_000, 16_000, 64_000, 256_000)
WIKILSHTC = 0.741  # part of the rows of `make_problem` that it has
SYSTEMS = ("Moments", "Algorithm 1", "LEML")
_BLOCK = 1000  # test rows scored at a time


def make_model(name: str, K: int, jobs: int) -> LabelRanker:
    if name == "LEML":
        return LEML(embedding_dim=K, n_jobs=jobs)
    # The paper's estimate and nothing else: three passes.
    paper = {"n_refinements": 0, "normalize": False, "temperature": 1.0, "smoothing": 0.01}
    return Moments(n_topics=K, n_jobs=jobs, **(paper if name == "Algorithm 1" else {}))


def systems() -> list[str]:
    return ["Moments", "Algorithm 1", "LEML"]


def mean_auc(model: LabelRanker, test: Dataset) -> float:
    total, n_rows = 0.0, 0
    for start in range(0, test.n_rows, _BLOCK):
        part = slice(start, start + _BLOCK)
        area, count = auc_totals(test.Y[part], model.score_all(test.X[part]))
        total, n_rows = total + area, n_rows + count
    return 100 * total / n_rows


def run_one(data: str, dataset: str, name: str, K: int, jobs: int) -> tuple[float, float, float]:
    """AUC in percent, seconds of training, peak memory in GiB."""
    warnings.simplefilter("ignore", SampleSizeWarning)
    train, test = (read(Path(data) / dataset / f"{part}.txt.gz") for part in ("train", "test"))
    make_model(name, 2, jobs).fit(train.X[:100], train.Y[:100])  # compiles the kernels
    start = time.perf_counter()
    model = make_model(name, K, jobs).fit(train)
    seconds = time.perf_counter() - start
    peak = peak_memory()
    return mean_auc(model, test), seconds, peak


def figures(data: str, datasets: list[str], topics: list[int], jobs: int) -> None:
    names = SYSTEMS
    print("| dataset | K |" + "".join(f" {name} |" for name in names))
    print("|---|---|" + "---|" * len(names))
    for dataset in datasets:
        for K in topics:
            cells = []
            for name in names:
                context = get_context("spawn")
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    area, seconds, peak = pool.submit(
                        run_one, data, dataset, name, K, jobs
                    ).result()
                cells.append(f"{area:.2f}, {seconds:.1f} s, {peak:.2f} GiB")
            print(f"| {dataset} | {K} | " + " | ".join(cells) + " |", flush=True)


def draw(rng: np.random.Generator, P: np.ndarray, topics: np.ndarray, size: int) -> csr_array:
    """Which columns come up in `size` draws from column topics[i] of P, for each document i."""
    cumulated = np.cumsum(P, axis=0)
    cumulated /= cumulated[-1]
    U = rng.random((len(topics), size))
    columns = np.empty((len(topics), size), dtype=np.int64)
    for k in range(P.shape[1]):
        columns[topics == k] = np.searchsorted(cumulated[:, k], U[topics == k])
    rows = np.repeat(np.arange(len(topics)), size)
    shape = (len(topics), len(P))
    A = csr_array((np.ones(rows.size, np.float32), (rows, columns.ravel())), shape=shape)
    A.data[:] = 1
    return A


def recovery(out: str) -> None:
    """Documents of equation 1 with known O, Q and pi, and how far Algorithm 1 is from them."""
    from matplotlib.figure import Figure

    rng = np.random.default_rng(0)
    K, repeats = 4, 5
    words, labels = (rng.dirichlet(np.full(size, 0.3), size=K).T for size in (6000, 30))
    pi = np.array([8, 7, 6, 5]) / 26
    errors = np.zeros((len(SIZES), repeats, 3))
    for i, n in enumerate(SIZES):
        for repeat in range(repeats):
            topics = rng.choice(K, size=n, p=pi)
            rows = Rows(draw(rng, words, topics, 15), draw(rng, labels, topics, 1))
            settings = MomentsSettings(
                n_topics=K, diagonal="removed", n_power_passes=2, n_refinements=0
            )
            found, _ = learn_topics(rows, settings, rng)
            errors[i, repeat] = distances(found.smoothed(0.0), words, labels, pi)
    medians = np.median(errors, axis=1)
    figure = Figure(figsize=(5, 4), layout="constrained")
    ax = figure.subplots()
    print("| N | words | labels | proportions |")
    print("|---|---|---|---|")
    for n, row in zip(SIZES, medians, strict=True):
        print(f"| {n:,} | " + " | ".join(f"{value:.4f}" for value in row) + " |")
    for name, values in zip(("words", "labels", "proportions"), medians.T, strict=True):
        slope = np.polyfit(np.log(SIZES), np.log(values), 1)[0]
        print(f"slope of {name}: {slope:.2f}")
        ax.loglog(SIZES, values, marker="o", label=f"{name}: slope {slope:.2f}")
    root = medians[0].max() * np.sqrt(SIZES[0] / np.array(SIZES))
    ax.loglog(SIZES, root, "k--", linewidth=1, label="1 / sqrt(N)")
    ax.set_xlabel("documents N")
    ax.set_ylabel("largest error of a topic (median of 5)")
    ax.legend()
    figure.savefig(out, metadata={"Date": None})


def distances(
    found: Topics, words: np.ndarray, labels: np.ndarray, pi: np.ndarray
) -> tuple[float, float, float]:
    """Largest error of words, labels and proportions, topics matched by their words."""
    estimate = np.exp(found.log_words)
    apart = np.linalg.norm(words[:, :, None] - estimate[:, None, :], axis=0)
    topics, match = linear_sum_assignment(apart)
    return (
        float(apart[topics, match].max()),
        float(np.linalg.norm(labels - found.labels[:, match], axis=0).max()),
        float(np.abs(pi - np.exp(found.log_proportions)[match]).max()),
    )


def scale(part: float, K: int, jobs: int, leml: bool) -> None:
    """K topics of a problem of WikiLSHTC's shape; part 0.741 has its 1.78 million rows."""
    X, Y, _ = make_problem(part, width=min(1.0, (part / WIKILSHTC) ** 0.5))
    print(
        f"{X.shape[0]:,} rows, {X.shape[1]:,} words ({X.nnz / X.shape[0]:.1f} a row), "
        f"{Y.shape[1]:,} labels ({Y.nnz / X.shape[0]:.1f} a row); data {peak_memory():.2f} GiB",
        flush=True,
    )
    make_model("Moments", 2, jobs).fit(X[:100], Y[:100])  # compiles the kernels
    for name in ("Algorithm 1", *(["LEML"] if leml else []), "Moments"):
        start = time.perf_counter()
        model = make_model(name, K, jobs).fit(X, Y)
        print(
            f"{name}, K = {K}: {time.perf_counter() - start:.1f} s, peak {peak_memory():.2f} GiB",
            flush=True,
        )
    start = time.perf_counter()
    model.topk_ids(X[:2000], 5)
    print(f"top 5 of 2,000 rows: {2000 / (time.perf_counter() - start):,.0f} rows/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["figures", "recovery", "scale"])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--topics", nargs="+", type=int, default=list(TOPICS))
    parser.add_argument("--part", type=float, default=0.05)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--leml", action="store_true", help="LEML too, in scale")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default="docs/results/moments-recovery.svg")
    arguments = parser.parse_args()
    if arguments.what == "recovery":
        recovery(arguments.out)
    elif arguments.what == "scale":
        scale(arguments.part, arguments.dim, arguments.jobs, arguments.leml)
    elif arguments.data is None:
        parser.error("give the data folder, or set LABELRY_DATA")
    else:
        figures(arguments.data, arguments.datasets, arguments.topics, arguments.jobs)


if __name__ == "__main__":
    main()
