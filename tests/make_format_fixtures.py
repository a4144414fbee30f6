"""Small models in the present format, with what they predict.

python tests/make_format_fixtures.py

They are kept for as long as labelry reads that format, so one that is there is never written again;
a new system, or a new number of the format, adds further ones. See tests/test_format.py.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from labelry.estimators import SYSTEMS, system_class
from labelry.estimators.base import LabelRanker
from labelry.estimators.tagging import Tagger
from labelry.storage import modelfile

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = "expected.json"  # rows, and the labels and scores that the model gives them
SOME_DAY = (2020, 1, 1, 0, 0, 0)
os.environ["SOURCE_DATE_EPOCH"] = "1577836800"  # the same day: no other time is in the files
N_BEST = 3
N_ROWS = 5
CLEAR = 1e-3

LABELS = ["arm", "foot", "hand", "hip", "knee", "leg"]
COMPLAINTS = ["acute", "broken", "cold", "pain", "sore", "swollen", "torn"]
NAMES = {label: f"of the {label}" for label in LABELS} | {"elbow": "elbow joint"}

# What a system keeps in another way than by default.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one-vs-rest-pruned": ("one-vs-rest", {"prune": 0.01}),
    "rembrandt-logistic": (
        "rembrandt",
        {"decoder": "logistic", "feature_map": "gaussian", "n_random_features": 20},
    ),
    "rembrandt-lists": ("rembrandt", {"index": "approximate", "correction": True}),
    "rembrandt-linear": ("rembrandt", {"decoder": "least-squares"}),
    "linear-trees": ("linear-tree", {"n_trees": 2, "depth": 2}),
    "label-tree-sigmoid": ("label-tree", {"training": "siblings"}),
    "sleec-sparse": ("sleec", {"l1": 0.01, "n_clusters": 2, "n_learners": 2}),
    "blend-propensity": ("blend", {"objective": "propensity", "n_trees": 1, "embedding_dim": 4}),
}
SMALL: dict[str, dict[str, Any]] = {
    "compressed-sensing": {"embedding_dim": 6},
    "fastxml": {"n_trees": 3},
    "moments": {"n_topics": 3},
    "local-leml": {"n_clusters": 2, "n_learners": 2},
}


def texts(n: int, rng: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """Complaints about parts of the body, with these as labels."""
    rows, labels = [], []
    for _ in range(n):
        parts = sorted(rng.choice(LABELS, rng.integers(1, 3), replace=False))
        words = rng.choice(COMPLAINTS, 2, replace=False)
        rows.append(" ".join([words[0], *parts, words[1]]))
        labels.append([str(part) for part in parts])
    return rows, labels


def noisy(labels: list[list[str]], rng: np.random.Generator) -> list[list[str]]:
    """Labels that are wrong in many rows, so that scorers differ and a re-ranker is of use."""
    wrong = [set(row) ^ {str(rng.choice(LABELS))} if rng.random() < 0.4 else row for row in labels]
    return [sorted(row) or LABELS[:1] for row in wrong]


def vectors(n: int, rng: np.random.Generator) -> tuple[csr_array, list[list[str]]]:
    """The same as sparse features."""
    rows, labels = texts(n, rng)
    known = [*LABELS, *COMPLAINTS]
    X = np.array([[word in row.split() for word in known] for row in rows], dtype=np.float32)
    X *= 1 + rng.integers(0, 4, size=X.shape).astype(np.float32) / 4
    return csr_array(X), labels


def models() -> dict[str, Callable[[], tuple[LabelRanker, Any]]]:
    """By name of the fixture, what makes a fitted model and rows to predict."""

    def on_vectors(system: str, options: dict[str, Any]) -> tuple[LabelRanker, Any]:
        rng = np.random.default_rng(0)
        model = system_class(system)(n_jobs=1, **options).fit(*vectors(120, rng))
        return model, vectors(60, rng)[0].toarray()

    def on_texts(quality: Any) -> tuple[LabelRanker, Any]:
        rng = np.random.default_rng(0)
        model = Tagger(quality=quality, n_jobs=1).fit(*texts(120, rng))
        return model, texts(60, rng)[0]

    def reranked(model: Any, make: Any, seed: int, **options: Any) -> tuple[LabelRanker, Any]:
        rng = np.random.default_rng(seed)
        rows, labels = make(300, rng)
        model = model.fit(rows, noisy(labels, rng), **options)
        if model.fitted_.reranker is None:
            raise ValueError(f"a judge alone was better; try other rows than those of seed {seed}")
        more = make(60, rng)[0]
        return model, more if isinstance(more, list) else more.toarray()

    def dense_classes() -> tuple[LabelRanker, Any]:
        X, labels = vectors(40, np.random.default_rng(0))
        dense = X.toarray()
        model = system_class("label-tree")(n_jobs=1).fit(dense, [row[0] for row in labels])
        return model, dense

    def wide() -> tuple[LabelRanker, Any]:
        """With features that few rows have, so that nodes look theirs up in tables."""
        rng = np.random.default_rng(0)
        X, labels = vectors(60, rng)
        X = csr_array(hstack([X, np.eye(60, dtype=np.float32)]))
        return system_class("label-tree")(n_jobs=1).fit(X, labels), X.toarray()

    found: dict[str, Callable[[], tuple[LabelRanker, Any]]] = {}
    for name in SYSTEMS:
        found[name] = lambda name=name: on_vectors(name, SMALL.get(name, {}))
    for name, variant in VARIANTS.items():
        found[name] = lambda variant=variant: on_vectors(*variant)
    for quality in ("fast", "balanced", "best"):
        found[f"tagger-{quality}"] = lambda quality=quality: on_texts(quality)
    blend = partial(system_class("blend"), n_trees=1, embedding_dim=4, n_jobs=1)
    boosted = {"reranker": "boosted", "held_out": 0.5}
    found["blend-logistic"] = lambda: reranked(blend(), vectors, 1)
    found["blend-boosted"] = lambda: reranked(blend(**boosted), vectors, 6)
    found["tagger-names"] = lambda: reranked(Tagger(n_jobs=1), texts, 13, names=NAMES)
    found["label-tree-dense"] = dense_classes
    found["label-tree-wide"] = wide
    return found


def write_fixture(path: Path, model: LabelRanker, rows: Any) -> None:
    """A model and what it predicts, in one file that does not depend on the time."""
    labels, scores = model.predict_topk(rows, N_BEST + 1)
    with np.errstate(invalid="ignore"):
        near = scores[:, :-1] - scores[:, 1:] < CLEAR * np.abs(scores[:, :1])
    clear = np.flatnonzero(~near.any(axis=1))[:N_ROWS]  # rounding must not decide what is best
    labels, scores = labels[clear, :N_BEST], scores[clear, :N_BEST]
    rows = [rows[i] for i in clear] if isinstance(rows, list) else rows[clear]
    expected = {
        "rows": rows if isinstance(rows, list) else rows.tolist(),
        "labels": labels.tolist(),
        "scores": [
            [score if np.isfinite(score) else None for score in row] for row in scores.tolist()
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        model.save(directory)
        (directory / EXPECTED).write_text(json.dumps(expected))
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(directory.iterdir()):
                archive.writestr(
                    zipfile.ZipInfo(file.name, SOME_DAY), file.read_bytes(), zipfile.ZIP_DEFLATED
                )


def main() -> None:
    folder = FIXTURES / f"format-{modelfile.FORMAT_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in models().items():
        path = folder / f"{name}.zip"
        if not path.exists():
            write_fixture(path, *make())


if __name__ == "__main__":
    main()
