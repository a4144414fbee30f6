"""Ranked labels as lines of text: JSON lines, CSV, or a sparse matrix of scores."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelry.checks import check_one_of
from labelry.data.table_writer import csv_cell

_NOTE = ', "note": "no known word"'
RankingFormat = Literal["jsonl", "csv", "xc"]


class RankingLines:
    r"""Writes the best labels of each row as a line, scores with the seven digits of a float32.

    - jsonl: ``{"labels": ["knee", "pain"], "scores": [0.81, 0.2]}``, best first. A document without
      a known word has ``"note": "no known word"`` too;
    - csv: ``label_1,score_1,label_2,score_2``, best first; cells are empty where there is no label;
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

    Attributes
    ----------
    header : str
        The text before the first line.

    Examples
    --------
    >>> lines = RankingLines("jsonl", ["knee", "arm"], k=2)
    >>> lines(np.array([[1, 0], [0, -1]]), np.array([[0.5, 0.25], [1, -np.inf]]))
    '{"labels": ["arm", "knee"], "scores": [0.5, 0.25]}\n{"labels": ["knee"], "scores": [1]}\n'
    """

    def __init__(
        self, format: RankingFormat, labels: list[Any], k: int, threshold: float | None = None
    ) -> None:
        check_one_of("format", format, get_args(RankingFormat))
        self._format = format
        self._width = min(k, len(labels))
        self._threshold = -np.inf if threshold is None else threshold
        if format == "jsonl":
            names = [json.dumps(label, ensure_ascii=False) for label in labels]
        elif format == "csv":
            names = [csv_cell(str(label)) for label in labels]
        else:
            names = [str(column) for column in range(len(labels))]
        self._names = np.array(names, dtype=object)
        places = range(1, self._width + 1)
        cells = ",".join(f"label_{place},score_{place}" for place in places)
        self.header = f"{cells}\n" if format == "csv" else ""

    def __call__(
        self,
        ids: NDArray[np.integer],
        scores: NDArray[np.floating],
        known: NDArray[np.bool_] | None = None,
    ) -> str:
        """Return the lines of rows, from column numbers (-1: none) and scores (n_rows, k).

        `known` (n_rows,) is False for documents without a known word.
        """
        kept = (ids >= 0) & (scores > -np.inf) & (scores >= self._threshold)
        if self._format == "xc":
            order = np.argsort(np.where(kept, ids, len(self._names)), axis=1, kind="stable")
            ids, kept = np.take_along_axis(ids, order, 1), np.take_along_axis(kept, order, 1)
            scores = np.take_along_axis(scores, order, 1)
        names = self._names[ids[kept]].tolist()
        numbers = list(map("{:.7g}".format, scores[kept].tolist()))
        bounds = pairwise(accumulate(kept.sum(axis=1).tolist(), initial=0))
        if self._format == "jsonl":
            notes = [""] * len(ids) if known is None else np.where(known, "", _NOTE).tolist()
            return "".join(
                f'{{"labels": [{", ".join(names[a:b])}], "scores": [{", ".join(numbers[a:b])}]'
                f"{note}}}\n"
                for (a, b), note in zip(bounds, notes, strict=True)
            )
        form = "{}:{}" if self._format == "xc" else "{},{}"
        pairs = list(map(form.format, names, numbers))
        if self._format == "xc":
            return "".join(" ".join(pairs[a:b]) + "\n" for a, b in bounds)
        return "".join(
            ",".join([*pairs[a:b], *[","] * (self._width - (b - a))]) + "\n" for a, b in bounds
        )
