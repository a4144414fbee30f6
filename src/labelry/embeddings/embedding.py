"""What an embedding method returns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelry.state import storable

F32 = NDArray[np.float32]


@storable
class Embedding(NamedTuple):
    """Label vectors V (n_labels, k) and the value (k,) of each direction, largest first."""

    vectors: F32
    values: F32
