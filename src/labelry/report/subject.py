"""The data that sections of a report are made from, and sentences about it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.data.dataset import Dataset
from labelry.estimators.base import LabelRanker
from labelry.metrics.labelwise import LabelCounts
from labelry.report.markup import Element, element
from labelry.report.measures import Measures, Ranked
from labelry.report.shown_labels import ShownLabels


class LeftOut(Exception):
    """The reason why a section is left out."""


class Subject(NamedTuple):
    """A model and what was measured of it."""

    model: LabelRanker
    dataset: Dataset
    names: ShownLabels
    ranked: Ranked
    measures: Measures
    counts: LabelCounts  # by the best R predictions of each row with R right labels
    vectors: NDArray[np.float32] | None
    training: dict[str, Any] | None
    rng: np.random.Generator
    model_name: str = "MODEL"
    size_bytes: int | None = None

    @property
    def unit(self) -> str:
        """Return what a row is called."""
        return "row" if self.dataset.texts is None else "document"


def of_100(share: float) -> str:
    """Return a share in words, such as "54 of 100"; `share` is in percent.

    >>> [of_100(share) for share in (0, 0.2, 54.4, 99.7, 100)]
    ['0 of 100', 'fewer than 1 of 100', '54 of 100', 'more than 99 of 100', '100 of 100']
    """
    if 0 < share < 1:
        return "fewer than 1 of 100"
    return "more than 99 of 100" if 99 < share < 100 else f"{share:.0f} of 100"


def counted(n: int, what: str) -> str:
    """Return a number and the noun that it counts, such as "3 labels".

    >>> counted(1, "label"), counted(1200, "label")
    ('1 label', '1,200 labels')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def quiet(text: str) -> Element:
    return element("p", text, class_="quiet")
