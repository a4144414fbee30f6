"""A dataset: features or texts, labels, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Features = csr_array | NDArray[np.float32]


@dataclass(frozen=True)
class Dataset:
    """Rows with labels; the rows are feature vectors (`X`), texts, or both.

    Attributes
    ----------
    Y : csr_array (n_rows, n_labels), float32
        Label indicator (or relevance); sorted indices, no duplicates.
    X : csr_array or ndarray (n_rows, n_features), float32, or None
    texts : list of str, or None
        One document per row; exactly as read.
    label_names : list of str, or None
        Name of each column of Y. None: the column number is the name.
    feature_names : list of str, or None
    """

    Y: csr_array
    X: Features | None = None
    texts: list[str] | None = None
    label_names: list[str] | None = None
    feature_names: list[str] | None = None

    @property
    def n_rows(self) -> int:
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    @property
    def n_features(self) -> int | None:
        return None if self.X is None else int(self.X.shape[1])

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> Dataset:
        """The given rows, in the given order; label and feature columns stay as they are."""
        index = np.asarray(rows)
        return replace(
            self,
            Y=self.Y[index],
            X=None if self.X is None else self.X[index],
            texts=None if self.texts is None else [self.texts[i] for i in index],
        )
