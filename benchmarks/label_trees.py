"""Tables 2 and 3 of the label embedding trees paper on other data, and the cost of a prediction.

    python benchmarks/label_trees.py DATA tables     accuracy, speed-up over one-vs-rest, memory
    python benchmarks/label_trees.py DATA build      a tree over 300,000 labels
    python benchmarks/label_trees.py DATA cost       time of a prediction by the number of labels

DATA holds a folder per dataset (or set LABELRY_DATA); ICD-10-CM comes from the demo extra. With
--held-out a quarter of the training rows takes the place of the test rows: for choosing.
Prints Markdown; the picture goes to --out (needs matplotlib).

The paper's speed-ups are ratios of multiplications (15952 labels / log2(15952) is its 1140 for
the filter tree): "work" is that ratio here, and the time that was measured stands beside it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from labelry import (
    CompressedSensing,
    ConditionalProbabilityTree,
    Dataset,
    FilterTree,
    JointEmbedding,
    LabelEmbeddingTree,
    LabelTree,
    OneVsRest,
    SequentialEmbedding,
)
from labelry.data import TextFeatures, read
from labelry.data.icd import icd10cm
from labelry.estimators.base import LabelRanker
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Known, Rows
from labelry.metrics import precision_at_k
from labelry.storage.values import pack
from labelry.trees import Tree, balanced_tree, random_tree
from labelry.trees.choice import choose_tree
from labelry.trees.search import beam_search_vectors

DATASETS = ("aloi", "wordnet-hypernym", "icd-10-cm")
DIM = 100  # of embeddings, as in the paper
BEAM = 10
ONE_ROW = 500  # rows asked one by one
FEATURES = 100_000  # of generated rows
FEW = 2000  # labels up to which a tree of one level is tried
OVR_C = {"aloi": 10.0}  # weight of the losses of one-vs-rest, chosen with --held-out; else 1
PRUNED = 0.01  # weights of one-vs-rest up to here are dropped, in a line of its own


def load(data: str, name: str) -> tuple[Dataset, Dataset]:
    if name == "icd-10-cm":
        train, test, *_ = icd10cm()
        features = TextFeatures().fit(train.texts)
        return tuple(  # type: ignore[return-value]
            Dataset(part.Y, X=features.transform(part.texts)) for part in (train, test)
        )
    train, test = (read(Path(data) / name / f"{part}.txt.gz") for part in ("train", "test"))
    return train, test


def rows_of_tables(
    train: Dataset, name: str, jobs: int
) -> Iterator[tuple[str, str, LabelRanker, float]]:
    """Name, tree, model, and seconds that its tree took, in the order of the paper."""
    yield "one-vs-rest", "flat", OneVsRest(C=OVR_C.get(name, 1.0), n_jobs=jobs), 0.0
    yield "filter tree", "filter tree", FilterTree(n_jobs=jobs), 0.0
    yield "conditional probability tree", "CPT", ConditionalProbabilityTree(n_jobs=jobs), 0.0
    trees: dict[str, tuple[Tree, float]] = {}
    for kind in ("random", "confusion", "rembrandt"):
        start = time.perf_counter()
        trees[kind] = learn(kind, train, jobs), time.perf_counter() - start
    for training in ("independent", "siblings", "tree-loss"):
        for kind, (tree, seconds) in trees.items():
            if (training, kind) != ("independent", "rembrandt"):  # the work of one-vs-rest
                yield training, kind, LabelTree(tree=tree, training=training, n_jobs=jobs), seconds
    if train.n_labels <= FEW:  # what the loss can do without the sets of a tree
        one_level = random_tree(train.n_labels, branching=FEW, depth=1, rng=np.random.default_rng())
        yield "tree-loss, one level", "flat", LabelTree(tree=one_level, n_jobs=jobs), 0.0
    flat = {"embedding_dim": DIM, "n_jobs": jobs}
    compressed = CompressedSensing(decoder="least-squares", regressor_regularization=1.0, **flat)
    yield "compressed sensing", "flat", compressed, 0.0
    yield "sequence of convex problems", "flat", SequentialEmbedding(**flat), 0.0
    yield "non-convex embedding", "flat", JointEmbedding(**flat), 0.0
    for kind in ("confusion", "rembrandt"):
        tree, seconds = trees[kind]
        yield "label embedding tree", kind, LabelEmbeddingTree(tree=tree, **flat), seconds


def learn(kind: Any, train: Dataset, jobs: int) -> Tree:
    names, rng = np.arange(train.n_labels), np.random.default_rng(0)
    rows = Rows(scaled_rows(train.X), train.Y, n_jobs=jobs, known=Known(label_names=names))
    return choose_tree(kind, rows, branching=None, depth=2, rng=rng)


def tables(data: str, datasets: list[str], only: str, held_out: bool, jobs: int) -> None:
    for name in datasets:
        train, test = load(data, name)
        if held_out:
            train, test = train.split(0.25)
        part = "held-out rows" if held_out else "test rows"
        print(
            f"\n{name}: {train.n_rows:,} rows, {train.n_features:,} features, {train.n_labels:,} "
            f"labels; accuracy % on {test.n_rows:,} {part}, in brackets how much less time than "
            "one-vs-rest takes; work: how many times fewer multiplications on one path\n"
        )
        print(
            f"| training | tree | one path | beam of {BEAM} | work | one row us | memory MB | "
            "train s |"
        )
        print("|---|---|---|---|---|---|---|---|", flush=True)
        flat = None
        for label, kind, model, seconds in rows_of_tables(train, name, jobs):
            if only and flat is not None and not any(word in label for word in only.split(",")):
                continue
            start = time.perf_counter()
            model.fit(train)
            seconds += time.perf_counter() - start
            flat = report(f"{label} | {kind}", model, test, seconds, flat)
            if isinstance(model, OneVsRest):
                coef = np.where(np.abs(model.coef_) > PRUNED, model.coef_, 0)
                model = changed(model, coef=csr_array(coef))
                report(f"{label}, pruned | {kind}", model, test, seconds, flat)


def changed(model: LabelRanker, **fields: Any) -> LabelRanker:
    """Return the same model, but for some fields of its fitted value."""
    same = copy(model)
    same.trained_ = replace(model.trained_, fitted=replace(model.fitted_, **fields))
    return same


def report(
    name: str, model: LabelRanker, test: Dataset, seconds: float, flat: float | None
) -> float:
    """Print the line of a model; returns the time per row of one-vs-rest, which comes first."""
    cells = []
    work = f"{test.X.nnz / test.n_rows * test.n_labels / multiplications(model, test):.1f}"
    for beam in (1, BEAM):
        if "beam_width" in model.get_params():
            model = changed(model, beam_width=beam)
        elif beam > 1:
            cells.append("")
            continue
        per_row = best_time(lambda model=model: model.topk_ids(test.X, 1)) / test.n_rows
        flat = flat or per_row
        accuracy = precision_at_k(test.Y, model.topk_ids(test.X, 1)[0], 1)
        cells.append(f"{100 * accuracy:.2f} [{flat / per_row:.1f}]")
        if beam == 1:
            cells_one = f"{1e6 * one_row(model, test):.0f}"
    cells += [work, cells_one, f"{megabytes(model):.1f}", f"{seconds:.1f}"]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return flat  # type: ignore[return-value]


def multiplications(model: LabelRanker, test: Dataset) -> float:
    """Of a prediction along one path, on average; of all labels where there is no tree."""
    nonzeros = test.X.nnz / test.n_rows
    asked = float(test.n_labels)
    if hasattr(model, "tree_"):
        tree = model.tree_
        best = changed(model, beam_width=1).topk_ids(test.X, 1)[0][:, 0]
        ptr, nodes = tree.paths()
        siblings = np.diff(tree.first_child)[tree.parent[nodes]]
        asked = float(np.add.reduceat(siblings, ptr[:-1])[best].mean())  # one leaf per label
    if hasattr(model, "regressor_"):  # a row is embedded first, then meets short vectors
        return nonzeros * DIM + DIM * asked
    return nonzeros * asked


def best_time(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def one_row(model: LabelRanker, test: Dataset) -> float:
    """Median seconds of a prediction by itself, along one path if it is a tree."""
    rows = [test.X[i : i + 1] for i in range(min(ONE_ROW, test.n_rows))]
    return float(np.median([best_time(lambda row=row: model.topk_ids(row, 1), 1) for row in rows]))


def megabytes(model: LabelRanker) -> float:
    arrays: dict[str, np.ndarray] = {}
    pack(model.fitted_, "fitted", arrays)
    return sum(array.nbytes for array in arrays.values()) / 1e6


def build(jobs: int) -> None:
    """Clusters of 300,000 label vectors that have groups at two scales, as embeddings do."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((500, DIM)) + 0.7 * rng.standard_normal((20, 500, DIM))
    V = centers.reshape(-1, DIM)[rng.integers(0, 10_000, 300_000)]
    V = (V + 0.7 * rng.standard_normal(V.shape)).astype(np.float32)
    for branching in (16, 100, 548):
        start = time.perf_counter()
        tree = balanced_tree(V, branching=branching, rng=rng, n_jobs=jobs)
        seconds = time.perf_counter() - start
        shape = tree.summary()
        print(f"branching {branching}: {seconds:.1f} s, depth {shape.depth}, {shape.n_inner} nodes")


def cost(jobs: int, most: int, out: Path) -> None:
    """Time of one prediction by the number of classes, for a label tree and one that embeds."""
    sizes = [c for c in (1_000, 10_000, 100_000, 1_000_000) if c <= most]
    tree_times, vector_times, flat_times = [], [], []
    print("| classes | label tree us | label embedding tree us | all labels us |")
    print("|---|---|---|---|")
    for c in sizes:
        found = prediction_times(c, jobs)
        for times, value in zip((tree_times, vector_times, flat_times), found, strict=True):
            times.append(1e6 * value)
        print(f"| {c:,} | " + " | ".join(f"{1e6 * v:.1f}" for v in found) + " |", flush=True)
    draw(
        sizes,
        {"label tree": tree_times, "label embedding tree": vector_times, "all labels": flat_times},
        out / "tree-cost.svg",
    )


def prediction_times(c: int, jobs: int) -> tuple[float, float, float]:
    """Seconds per row on one thread: trained label tree, node vectors, all label vectors.

    A class has eight words of its own, of which a row shows six, beside six of any class.
    """
    rng = np.random.default_rng(0)
    n = max(2 * c, 20_000)
    y = rng.permutation(np.arange(n) % c)
    own = rng.integers(0, FEATURES, (c, 8))
    words = np.hstack([own[y][:, rng.permutation(8)[:6]], rng.integers(0, FEATURES, (n, 6))])
    X = csr_array(
        (np.ones(words.size, dtype=np.float32), words.ravel(), np.arange(0, words.size + 1, 12)),
        shape=(n, FEATURES),
    )
    X.sum_duplicates()
    Y = csr_array((np.ones(n, dtype=np.float32), y, np.arange(n + 1)), shape=(n, c))
    V = rng.standard_normal((c, DIM)).astype(np.float32)
    tree = balanced_tree(V[:, :16], branching=16, rng=rng, n_jobs=jobs)
    model = LabelTree(tree=tree, training="siblings", max_epochs=3, beam_width=1, n_jobs=jobs).fit(
        X, Y
    )
    model.n_jobs = 1
    queries = X[:2000]
    in_tree = best_time(lambda: model.topk_ids(queries, 1)) / 2000
    Z = rng.standard_normal((2000, DIM)).astype(np.float32)
    nodes = scaled_rows(tree.label_sets @ V)
    by_vectors = best_time(lambda: beam_search_vectors(tree, nodes, Z, 1, beam_width=1)) / 2000
    with threadpool_limits(1):
        flat = best_time(lambda: (Z[:100] @ V.T).argmax(axis=1)) / 100
    return in_tree, by_vectors, flat


def draw(sizes: list[int], series: dict[str, list[float]], path: Path) -> None:
    from labelry.report.pictures import canvas

    figure = canvas(6.4, 4.0)
    axes = figure.subplots()
    for name, values in series.items():
        axes.plot(sizes, values, marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="classes", ylabel="microseconds per row")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend()
    figure.savefig(path)
    print(f"\n{path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("what", choices=["tables", "build", "cost"])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--only", default="", help="rows whose training has one of these words")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--most", type=int, default=1_000_000, help="classes of the cost")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    if options.what == "build":
        build(options.jobs)
    elif options.what == "cost":
        cost(options.jobs, options.most, options.out)
    elif options.data is None:
        parser.error("needs a data folder, as an argument or in LABELRY_DATA")
    else:
        tables(options.data, options.datasets, options.only, options.held_out, options.jobs)


if __name__ == "__main__":
    main()
