"""The map of a model's labels is drawn aside of requests."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import labelry
from labelry.report.label_map import LabelMap, label_map
from labelry.report.map_canvas import encoded
from labelry.report.shown_labels import label_texts
from labelry.server import drawing
from labelry.server.app import create_app
from labelry.server.drawing import Drawing
from labelry.server.served import fingerprint_of
from labelry.server.settings import ServerSettings

FOUND = LabelMap(
    np.array([[0, 1], [0.5, 0.25], [1, 0]], dtype=np.float32),
    np.array([1, 0, 1], np.uint8),
    np.array([[1, -1, -1], [2, 0, -1]]),
    ["Cat", ""],
)
COUNTS = np.array([0, 7, 63])


def head_of(content: bytes) -> dict[str, Any]:
    return json.loads(content[4 : 4 + int.from_bytes(content[:4], "little")])


def test_the_process_draws_the_map_of_a_model(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["drawing", str(models["texts"])])
    monkeypatch.setattr(drawing.os, "nice", lambda _: 0)
    drawing.main()
    fingerprint, _, content = capfdbinary.readouterr().out.partition(b"\n")
    assert fingerprint.decode() == fingerprint_of(models["texts"])
    model = labelry.load(models["texts"])
    rng = np.random.default_rng(0)
    names = label_texts(model)
    found = label_map(model.label_vectors(), model.label_counts_, names, rng)
    assert gzip.decompress(content) == encoded(found, model.label_counts_)


@pytest.fixture
def drawn(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Maps come at once; the list holds the models whose maps were drawn."""
    names: list[str] = []

    async def draw(path: Path, fingerprint: str) -> Drawing:
        names.append(fingerprint)
        return Drawing(fingerprint, gzip.compress(encoded(FOUND, COUNTS)))

    monkeypatch.setattr(drawing, "_draw", draw)
    return names


def test_the_map_is_drawn_once_and_kept(models: dict[str, Path], drawn: list[str]) -> None:
    with TestClient(create_app(ServerSettings(models["texts"]))) as client:
        assert not drawn  # nobody has asked yet
        early = client.get("/v1/map")
        assert (early.status_code, early.headers["retry-after"]) == (202, "1")
        assert early.json()["status"] == "drawing"
        assert 0 <= early.json()["seconds"] < 60
        assert "Drawing the map of 4 labels" in early.json()["message"]
        found = client.get("/v1/map")
        assert head_of(found.content)["labels"] == 3
        assert found.headers["content-encoding"] == "gzip"
        plain = client.get("/v1/map", headers={"accept-encoding": "identity"})
        assert plain.content == found.content
        assert "content-encoding" not in plain.headers
        kept = {"if-none-match": found.headers["etag"]}
        assert client.get("/v1/map", headers=kept).status_code == 304
        assert len(drawn) == 1


def test_the_page_has_the_map_drawn(models: dict[str, Path], drawn: list[str]) -> None:
    with TestClient(create_app(ServerSettings(models["texts"]))) as client:
        client.get("/")
        assert client.get("/v1/map").status_code == 200
        assert len(drawn) == 1


def test_a_new_model_has_a_new_map(
    models: dict[str, Path], drawn: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "model"
    labelry.load(models["texts"]).save(path)
    app = create_app(ServerSettings(path, poll=1000))
    with TestClient(app) as client:
        client.get("/v1/map")
        first = client.get("/v1/map").headers["etag"]
        labelry.load(models["tagger"]).save(path, force=True)
        client.portal.call(app.state.service.holder.refresh)
        assert client.get("/v1/map").status_code == 202
        assert client.get("/v1/map").headers["etag"] != first
        assert len(drawn) == 2


def test_what_cannot_be_drawn(
    models: dict[str, Path], client_of: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = client_of("features").get("/v1/map")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_label_vectors")

    async def fail(*_: Any) -> Drawing:
        raise RuntimeError("no map")

    monkeypatch.setattr(drawing, "_draw", fail)
    with TestClient(create_app(ServerSettings(models["texts"]))) as client:
        client.get("/v1/map")
        answer = client.get("/v1/map")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "no_map")


@pytest.mark.parametrize(
    ("script", "why"), [("exit 3", "ended with 3"), ("echo other", "with the map of b'other'")]
)
def test_a_process_that_fails_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    script: str,
    why: str,
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(drawing.sys, "executable", str(program))
    with pytest.raises(RuntimeError, match="no map"):
        asyncio.run(drawing._draw(tmp_path, "0123abcd"))
    assert why in caplog.text
