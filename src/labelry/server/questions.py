"""Requests as questions to a model, and the answers: one call of the model answers several."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json
from scipy.sparse import csr_array
from starlette.requests import ClientDisconnect, Request

from labelry.server.problems import Problem
from labelry.server.schemas import PredictRequest
from labelry.server.served import Inputs, Served, joined, n_rows
from labelry.server.settings import ServerSettings

_LABELS_PER_ROW = 100  # labels per row that a request of `max_batch` rows may ask for


class Answer(NamedTuple):
    """The labels of each row, best first, and the rows without a known word, which have none."""

    predictions: list[list[dict[str, Any]]]
    no_known_word: list[int]


@dataclass(frozen=True, eq=False)
class Question:
    """A request for the best labels of some rows."""

    served: Served
    rows: Inputs
    k: int
    threshold: float | None = None
    allowed: NDArray[np.int64] | None = None
    explain: bool = False

    @property
    def size(self) -> int:
        return n_rows(self.rows)

    @property
    def group(self) -> Hashable:
        """Return a key that is equal for questions that one call of the model can answer."""
        return (id(self.served), self.k) if self.allowed is None else id(self)


async def read_json(request: Request, settings: ServerSettings) -> bytes:
    """Read the body of a request as JSON, within the limits of size and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(
            415, "not_json", "send JSON with the header Content-Type: application/json", "headers"
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "compressed", "send the body without compression", "headers")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > settings.max_body:
        raise _too_large(settings)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.timeout):
            async for chunk in request.stream():
                body += chunk
                if len(body) > settings.max_body:
                    raise _too_large(settings)
    except TimeoutError:
        message = f"the body did not arrive within {settings.timeout:g} seconds"
        raise Problem(408, "slow_body", message, closes=True) from None
    except ClientDisconnect:
        raise Problem(400, "disconnected", "the client went away") from None
    return bytes(body)


def _too_large(settings: ServerSettings) -> Problem:
    message = f"the body may have at most {settings.max_body} bytes: send fewer rows at a time"
    return Problem(413, "body_too_large", message, closes=True)


def question_of(wanted: PredictRequest, served: Served, settings: ServerSettings) -> Question:
    """Return a request as a question to a model."""
    most = settings.max_batch
    rows = _texts(wanted, most) if served.takes_text else _features(wanted, served, most)
    allowed = None if wanted.labels is None else _allowed(wanted.labels, served)
    question = Question(served, rows, wanted.k, wanted.threshold, allowed, wanted.explain)
    if question.size * min(wanted.k, len(served.labels)) > _LABELS_PER_ROW * most:
        message = f"at most {_LABELS_PER_ROW * most} labels at a time: fewer rows or a smaller k"
        raise Problem(422, "batch_size", message, "k")
    if wanted.explain and not served.can_explain:
        message = (
            f"a {served.model.system} model cannot explain: leave out explain, or serve a tagger"
        )
        raise Problem(409, "no_explanations", message, "explain")
    if wanted.explain and question.size * wanted.k > most:
        message = f"explains at most {most} labels at a time: send fewer rows or a smaller k"
        raise Problem(422, "batch_size", message, "explain")
    return question


def count_rows(body: bytes, most: int) -> None:
    """Refuse a body of too many rows: to check each of them takes three times as long as this."""
    with suppress(ValueError):  # of what is no JSON; the full reading says what is wrong
        found = from_json(body)
        for name in ("text", "features"):
            rows = found.get(name) if isinstance(found, dict) else None
            if isinstance(rows, list) and rows and isinstance(rows[0], (str, list, dict)):
                check_rows(rows, most, name)


def check_rows(rows: Sized, most: int, where: str) -> None:
    """Refuse too many rows, and none."""
    if not 1 <= len(rows) <= most:
        raise Problem(422, "batch_size", f"must be 1 to {most} rows, got {len(rows)}", where)


def _texts(wanted: PredictRequest, most: int) -> list[str]:
    if wanted.text is None:
        raise Problem(
            422, "wrong_input", "this model labels texts: send text, not features", "features"
        )
    texts = [wanted.text] if isinstance(wanted.text, str) else wanted.text
    check_rows(texts, most, "text")
    return texts


def _features(wanted: PredictRequest, served: Served, most: int) -> Inputs:
    if wanted.features is None:
        message = f"this model labels rows of {served.n_features} features: send features, not text"
        raise Problem(422, "wrong_input", message, "text")
    given: Any = wanted.features
    if isinstance(given, list) and (not given or isinstance(given[0], (list, dict))):
        check_rows(given, most, "features")  # before half a million rows are read
        rows = [_columns(row, f"features.{i}", served) for i, row in enumerate(given)]
    else:
        rows = [_columns(given, "features", served)]
    n_entries = np.cumsum([0, *(len(columns) for columns, _ in rows)], dtype=np.int32)
    indices = np.concatenate([np.zeros(0, np.int32), *(columns for columns, _ in rows)])
    data = np.concatenate([np.zeros(0, np.float32), *(values for _, values in rows)])
    return csr_array((data, indices, n_entries), shape=(len(rows), served.n_features))


def _columns(
    row: list[float] | dict[int, float], where: str, served: Served
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the columns and values of a row that are not zero."""
    width = served.n_features or 0
    if isinstance(row, list):
        if len(row) != width:
            message = f"this model takes {width} features, got {len(row)}"
            raise Problem(422, "wrong_width", message, where)
        values = np.array(row, dtype=np.float32)
        columns = np.flatnonzero(values).astype(np.int32)
        return columns, values[columns]
    if row and max(row) >= width:
        message = f"column {max(row)} is not one of 0 to {width - 1}"
        raise Problem(422, "wrong_width", message, where)
    columns = np.array(sorted(row), dtype=np.int32)
    return columns, np.array([row[column] for column in columns.tolist()], dtype=np.float32)


def _allowed(labels: list[str | int], served: Served) -> NDArray[np.int64]:
    ids = [served.find(label) for label in labels]
    if None in ids:
        place = ids.index(None)
        message = f"the model has no label {labels[place]!r}: see /v1/labels"
        raise Problem(422, "unknown_label", message, f"labels.{place}")
    return np.unique(np.array(ids, dtype=np.int64))


def answer(questions: list[Question]) -> list[Answer]:
    """Answer questions of one group by one call of the model."""
    served, k, allowed = questions[0].served, questions[0].k, questions[0].allowed
    rows = joined([question.rows for question in questions])
    if allowed is None:
        ids, scores = served.topk(rows, k)
    else:
        ids, scores = served.topk_among(rows, k, allowed)
    found = np.isfinite(scores)
    known = served.known_words(rows, np.where(found, ids, -1))
    ranked = iter(zip(ids.tolist(), scores.tolist(), strict=True))
    ends = np.cumsum([question.size for question in questions])
    return [
        Answer(
            [_chosen(question, i, *next(ranked)) for i in range(question.size)],
            np.flatnonzero(~known[end - question.size : end]).tolist(),
        )
        for question, end in zip(questions, ends, strict=True)
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
