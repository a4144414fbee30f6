"""Rows that show what a model does: right ones, near misses and wrong ones."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from labelry.data.dataset import Dataset
from labelry.estimator import LabelRanker, rows_of
from labelry.report.measures import Ranked
from labelry.systems.explanation import Explanation

Weighed = tuple[str | int, float]  # a feature, and what it adds

PER_KIND = 3
SHOWN = 5  # best labels of a row

_WORDS = 6  # features for and against that are asked for
_FAINT = 0.08  # share of the strongest word from which a word is worth to be shown


class Example(NamedTuple):
    """A row with its true labels, the best labels with their scores, and why the first of them."""

    row: int
    kind: str
    text: str | None
    n_features: int | None
    true: list[int]
    predicted: list[tuple[int, float]]
    explanation: Explanation | None


def examples(
    model: LabelRanker, dataset: Dataset, ranked: Ranked, rng: np.random.Generator
) -> list[Example]:
    """Rows drawn at random: `PER_KIND` of each kind, or as many as there are.

    "right": the first prediction is true; "near miss": it is not, but another of the best five is;
    "wrong": none of the five. Rows without labels are of no kind.
    """
    truth = ranked.truth
    hits = truth.hits[:, :SHOWN]
    right, near = hits[:, 0], hits.any(axis=1)
    labelled = truth.n_true > 0
    kinds = {
        "right": right,
        "near miss": near & ~right,
        "wrong": ~near & labelled,
    }
    found = []
    for kind, rows in kinds.items():
        candidates = np.flatnonzero(rows)
        drawn = rng.choice(candidates, min(PER_KIND, len(candidates)), replace=False)
        found += [_example(model, dataset, ranked, row, kind) for row in np.sort(drawn).tolist()]
    return found


def _example(model: LabelRanker, dataset: Dataset, ranked: Ranked, row: int, kind: str) -> Example:
    truth = ranked.truth
    labels = truth.labels[row, :SHOWN].tolist()
    scores = ranked.scores[row, :SHOWN].tolist()
    predicted = [(j, s) for j, s in zip(labels, scores, strict=True) if j >= 0]
    x = dataset.X
    return Example(
        row=row,
        kind=kind,
        text=None if dataset.texts is None else dataset.texts[row],
        n_features=None if x is None else int((x[[row]] != 0).sum()),
        true=truth.Y[[row]].indices.tolist(),
        predicted=predicted,
        explanation=_explained(model, dataset, row, predicted[0][0]) if predicted else None,
    )


def _explained(model: Any, dataset: Dataset, row: int, label: int) -> Explanation | None:
    if not hasattr(model, "explain"):
        return None
    rows = rows_of(dataset)
    one = rows[row] if isinstance(rows, list) else rows[[row]]
    return model.explain(one, model.classes_.tolist()[label], n=_WORDS)


def strong(explanation: Explanation) -> tuple[list[Weighed], list[Weighed]]:
    """The features for and against that count beside the strongest."""
    sides = explanation.supporting, explanation.opposing
    least = _FAINT * max((abs(value) for side in sides for _, value in side), default=0.0)
    found = [[pair for pair in side if abs(pair[1]) > least] for side in sides]
    return found[0], found[1]


def marked(text: str, explanation: Explanation) -> list[tuple[str, str]]:
    """A text in parts, each with how it speaks for the label: "for-1" to "for-3", "against", "".

    Examples
    --------
    >>> why = Explanation("knee", 0.9, [("knee", 2.0)], [("no", -1.0)], 0.0, 0.0, 1.0, {})
    >>> marked("No pain in the knee.", why)
    [('No', 'against'), (' pain in the ', ''), ('knee', 'for-3'), ('.', '')]
    """
    tokens = list(re.finditer(r"\w+", text))
    words = [token.group().lower() for token in tokens]
    terms = defaultdict(list)
    for feature, value in (*explanation.supporting, *explanation.opposing):
        parts = str(feature).split(" ")
        terms[parts[0]].append((parts, value))
    totals = [0.0] * len(tokens)
    for i, word in enumerate(words):
        for parts, value in terms.get(word, []):
            if words[i : i + len(parts)] == parts:
                for j in range(len(parts)):  # each word of a term has its share
                    totals[i + j] += value / len(parts)
    most = max(map(abs, totals), default=0.0)
    found, end = [], 0
    for token, total in zip(tokens, totals, strict=True):
        if abs(total) <= _FAINT * most:
            continue
        kind = "against" if total < 0 else f"for-{min(3, int(np.ceil(3 * total / most)))}"
        found += [(text[end : token.start()], ""), (token.group(), kind)]
        end = token.end()
    return [part for part in (*found, (text[end:], "")) if part[0]]
