"""Names of the array types that annotations use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]
CSR = tuple[Ints, Ints, F32]  # indptr, indices and data of a sparse matrix, for kernels
Rng = np.random.Generator
