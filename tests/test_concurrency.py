"""A model gives the same answers, to the bit, from many threads at once and in forked processes."""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from scipy.sparse import csr_array

import labelry
from labelry.estimators.base import LabelRanker
from labelry.linalg.blas import library_threads

THREADS = 8
ROUNDS = 6  # of each thread
SECONDS = 120  # after which a child that does not end is taken to hang
N_LABELS = 40
WORDS = np.array([f"word{i}" for i in range(300)])

SYSTEMS: dict[str, Callable[[], LabelRanker]] = {
    "tagger": lambda: labelry.Tagger(n_jobs=2, random_state=0),
    "rembrandt": lambda: labelry.Rembrandt(embedding_dim=10, n_jobs=2, random_state=0),
    "sleec": lambda: labelry.SLEEC(embedding_dim=8, n_learners=2, n_jobs=2, random_state=0),
    "linear-tree": lambda: labelry.LinearLabelTree(n_jobs=2, random_state=0),
}


def documents(n: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Texts with words of one or two labels each, and words of none."""
    rng = np.random.default_rng(seed)
    labels = [rng.choice(N_LABELS, rng.integers(1, 3), replace=False) for _ in range(n)]
    texts = [
        " ".join(
            WORDS[np.concatenate([*(5 * a + np.arange(5) for a in row), rng.integers(200, 300, 4)])]
        )
        for row in labels
    ]
    return texts, [[f"label {a}" for a in row] for row in labels]


def features(texts: list[str]) -> csr_array:
    counts = [[text.split().count(word) for word in WORDS] for text in texts]
    return csr_array(np.array(counts, dtype=np.float32))


class Case:
    """A model, parts of rows of different sizes, and what it says of them when it is alone."""

    def __init__(self, system: str, kind: str) -> None:
        texts, labels = documents(200, seed=0)
        asked, _ = documents(150, seed=1)
        as_rows: Any = features if kind == "features" else list
        self.model = SYSTEMS[system]().fit(as_rows(texts), labels)
        rows = as_rows(asked)
        bounds = [(0, 1), (1, 3), (3, 40), (0, 150)]
        self.parts = [rows[a:b] for a, b in bounds]
        self.expected = [self.digest(part) for part in self.parts]

    def digest(self, rows: Any) -> str:
        ids, scores = self.model.topk_ids(rows, 5)
        return hashlib.sha256(ids.tobytes() + scores.tobytes()).hexdigest()

    def wrong(self, first: int = 0) -> list[int]:
        """The parts of which it says something else now, beginning with one of them."""
        order = [(first + i) % len(self.parts) for i in range(len(self.parts))]
        return [i for i in order if self.digest(self.parts[i]) != self.expected[i]]


@pytest.fixture(
    scope="module",
    params=[(system, kind) for system in SYSTEMS for kind in ("texts", "features")],
    ids="-".join,
)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(*request.param)


def test_the_same_answers_from_threads(case: Case) -> None:
    together = threading.Barrier(THREADS)

    def ask(number: int) -> list[int]:
        together.wait()
        return [i for n in range(ROUNDS) for i in case.wrong(number + n)]

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(ask, range(THREADS))) == [[]] * THREADS
    assert case.wrong() == []


ASKING = 16  # threads that ask while the model is fitted again
FITS = 6
JOBS = (1, 2, 3)
N_CLASSES = (12, 400)

REFITTED: dict[str, Callable[[], LabelRanker]] = {
    "linear-tree": lambda: labelry.LinearLabelTree(n_jobs=2, random_state=0),
    "rembrandt": lambda: labelry.Rembrandt(embedding_dim=10, n_jobs=2, random_state=0),
    "tagger-fast": lambda: labelry.Tagger(quality="fast", n_jobs=2, random_state=0),
    "tagger-balanced": lambda: labelry.Tagger(n_jobs=2, random_state=0),
}


def of_classes(n_classes: int) -> tuple[csr_array, list[str]]:
    """Rows of a feature for each class, among 500, and noise."""
    rng = np.random.default_rng(n_classes)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, 600 - n_classes)])
    X = (rng.random((600, 500)) < 0.01).astype(np.float32)
    X[np.arange(600), y] = 2
    return csr_array(X), [f"{n_classes}: {a}" for a in y]


def answer(labels: np.ndarray, scores: np.ndarray) -> str:
    return hashlib.sha256(repr(labels.tolist()).encode() + scores.tobytes()).hexdigest()


# BLAS has one number of threads for the process. A sum that it splits has other bits.
@library_threads(1)
@pytest.mark.parametrize("system", REFITTED)
def test_answers_are_of_one_model_while_it_is_fitted_again(system: str) -> None:
    sets = [of_classes(n) for n in N_CLASSES]
    asked = of_classes(60)[0][:90]
    model = REFITTED[system]()
    named, numbered = set(), set()
    for data in sets:
        model.fit(*data)
        named.add(answer(*model.predict_topk(asked, 5)))
        numbered |= {answer(*model.fitted_.topk(asked, 5, n_jobs)) for n_jobs in JOBS}
    assert len(named) == 2
    done, together = threading.Event(), threading.Barrier(ASKING + 1)

    def ask(number: int) -> tuple[int, int]:
        """How often it was asked, and how many of the answers are of neither model."""
        n_asked = wrong = 0
        together.wait()
        while n_asked < 2 * len(JOBS) or not done.is_set():
            n_jobs = JOBS[(number + n_asked) % len(JOBS)]
            wrong += answer(*model.predict_topk(asked, 5)) not in named
            wrong += answer(*model.fitted_.topk(asked, 5, n_jobs)) not in numbered
            n_asked += 1
        return n_asked, wrong

    with ThreadPoolExecutor(ASKING) as pool:
        asking = [pool.submit(ask, number) for number in range(ASKING)]
        try:
            together.wait()
            for turn in range(FITS):
                model.fit(*sets[turn % 2])
        finally:
            done.set()
        found = [each.result() for each in asking]
    assert min(n_asked for n_asked, _ in found) > 0
    assert [wrong for _, wrong in found] == [0] * ASKING


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_same_answers_from_forked_processes(case: Case) -> None:
    """Forked from a process whose threads have been at work; several children at once."""
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(case.wrong, range(2))) == [[]] * 2
    children = [_forked(case) for _ in range(3)]
    assert case.wrong() == []
    assert [_exit_code(child) for child in children] == [0] * 3


def _forked(case: Case) -> int:
    """Process id of a child that ends with the number of its wrong answers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads, from 3.12 on
        child = os.fork()
    if child == 0:
        try:
            os._exit(len(case.wrong()))
        finally:
            os._exit(100)  # an exception
    return child


def _exit_code(child: int) -> int:
    end = time.monotonic() + SECONDS
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("a forked process hangs")
        time.sleep(0.01)


def _dispatchers() -> dict[str, Dispatcher]:
    """All compiled functions of the package, by name."""
    found = {}
    for module in pkgutil.walk_packages(labelry.__path__, "labelry."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        found |= {
            f"{module.name}.{name}": value
            for name, value in vars(loaded).items()
            if isinstance(value, Dispatcher)
        }
    return found


def test_every_kernel_lets_threads_run_and_starts_none() -> None:
    kernels = _dispatchers()
    assert len(kernels) > 100
    for name, kernel in kernels.items():
        assert not kernel.targetoptions.get("parallel"), name
        assert kernel.targetoptions.get("nogil"), name


SCRIPT = """
import hashlib, numba, numpy as np, labelry
X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
model = labelry.Rembrandt(embedding_dim=2, n_jobs=2, random_state=0).fit(X, np.argmax(X, axis=1))
ids, scores = model.topk_ids(X, 3)
answer = hashlib.sha256(ids.tobytes() + scores.tobytes()).hexdigest()
"""
SAY = """
try:
    print(numba.threading_layer())
except ValueError:  # none was started
    print(answer)
"""


def test_settings_of_numbas_threads_do_not_matter() -> None:
    """Not even one that numba itself would refuse: its layers are never started."""
    here: dict[str, Any] = {}
    exec(SCRIPT, here)
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT + SAY],
        env={**os.environ, "NUMBA_THREADING_LAYER": "no such layer", "NUMBA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here["answer"]
