"""Passes: one block equals many, weights, counting, errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, random_array

from labelry.errors import MemoryBudgetError
from labelry.linalg.matrices import scaled_rows
from labelry.linalg.rows import Block, MappedRows, Rows, StreamedRows

X = random_array(
    (53, 17), density=0.3, random_state=np.random.default_rng(0), format="csr", dtype=np.float32
)
Y = random_array(
    (53, 9), density=0.2, random_state=np.random.default_rng(1), format="csr", dtype=np.float32
)
M = np.random.default_rng(2).standard_normal((17, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(3).random(53, dtype=np.float32)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("block_rows", [None, 1, 10, 53, 1000])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_cross_is_the_same_in_any_blocks(dense, block_rows, weights) -> None:
    rows = Rows(X.toarray() if dense else X, Y, weights=weights, block_rows=block_rows)
    W = np.eye(53) if weights is None else np.diag(weights)
    expected = Y.toarray().T @ W @ X.toarray() @ M
    assert_allclose(rows.cross("Y", "X", M), expected, rtol=1e-4, atol=1e-5)
    x, xx, y, total = rows.totals()
    assert_allclose(x, W.diagonal() @ X.toarray(), rtol=1e-5)
    assert_allclose(xx, W.diagonal() @ X.toarray() ** 2, rtol=1e-5)
    assert_allclose(y, W.diagonal() @ Y.toarray(), rtol=1e-5)
    assert total == pytest.approx(W.diagonal().sum(), rel=1e-6)


def test_blocks_cover_the_rows_in_order() -> None:
    rows = Rows(X, Y, block_rows=10)
    starts = list(rows.map_blocks(lambda block: (block.start, block.X.shape[0])))
    assert starts == [(0, 10), (10, 10), (20, 10), (30, 10), (40, 10), (50, 3)]


def test_passes_are_counted() -> None:
    rows = Rows(X, Y, block_rows=10)
    rows.cross("X", "X", M)
    rows.totals()
    list(rows.map_blocks(lambda block: None))
    assert rows.n_passes == 3


def test_reduce_sums_several_arrays_in_one_pass() -> None:
    def add(block: Block, counts: np.ndarray, total: np.ndarray) -> None:
        counts += block.X.sum(axis=0)
        total += block.X.shape[0]

    rows = Rows(X, block_rows=7)
    counts, total = rows.reduce(add, (17,), (1,), dtype=np.float64)
    assert_allclose(counts, X.toarray().sum(axis=0), rtol=1e-6)
    assert total[0] == 53
    assert rows.n_passes == 1


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="X has 53 rows but Y has 9"):
        Rows(X, Y[:9])
    with pytest.raises(ValueError, match=r"weights must have shape \(53,\), got \(3,\)"):
        Rows(X, Y, weights=np.ones(3))
    with pytest.raises(ValueError, match="block_rows must be at least 1, got 0"):
        Rows(X, block_rows=0)
    with pytest.raises(ValueError, match="M must have 9 rows, one per column of Y"):
        Rows(X, Y).cross("X", "Y", M)
    with pytest.raises(ValueError, match="no labels"):
        Rows(X).cross("Y", "X", M)
    with pytest.raises(ValueError, match="n_jobs must be at least 1"):
        Rows(X, n_jobs=0)


def test_no_rows_and_no_columns() -> None:
    assert Rows(X[:0], Y[:0]).cross("Y", "X", M).tolist() == np.zeros((9, 4)).tolist()
    assert Rows(X, Y).cross("X", "X", M[:, :0]).shape == (17, 0)


class Stream(StreamedRows):
    """Rows that pretend not to be in memory."""

    def __init__(self, source: Rows, memory: int | None = None) -> None:
        super().__init__(
            source.n_rows, source.n_features, source.n_labels, n_bytes=1000, memory=memory
        )
        self.source = source

    def blocks(self):
        return self.source.blocks()


def sources() -> list[Rows]:
    """The same rows in one block, in six, and not in memory."""
    return [Rows(X, Y), Rows(X, Y, block_rows=10), Stream(Rows(X, Y, block_rows=10))]


@pytest.mark.parametrize("rows", sources(), ids=["one block", "six blocks", "stream"])
def test_rows_can_be_changed_wherever_they_are(rows: Rows) -> None:
    dense, labels = X.toarray(), Y.toarray()
    keep = WEIGHTS > 0.4
    for changed, x, y, w in (
        (rows.unit(), scaled_rows(dense), labels, np.ones(53)),
        (rows.weighted(WEIGHTS), dense, labels, WEIGHTS),
        (rows.weighted(WEIGHTS).weighted(WEIGHTS), dense, labels, WEIGHTS**2),
        (rows.only(keep), dense[keep], labels[keep], np.ones(keep.sum())),
        (rows.only(keep).weighted(WEIGHTS[keep]), dense[keep], labels[keep], WEIGHTS[keep]),
        (rows.weighted(WEIGHTS).only(keep).unit(), scaled_rows(dense)[keep], labels[keep],
         WEIGHTS[keep]),
        (rows.swapped(), labels, dense, np.ones(53)),
    ):  # fmt: skip
        assert (changed.n_rows, changed.n_features) == x.shape
        assert changed.n_labels == y.shape[1]
        assert isinstance(changed, MappedRows) == isinstance(rows, Stream)
        for ours, theirs in zip(changed.gathered("X", "Y"), (x, y), strict=True):
            assert_allclose(ours.toarray(), theirs, rtol=1e-6)
        M = np.random.default_rng(4).standard_normal((x.shape[1], 3)).astype(np.float32)
        assert_allclose(changed.cross("Y", "X", M), y.T @ (w[:, None] * (x @ M)), atol=1e-4)
        places = list(changed.map_blocks(lambda block: (block.start, block.n_rows)))
        ends = np.cumsum([n for _, n in places])
        assert [start for start, _ in places] == [0, *ends[:-1]]
        assert changed.n_passes >= 2


def test_a_changed_source_is_changed_in_each_pass_of_the_source() -> None:
    rows = Stream(Rows(X, Y, block_rows=10))
    changed = rows.unit().only(WEIGHTS > 0.4)
    changed.cross("X", "X", M)
    assert rows.n_passes == changed.n_passes == 1
    assert [block.start for block in changed.blocks()][:2] == [0, int((WEIGHTS[:10] > 0.4).sum())]


def test_a_bound_on_memory_is_for_what_is_made_of_rows_too() -> None:
    rows = Stream(Rows(X, Y), memory=5000).unit()
    rows.require(5000, "this", "less")
    with pytest.raises(MemoryBudgetError, match=r"this needs about 5\.9 KiB .* 4\.9 KiB: less"):
        rows.require(6000, "this", "less")
    Rows(X, Y).require(10**15, "in memory there is no bound", "")


def test_rows_are_held_in_memory_if_they_fit() -> None:
    source = Rows(X, Y, block_rows=10, weights=WEIGHTS)
    assert source.held() is source
    streamed = Stream(source).unit()
    held = streamed.held()
    assert not isinstance(held, StreamedRows)
    assert_allclose(held.cross("Y", "X", M), streamed.cross("Y", "X", M), rtol=1e-5)
    bounded = Stream(source, memory=1000)
    bounded.n_bytes = 900  # not three times
    assert bounded.held() is bounded


PARTS = np.random.default_rng(5).random((6, 53)) < 0.2  # a row may be in several, or in none


def choose_some(block: Block, parts: np.ndarray) -> np.ndarray:
    here = PARTS[parts, block.start : block.start + block.n_rows]
    return np.flatnonzero(here.any(axis=0))


def sums_of_parts(X, Y, parts: np.ndarray, n_jobs: int):
    """Sum of X and of Y of each part; the rows are those of all these parts, in their order."""
    among = PARTS[:, PARTS[parts].any(axis=0)] if X.shape[0] < 53 else PARTS
    for part in parts.tolist():
        mine = among[part]
        yield part, X[mine].toarray().sum(axis=0), Y[mine].toarray().sum(axis=0), n_jobs


@pytest.mark.parametrize("rows", sources(), ids=["one block", "six blocks", "stream"])
@pytest.mark.parametrize("room", [1, 250, 10_000])
def test_parts_are_worked_on_wherever_they_are(rows: Rows, room: int) -> None:
    n_bytes = 10 * PARTS.sum(axis=1)
    for changed, x in ((rows, X.toarray()), (rows.unit(), scaled_rows(X.toarray()))):
        found = changed.map_parts(sums_of_parts, choose_some, n_bytes, room=room, n_jobs=3)
        by_part = {part: sums for part, *sums in found}
        assert sorted(by_part) == list(range(6))
        for part, (of_X, of_Y, n_jobs) in by_part.items():
            assert_allclose(of_X, x[PARTS[part]].sum(axis=0), rtol=1e-5)
            assert_allclose(of_Y, Y.toarray()[PARTS[part]].sum(axis=0), rtol=1e-5)
            assert n_jobs == 3


def test_as_many_parts_are_gathered_as_have_room_the_largest_first() -> None:
    rows = Stream(Rows(X, Y, block_rows=10))
    sizes = np.array([10, 30, 5, 60, 20, 0])
    seen: list[list[int]] = []

    def note(X, Y, parts, n_jobs):
        seen.append(parts.tolist())
        return parts

    found = rows.map_parts(note, choose_some, sizes, room=50, n_jobs=1)
    assert sorted(found) == list(range(6))
    assert seen == [[3], [1, 4], [0, 2, 5]]  # a part of more than that alone
    assert rows.n_passes == 3
    rows.memory = 150
    with pytest.raises(MemoryBudgetError, match=r"the largest of 6 parts .* or make more parts"):
        rows.map_parts(note, choose_some, sizes, room=50, n_jobs=1)
    assert list(rows.map_parts(note, choose_some, sizes[:0], room=50, n_jobs=1)) == []


@pytest.mark.parametrize("rows", sources(), ids=["one block", "six blocks", "stream"])
def test_tasks_make_passes_of_their_own(rows: Rows) -> None:
    def total(rows: Rows, power: int, n_jobs: int) -> tuple[float, int]:
        return float(rows.totals()[power][0]), n_jobs

    x = scaled_rows(X.toarray())[WEIGHTS > 0.4, 0]
    found = rows.unit().only(WEIGHTS > 0.4).map_tasks(total, [(0,), (1,)], n_jobs=2)
    assert list(found) == [(pytest.approx(x.sum()), 2), (pytest.approx((x**2).sum()), 2)]


@pytest.mark.parametrize("rows", sources(), ids=["one block", "six blocks", "stream"])
def test_sparse_sums(rows: Rows) -> None:
    found = rows.unit().sum_blocks(lambda block: csr_array(block.side("Y").T @ block.X))
    assert_allclose(found.toarray(), Y.toarray().T @ scaled_rows(X.toarray()), atol=1e-5)
