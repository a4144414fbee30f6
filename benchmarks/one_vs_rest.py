"""One-vs-rest against scikit-learn's on the same rows, in one run.

    python benchmarks/one_vs_rest.py DATA [--dataset bibtex]

DATA holds a folder per dataset with train.txt.gz and test.txt.gz in the XC format.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from labelry import OneVsRest
from labelry.data import read
from labelry.linalg.topk import topk
from labelry.metrics import precision_at_k


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default=os.environ.get("LABELRY_DATA"))
    parser.add_argument("--dataset", default="bibtex")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give the data folder, or set LABELRY_DATA")
    folder = Path(arguments.data) / arguments.dataset
    train, test = (read(folder / f"{part}.txt.gz") for part in ("train", "test"))
    X, X_test = normalize(train.X), normalize(test.X)
    OneVsRest(max_sweeps=1).fit(X[:50], train.Y[:50])  # compile before the clock starts

    results = {}
    start = time.perf_counter()
    model = OneVsRest(n_jobs=arguments.jobs, normalize=False).fit(X, train.Y)
    results["labelry"] = time.perf_counter() - start, model.topk_ids(X_test, 5)[0]
    start = time.perf_counter()
    theirs = OneVsRestClassifier(LinearSVC(), n_jobs=arguments.jobs).fit(X, train.Y)
    seconds = time.perf_counter() - start
    scores = theirs.decision_function(X_test).astype(np.float32)
    results["scikit-learn"] = seconds, topk(scores, 5)[0]

    print(f"{arguments.dataset}: {X.shape[0]:,} rows, {train.n_labels:,} labels, unit-norm rows")
    for name, (seconds, labels) in results.items():
        figures = " / ".join(f"{100 * precision_at_k(test.Y, labels, k):.2f}" for k in (1, 3, 5))
        print(f"{name:14s} {seconds:8.2f} s   P@1/3/5 {figures}")
    print(f"ratio          {results['scikit-learn'][0] / results['labelry'][0]:8.2f} x")


if __name__ == "__main__":
    main()
