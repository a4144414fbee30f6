"""Choose rows as examples of predictions: right, near misses and wrong ones."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from labelry.data.dataset import Dataset
from labelry.data.function_words import added_up
from labelry.estimators.base import LabelRanker
from labelry.ranking.ranker import Explains, supports
from labelry.report.measures import Ranked
from labelry.tagging.explanation import Explanation

Weighed = tuple[str | int, float]  # a feature, and its contribution to the score

PER_KIND = 3  # rows of each kind
SHOWN = 5  # best labels of a row that are shown

_WORDS = 6  # strongest features for and against a label that are shown
_SPARE = 20  # features that are asked for beyond those, as some are function words
_FAINT = 0.08  # a word is shown if it has more than this share of the strongest; not tuned


class Example(NamedTuple):
    """A row with its true labels, its best labels with scores, and an explanation of the best."""

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
    """Draw rows at random: `PER_KIND` of each kind, or as many as there are.

    "right": the first prediction is true; "near miss": it is not, but another of the best five is;
    "wrong": none of the five is. Rows without labels are left out.
    """
    truth = ranked.truth
    hits = truth.hits[:, :SHOWN]
    right, near = hits[:, 0], hits.any(axis=1)
    kinds = {"right": right, "near miss": near & ~right, "wrong": ~near & (truth.n_true > 0)}
    found = []
    for kind, rows in kinds.items():
        candidates = np.flatnonzero(rows)
        drawn = rng.choice(candidates, min(PER_KIND, len(candidates)), replace=False)
        found += [
            _explained_example(model, dataset, ranked, row, kind) for row in np.sort(drawn).tolist()
        ]
    return found


def _explained_example(
    model: LabelRanker, dataset: Dataset, ranked: Ranked, row: int, kind: str
) -> Example:
    truth, X = ranked.truth, dataset.X
    scored = zip(truth.labels[row].tolist(), ranked.scores[row].tolist(), strict=True)
    predicted = [pair for pair in scored if pair[0] >= 0][:SHOWN]
    explanation = None
    if predicted and supports(model, Explains):
        rows = dataset.rows
        one = rows[row] if isinstance(rows, list) else rows[[row]]
        label = model.classes_.tolist()[predicted[0][0]]
        full = model.explain(one, label, n=_WORDS + _SPARE)
        sides = added_up([*full.supporting, *full.opposing])
        supporting, opposing = (side[:_WORDS] for side in sides)
        explanation = full._replace(supporting=supporting, opposing=opposing)
    return Example(
        row=row,
        kind=kind,
        text=None if dataset.texts is None else dataset.texts[row],
        n_features=None if X is None else int((X[[row]] != 0).sum()),
        true=truth.Y[[row]].indices.tolist(),
        predicted=predicted,
        explanation=explanation,
    )


def strong_features(explanation: Explanation) -> tuple[list[Weighed], list[Weighed]]:
    """Return the features for and against a label that are not weak beside the strongest."""
    sides = explanation.supporting, explanation.opposing
    least = _FAINT * max((abs(value) for side in sides for _, value in side), default=0.0)
    found = [[pair for pair in side if abs(pair[1]) > least] for side in sides]
    return found[0], found[1]


def marked(text: str, explanation: Explanation) -> list[tuple[str, str]]:
    """Split a text into parts, each with its mark: "for-1" to "for-3", "against", or "".

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
