"""Questions to a model, answered several in one call."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelry.server.served import Rows, Served, joined, n_rows

Answer = list[list[dict[str, Any]]]  # for each row its labels, best first


@dataclass(frozen=True, eq=False)
class Question:
    """The best labels of some rows, as one request wants them."""

    served: Served
    rows: Rows
    k: int
    threshold: float | None = None
    allowed: NDArray[np.int64] | None = None
    explain: bool = False

    @property
    def size(self) -> int:
        return n_rows(self.rows)

    @property
    def group(self) -> Hashable:
        """Equal for questions that one call can answer without changing any of the answers."""
        return (id(self.served), self.k) if self.allowed is None else id(self)


def answer(questions: list[Question]) -> list[Answer]:
    """Answer questions of one group by one call of the model."""
    served, k, allowed = questions[0].served, questions[0].k, questions[0].allowed
    rows = joined([question.rows for question in questions])
    if allowed is None:
        ids, scores = served.topk(rows, k)
    else:
        ids, scores = served.topk_among(rows, k, allowed)
    ranked = iter(zip(ids.tolist(), scores.tolist(), strict=True))
    return [
        [_chosen(question, i, *next(ranked)) for i in range(question.size)]
        for question in questions
    ]


def _chosen(
    question: Question, row: int, ids: list[int], scores: list[float]
) -> list[dict[str, Any]]:
    served = question.served
    least = -math.inf if question.threshold is None else question.threshold
    chosen = [
        served.describe(label) | {"score": score}
        for label, score in zip(ids, scores, strict=True)
        if label >= 0 and score >= least and math.isfinite(score)
    ]
    if question.explain:
        rows = question.rows
        one = rows[row] if isinstance(rows, list) else rows[[row]]
        for label in chosen:
            label["explanation"] = served.explain(one, label["id"])
    return chosen
