"""The k best of each row, without an n x c array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from labelry.arrays import F32, I32
from labelry.linalg import kernels
from labelry.linalg.parallel import run, spans

_BLOCK_BYTES = 32 << 20  # bytes of scores held at a time; not tuned


def topk(S: F32, k: int, n_jobs: int = 1) -> tuple[I32, F32]:
    """Return column numbers and values of the `k` largest entries of each row, best first.

    Ties go to the smaller column number. Rows with fewer than `k` entries above minus infinity
    are filled with column -1 and score minus infinity.

    >>> labels, scores = topk(np.array([[0.1, 0.9, 0.5]], dtype=np.float32), 2)
    >>> labels.tolist()
    [[1, 2]]
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    S = np.ascontiguousarray(S, dtype=np.float32)
    found = np.empty((len(S), k), dtype=np.int32), np.empty((len(S), k), dtype=np.float32)
    run(kernels.topk_rows, [(S, *found, *span) for span in spans(len(S), n_jobs)], n_jobs)
    return found


def topk_blocks(
    score: Callable[[slice], F32], n_rows: int, n_labels: int, k: int, n_jobs: int = 1
) -> tuple[I32, F32]:
    """Return the `topk` of scores that ``score(rows)`` computes for one block of rows at a time."""
    step = max(1, _BLOCK_BYTES // (4 * max(n_labels, 1)))
    found = np.empty((n_rows, k), dtype=np.int32), np.empty((n_rows, k), dtype=np.float32)
    for start in range(0, n_rows, step):
        rows = slice(start, min(start + step, n_rows))
        found[0][rows], found[1][rows] = topk(score(rows), k, n_jobs)
    return found
