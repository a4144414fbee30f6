"""What each feature of a row adds to the score of a label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.data.text import TextFeatures

Feature = str | int


class Contributions(NamedTuple):
    """What each feature of a row adds to the margin of a label, and what is added in any case."""

    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    bias: float

    def strongest(self, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the places of the n largest values above 0, and of the n most negative ones."""
        order = np.argsort(-np.abs(self.values), kind="stable")
        values = self.values[order]
        return order[values > 0][:n], order[values < 0][:n]

    def named(
        self, places: NDArray[np.intp], text_features: TextFeatures | None
    ) -> list[tuple[Feature, float]]:
        """Return features and values at some places; features are words, or numbers of columns."""
        columns = self.columns[places].tolist()
        features = columns if text_features is None else text_features.names_of(columns)
        return list(zip(features, self.values[places].tolist(), strict=True))

    def margin(self) -> float:
        """Return the sum of all contributions."""
        return self.bias + float(self.values.sum())
