"""Which settings of the neighbour decoder held-out training rows choose, and their test figures.

    python benchmarks/neighbour_choice.py DATA

The defaults were found while looking at test figures; this is the check that does not.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np

from labelry.data import Dataset, read
from labelry.embeddings.rembrandt import rembrandt
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Rows
from labelry.linalg.solve import Ridge
from labelry.metrics import precision_at_k
from labelry.ranking.neighbours import Neighbours

RIDGES, WHITENINGS, SHARPNESSES = (0.1, 0.3, 0.5, 1.0), (0.0, 0.5, 1.0), (5.0, 15.0, 30.0)
Setting = tuple[float, float, float]


def figures(train: Dataset, test: Dataset) -> dict[Setting, list[float]]:
    """P@1/3/5 of each setting (ridge of the regressor, whitening exponent, sharpness)."""
    X, X_test = scaled_rows(train.X), scaled_rows(test.X)
    ridge = Ridge(Rows(X, train.Y))
    V = rembrandt(ridge, 150, rng=np.random.default_rng(0)).vectors
    found = {}
    for r, whitening, sharpness in product(RIDGES, WHITENINGS, SHARPNESSES):
        W = ridge.solve(V, r)
        Z = W(X, 2)
        scale = (np.sqrt((Z**2).mean(axis=0)) ** -whitening).astype(np.float32)
        decoder = Neighbours(scaled_rows(Z * scale), scale, train.Y, 100, sharpness)
        labels = decoder.topk(W(X_test, 2), 5, 2)[0]
        found[r, whitening, sharpness] = [
            100 * precision_at_k(test.Y, labels, k) for k in (1, 3, 5)
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    print("| | whitening | chosen ridge, sharpness | held-out P@1/3/5 | test P@1/3/5 |")
    print("|---|---|---|---|---|")
    data = parser.parse_args().data
    for name in ("bibtex", "delicious"):
        train, test = (read(Path(data) / name / f"{part}.txt.gz") for part in ("train", "test"))
        judged, tested = figures(*train.split(0.2)), figures(train, test)
        for whitening in WHITENINGS:
            best = max((s for s in judged if s[1] == whitening), key=lambda s: sum(judged[s]))
            cells = (" / ".join(f"{v:.2f}" for v in f[best]) for f in (judged, tested))
            print(
                f"| {name} | {whitening} | {best[0]}, {best[2]} | {' | '.join(cells)} |", flush=True
            )


if __name__ == "__main__":
    main()
