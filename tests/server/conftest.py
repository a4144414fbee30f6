"""Small models, and servers in this process: for clients without a socket, and with one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from starlette.testclient import TestClient

import labelry
from labelry.estimators.base import LabelRanker
from labelry.server.app import create_app
from labelry.server.protocol import GuardedProtocol
from labelry.server.run import listen
from labelry.server.settings import ServerSettings

WORDS = {
    "cat": "cat purrs whiskers",
    "dog": "dog barks bone",
    "fish <b>'\"&": "fish swims water",
    "größe 🦉": "owl hoots night",
}


def documents(n: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts about one or two animals, and which."""
    rng = np.random.default_rng(seed)
    labels = [rng.choice(list(WORDS), rng.integers(1, 3), replace=False).tolist() for _ in range(n)]
    texts = [" ".join(rng.permutation(" ".join(WORDS[a] for a in row).split())) for row in labels]
    return texts, labels


class Models(dict[str, Path]):
    """Model directories by name, trained when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        path = self[name] = self.folder / name
        getattr(self, name)().save(path)
        return path

    def texts(self) -> LabelRanker:
        model = labelry.Rembrandt(embedding_dim=3, decoder="least-squares", n_jobs=1)
        return model.fit(*documents(80))

    def tree(self) -> LabelRanker:
        return labelry.LinearLabelTree(n_jobs=1).fit(*documents(80))

    def hostile(self) -> LabelRanker:
        names = ['a\r\nX-Harm: 1\r\n\r\n<script>"', "b\x00\u2028\nSet-Cookie: a=b\u202e"]
        texts, labels = ["cat purrs", "dog barks"] * 20, [[name] for name in names] * 20
        return labelry.Tagger(n_jobs=1).fit(texts, labels)

    def features(self) -> LabelRanker:
        X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
        return labelry.OneVsRest(n_jobs=1).fit(X, np.argmax(X, axis=1))

    def tagger(self) -> LabelRanker:
        titles = {"cat": "Felis <i>catus</i>", "dog": "Canis familiaris"}
        return labelry.Tagger(n_jobs=1).fit(*documents(80), names=titles)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def client_of(models: Models) -> Iterator[Callable[..., TestClient]]:
    """Servers by model and settings, as ``client_of("texts", max_batch=4)``: one for each."""
    with ExitStack() as stack:

        @cache
        def start(model: str, **settings: Any) -> TestClient:
            app = create_app(ServerSettings(models[model], **settings))
            return stack.enter_context(TestClient(app, raise_server_exceptions=False))

        yield start


@pytest.fixture(scope="module")
def address_of(models: Models) -> Iterator[Callable[..., str]]:
    """As `client_of`, but the address of a server that listens."""
    with ExitStack() as stack:

        @cache
        def start(model: str, **settings: Any) -> str:
            return stack.enter_context(_listening(ServerSettings(models[model], **settings)))

        yield start


@contextmanager
def _listening(settings: ServerSettings) -> Iterator[str]:
    app = create_app(settings)
    with listen("127.0.0.1", 0) as listener:
        config = uvicorn.Config(app, http=GuardedProtocol, ws="none", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()
