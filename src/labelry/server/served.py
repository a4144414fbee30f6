"""A loaded model, with all that answers need of it worked out once."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from labelry import modelfile
from labelry.estimator import LabelRanker
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.topk import topk_blocks
from labelry.server.label_search import LabelSearch
from labelry.server.label_words import label_words, tree_of
from labelry.systems import load

Rows: TypeAlias = "list[str] | csr_array"
Identity: TypeAlias = tuple[tuple[int, ...] | None, ...]

WIDE = 1000  # labels to filter of a model that cannot score all


class Served:
    """A model that answers requests. It is never changed: a new model is a new `Served`.

    Attributes
    ----------
    takes_text : bool
        Whether rows are texts; otherwise they have `n_features` features.
    labels : list
        Name of each label, by its id.
    titles : list of str, or None
        What a label's name stands for, where the model was told.
    scores_all : bool
        Whether the model can score every label, so that a filter finds any of them.
    """

    def __init__(self, model: LabelRanker, name: str, fingerprint: str) -> None:
        self.model = model
        self.name = name
        self.fingerprint = fingerprint
        self.loaded_at = time.time()
        self.takes_text = model.text_features_ is not None
        self.n_features = None if self.takes_text else int(model.n_features_in_)
        self.labels: list[Any] = model.classes_.tolist()
        titles = getattr(model, "names_", None)
        self.titles: list[str] | None = None if titles is None else titles.tolist()
        self._ids = {str(label): i for i, label in enumerate(self.labels)}
        self.search = LabelSearch(list(map(self._searched, range(len(self.labels)))))
        self.can_explain = hasattr(model, "explain")
        self.can_compare = _has_vectors(model)
        self.has_words = tree_of(model) is not None
        self.scores_all = self._warm_up()

    def _searched(self, label: int) -> str:
        name = str(self.labels[label])
        return name if self.titles is None else f"{name} {self.titles[label]}"

    def _warm_up(self) -> bool:
        """Predict once, so that no request waits for compilers; whether it scores all labels."""
        row = self._example()
        self.topk(row, 5)
        try:
            self.model.score_all(row)
        except NotImplementedError:
            return False
        return True

    def _example(self) -> Rows:
        features = self.model.text_features_
        if features is not None:
            return [(features.vocabulary_ or ["a"])[0]]
        one = np.ones(1, dtype=np.float32), (np.zeros(1, np.int32), np.zeros(1, np.int32))
        return csr_array(one, shape=(1, self.n_features))

    def find(self, label: str | int) -> int | None:
        """Id of a label, or None."""
        return self._ids.get(str(label))

    def describe(self, label: int) -> dict[str, Any]:
        """A label as answers show it."""
        shown = {"id": label, "label": self.labels[label]}
        if self.titles is not None:
            shown["title"] = self.titles[label]
        return shown

    def topk(self, rows: Rows, k: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Ids (-1: none) and scores of the best labels of each row."""
        return self.model.topk_ids(rows, k)

    def topk_among(
        self, rows: Rows, k: int, allowed: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """As `topk`, of the `allowed` ids only.

        A model that cannot score all labels gives those that are among its best `WIDE`.
        """
        k = min(k, len(allowed))
        if self.scores_all:
            places, best = topk_blocks(
                lambda block: self.model.score_all(rows[block])[:, allowed],
                n_rows(rows),
                len(self.labels),
                k,
            )
            return np.where(places < 0, -1, allowed[places]), best
        ids, scores = self.topk(rows, WIDE)
        refused = ~np.isin(ids, allowed)
        order = np.argsort(refused, axis=1, kind="stable")[:, :k]  # the allowed ones, best first
        ids, scores, refused = (np.take_along_axis(a, order, 1) for a in (ids, scores, refused))
        return np.where(refused, -1, ids), np.where(refused, np.float32(-np.inf), scores)

    def explain(self, row: Any, label: int) -> dict[str, Any]:
        """What the model says of why a row has a label, as plain data."""
        explanation = self.model.explain(row, self.labels[label])
        return {name: _plain(value) for name, value in explanation._asdict().items()}

    def similar(self, label: int, k: int) -> list[dict[str, Any]]:
        """The labels most like one, and how much they are."""
        V = self._unit_vectors
        cosine = V @ V[label]
        cosine[label] = -np.inf
        best = np.argsort(-cosine, kind="stable")[: min(k, len(V) - 1)]
        return [self.describe(i) | {"similarity": float(cosine[i])} for i in best.tolist()]

    @cached_property
    def _unit_vectors(self) -> NDArray[np.float32]:
        """Of all labels; a tree works them out in seconds, so only once."""
        return scaled_rows(self.model.label_vectors())

    def words(self, label: int, k: int) -> dict[str, Any]:
        """The words that weigh most for a label and against it."""
        return label_words(self.model, label, k)


def n_rows(rows: Rows) -> int:
    """How many rows."""
    return len(rows) if isinstance(rows, list) else rows.shape[0]


def joined(parts: Sequence[Any]) -> Rows:
    """The rows of several requests as those of one."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return [text for part in parts for text in part]
    return csr_array(vstack(parts, format="csr"))


def load_served(path: Path) -> tuple[Served, Identity]:
    """Load and warm the model of a directory, and say which state of the directory that is."""
    while True:
        before = identity(path)
        model = load(path).set_params(n_jobs=1)  # processes are what works side by side
        fingerprint = fingerprint_of(path)
        if identity(path) == before:  # not replaced meanwhile
            return Served(model, path.resolve().name, fingerprint), before


def fingerprint_of(path: Path) -> str:
    """Differs between models; the same for copies of one."""
    return f"{zlib.crc32((path / modelfile.MODEL).read_bytes()):08x}"


def identity(path: Path) -> Identity:
    """Changes when the model of a directory is replaced, whole or file by file."""
    files = (modelfile.MODEL, modelfile.STATE, modelfile.LABELS, modelfile.ARRAYS)
    return tuple(_stamp(path / name) for name in files)


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _has_vectors(model: LabelRanker) -> bool:
    """Whether `label_vectors` has something to give, without working it out."""
    own = type(model).label_vectors is not LabelRanker.label_vectors
    return own or hasattr(model, "label_embedding_")


def _plain(value: Any) -> Any:
    """Data without types of numpy, as JSON wants it; a number that is not finite is None."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value
