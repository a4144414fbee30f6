"""Compares labelry's measures with those of napkinXC on made-up predictions.

    pip install labelry napkinxc
    python benchmarks/check_metrics.py

Prints every measure of both, and the largest difference; exits 1 if that is above 1e-6.
The data has rows without labels, labels that only the test has, and rows with fewer
predictions than places.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import napkinxc.metrics as napkin
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from labelry import metrics

SHAPES = [(200, 50, 3.0), (1000, 600, 5.0), (1500, 5000, 12.0)]  # test rows, labels, labels a row
SEEDS = (0, 1, 2)
K = 5
TOLERANCE = 1e-6

Lists = list[list[int]]


def make_labels(rng: np.random.Generator, n: int, popularity: NDArray, mean: float) -> csr_array:
    """Rows of a Poisson number of labels (so some of none), drawn by popularity."""
    sizes = np.minimum(rng.poisson(mean, n), np.count_nonzero(popularity))
    indices = [rng.choice(len(popularity), m, replace=False, p=popularity) for m in sizes]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    Y = csr_array((np.ones(indptr[-1]), np.concatenate(indices), indptr), (n, len(popularity)))
    Y.sort_indices()
    return Y


def make_predictions(rng: np.random.Generator, Y: csr_array, n_known: int) -> NDArray:
    """Rank random scores that favour true labels, in some rows more, among the first labels."""
    favour = rng.random((Y.shape[0], 1))
    scores = rng.random((Y.shape[0], n_known)) + favour * Y[:, :n_known].toarray()
    labels = np.argsort(-scores, axis=1)[:, :K]
    n_places = rng.integers(0, K + 1, len(labels))
    few = rng.random(len(labels)) < 0.2
    labels[few[:, None] & (np.arange(K) >= n_places[:, None])] = -1
    return labels


def compare(train: csr_array, Y: csr_array, labels: NDArray) -> Iterator[tuple[str, float, float]]:
    """Each measure: its name, labelry's value, napkinXC's."""
    true: Lists = [Y[[i]].indices.tolist() for i in range(Y.shape[0])]
    predicted: Lists = [row[row >= 0].tolist() for row in labels]
    counts = train.sum(axis=0)
    weights = metrics.inverse_propensity(counts, train.shape[0])
    inverse = napkin.Jain_et_al_inverse_propensity(csr_matrix(train))
    yield "mean inverse propensity", weights.mean(), inverse.mean()

    evaluation = metrics.Evaluation(ks=range(1, K + 1), train_counts=counts, n_train=train.shape[0])
    for start in range(0, len(labels), 64):  # in blocks, as a large test would be
        evaluation.update(Y[start : start + 64], labels[start : start + 64])
    ours = evaluation.result()
    theirs = {
        "P": napkin.precision_at_k(true, predicted, k=K),
        "R": napkin.recall_at_k(true, predicted, k=K),
        "nDCG": napkin.ndcg_at_k(true, predicted, k=K),
        "PSP": napkin.psprecision_at_k(true, predicted, inverse, k=K),
        "PSnDCG": napkin.psndcg_at_k(true, predicted, inverse, k=K),
        "coverage": napkin.coverage_at_k(true, predicted, k=K),
        "macro-F1": napkin.macro_f1_measure_at_k(true, predicted, k=K),
        "micro-F1": [
            napkin.f1_measure(true, [row[: k + 1] for row in predicted]) for k in range(K)
        ],
    }
    for name, values in theirs.items():
        for k in (1, 3, 5):
            yield f"{name}@{k}", ours[f"{name}@{k}"] / 100, values[k - 1]


def main() -> int:
    differences = []
    for n, n_labels, mean in SHAPES:
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            popularity = 1.0 / np.arange(1, n_labels + 1)
            popularity /= popularity.sum()
            n_known = n_labels * 9 // 10
            known = np.where(np.arange(n_labels) < n_known, popularity, 0)
            train = make_labels(rng, 3 * n, known / known.sum(), mean)
            Y = make_labels(rng, n, rng.permutation(popularity), mean)
            # napkinXC's macro average ends at the last label it meets; ours at the last column.
            Y = csr_array(Y[:, : Y.indices.max() + 1])
            train = csr_array(train[:, : Y.shape[1]])
            labels = make_predictions(rng, Y, min(n_known, Y.shape[1]))
            empty = int((np.diff(Y.indptr) == 0).sum())
            print(f"\n{n} rows ({empty} without labels), {Y.shape[1]} labels, seed {seed}")
            print(f"{'measure':<24}{'labelry':>14}{'napkinXC':>14}{'difference':>12}")
            for name, a, b in compare(train, Y, labels):
                differences.append(abs(a - b))
                print(f"{name:<24}{a:>14.8f}{b:>14.8f}{differences[-1]:>12.1e}")
    largest = np.max(differences)  # nan if any is
    print(f"\nlargest difference {largest:.1e} (allowed {TOLERANCE:.0e})")
    return int(not largest <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
