"""Classifiers of rows that come in parts: the same as those of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.linalg import dual_descent
from labelry.linalg.block_descent import Group, LabelledRows, fixed_blocks, train_by_blocks
from labelry.linalg.lanes import LANES

rng = np.random.default_rng(0)
X = csr_array(random_array((90, 15), density=0.3, random_state=rng, dtype=np.float32))
T = csr_array((X @ rng.standard_normal((15, 20)) > 0.5).astype(np.float32))
OPTIONS = {"C": 0.7, "tolerance": 0.1, "max_sweeps": 20}


def parts(*cuts: int) -> Iterator[LabelledRows]:
    for first, last in zip((0, *cuts), (*cuts, 90), strict=True):
        yield X[first:last], T[first:last]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dual_descent, "BLOCK", 120)


def test_blocks_do_not_depend_on_how_rows_come() -> None:
    bounds = dual_descent.block_bounds(X.indptr, 0, 120)
    assert len(bounds) > 4
    for cuts in ((), (1, 2, 50), (30, 30, 60), tuple(range(1, 90))):
        found = list(fixed_blocks(parts(*cuts)))
        assert [len(A.indptr) - 1 for A, _ in found] == np.diff(bounds).tolist()
        assert_array_equal(np.vstack([A.toarray() for A, _ in found]), X.toarray())
        assert_array_equal(np.vstack([B.toarray() for _, B in found]), T.toarray())


@pytest.mark.parametrize("loss", get_args(dual_descent.MarginLoss))
@pytest.mark.parametrize(("memory", "n_jobs"), [(1, 1), (1 << 20, 2)])
def test_the_same_weights_as_in_memory(loss, memory: int, n_jobs: int) -> None:
    """One group at a time, or both side by side."""
    groups = [Group(0, 16, 3), Group(16, 20, 5)]
    options = {"loss": loss, "memory": memory, "n_jobs": n_jobs, **OPTIONS}
    found = dict(train_by_blocks(parts(7, 40), groups, 15, **options))
    assert sorted(found) == [0, 1]
    energy = dual_descent.row_energies(X.indptr, X.data)
    for number, group in enumerate(groups):
        signs = np.full((90, LANES), -1, dtype=np.int8)
        signs[:, : group.last - group.first] += 2 * (T.toarray() > 0)[:, group.first : group.last]
        W = np.zeros((16, LANES), dtype=np.float32)
        csr = (X.indptr, X.indices, X.data)
        given = dual_descent.LaneProblem(*csr, signs, energy, OPTIONS["C"], OPTIONS["tolerance"])
        dual_descent.train_lanes(loss, given, OPTIONS["max_sweeps"], group.seed, W)
        assert_array_equal(found[number], W)
