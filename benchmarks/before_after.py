"""Compare two trees of this project: labels, training time and model size of every system.

    python benchmarks/before_after.py run before.json DATA      # or with PYTHONPATH=TREE/src
    python benchmarks/before_after.py run after.json DATA
    python benchmarks/before_after.py compare before.json after.json

`run` fits every system and the three qualities of the tagger, with a fixed seed and two threads, to
small generated rows and to Bibtex. It keeps P@1, 3 and 5, training seconds (the least of several
fits), bytes of the model and a hash of the five best labels of each test row. `compare` prints a
row for each, and marks what differs. Without DATA only the generated rows are fitted.
"""

import argparse
import hashlib
import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import labelry
from labelry.data import read
from labelry.metrics import precision_at_k

SLOWER = 1.05  # a training time that is marked, as a ratio
REPEATS, LONG = (
    5,
    5.0,
)  # fits of which the least time counts; none again after one of so many seconds

SYSTEMS = {
    "OneVsRest": {},
    "Rembrandt": {},
    "Rembrandt logistic": {"decoder": "logistic", "embedding_dim": 50},
    "Rembrandt least-squares": {"decoder": "least-squares"},
    "Rembrandt corrected": {"correction": True, "embedding_dim": 50},
    "PCA": {},
    "CompressedSensing": {},
    "PLST": {},
    "CPLST": {},
    "CCA": {},
    "MLCSSP": {},
    "Blend": {},
    "LinearLabelTree": {},
    "LinearLabelTree three": {"n_trees": 3, "depth": 2},
    "LabelTree": {},
    "LabelTree siblings": {"training": "siblings"},
    "LabelEmbeddingTree": {},
    "SequentialEmbedding": {},
    "JointEmbedding": {},
    "WSABIE": {},
    "FilterTree": {},
    "ConditionalProbabilityTree": {},
    "FastXML": {"n_trees": 10},
    "LPSR": {},
    "NearestNeighbours": {},
    "LocalLEML": {},
    "SLEEC": {},
    "LEML": {},
    "LEML logistic": {"loss": "logistic", "embedding_dim": 30},
    "Moments": {},
    "Tagger fast": {"quality": "fast"},
    "Tagger balanced": {"quality": "balanced"},
    "Tagger best": {"quality": "best"},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("data", type=Path, nargs="?")
    run.add_argument("--only", default="", help="systems whose name begins so")
    compare = commands.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        print_comparison(
            json.loads(options.before.read_text()), json.loads(options.after.read_text())
        )
        return
    sets = {"generated": generated()}
    if options.data:
        sets["bibtex"] = bibtex(options.data)
    found = {}
    for name, rows in sets.items():
        for system, parameters in SYSTEMS.items():
            if system.startswith(options.only):
                found[f"{name} {system}"] = result = measured(system, parameters, *rows)
                print(name, system, result, flush=True)
                options.out.write_text(json.dumps(found, indent=1))


def generated() -> tuple:
    """Rows of 60 topics in 500 words, with one to three labels each."""
    rng = np.random.default_rng(0)
    n, d, c = 3000, 500, 60
    topics = rng.random((c, d)) ** 12
    Y = np.zeros((n, c), dtype=np.float32)
    for row in Y:
        row[rng.choice(c, size=rng.integers(1, 4), replace=False)] = 1
    X = rng.poisson(Y @ topics * 0.8).astype(np.float32)
    X[X.sum(axis=1) == 0, 0] = 1
    X, Y = sp.csr_array(X), sp.csr_array(Y)
    return X[:2000], Y[:2000], X[2000:], Y[2000:]


def bibtex(data: Path) -> tuple:
    train, test = (read(data / "bibtex" / f"{part}.txt.gz") for part in ("train", "test"))
    return train.X, train.Y, test.X, test.Y


def measured(system: str, parameters: dict, X, Y, X_test, Y_test) -> dict:
    make = getattr(labelry, system.partition(" ")[0])
    model = make(**parameters, random_state=0, n_jobs=2)
    seconds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _ in range(1 + REPEATS):  # the first compiles
                begin = time.perf_counter()
                model.fit(X, Y)
                seconds.append(time.perf_counter() - begin)
                if len(seconds) > 1 and seconds[-1] > LONG:
                    break
        except ValueError as error:
            return {"error": str(error)}
    labels = model.predict_topk(X_test, k=5)[0]
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        size = sum(file.stat().st_size for file in (Path(folder) / "model").iterdir())
    return {
        "P": [round(100 * precision_at_k(Y_test, labels, k), 2) for k in (1, 3, 5)],
        "seconds": round(min(seconds[1:]), 3),
        "bytes": size,
        "labels": hashlib.sha256(np.ascontiguousarray(labels, dtype=np.int64)).hexdigest()[:12],
    }


def print_comparison(before: dict, after: dict) -> None:
    columns = "rows and system|P@1/3/5 before|after|labels|seconds before|after|ratio|bytes ratio"
    print(f"|{columns}|", "|---" * len(columns.split("|")) + "|", sep="\n")
    for name in before:
        a, b = before[name], after.get(name, {"error": "left out"})
        if "error" in a or "error" in b:
            print(f"| {name} | {a.get('error', '')} | {b.get('error', '')} |||||")
            continue
        ratio, size = b["seconds"] / a["seconds"], b["bytes"] / a["bytes"]
        same = "same" if a["labels"] == b["labels"] else "**other**"
        mark = "**" if ratio > SLOWER else ""
        P, Q = ("/".join(map(str, x["P"])) for x in (a, b))
        print(
            f"| {name} | {P} | {Q} | {same} | {a['seconds']} | {b['seconds']} "
            f"| {mark}{ratio:.2f}{mark} | {size:.2f} |"
        )


if __name__ == "__main__":
    main()
