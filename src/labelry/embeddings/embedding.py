"""What an embedding method returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.state import storable

F32 = NDArray[np.float32]


@storable
class Embedding(NamedTuple):
    """Label vectors V (n_labels, k) and the value (k,) of each direction, largest first.

    Some methods have a regression on the embedding as a by-product: `start` (n_features, k).
    """

    vectors: F32
    values: F32
    start: F32 | None = None

    def first(self, k: int) -> Embedding:
        """The k leading directions."""
        start = None if self.start is None else self.start[:, :k]
        return Embedding(self.vectors[:, :k], self.values[:k], start)
