"""A loaded model, and what answers need of it, computed once."""

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

from labelry.data.function_words import added_up
from labelry.estimators import load
from labelry.estimators.base import LabelRanker
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.topk import topk_blocks
from labelry.ranking.ranker import Explains, HasLabelVectors, ScoresAll, supports
from labelry.storage import modelfile
from labelry.storage.about import ABOUT

Inputs: TypeAlias = "list[str] | csr_array"
Identity: TypeAlias = tuple[tuple[int, ...] | None, ...]

_END = "\0"  # the end of a name in the text of `LabelSearch`

_WARM_LABELS = 100_000  # of more, the vectors are computed when somebody asks; not tuned

_FREQUENT = 10  # most frequent labels, which the page shows at first
_EXPLAINING = 10  # features for a label, and as many against it
_SPARE = 20  # features that are asked for beyond those shown, as some are function words

WIDE = 1000  # best labels of a row to filter, if a model cannot score all


class Served:
    """A model that answers requests. It is never changed: a new model is a new `Served`."""

    def __init__(self, model: LabelRanker, name: str, fingerprint: str) -> None:
        self.model = model
        self.name = name
        self.fingerprint = fingerprint
        self.loaded_at = time.time()
        self.about = model.about_
        self.title = self.about.card.title or name.removesuffix(".labelry")
        self.takes_text = model.text_features_ is not None
        # Features of a row; None if rows are texts.
        self.n_features = None if self.takes_text else int(model.n_features_in_)
        self.labels: list[Any] = model.classes_.tolist()  # by id
        # Descriptions of labels by id, "" for one without; None if no label has one.
        self.descriptions: list[str] | None = (
            None if model.names_ is None else model.names_.tolist()
        )
        names = list(map(str, self.labels))
        self._ids = {name: i for i, name in enumerate(names)}
        if self.descriptions is not None:
            names = [
                f"{name} {described}"
                for name, described in zip(names, self.descriptions, strict=True)
            ]
        self.search = LabelSearch(names)
        self.can_explain = supports(model, Explains)
        self.can_compare = supports(model, HasLabelVectors)
        self.scores_all = supports(model, ScoresAll)  # so that a filter finds any label
        self._warm_up()

    def _warm_up(self) -> None:
        """Ask everything once, so that no request waits for a compiler."""
        features = self.model.text_features_
        if features is not None:
            row: Inputs = [(features.vocabulary_ or ["a"])[0]]
        else:
            row = csr_array(([np.float32(1)], [0], [0, 1]), shape=(1, self.n_features))
        self.topk(row, 5)
        if self.scores_all:
            self.model.score_all(row)
        if not self.labels:
            return
        if self.can_explain:
            self.explain(row[0] if self.takes_text else row, 0)
            self.words(0, 1)
        if self.can_compare and len(self.labels) <= _WARM_LABELS:
            self.similar(0, 1)

    def find(self, label: str | int) -> int | None:
        """Return the id of a label, or None."""
        return self._ids.get(str(label))

    def describe(self, label: int) -> dict[str, Any]:
        """Return a label as answers show it."""
        shown = {"id": label, "label": self.labels[label]}
        if self.descriptions is not None:
            shown["description"] = self.descriptions[label]
        return shown

    def counted(self, label: int) -> dict[str, Any]:
        """Return a label as answers show it, with the number of its training rows."""
        return self.describe(label) | {"rows": int(self.model.label_counts_[label])}

    def frequent(self) -> list[dict[str, Any]]:
        """Return the most frequent labels, the most frequent first."""
        order = np.argsort(-self.model.label_counts_, kind="stable")
        return [self.counted(label) for label in order[:_FREQUENT].tolist()]

    def topk(self, rows: Inputs, k: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the ids (-1: none) and scores of the best labels of each row."""
        return self.model.topk_ids(rows, k)

    def known_words(self, rows: Inputs, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Return for each row whether the model knows a word of it, given its best labels."""
        return self.model.known_words(rows, ids)

    def topk_among(
        self, rows: Inputs, k: int, allowed: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the same for the `allowed` ids only.

        A model that cannot score all labels finds those among its best `WIDE`.
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
        """Return the explanation of a label for a row, as plain data without function words.

        What function words add is part of the rest.
        """
        full = self.model.explain(row, self.labels[label], _EXPLAINING + _SPARE)
        listed = [*full.supporting, *full.opposing]
        supporting, opposing = (side[:_EXPLAINING] for side in added_up(listed))
        shown = sum(value for _, value in [*supporting, *opposing])
        rest = full.rest + sum(value for _, value in listed) - shown
        found = full._replace(supporting=supporting, opposing=opposing, rest=rest)
        return {name: _plain(value) for name, value in found._asdict().items()}

    def similar(self, label: int, k: int) -> list[dict[str, Any]]:
        """Return the labels most similar to one, with their similarity."""
        V = self._unit_vectors
        cosine = V @ V[label]
        cosine[label] = -np.inf
        best = np.argsort(-cosine, kind="stable")[: min(k, len(V) - 1)]
        return [self.describe(i) | {"similarity": float(cosine[i])} for i in best.tolist()]

    @cached_property
    def _unit_vectors(self) -> NDArray[np.float32]:
        """The vectors of all labels; a tree takes seconds to compute them."""
        return scaled_rows(self.model.label_vectors())

    def words(self, label: int, k: int) -> dict[str, Any]:
        """Return the k features with the largest weights for a label, and the k against it.

        They are those of a row in which every feature is 1. Features are words, or numbers of
        columns. Function words are left out.
        """
        features = self.model.text_features_
        width = self.model.n_features_in_ if features is None else features.n_features_out_
        every = csr_array(np.ones((1, width), dtype=np.float32))
        found = self.model.fitted_.contributions(every, label)
        strongest = np.concatenate(found.strongest(k + _SPARE))
        sides = added_up(found.named(strongest, features))
        return {
            name: [{"word": word, "weight": weight} for word, weight in side[:k]]
            for name, side in zip(("supporting", "opposing"), sides, strict=True)
        }


class LabelSearch:
    """Finds labels by a part of their name.

    Holds all names in one text, so that a search of a million takes milliseconds.

    >>> LabelSearch(["Knee pain", "Arm", "Pain"]).find("pain", limit=10)
    [0, 2]
    """

    def __init__(self, names: list[str]) -> None:
        folded = [_folded(name) for name in names]
        self._text = _END.join(folded)
        lengths = np.fromiter(map(len, folded), np.int64, len(folded)) + len(_END)
        self._starts = np.concatenate([[0], np.cumsum(lengths)])  # and one past the last name

    def find(self, query: str, limit: int, after: int = -1) -> list[int]:
        """Return the first `limit` labels above `after` with `query` in their name, in any case."""
        query = _folded(query)
        found: list[int] = []
        place = int(self._starts[min(after + 1, len(self._starts) - 1)])
        while len(found) < limit and (place := self._text.find(query, place)) >= 0:
            label = int(np.searchsorted(self._starts, place, side="right")) - 1
            found.append(label)
            place = int(self._starts[label + 1])
        return found


def _folded(name: str) -> str:
    return name.casefold().replace(_END, " ")


def n_rows(inputs: Inputs) -> int:
    """Return the number of rows."""
    return len(inputs) if isinstance(inputs, list) else inputs.shape[0]


def joined(parts: Sequence[Any]) -> Inputs:
    """Join the rows of several requests."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return [text for part in parts for text in part]
    return csr_array(vstack(parts, format="csr"))


def load_served(path: Path) -> tuple[Served, Identity]:
    """Load and warm up the model of a directory; return it with the identity of the directory."""
    while True:
        before = identity(path)
        model = load(path).set_params(n_jobs=1)  # parallel work is done by processes
        fingerprint = fingerprint_of(path)
        if identity(path) == before:  # not replaced meanwhile
            return Served(model, path.resolve().name, fingerprint), before


def fingerprint_of(path: Path) -> str:
    """Return a checksum that differs between models and is equal for copies."""
    return f"{zlib.crc32((path / modelfile.MODEL).read_bytes()):08x}"


def identity(path: Path) -> Identity:
    """Return a value that changes when a file of the model is replaced."""
    files = (modelfile.MODEL, modelfile.STATE, modelfile.LABELS, modelfile.ARRAYS, ABOUT)
    return tuple(_stamp(path / name) for name in files)


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _plain(value: Any) -> Any:
    """Convert data for JSON: no types of numpy, and None for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value
