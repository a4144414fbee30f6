"""Ranked labels as lines of text: JSON lines, CSV, or a sparse matrix of scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelry.checks import check_one_of
from labelry.data.separators import JSON, join_labels
from labelry.data.table_writer import csv_cell

_NOTE = ', "note": "no known word"'
_json = partial(json.dumps, ensure_ascii=False)

RankingFormat = Literal["jsonl", "csv", "xc"]


class RankingLines:
    r"""Writes the best labels of each row as a line, scores with the seven digits of a float32.

    - jsonl: ``{"labels": ["knee", "pain"], "scores": [0.81, 0.2]}``, best first. A document without
      a known word has ``"note": "no known word"`` too;
    - csv: kept cells of the input, then ``label_1,score_1,label_2,score_2``, best first, empty
      where there is no label; with a threshold one cell ``labels``, as in a file to train on;
    - xc: ``column:score column:score`` of the XC repository's score matrices, columns ascending; a
      line with the numbers of rows and columns has to come first.

    Parameters
    ----------
    labels
        The label of each column.
    k
        Most labels of a row.
    threshold
        Leave out labels that score less.

    separator
        What separates labels in one cell. If a label has it inside, another is taken.
    kept
        Names of the columns of the input that are kept, in csv and jsonl.

    Attributes
    ----------
    header : str
        The text before the first line.
    separator : str
        What separates labels in one cell.

    Examples
    --------
    >>> lines = RankingLines("jsonl", ["knee", "arm"], k=2)
    >>> lines(np.array([[1, 0], [0, -1]]), np.array([[0.5, 0.25], [1, -np.inf]]))
    '{"labels": ["arm", "knee"], "scores": [0.5, 0.25]}\n{"labels": ["knee"], "scores": [1]}\n'
    """

    def __init__(
        self,
        format: RankingFormat,
        labels: list[Any],
        k: int,
        threshold: float | None = None,
        separator: str | None = None,
        kept: Sequence[str] = (),
    ) -> None:
        check_one_of("format", format, get_args(RankingFormat))
        self._format = format
        self._width = min(k, len(labels))
        self._threshold = -np.inf if threshold is None else threshold
        if format == "jsonl":
            names = [_json(label) for label in labels]
        elif format == "csv" and threshold is None:
            names = [csv_cell(str(label)) for label in labels]
        elif format == "csv":
            names = [str(label) for label in labels]
        else:
            names = [str(column) for column in range(len(labels))]
        self._names = np.array(names, dtype=object)
        places = range(1, self._width + 1)
        own = [f"{name}_{place}" for place in places for name in ("label", "score")]
        if format == "jsonl":
            own = ["labels", "scores"]
        elif threshold is not None:
            own = ["labels"]
            self.separator = free_separator(names, separator)
        self._kept = [f"input_{name}" if name in own else name for name in kept]
        header = ",".join([*map(csv_cell, self._kept), *own])
        self.header = f"{header}\n" if format == "csv" else ""

    def __call__(
        self,
        ids: NDArray[np.integer],
        scores: NDArray[np.floating],
        cells: Sequence[Sequence[str]] = (),
        known: NDArray[np.bool_] | None = None,
    ) -> str:
        """Return the lines of rows.

        They are made of column numbers (-1: none) and scores (n_rows, k), and of the cells of each
        column that is kept. `known` (n_rows,) is False for documents without a known word.
        """
        kept = (ids >= 0) & (scores > -np.inf) & (scores >= self._threshold)
        if self._format == "xc":
            order = np.argsort(np.where(kept, ids, len(self._names)), axis=1, kind="stable")
            ids, kept = np.take_along_axis(ids, order, 1), np.take_along_axis(kept, order, 1)
            scores = np.take_along_axis(scores, order, 1)
        names = self._names[ids[kept]].tolist()
        numbers = list(map("{:.7g}".format, scores[kept].tolist()))
        bounds = pairwise(accumulate(kept.sum(axis=1).tolist(), initial=0))
        rows = zip(*cells, strict=True) if cells else repeat((), len(ids))
        if self._format == "jsonl":
            keys = [f"{_json(name)}: " for name in self._kept]
            before = ("".join(f"{k}{_json(c)}, " for k, c in zip(keys, row)) for row in rows)  # noqa: B905
            notes = [""] * len(ids) if known is None else np.where(known, "", _NOTE).tolist()
            return "".join(
                f'{{{kept}"labels": [{", ".join(names[a:b])}], '
                f'"scores": [{", ".join(numbers[a:b])}]{note}}}\n'
                for kept, (a, b), note in zip(before, bounds, notes, strict=True)
            )
        form = "{}:{}" if self._format == "xc" else "{},{}"
        pairs = list(map(form.format, names, numbers))
        if self._format == "xc":
            return "".join(" ".join(pairs[a:b]) + "\n" for a, b in bounds)
        lines = []
        for row, (a, b) in zip(rows, bounds, strict=True):
            own = [*pairs[a:b], *[","] * (self._width - (b - a))]
            if self._threshold > -np.inf:
                own = [csv_cell(join_labels(names[a:b], self.separator))]
            lines.append(",".join([*map(csv_cell, row), *own]) + "\n")
        return "".join(lines)


def free_separator(labels: Sequence[str], wanted: str | None = None) -> str:
    """Return a separator that no label has inside: the wanted one, or else another."""
    usual = ("|", ";", "||")
    for separator in usual if wanted is None else (wanted, *usual):
        if not any(separator in label for label in labels):
            return separator
    return JSON
