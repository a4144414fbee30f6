"""Passes over rows: the only way an algorithm touches the data.

An algorithm is written once against `Rows` and runs on any source of row blocks: arrays in memory
(here), memory-mapped shards, or a cluster. The source also transforms the rows (scaling, weights,
leaving some out): at once if they are in memory, otherwise block by block in each pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.arrays import F32, F64, I32, Bools
from labelry.errors import MemoryBudgetError
from labelry.linalg.matrices import (
    Matrix,
    add_cross,
    as_matrix,
    scaled_rows,
    stacked,
    stacked_pairs,
    summed,
)
from labelry.linalg.matrix_file import MatrixFile
from labelry.linalg.parallel import resolve_jobs
from labelry.memory import available, human

Side = Literal["X", "Y"]
T = TypeVar("T")
BlockMap: TypeAlias = "Callable[[Block], Block]"
Add: TypeAlias = Callable[..., None]  # add(block, *sums)
Shape: TypeAlias = tuple[int, ...]
Parts: TypeAlias = NDArray[np.intp]  # numbers of parts of the rows
Work: TypeAlias = Callable[[Matrix, Matrix, Parts, int], Iterable[T]]
Choose: TypeAlias = "Callable[[Block, Parts], Parts]"
Cut: TypeAlias = "Callable[[Parts, Block], tuple[Matrix, Matrix]]"
Task: TypeAlias = tuple[Any, ...]

_COPIES = 3  # copies of rows in memory: the parts, the whole, and what an algorithm makes of it
BATCHES = 4  # batches of parts per worker of a cluster, so that none waits long; not tuned
_CHUNK = 1 << 14  # rows for which `only` keeps one count; not tuned


class Block(NamedTuple):
    """Consecutive rows: features, labels or None, weights or None, and the number of the first."""

    X: Matrix
    Y: Matrix | None
    weights: F32 | None
    start: int

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    def side(self, name: Side) -> Matrix:
        matrix = self.X if name == "X" else self.Y
        if matrix is None:
            raise ValueError("these rows have no labels Y")
        return matrix

    def take(self, rows: slice | NDArray[np.intp], start: int) -> Block:
        Y = None if self.Y is None else self.Y[rows]
        return Block(self.X[rows], Y, None if self.weights is None else self.weights[rows], start)


@dataclass(frozen=True, eq=False)
class Known:
    """Facts about rows, beside X, Y and weights."""

    label_names: Sequence[Any] | NDArray[Any] | None = None  # None: the column numbers
    label_counts: I32 | None = None  # rows with each label, if they were counted before
    # Feature vectors (n_labels, n_features) of descriptions; zeros for a label without one.
    label_features: Matrix | None = None
    groups: Parts | None = None  # group of each row: rows of a group are held out together
    text_features: Any = None  # the `TextFeatures` that X was made with
    source: Any = None  # the file that the rows were read from, and how (`storage.about`)


class Rows:
    """Rows in memory: X (n, d) and Y (n, c), each CSR or dense, with optional row weights.

    Another kind of source is a subclass of `StreamedRows`. It implements `blocks` (for example by
    reading ahead from shards), or overrides `reduce` and `map_blocks` to send the work to the data.
    Algorithms use nothing else.

    Rows are in one block unless `block_rows` says how many are in each. `n_jobs` are threads; None
    is all cores. Rows that are made from these keep what is `known`.

    >>> rows = Rows(np.eye(3), np.eye(3)[:, :2])
    >>> rows.cross("Y", "X", np.ones((3, 1), dtype=np.float32)).ravel().tolist()
    [1.0, 1.0]
    """

    memory: int | None = None  # bytes that work on these rows may take; None: no bound
    n_bytes: int = 0  # bytes that loading X and Y would add to the memory in use
    n_workers: int = 0  # processes that work on the rows instead of this one
    known: Known = Known()

    def __init__(
        self,
        X: object,
        Y: object | None = None,
        *,
        weights: object | None = None,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        known: Known = known,
    ) -> None:
        self.known = known
        given = None if weights is None else np.asarray(weights, dtype=np.float32)
        whole = Block(as_matrix(X), None if Y is None else as_matrix(Y), given, start=0)
        self._whole = whole
        self.n_rows, self.n_features = whole.X.shape
        self.n_labels = 0 if whole.Y is None else whole.Y.shape[1]
        if whole.Y is not None and whole.Y.shape[0] != self.n_rows:
            raise ValueError(f"X has {self.n_rows} rows but Y has {whole.Y.shape[0]}")
        if whole.weights is not None and whole.weights.shape != (self.n_rows,):
            raise ValueError(f"weights must have shape ({self.n_rows},), got {whole.weights.shape}")
        if block_rows is not None and block_rows < 1:
            raise ValueError(f"block_rows must be at least 1, got {block_rows}")
        self.block_rows = block_rows or max(self.n_rows, 1)
        self.n_jobs = resolve_jobs(n_jobs)
        self._passes = [0]

    def mapped(self, function: BlockMap, *, known: Known | None = None, **sizes: int) -> Rows:
        """Return the rows that `function` makes from each block.

        Give `known` and `sizes` (n_rows, n_features, n_labels) only where they change. Rows in
        memory apply the function once, to all rows; other sources apply it in each pass.
        """
        X, Y, weights, _ = function(self._whole)
        how: dict[str, Any] = {"block_rows": self.block_rows, "n_jobs": self.n_jobs}
        return Rows(X, Y, weights=weights, known=known or self.known, **how)

    @property
    def n_passes(self) -> int:
        """Return the number of passes so far; copies by `knowing` share one count."""
        return self._passes[0]

    @n_passes.setter
    def n_passes(self, number: int) -> None:
        self._passes[0] = number

    def knowing(self, **more: Any) -> Rows:
        """Return the same rows with further facts about them; `Known` lists the names."""
        same = object.__new__(type(self))  # `copy` leaves out what is not pickled
        vars(same).update(vars(self), known=replace(self.known, **more))
        return same

    def label_counts(self) -> I32:
        """Return the number of rows with each label, (n_labels,): one pass, unless it is known."""
        if self.known.label_counts is not None:
            return self.known.label_counts

        def count(block: Block, counts: F64) -> None:
            Y = block.side("Y")
            stored = issparse(Y) and np.bincount(Y.indices, minlength=Y.shape[1])
            counts += stored if issparse(Y) else np.count_nonzero(Y, axis=0)

        return self.reduce(count, (self.n_labels,), dtype=np.float64)[0].astype(np.int32)

    def swapped(self) -> Rows:
        """Return the same rows with X and Y exchanged."""
        return self.mapped(
            lambda block: block._replace(X=block.side("Y"), Y=block.X),
            n_features=self.n_labels,
            n_labels=self.n_features,
            known=Known(),
        )

    def unit(self) -> Rows:
        """Return the same rows with X scaled to unit length."""
        return self.mapped(lambda block: block._replace(X=scaled_rows(block.X)))

    def weighted(self, weights: NDArray) -> Rows:
        """Return the same rows with their weights multiplied by these; zero leaves a row out."""
        factors = np.asarray(weights, dtype=np.float32)
        if factors.shape != (self.n_rows,):
            raise ValueError(f"weights must have shape ({self.n_rows},), got {factors.shape}")

        def weigh(block: Block) -> Block:
            own = factors[block.start : block.start + block.n_rows]
            return block._replace(weights=own if block.weights is None else own * block.weights)

        return self.mapped(weigh)

    def only(self, keep: Bools) -> Rows:
        """Return the rows for which `keep` (n_rows,) is true, in their order."""
        # The number of kept rows before each chunk takes less memory than a number for each row.
        kept = np.cumsum([0] + [keep[i : i + _CHUNK].sum() for i in range(0, self.n_rows, _CHUNK)])

        def choose(block: Block) -> Block:
            chunk = block.start // _CHUNK
            before = kept[chunk] + keep[chunk * _CHUNK : block.start].sum()
            mine = np.flatnonzero(keep[block.start : block.start + block.n_rows])
            return block.take(mine, int(before))

        groups = None if self.known.groups is None else self.known.groups[keep]
        known = replace(self.known, groups=groups, label_counts=None)
        return self.mapped(choose, n_rows=int(kept[-1]), known=known)

    def require(self, n_bytes: int, what: str, remedy: str) -> None:
        """Raise a MemoryBudgetError if work on these rows would need more memory than its bound."""
        if self.memory is not None and n_bytes > self.memory:
            bound = f"but the bound is {human(self.memory)}: {remedy}"
            raise MemoryBudgetError(f"{what} needs about {human(n_bytes)} of memory, {bound}")

    def gathered(self, *sides: Side) -> list[Matrix]:
        """Return X or Y of all rows in memory; call `require` first if they may be large."""
        return [self._whole.side(side) for side in sides]

    def held(self) -> Rows:
        """Return the same rows in memory if they fit there, and otherwise the rows themselves."""
        return self

    def kept(self) -> Rows:
        """Return the same rows for more than two passes: in memory, or else in a temporary file.

        On a cluster they are still mapped in each pass.
        """
        return self.held()

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of rows, in order."""
        if self.block_rows >= self.n_rows:
            yield self._whole
            return
        for start in range(0, self.n_rows, self.block_rows):
            yield self._whole.take(slice(start, start + self.block_rows), start)

    def map_blocks(self, function: Callable[[Block], T]) -> Iterator[T]:
        """Return an iterator over ``function(block)`` for each block, in order; one pass."""
        self.n_passes += 1
        return map(function, self.blocks())

    def reduce(self, add: Add, *shapes: Shape, dtype: Any = np.float32) -> list[NDArray]:
        """Return sums of the given shapes over all rows, in one pass.

        ``add(block, *sums)`` adds the part of a block to the sums, which start at zero.
        """
        sums = [np.zeros(shape, dtype=dtype) for shape in shapes]
        deque(self.map_blocks(lambda block: add(block, *sums)), maxlen=0)
        return sums

    def sum_blocks(self, function: Callable[[Block], Matrix]) -> Matrix:
        """Return the sum of ``function(block)`` over all blocks, which may be sparse; one pass."""
        return summed(self.map_blocks(function))

    def room(self, share: int) -> int:
        """Return the bytes that work on these rows may take, divided by `share`."""
        return (available() // 2 if self.memory is None else self.memory) // share

    def map_parts(
        self, work: Work[T], choose: Choose, n_bytes: NDArray[Any], *, room: int, n_jobs: int
    ) -> Iterator[T]:
        """Yield the results of `work` on parts of the rows, in any order.

        The rows of a part are, for example, those that reach a node of a tree.
        ``choose(block, parts)`` returns the places in a block of the rows of some parts, and
        `n_bytes` (n_parts,) estimates the bytes of the rows of each. ``work(X, Y, parts, n_jobs)``
        yields results, which say what part they belong to, from all rows of some parts in their
        order.

        If the rows are in memory, `work` gets all rows and all parts at once. Otherwise the rows
        are gathered for as many parts at a time as fit into `room` bytes, the largest parts first.
        On a cluster one worker, with its own `n_jobs`, gathers them while others work on other
        parts, and only the results come back.
        """
        X, Y = self.gathered("X", "Y")
        return iter(work(X, Y, np.arange(len(n_bytes)), n_jobs))

    def map_tasks(
        self, function: Callable[..., T], tasks: Sequence[Task], *, n_jobs: int
    ) -> Iterator[T]:
        """Return an iterator over ``function(rows, *task, n_jobs)`` for each task, in order.

        Each task makes its own passes over `rows`, which are these rows. On a cluster a worker then
        reads all rows, whereas in `map_blocks` and `map_parts` it reads its own blocks only.
        """
        return (function(self, *task, n_jobs) for task in tasks)

    def cross(self, a: Side, b: Side, M: F32) -> F32:
        """Return A' diag(weights) B M in one pass, for A, B in {X, Y} and a thin dense M.

        Cost: 4 flops and 3 floats of memory traffic per nonzero and column of M. Memory: the
        result, times the number of threads when M has few columns.
        """
        M = np.ascontiguousarray(M, dtype=np.float32)
        width = {"X": self.n_features, "Y": self.n_labels}
        if M.shape[0] != width[b]:
            raise ValueError(f"M must have {width[b]} rows, one per column of {b}, got {M.shape}")

        def add(block: Block, out: F32) -> None:
            add_cross(block.side(a), block.side(b), block.weights, M, out, self.n_jobs)

        return self.reduce(add, (width[a], M.shape[1]))[0]

    def totals(self) -> tuple[F64, F64, F64, float]:
        """Return weighted column sums of X, X squared and Y, and the sum of weights: one pass."""

        def add(block: Block, x: NDArray, xx: NDArray, y: NDArray, w: NDArray) -> None:
            weights = np.ones(block.X.shape[0]) if block.weights is None else block.weights
            x += block.X.T @ weights
            xx += (block.X.multiply(block.X) if issparse(block.X) else block.X**2).T @ weights
            if block.Y is not None:
                y += block.Y.T @ weights
            w += weights.sum()

        d, c = (self.n_features,), (self.n_labels,)
        x, xx, y, w = self.reduce(add, d, d, c, (1,), dtype=np.float64)
        return x, xx, y, float(w[0])


class StreamedRows(Rows):
    """Rows that are not in memory; a block is loaded only while it is worked on."""

    def __init__(
        self,
        n_rows: int,
        n_features: int,
        n_labels: int,
        *,
        n_bytes: int,
        memory: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_rows, self.n_features, self.n_labels = n_rows, n_features, n_labels
        self.n_bytes, self.memory, self.n_jobs = n_bytes, memory, resolve_jobs(n_jobs)
        self._passes = [0]

    @abstractmethod
    def blocks(self) -> Iterator[Block]: ...

    def gathered(self, *sides: Side) -> list[Matrix]:
        # Copies, because a view would keep the whole block and its mapped file.
        parts = list(self.map_blocks(lambda block: [block.side(side).copy() for side in sides]))
        return [stacked(list(column)) for column in zip(*parts, strict=True)]

    def held(self) -> Rows:
        if self.n_workers or self.n_bytes > self.room(_COPIES):
            return self
        parts = self.map_blocks(lambda b: (b.X.copy(), b.side("Y").copy(), b.weights))
        X, Y, weights = map(list, zip(*parts, strict=True))
        whole = None if weights[0] is None else np.concatenate(weights)
        return Rows(stacked(X), stacked(Y), weights=whole, n_jobs=self.n_jobs, known=self.known)

    def write_rows(self, rows: StreamedRows) -> StreamedRows:
        """Write rows that were made from these to a temporary file, and return them."""
        return KeptRows(rows)

    def map_parts(
        self, work: Work[T], choose: Choose, n_bytes: NDArray[Any], *, room: int, n_jobs: int
    ) -> Iterator[T]:
        self.require(
            _COPIES * int(max(n_bytes, default=0)),
            f"the largest of {len(n_bytes):,} parts of the rows that are worked on one by one",
            "give more memory, or make more parts",
        )
        total, n_workers, n_passes = int(sum(n_bytes)), self.n_workers, 0  # 0: one for each batch
        if n_workers:
            n_passes = 1 + total // (room * n_workers)
            room = min(room, total // n_workers) // BATCHES

        def cut(parts: Parts, block: Block) -> tuple[Matrix, Matrix]:
            mine = choose(block, parts)
            return block.X[mine], block.side("Y")[mine]

        batches = list(_part_batches(np.asarray(n_bytes, dtype=np.float64), room))
        together = max(1, -(-len(batches) // n_passes)) if n_passes else 1
        return chain.from_iterable(self.map_batches(cut, work, batches, together, n_jobs))

    def map_batches(
        self, cut: Cut, work: Work[T], batches: Sequence[Parts], together: int, n_jobs: int
    ) -> Iterator[Iterable[T]]:
        """Yield the results of `work` on each batch; a cluster gathers `together` in one pass."""
        for parts in batches:
            # No variable holds these rows: their memory is needed for the next batch.
            yield work(*stacked_pairs(self.map_blocks(partial(cut, parts))), parts, n_jobs)

    def mapped(self, function: BlockMap, *, known: Known | None = None, **sizes: int) -> Rows:
        made = MappedRows(self, function, **sizes)
        made.known = known or self.known
        return made


class DerivedRows(StreamedRows):
    """Rows that are made from others, with the same sizes and memory bound unless they say so."""

    def __init__(self, rows: StreamedRows) -> None:
        sizes = (rows.n_rows, rows.n_features, rows.n_labels)
        super().__init__(*sizes, n_bytes=rows.n_bytes, memory=rows.memory, n_jobs=rows.n_jobs)


class MappedRows(DerivedRows):
    """Rows that a function makes from each block of a source, again in each pass.

    The source applies the function together with the work, so on a cluster it runs on the workers.
    """

    def __init__(self, source: StreamedRows, function: BlockMap, **sizes: int) -> None:
        super().__init__(source)
        vars(self).update(sizes)
        self._source, self._function = source, function

    def _of_mapped(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function of source blocks that maps the block and calls `function`."""
        make = self._function
        return lambda block, *others: function(make(block), *others)

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        return self._source.n_workers

    def blocks(self) -> Iterator[Block]:
        return map(self._function, self._source.blocks())

    def map_blocks(self, function: Callable[[Block], T]) -> Iterator[T]:
        self.n_passes += 1
        return self._source.map_blocks(self._of_mapped(function))

    def reduce(self, add: Add, *shapes: Shape, dtype: Any = np.float32) -> list[NDArray]:
        self.n_passes += 1
        return self._source.reduce(self._of_mapped(add), *shapes, dtype=dtype)

    def sum_blocks(self, function: Callable[[Block], Matrix]) -> Matrix:
        self.n_passes += 1
        return self._source.sum_blocks(self._of_mapped(function))

    def map_batches(
        self, cut: Cut, work: Work[T], batches: Sequence[Parts], together: int, n_jobs: int
    ) -> Iterator[Iterable[T]]:
        def cut_mapped(parts: Parts, block: Block) -> tuple[Matrix, Matrix]:
            return cut(parts, self._function(block))

        return self._source.map_batches(cut_mapped, work, batches, together, n_jobs)

    def map_tasks(
        self, function: Callable[..., T], tasks: Sequence[Task], *, n_jobs: int
    ) -> Iterator[T]:
        make = self._function
        sizes = {name: getattr(self, name) for name in ("n_rows", "n_features", "n_labels")}

        def on_mapped(rows: StreamedRows, *task: Any) -> T:
            return function(MappedRows(rows, make, **sizes), *task)

        return self._source.map_tasks(on_mapped, tasks, n_jobs=n_jobs)

    def kept(self) -> Rows:
        held = self.held()
        return self.write_rows(self) if held is self and not self.n_workers else held

    def write_rows(self, rows: StreamedRows) -> StreamedRows:
        return self._source.write_rows(rows)


class KeptRows(DerivedRows):
    """The blocks of other rows, kept in a temporary file."""

    def __init__(self, rows: StreamedRows) -> None:
        super().__init__(rows)
        self._file, self._starts, self.known = MatrixFile(), [], rows.known
        for block in rows.blocks():  # not `map_blocks`, which may return results of an earlier job
            self._file.append(*(matrix for matrix in block[:3] if matrix is not None))
            self._starts.append(block.start)
            del block  # its memory is needed for the next

    def blocks(self) -> Iterator[Block]:
        for number, start in enumerate(self._starts):
            X, Y, *weights = self._file[number]
            yield Block(X, Y, weights[0] if weights else None, start)
            del X, Y, weights  # before the next are asked for: their memory is needed


def in_memory(rows: Rows, who: str) -> tuple[Matrix, csr_array]:
    """Return X and Y of all rows; a MemoryBudgetError where they do not fit."""
    remedy = (
        "give more memory, or a system that learns by passes, such as rembrandt, leml or moments"
    )
    # The parts, and the whole that they are stacked to.
    rows.require(2 * rows.n_bytes, f"{who}, which works on all rows in memory,", remedy)
    X, Y = rows.gathered("X", "Y")
    return X, Y


def _part_batches(n_bytes: F64, room: int) -> Iterator[Parts]:
    """Yield batches of parts whose rows fit together, the largest parts first."""
    order, first = np.argsort(-n_bytes, kind="stable"), 0
    end = np.cumsum(n_bytes[order])
    while first < len(order):
        before = end[first] - n_bytes[order[first]]
        last = max(first + 1, int(np.searchsorted(end, before + room, side="right")))
        yield order[first:last]
        first = last
