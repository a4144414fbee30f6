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

    Examples
    --------
    >>> labels, scores = topk(np.array([[0.1, 0.9, 0.5]], dtype=np.float32), 2)
    >>> labels.tolist()
    [[1, 2]]
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    S = np.ascontiguousarray(S, dtype=np.float32)
    labels = np.empty((len(S), k), dtype=np.int32)
    scores = np.empty((len(S), k), dtype=np.float32)
    tasks = [(S, labels, scores, row0, row1) for row0, row1 in spans(len(S), n_jobs)]
    run(kernels.topk_rows, tasks, n_jobs)
    return labels, scores


def topk_blocks(
    score: Callable[[slice], F32], n_rows: int, n_labels: int, k: int, n_jobs: int = 1
) -> tuple[I32, F32]:
    """Return the `topk` of scores that ``score(rows)`` computes for one block of rows at a time."""
    step = max(1, _BLOCK_BYTES // (4 * max(n_labels, 1)))
    parts = [
        topk(score(slice(start, min(start + step, n_rows))), k, n_jobs)
        for start in range(0, n_rows, step)
    ]
    if not parts:
        return np.empty((0, k), dtype=np.int32), np.empty((0, k), dtype=np.float32)
    labels, scores = zip(*parts, strict=True)
    return np.concatenate(labels), np.concatenate(scores)
