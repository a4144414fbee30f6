"""From `fit` to the function that holds the paper are at most three calls, for every system."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import labelry
from labelry.estimators import SYSTEMS, system_class

ROOT = Path(labelry.__file__).parent
MOST_CALLS = 3

PAPERS = {  # the function that holds the paper, by system
    "one-vs-rest": "fit_one_vs_rest",
    "rembrandt": "rembrandt",
    "pca": "principal_components",
    "compressed-sensing": "compressed_sensing",
    "plst": "principal_components",
    "cplst": "rembrandt",
    "cca": "cca",
    "ml-cssp": "column_subset",
    "blend": "fit_retrievers",
    "linear-tree": "train_linear",
    "label-tree": "train_independent",
    "label-embedding-tree": "learn_space",
    "sequential-embedding": "laplacian_eigenmaps",
    "joint-embedding": "learn_space",
    "wsabie": "learn_space",
    "filter-tree": "fit_filter_tree",
    "conditional-probability-tree": "fit_conditional_probability_tree",
    "fastxml": "fit_fastxml",
    "lpsr": "fit_lpsr",
    "knn": "fit_nearest_neighbours",
    "local-leml": "fit_local_leml",
    "sleec": "fit_sleec",
    "leml": "leml",
    "moments": "learn_topics",
    "tagger": "fit_tagger",
}


def rows(n: int = 120, c: int = 6) -> tuple[csr_array, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, c, n)
    X = np.eye(c, dtype=np.float32)[y] + (rng.random((n, c)) < 0.1)
    return csr_array(X.astype(np.float32)), y


def calls_to(name: str, function: Any) -> int | None:
    """Return the calls on the way to the first function of a name, counted in the package only."""
    stack: list[str] = []
    found: list[int] = []

    def trace(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if not Path(code.co_filename).is_relative_to(ROOT) or code.co_name.startswith("<"):
            return
        if event == "call":
            stack.append(code.co_name)
            if code.co_name == name:
                found.append(len(stack) - 1)
        elif event == "return" and stack:
            stack.pop()

    sys.setprofile(trace)
    threading.setprofile(None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return min(found, default=None)


@pytest.mark.parametrize("system", [*SYSTEMS, "tagger"])
def test_the_paper_is_near(system: str) -> None:
    X, y = rows()
    model = system_class(system)(n_jobs=1).fit(X, y)  # compiled now: it would be slow when traced
    n_calls = calls_to(PAPERS[system], lambda: model.fit(X, y))
    assert n_calls is not None, f"{PAPERS[system]} was not called"
    assert n_calls <= MOST_CALLS
