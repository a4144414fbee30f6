"""Micro-batches: requests that arrive while the model works are answered by its next call.

No request waits for a batch to fill: an idle model gets a single row at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from labelry.server.metrics import Metrics
from labelry.server.problems import Problem
from labelry.server.questions import Answer, Question, answer

_MOST_CALLS = 32  # calls other than predictions that may wait; not tuned

T = TypeVar("T")
_Job = tuple[Question, "asyncio.Future[Answer]"]


class Batcher:
    """Runs a model in one thread, on batches of at most `max_batch` rows.

    Questions of one group share batches; groups take turns. At most `max_waiting` rows wait;
    further requests are refused, so that memory and waiting times stay bounded.
    """

    def __init__(self, max_batch: int, max_waiting: int, metrics: Metrics) -> None:
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._metrics = metrics
        self._groups: dict[Hashable, deque[_Job]] = {}  # in the order of their turns
        self._waiting = 0  # rows
        self._calls = 0
        self._busy = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="labelry-model")

    async def ask(self, question: Question) -> Answer:
        """Return the answer of the model, after its batch."""
        if self._waiting + question.size > self._max_waiting:
            raise _busy()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._groups.setdefault(question.group, deque()).append((question, future))
        self._count(question.size)
        if not self._busy:
            self._start()
        return await future

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run another function in the thread of the model, between batches."""
        if self._calls >= _MOST_CALLS:
            raise _busy()
        self._calls += 1
        work = asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        work.add_done_callback(self._end_call)
        return await work

    def _end_call(self, _: Any) -> None:
        self._calls -= 1

    def close(self) -> None:
        """End the thread after its current work."""
        self._thread.shutdown(wait=True)

    def _start(self) -> None:
        """Start the next batch, if any question waits."""
        jobs = self._take()
        self._busy = bool(jobs)
        if not jobs:
            return
        self._metrics.batch_rows.observe(sum(question.size for question, _ in jobs))
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._answer, [question for question, _ in jobs])
        work.add_done_callback(lambda done: self._deliver(jobs, done))

    def _take(self) -> list[_Job]:
        """Return the next batch of the group whose turn it is, without cancelled requests."""
        jobs: list[_Job] = []
        while self._groups and not jobs:
            group = next(iter(self._groups))
            queue = self._groups.pop(group)
            size = 0
            while queue and (not jobs or size + queue[0][0].size <= self._max_batch):
                job = queue.popleft()
                self._count(-job[0].size)
                if not job[1].done():
                    jobs.append(job)
                    size += job[0].size
            if queue:
                self._groups[group] = queue  # to the end
        return jobs

    def _answer(self, questions: list[Question]) -> list[Answer | Exception]:
        with self._metrics.model_seconds.time():
            return _answer_each(questions)

    def _deliver(self, jobs: list[_Job], done: asyncio.Future[list[Answer | Exception]]) -> None:
        self._start()  # first, so that the model works while answers are sent
        for (_, future), found in zip(jobs, done.result(), strict=True):
            if future.done():
                continue
            if isinstance(found, Exception):
                future.set_exception(found)
            else:
                future.set_result(found)

    def _count(self, rows: int) -> None:
        self._waiting += rows
        self._metrics.waiting_rows.set(self._waiting)


def _busy() -> Problem:
    return Problem(503, "busy", "too many requests are waiting; try again in a second")


def _answer_each(questions: list[Question]) -> list[Answer | Exception]:
    """Answer all together, or each alone if that fails, so that one cannot fail the others."""
    try:
        return [*answer(questions)]
    except Exception as error:
        if len(questions) == 1:
            return [error]
        return [_answer_each([question])[0] for question in questions]
