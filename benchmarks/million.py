"""A million labels on one machine: generated rows of the shape of Ads-1M, for the tagger.

    python benchmarks/million.py run [--labels 1000000] [--rows N] [--features D] [--jobs 2]
                                     [--quality fast]
    python benchmarks/million.py cost [--out docs/results]

`run` trains in one process and asks in another, so that the peak of memory and the time of loading
are their own. `cost` measures training by the number of rows and prediction by the number of
labels, in processor time of one thread, and draws both (needs matplotlib). Rows and features are as
many as labels, unless given.

Each row is about one label, its subject. Labels belong to topics of very different sizes. A subject
has a few words of its own, which it shares with a few other labels of its topic; a row has draws of
these, of the words of the topic and of any words, the last two by Zipf's law. Two labels related to
the subject join it in about half of the rows: these are drawn by Zipf's law among the topic, which
is where frequent labels come from. All labels are subjects equally often. So the probability of
each label given the words of a row is known, and with it the best that anyone can do; but who
learns from the rows has seen a subject n / c times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

import labelry
from labelry import Dataset, Tagger, memory
from labelry.metrics import precision_at_k
from labelry.progress import recorded
from labelry.tagging.tagger import QUALITIES, Quality

SUBJECT_WORDS = 4  # of each label
DRAWS = 20  # words of a row, before equal ones are put together
OWN, OF_TOPIC = 0.35, 0.3  # share of draws that are of the subject, and of its topic
RELATED = 0.48  # probability of each of the two related labels: 1.96 labels a row
LABELS_PER_TOPIC = 500  # on average
LARGE_TOPICS = 10  # about as many have the largest size
BLOCK = 100_000  # rows made at a time
TEST_ROWS = 3_000
ONE_BY_ONE = 1_000  # rows asked one by one
K = (1, 3, 5)
ROWS_OF_COST = np.array([20_000, 40_000, 80_000, 160_000, 320_000])
LABELS_OF_COST = (3_000, 10_000, 30_000, 100_000, 300_000)
FIXED_LABELS = 10_000  # while the number of rows grows

Ints = np.ndarray
Clock = Callable[[], float]


class World(NamedTuple):
    """What rows are made of; labels and words of a topic are consecutive."""

    own: Ints  # words of each label (c, SUBJECT_WORDS)
    related: Ints  # labels of each label (c, 2)
    topic: Ints  # of each label (c,)
    first_label: Ints  # of each topic (n_topics + 1,)
    first_word: Ints  # of each topic (n_topics + 1,)
    rank: Ints  # of each word among all words (d,)
    word: Ints  # of each rank (d,)
    weight: np.ndarray  # of each word, as in tf-idf (d,)

    @property
    def n_labels(self) -> int:
        return len(self.own)

    @property
    def n_words(self) -> int:
        return len(self.word)


def make_world(n_labels: int, n_words: int, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    size = 1.0 / (np.arange(max(2, n_labels // LABELS_PER_TOPIC)) + LARGE_TOPICS)
    end = np.concatenate([[0], np.cumsum(size) / size.sum()])
    first_label = np.round(end * n_labels).astype(np.int64)
    first_word = np.round(end * n_words).astype(np.int64)
    topic = np.repeat(np.arange(len(size)), np.diff(first_label))
    labels, words = (np.diff(first)[topic, None] for first in (first_label, first_word))
    own = first_word[topic, None] + rng.integers(0, words, (n_labels, SUBJECT_WORDS))
    related = first_label[topic, None] + zipf(rng, labels, (n_labels, 2))
    word = rng.permutation(n_words)
    rank = np.argsort(word)
    # How often a draw is this word: of a subject, of its topic, or of any
    frequency = OWN * np.bincount(own.ravel(), minlength=n_words) / own.size
    topic_of_word = np.repeat(np.arange(len(size)), np.diff(first_word))
    in_topic = np.arange(n_words) - first_word[topic_of_word]
    share = np.diff(first_label)[topic_of_word] / n_labels
    frequency += OF_TOPIC * share * zipf_share(in_topic, np.diff(first_word)[topic_of_word])
    frequency += (1 - OWN - OF_TOPIC) * zipf_share(rank, n_words)
    weight = (1 - np.log(1 - (1 - frequency) ** DRAWS)).astype(np.float32)
    return World(own, related, topic, first_label, first_word, rank, word, weight)


def zipf(rng: np.random.Generator, n: Any, shape: tuple[int, ...]) -> Ints:
    """Ranks below n; P(rank) = log((rank + 2) / (rank + 1)) / log(n + 1)."""
    return np.minimum((n + 1.0) ** rng.random(shape) - 1, n - 1).astype(np.int64)


def zipf_share(rank: Ints, n: Any) -> np.ndarray:
    """The probabilities of `zipf`."""
    return np.log1p(1 / (rank + 1.0)) / np.log(n + 1.0)


def draw(world: World, subjects: Ints, rng: np.random.Generator) -> tuple[csr_array, csr_array]:
    """Words, with how often each was drawn, and labels of rows about these subjects."""
    n, shape = len(subjects), (len(subjects), DRAWS)
    topic = world.topic[subjects, None]
    chance = rng.random(shape)
    own = world.own[subjects[:, None], rng.integers(0, SUBJECT_WORDS, shape)]
    of_topic = world.first_word[topic] + zipf(rng, np.diff(world.first_word)[topic], shape)
    words = world.word[zipf(rng, world.n_words, shape)]
    words = np.where(chance < OWN, own, np.where(chance < OWN + OF_TOPIC, of_topic, words))
    labels = np.hstack([subjects[:, None], world.related[subjects]])
    there = np.hstack([np.ones((n, 1), dtype=bool), rng.random((n, 2)) < RELATED])
    X = _counted(words.ravel(), np.full(n, DRAWS), world.n_words)
    Y = _counted(labels[there], there.sum(axis=1), world.n_labels)
    Y.data[:] = 1.0
    return X, Y


def _counted(columns: Ints, per_row: Ints, n_columns: int) -> csr_array:
    indptr = np.concatenate([[0], np.cumsum(per_row)]).astype(np.int32)
    parts = np.ones(len(columns), dtype=np.float32), columns.astype(np.int32), indptr
    matrix = csr_array(parts, shape=(len(per_row), n_columns))
    matrix.sum_duplicates()
    return matrix


def tf_idf(world: World, counts: csr_array) -> csr_array:
    data = (1 + np.log(counts.data)) * world.weight[counts.indices]
    return csr_array((data, counts.indices, counts.indptr), shape=counts.shape)


def training_rows(world: World, n_rows: int, seed: int = 0) -> tuple[csr_array, csr_array]:
    rng = np.random.default_rng([seed, 1])
    subjects = rng.permutation(np.arange(n_rows) % world.n_labels)
    parts = []
    for start in range(0, n_rows, BLOCK):
        counts, Y = draw(world, subjects[start : start + BLOCK], rng)
        parts.append((tf_idf(world, counts), Y))
    X, Y = (csr_array(vstack(side, format="csr")) for side in zip(*parts, strict=True))
    return X, Y


def new_rows(world: World, n_rows: int, seed: int = 0) -> tuple[csr_array, csr_array]:
    """Counts of words, and labels."""
    rng = np.random.default_rng([seed, 2])
    return draw(world, rng.integers(0, world.n_labels, n_rows), rng)


def best_possible(world: World, counts: csr_array, k: int) -> Ints:
    """The k labels of each row that are most probable for who knows the world: (n_rows, k).

    No other choice has a higher expected P@k.
    """
    c = world.n_labels
    # P(label | subject): 1 - (1 - RELATED)^m for a label that is related m times
    related = _counted(world.related.ravel(), np.full(c, 2), c)
    related.data = 1 - (1 - RELATED) ** related.data
    related.data[related.indices == np.repeat(np.arange(c), np.diff(related.indptr))] = 0.0
    owned = _counted(world.own.ravel(), np.full(c, SUBJECT_WORDS), world.n_words)
    joins, owners = csr_array(related.T), csr_array(owned.T)
    best = np.empty((counts.shape[0], k), dtype=np.int64)
    for i, (first, last) in enumerate(zip(counts.indptr[:-1], counts.indptr[1:], strict=True)):
        entries = slice(first, last)
        subject = subject_posterior(world, owners, counts.indices[entries], counts.data[entries])
        probability = subject + joins @ subject
        found = np.argpartition(-probability, k)[:k]
        best[i] = found[np.argsort(-probability[found])]
    return best


def subject_posterior(
    world: World, owners: csr_array, words: Ints, times: np.ndarray
) -> np.ndarray:
    """P(subject | words of a row), by Bayes with equal priors, (n_labels,)."""
    n_words = np.diff(world.first_word)
    topic = np.searchsorted(world.first_word, words, side="right") - 1
    of_any = (1 - OWN - OF_TOPIC) * zipf_share(world.rank[words], world.n_words)
    of_topic = OF_TOPIC * zipf_share(words - world.first_word[topic], n_words[topic])
    by_topic = np.zeros(len(n_words))  # log-likelihood, up to what all topics have
    np.add.at(by_topic, topic, times * np.log1p(of_topic / of_any))
    log_likelihood = by_topic[world.topic]
    for word, m, other in zip(words, times, of_any + of_topic, strict=True):
        entries = slice(owners.indptr[word], owners.indptr[word + 1])
        of_subject = OWN * owners.data[entries] / SUBJECT_WORDS
        log_likelihood[owners.indices[entries]] += m * np.log1p(of_subject / other)
    likelihood = np.exp(log_likelihood - log_likelihood.max())
    return likelihood / likelihood.sum()


def precisions(Y: csr_array, labels: Ints) -> str:
    return " / ".join(f"{100 * precision_at_k(Y, labels, k):.1f}" for k in K)


def train(
    n_labels: int, n_rows: int, n_words: int, model: Path, jobs: int, quality: Quality
) -> None:
    """Train and save; what that took."""
    start = time.perf_counter()
    world = make_world(n_labels, n_words)
    X, Y = training_rows(world, n_rows)
    del world
    rows_of = np.bincount(Y.indices, minlength=n_labels)
    print(
        f"{n_rows:,} rows, {n_words:,} features ({X.nnz / n_rows:.1f} a row), {n_labels:,} labels "
        f"({Y.nnz / n_rows:.2f} a row); {100 * np.mean(rows_of == 1):.0f} % of the labels have one "
        f"row, the most frequent {rows_of.max():,}; made in {time.perf_counter() - start:.0f} s, "
        f"peak {memory.human(memory.peak())}",
        flush=True,
    )
    names = [f"label {number}" for number in range(n_labels)]
    start, cpu = time.perf_counter(), time.process_time()
    with recorded() as record:
        tagger = Tagger(quality=quality, n_jobs=jobs)
        tagger.fit(Dataset(Y, X, label_names=names))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        phases = record.as_dict()["phases"]
    print(f"trained in {seconds:.0f} s ({cpu:.0f} s of processor time), of which")
    for phase in phases:
        rise = memory.human(phase["rise_bytes"])
        print(f"  {phase['name']}: {phase['seconds']:.1f} s, peak of memory + {rise}")
    print(f"peak of memory {memory.human(memory.peak())}, the rows included")
    if quality == "fast":
        print(tagger.fitted_.trees.tree.summary(), flush=True)
    start = time.perf_counter()
    tagger.save(model, force=True)
    size = sum(file.stat().st_size for file in model.iterdir())
    print(f"saved in {time.perf_counter() - start:.1f} s: {memory.human(size)}", flush=True)


def ask(n_labels: int, n_words: int, model: Path) -> None:
    """Load a model, and judge it on new rows, on one thread."""
    start = time.perf_counter()
    tagger = labelry.load(model)
    print(f"loaded in {1e3 * (time.perf_counter() - start):.0f} ms")
    tagger.n_jobs = 1
    world = make_world(n_labels, n_words)
    counts, Y = new_rows(world, TEST_ROWS)
    X = tf_idf(world, counts)
    for clock, name in ((time.perf_counter, "one row"), (time.process_time, "processor time")):
        median, slowest = one_by_one(tagger, X, clock)
        print(f"{name}: median {1e3 * median:.3f} ms, 99 % within {1e3 * slowest:.3f} ms")
    labels = tagger.topk_ids(X, max(K))[0]
    batch = seconds(lambda: tagger.topk_ids(X, max(K)), time.perf_counter)
    print(f"batch: {1e3 * batch / TEST_ROWS:.3f} ms a row")
    print(f"peak of memory {memory.human(memory.peak())}")
    print(f"P@1 / 3 / 5: {precisions(Y, labels)}", flush=True)
    print(f"best possible: {precisions(Y, best_possible(world, counts, max(K)))}")


def one_by_one(tagger: Tagger, X: csr_array, clock: Clock) -> tuple[float, float]:
    """Seconds of a prediction by itself: median, and what 99 of 100 stay within."""
    rows = [X[[i]] for i in range(X.shape[0])]
    for row in rows[ONE_BY_ONE:]:  # warms up, with other rows
        tagger.topk_ids(row, max(K))
    times = [
        seconds(lambda row=row: tagger.topk_ids(row, max(K)), clock)  # type: ignore[misc]
        for row in rows[:ONE_BY_ONE]
    ]
    return float(np.median(times)), float(np.quantile(times, 0.99))


def seconds(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def cost(out: Path, most_labels: int) -> None:
    """Measure and draw training by rows and prediction by labels; on one thread."""
    training_time(*training_rows(make_world(2_000, 2_000), 2_000))  # compiles
    print(f"| rows, of {FIXED_LABELS:,} labels | training, s |\n|---|---|")
    world, training = make_world(FIXED_LABELS, FIXED_LABELS), []
    for n in ROWS_OF_COST:
        training.append(training_time(*training_rows(world, n)))
        print(f"| {n:,} | {training[-1]:.1f} |", flush=True)
    print("\n| labels | one row, us | batch, us a row |\n|---|---|---|")
    sizes, times = [c for c in LABELS_OF_COST if c <= most_labels], []
    for c in sizes:
        times.append(prediction_times(c))
        print(f"| {c:,} | {1e6 * times[-1][0]:.0f} | {1e6 * times[-1][1]:.0f} |", flush=True)
    one_row, batch = 1e6 * np.array(times).T
    print("\n" + growth("training", ROWS_OF_COST, training))
    print(growth("one row", sizes, one_row))
    print(growth("batch", sizes, batch))
    draw_costs(training, sizes, one_row, batch, out / "million-cost.svg")


def training_time(X: csr_array, Y: csr_array) -> float:
    return seconds(lambda: Tagger(quality="fast", n_jobs=1).fit(X, Y), time.process_time)


def prediction_times(c: int) -> tuple[float, float]:
    """Seconds per row, one by one and many at once, of a model of c labels and as many rows."""
    world = make_world(c, c)
    tagger = Tagger(quality="fast", n_jobs=1).fit(*training_rows(world, c))
    X = tf_idf(world, new_rows(world, TEST_ROWS)[0])
    median, _ = one_by_one(tagger, X, time.process_time)
    times = [seconds(lambda: tagger.topk_ids(X, max(K)), time.process_time) for _ in range(3)]
    return median, min(times) / TEST_ROWS


def growth(name: str, sizes: Any, values: Any) -> str:
    """The exponent of the best power law, which is 1 where the cost is linear."""
    exponent = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return f"{name} grows with the power {exponent:.2f} of the size"


def draw_costs(training: Any, sizes: Any, one_row: Any, batch: Any, path: Path) -> None:
    from labelry.report.pictures import canvas

    figure = canvas(9.0, 3.6)
    left, right = figure.subplots(1, 2)
    power, start = np.polyfit(np.log(ROWS_OF_COST), np.log(training), 1)
    left.plot(ROWS_OF_COST, training, "o")
    left.plot(
        ROWS_OF_COST, np.exp(start) * ROWS_OF_COST**power, label=f"rows to the power {power:.2f}"
    )
    left.set(xscale="log", yscale="log", ylabel="training, s")
    left.set(xlabel=f"thousands of rows, of {FIXED_LABELS:,} labels")
    left.set_xticks(ROWS_OF_COST, [str(n // 1000) for n in ROWS_OF_COST])
    left.minorticks_off()
    for values, name in ((one_row, "one row"), (batch, "many rows, each")):
        slope, start = np.polyfit(np.log10(sizes), values, 1)
        points = right.plot(sizes, values, "o")[0]
        right.plot(
            sizes,
            start + slope * np.log10(sizes),
            color=points.get_color(),
            label=f"{name}: {slope:.0f} more for ten times the labels",
        )
    right.set(xscale="log", xlabel="labels, and as many rows", ylabel="prediction, us", ylim=0)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize="small")
    figure.savefig(path)
    print(f"\n{path}")


def run(options: argparse.Namespace) -> None:
    """Train in one process, ask in another."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = [options.labels, options.rows or options.labels, options.features or options.labels]
        model = str(Path(folder) / "model")
        arguments = json.dumps([*sizes, model, options.jobs, options.quality])
        for step in ("train", "ask"):
            command = [sys.executable, __file__, step, "--step", arguments]
            subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["run", "cost", "train", "ask"])
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--features", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--quality", choices=QUALITIES, default="fast", help="for run")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "run":
        run(options)
    elif options.what == "cost":
        cost(options.out, options.labels)
    else:
        n_labels, n_rows, n_words, model, jobs, quality = json.loads(options.step)
        if options.what == "train":
            train(n_labels, n_rows, n_words, Path(model), jobs, quality)
        else:
            ask(n_labels, n_words, Path(model))


if __name__ == "__main__":
    main()
