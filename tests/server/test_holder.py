"""Replacing the model under a running server."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shutil
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

import labelry
from labelry.server import holder
from labelry.server.app import create_app
from labelry.server.settings import ServerSettings

SECONDS = 20  # after which a test gives up waiting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fit("cat", tmp_path / "animals")
    return tmp_path / "animals"


def fit(first: str, path: Path) -> None:
    """A model that knows one more label than "dog"."""
    texts = [f"{first} sits", "dog barks"] * 3
    model = labelry.Rembrandt(embedding_dim=1, decoder="least-squares", n_jobs=1)
    model.fit(texts, [[first], ["dog"]] * 3).save(path, force=True)


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[tuple[Any, Any]]:
    app = create_app(ServerSettings(path, poll=0.01))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://labelry") as client,
    ):
        yield app.state.service.holder, client


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


def damage(path: Path) -> None:
    """Change a byte of the arrays."""
    file = path / "arrays.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    changed = file.with_name("changed")
    changed.write_bytes(raw)
    changed.rename(file)  # not in place: the old file is mapped


def test_a_replaced_model_answers_and_no_request_fails(path: Path) -> None:
    async def ask(client: Any, seen: list[str], stop: asyncio.Event) -> None:
        while not stop.is_set():
            answer = await client.post("/v1/predict", json={"text": "cow cat", "k": 2})
            assert answer.status_code == 200
            seen.append(answer.json()["model"])

    async def main() -> None:
        async with running(path) as (holder, client):
            old, seen, stop = holder.current.fingerprint, [], asyncio.Event()
            askers = [asyncio.create_task(ask(client, seen, stop)) for _ in range(4)]
            await until(lambda: len(seen) > 5)
            await asyncio.to_thread(fit, "cow", path)
            await until(lambda: holder.current.fingerprint in seen[-1:] and seen[-1] != old)
            stop.set()
            await asyncio.gather(*askers)
            assert set(seen) == {old, holder.current.fingerprint}
            labels = (await client.get("/v1/labels")).json()["labels"]
            assert [label["label"] for label in labels] == ["cow", "dog"]
            figures = (await client.get("/metrics")).text
            assert 'labelry_model_reloads_total{result="ok"} 1.0' in figures

    asyncio.run(main())


def test_a_damaged_model_changes_nothing_and_is_named(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running(path) as (holder, client):
            old = holder.current.fingerprint
            damage(path)
            await until(lambda: holder.failed)
            assert (await client.get("/health/ready")).json() == {
                "status": "ready",
                "needs_key": False,
                "model": old,
            }
            answer = await client.post("/v1/predict", json={"text": "cat", "k": 1})
            assert answer.json()["predictions"][0][0]["label"] == "cat"
            failed = (await client.get("/v1/model")).json()["failed_reload"]
            assert "damaged" in failed["message"]
            assert "animals" in failed["message"]
            assert str(path.parent) not in failed["message"]
            figures = (await client.get("/metrics")).text
            assert 'labelry_model_reloads_total{result="failed"} 1.0' in figures
            await asyncio.to_thread(fit, "cow", path)
            await until(lambda: holder.failed is None)
            assert holder.current.labels == ["cow", "dog"]

    with caplog.at_level(logging.ERROR, "labelry.server"):
        asyncio.run(main())
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]


def test_a_model_that_is_gone_or_of_something_else_changes_nothing(path: Path) -> None:
    async def main() -> None:
        async with running(path) as (holder, client):
            shutil.rmtree(path)
            await until(lambda: holder.failed)
            assert "does not exist" in holder.failed.message
            path.mkdir()
            (path / "model.json").write_text("{}")
            await until(lambda: "not a labelry model" in holder.failed.message)
            assert str(path.parent) not in holder.failed.message
            answer = await client.post("/v1/predict", json={"text": "cat"})
            assert answer.status_code == 200

    asyncio.run(main())


def truncate(name: str) -> Callable[[Path], None]:
    return lambda path: os.truncate(path / name, (path / name).stat().st_size // 2)


def of_a_newer_format(path: Path) -> None:
    head = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps(head | {"format_version": 1000}))


def with_a_link(path: Path) -> None:
    (path / "state.json").rename(path / "elsewhere.json")
    (path / "state.json").symlink_to("elsewhere.json")


@pytest.mark.parametrize(
    "harm",
    [
        truncate("model.json"),
        truncate("state.json"),
        truncate("labels.json"),
        truncate("arrays.safetensors"),
        of_a_newer_format,
        with_a_link,
        lambda path: (path / "arrays.safetensors").write_bytes(os.urandom(1000)),
        lambda path: (path / "model.json").write_bytes(b"[" * 100_000),
        lambda path: (path / "state.json").unlink(),
    ],
)
def test_models_that_cannot_be_read_change_nothing(
    path: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running(path) as (holder, client):
            old = holder.current.fingerprint
            fit("cow", path.with_name("new"))
            harm(path.with_name("new"))
            path.rename(path.with_name("old"))
            path.with_name("new").rename(path)
            await until(lambda: holder.failed)
            answer = (await client.post("/v1/predict", json={"text": "cat", "k": 1})).json()
            assert answer["model"] == old
            assert answer["predictions"][0][0]["label"] == "cat"
            fit("cow", path.with_name("good"))
            shutil.rmtree(path)
            path.with_name("good").rename(path)
            await until(lambda: holder.current.labels[0] == "cow")

    asyncio.run(main())


def test_a_model_that_loads_but_cannot_predict_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(path) as (holder, client):

            def fail(*_: Any) -> None:
                raise IndexError("secret")

            monkeypatch.setattr(labelry.Rembrandt, "_topk", fail)
            old = holder.current
            await asyncio.to_thread(fit, "cow", path)
            await until(lambda: holder.failed)
            assert holder.failed.message == "the model cannot be used"
            assert holder.current is old
            monkeypatch.undo()
            answer = await client.post("/v1/predict", json={"text": "cat", "k": 1})
            assert answer.json()["predictions"][0][0]["label"] == "cat"

    asyncio.run(main())


def test_the_old_model_goes_when_the_new_one_is_there(path: Path) -> None:
    async def main() -> None:
        async with running(path) as (holder, client):
            await client.post("/v1/predict", json={"text": "cat"})
            old = weakref.ref(holder.current.model)
            await asyncio.to_thread(fit, "cow", path)
            await until(lambda: holder.current.labels[0] == "cow")
            gc.collect()
            assert old() is None

    asyncio.run(main())


def test_a_request_ends_with_the_model_it_began_with(path: Path) -> None:
    """Its filter has ids of the old model, which mean other labels in the new one."""

    async def main() -> None:
        async with running(path) as (holder, client):
            old = holder.current
            own, entered, leave = old.model.score_all, asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def slow(X: Any) -> Any:
                loop.call_soon_threadsafe(entered.set)
                asyncio.run_coroutine_threadsafe(leave.wait(), loop).result(SECONDS)
                return own(X)

            old.model.score_all = slow
            wanted = {"text": "cat", "labels": ["cat"]}
            request = asyncio.create_task(client.post("/v1/predict", json=wanted))
            await entered.wait()
            await asyncio.to_thread(fit, "zebra", path)
            await until(lambda: holder.current is not old)
            leave.set()
            answer = (await request).json()
            assert answer["model"] == old.fingerprint
            assert [label["label"] for label in answer["predictions"][0]] == ["cat"]
            assert np.isfinite(answer["predictions"][0][0]["score"])

    asyncio.run(main())


def test_a_directory_that_goes_away_and_comes_back(path: Path) -> None:
    async def main() -> None:
        async with running(path) as (holder, client):
            path.rename(path.with_name("elsewhere"))
            await until(lambda: holder.failed)
            shutil.rmtree(path.with_name("elsewhere"))  # what is mapped stays
            answer = await client.post("/v1/predict", json={"text": "cat", "k": 1})
            assert answer.json()["predictions"][0][0]["label"] == "cat"
            await asyncio.to_thread(fit, "cow", path)
            await until(lambda: holder.failed is None)
            assert holder.current.labels[0] == "cow"

    asyncio.run(main())


def test_a_file_system_that_does_not_answer_stops_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def hang(_: Path) -> None:
        asked.set()
        assert answers.wait(SECONDS)

    async def main() -> None:
        async with running(path) as (_, client):
            monkeypatch.setattr(holder, "identity", hang)
            await until(asked.is_set)
            answer = await client.post("/v1/predict", json={"text": "cat", "k": 1})
            assert answer.status_code == 200
            assert not answers.is_set()
            monkeypatch.undo()
            answers.set()

    asyncio.run(main())
