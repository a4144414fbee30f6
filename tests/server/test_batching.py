"""Micro-batches: what is asked together, what waits, and what one failure does to others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any

import numpy as np
import pytest

from labelry.server.batching import Batcher
from labelry.server.metrics import Metrics
from labelry.server.problems import Problem
from labelry.server.questions import Answer, Question


class Model:
    """Stands for a `Served`: the labels of a text are its length; remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], int]] = []
        self.free = Event()  # the first call ends when this is set

    def topk(self, rows: list[str], k: int) -> tuple[Any, Any]:
        first = not self.calls
        self.calls.append((list(rows), k))
        if first:
            assert self.free.wait(10)
        if "bad" in rows:
            raise RuntimeError("bad row")
        ids = np.array([[len(row)] * k for row in rows])
        return ids, np.ones(ids.shape, dtype=np.float32)

    def known_words(self, rows: list[str], ids: Any) -> Any:
        return np.array([bool(row) for row in rows])

    def describe(self, label: int) -> dict[str, int]:
        return {"id": label}

    def question(self, *texts: str, k: int = 1) -> Question:
        return Question(self, list(texts), k)  # type: ignore[arg-type]


def run(test: Callable[[Batcher], Awaitable[None]], max_batch: int = 4, waiting: int = 100) -> None:
    async def main() -> None:
        batcher = Batcher(max_batch, waiting, Metrics())
        try:
            await test(batcher)
        finally:
            batcher.close()

    asyncio.run(main())


async def asked(batcher: Batcher, *questions: Question) -> list[asyncio.Task[Any]]:
    """Tasks whose questions have reached the batcher."""
    tasks = [asyncio.ensure_future(batcher.ask(question)) for question in questions]
    await asyncio.sleep(0)
    return tasks


def ids(answer: Any) -> list[list[int]]:
    return [[label["id"] for label in row] for row in answer.predictions]


def test_what_arrives_meanwhile_is_asked_together() -> None:
    async def test(batcher: Batcher) -> None:
        model = Model()
        first = await asked(batcher, model.question("a"))
        rest = await asked(batcher, *(model.question("b" * n) for n in range(2, 7)))
        model.free.set()
        answers = await asyncio.gather(*first, *rest)
        assert [ids(answer) for answer in answers] == [[[n]] for n in range(1, 7)]
        assert [len(rows) for rows, _ in model.calls] == [1, 4, 1]

    run(test)


def test_different_k_are_never_mixed_and_take_turns() -> None:
    async def test(batcher: Batcher) -> None:
        model = Model()
        tasks = await asked(
            batcher,
            model.question("a"),
            model.question("b", "b"),
            model.question("c", k=2),
            model.question("d", "d", "d"),
            model.question("e", k=2),
        )
        model.free.set()
        answers = await asyncio.gather(*tasks)
        assert ids(answers[2]) == [[1, 1]]
        assert model.calls == [(["a"], 1), (["b", "b"], 1), (["c", "e"], 2), (["d", "d", "d"], 1)]

    run(test)


def test_too_many_waiting_rows_are_turned_away() -> None:
    async def test(batcher: Batcher) -> None:
        model = Model()
        running = await asked(batcher, model.question("a"))
        waiting = await asked(batcher, model.question("b", "b"))
        with pytest.raises(Problem, match="try again") as caught:
            await batcher.ask(model.question("c", "c"))
        assert caught.value.status == 503
        model.free.set()
        await asyncio.gather(*running, *waiting)
        assert ids(await batcher.ask(model.question("cc"))) == [[2]]

    run(test, waiting=3)


def test_one_that_fails_does_not_spoil_the_others() -> None:
    async def test(batcher: Batcher) -> None:
        model = Model()
        tasks = await asked(batcher, *map(model.question, ("a", "bb", "bad", "dddd")))
        model.free.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[2], RuntimeError)
        assert [ids(answer) for answer in answers if isinstance(answer, Answer)] == [
            [[1]],
            [[2]],
            [[4]],
        ]

    run(test)


def test_who_gave_up_is_not_asked_for() -> None:
    async def test(batcher: Batcher) -> None:
        model = Model()
        tasks = await asked(batcher, *map(model.question, ("a", "b", "c")))
        tasks[1].cancel()
        model.free.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [rows for rows, _ in model.calls] == [["a"], ["c"]]

    run(test)


def test_too_many_other_calls_are_turned_away() -> None:
    async def test(batcher: Batcher) -> None:
        free = Event()
        calls = [asyncio.ensure_future(batcher.call(free.wait, 10)) for _ in range(32)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="try again"):
            await batcher.call(int)
        free.set()
        assert await asyncio.gather(*calls) == [True] * 32
        assert await batcher.call(int) == 0

    run(test)
