"""Requests to questions: bodies within limits, rows as the model takes them, labels by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from starlette.requests import ClientDisconnect, Request

from labelry.server.answering import Question
from labelry.server.problems import Problem
from labelry.server.schemas import PredictRequest
from labelry.server.served import Rows, Served
from labelry.server.settings import Settings

_LABELS_PER_ROW = 100  # that a request of as many rows as are allowed may have


async def read_json(request: Request, settings: Settings) -> bytes:
    """The body of a request, if it says that it is JSON, within the limits of size and time."""
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


def _too_large(settings: Settings) -> Problem:
    message = f"the body may have at most {settings.max_body} bytes: send fewer rows at a time"
    return Problem(413, "body_too_large", message, closes=True)


def question_of(wanted: PredictRequest, served: Served, settings: Settings) -> Question:
    """What a request asks of a model."""
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


def _check_rows(rows: Sized, most: int, where: str) -> None:
    if not 1 <= len(rows) <= most:
        raise Problem(422, "batch_size", f"must be 1 to {most} rows, got {len(rows)}", where)


def _texts(wanted: PredictRequest, most: int) -> list[str]:
    if wanted.text is None:
        raise Problem(
            422, "wrong_input", "this model labels texts: send text, not features", "features"
        )
    texts = [wanted.text] if isinstance(wanted.text, str) else wanted.text
    _check_rows(texts, most, "text")
    return texts


def _features(wanted: PredictRequest, served: Served, most: int) -> Rows:
    if wanted.features is None:
        message = f"this model labels rows of {served.n_features} features: send features, not text"
        raise Problem(422, "wrong_input", message, "text")
    given: Any = wanted.features
    if isinstance(given, list) and (not given or isinstance(given[0], (list, dict))):
        _check_rows(given, most, "features")  # before each of half a million is looked at
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
    """Columns and values of what a row has other than zero."""
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
