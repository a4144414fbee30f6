"""Models for re-ranking beside one another: accuracy, calibration, time and size, on held-out rows.

    python benchmarks/rerankers.py DATA [--datasets bibtex,delicious] [--kinds logistic,boosted]

DATA holds a folder per dataset (or set LABELRY_DATA). The retrievers of the blend are fitted to
three quarters of the training rows; a model is fitted to their scores on half of the other rows,
and tested on the other half; near-duplicates stay together. "lightgbm" and "lambdarank" (the same
trees with a loss of ranks) need LightGBM (pip install lightgbm). Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from blend import without_near_duplicates
from linear_tree import DATASETS
from scipy.sparse import csr_array

from labelry.data import read
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.metrics import expected_calibration_error, precision_at_k
from labelry.metrics.matching import match
from labelry.ranking.evidence import as_probabilities, best_candidates
from labelry.ranking.rerank import fit_reranker
from labelry.tagging.blend import BlendSettings
from labelry.tagging.retrieval import fit_retrievers

KINDS = "average,logistic,boosted,lightgbm,lambdarank"
N_TREES, N_LEAVES, LEAF_CANDIDATES = 100, 15, 100  # as in labelry.ranking.rerank


class Evidence(NamedTuple):
    candidates: np.ndarray
    F: np.ndarray
    Y: csr_array

    def of(self, rows: np.ndarray) -> Evidence:
        return Evidence(self.candidates[rows], self.F[rows], self.Y[np.flatnonzero(rows)])

    @property
    def hits(self) -> np.ndarray:
        return match(self.Y, self.candidates).hits


class LightGBM:
    """Log odds (or scores of ranks) by LightGBM, with the interface of a `Reranker`."""

    def __init__(self, evidence: Evidence, objective: str) -> None:
        try:
            import lightgbm
        except ImportError as error:
            raise SystemExit("--kinds lightgbm needs LightGBM: pip install lightgbm") from error
        listed = evidence.candidates >= 0
        sizes = listed.sum(axis=1)
        parameters = {
            "objective": objective,
            "num_leaves": N_LEAVES,
            "min_data_in_leaf": LEAF_CANDIDATES,
            "lambda_l2": 1.0,
            "num_threads": 1,
            "verbosity": -1,
            "seed": 0,
        }
        rows = lightgbm.Dataset(
            evidence.F[listed],
            evidence.hits[listed].astype(int),
            group=sizes[sizes > 0] if objective == "lambdarank" else None,
        )
        self.booster = lightgbm.train(parameters, rows, N_TREES)

    def log_odds(self, candidates: np.ndarray, F: np.ndarray) -> np.ndarray:
        S = np.full(candidates.shape, -np.inf, dtype=np.float32)
        listed = candidates >= 0
        S[listed] = self.booster.predict(F[listed], raw_score=True, num_threads=1)
        return S


def collect(folder: Path) -> tuple[Evidence, Evidence]:
    """Scores of candidates on rows that were held out: to fit to, and to test on."""
    train, rng = read(folder / "train.txt.gz"), np.random.default_rng(0)
    seen, unseen = without_near_duplicates(train, train.X, min(train.n_rows // 4, 20_000), rng)
    settings = BlendSettings()
    rows = Rows(scaled_rows(seen.X), seen.Y, n_jobs=1)
    retrievers = fit_retrievers(rows, settings, None, rng)
    X = scaled_rows(unseen.X)
    parts = [part for _, *part in retrievers.candidates(X, settings.n_candidates)]
    evidence = Evidence(*(np.concatenate(part) for part in zip(*parts, strict=True)), unseen.Y)
    half = rng.permutation(unseen.n_rows) < unseen.n_rows // 2
    return evidence.of(half), evidence.of(~half)


def fitted(kind: str, evidence: Evidence) -> Any:
    if kind in ("lightgbm", "lambdarank"):
        return LightGBM(evidence, "binary" if kind == "lightgbm" else kind)
    candidates, F, _ = evidence
    rng = np.random.default_rng(0)
    return fit_reranker(candidates, F, evidence.hits, kind=kind, rng=rng)  # type: ignore[arg-type]


def line(data: str, kind: str, learn: Evidence, ask: Evidence) -> str:
    start = time.process_time()
    model = fitted(kind, learn)
    fit = time.process_time() - start
    model.log_odds(ask.candidates[:2], ask.F[:2])  # compiles
    start = time.process_time()
    S = model.log_odds(ask.candidates, ask.F)
    batch = (time.process_time() - start) / len(S)
    ones = []
    for i in range(min(200, len(S))):
        start = time.perf_counter()
        model.log_odds(ask.candidates[i : i + 1], ask.F[i : i + 1])
        ones.append(time.perf_counter() - start)
    labels, p = best_candidates(ask.candidates, as_probabilities(S), 5)
    error = "-"
    if kind != "lambdarank":
        error = f"{100 * expected_calibration_error(ask.Y, labels, np.where(labels < 0, 0, p)):.2f}"
    precisions = "/".join(f"{100 * precision_at_k(ask.Y, labels, k):.2f}" for k in (1, 3, 5))
    return (
        f"| {data} | {kind} | {precisions} | {error} | {fit:.1f} | {1e3 * batch:.3f} "
        f"| {1e3 * float(np.median(ones)):.2f} | {len(pickle.dumps(model)) / 1e3:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--datasets", default=DATASETS)
    parser.add_argument("--kinds", default=KINDS)
    arguments = parser.parse_args()
    if not arguments.data:
        parser.error("give the folder of the data, or set LABELRY_DATA")
    print("| data | model | P@1/3/5 | ECE, 5 best | fit CPU s | batch ms/row | one row ms | kB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.datasets.split(","):
        learn, ask = collect(Path(arguments.data) / name)
        for kind in arguments.kinds.split(","):
            print(line(name, kind, learn, ask), flush=True)


if __name__ == "__main__":
    main()
