"""Rows as documents: which words are present, and how much each document counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.linalg.matrices import Matrix
from labelry.linalg.rows import Block

F32 = NDArray[np.float32]

_ROWS = 4096  # documents whose dense products are held at a time


class Documents(NamedTuple):
    """Documents of binary words D (n, d), their labels Y (n, c), and the weight of each."""

    words: csr_array
    labels: csr_array
    lengths: F32  # nnz(x_i)
    pair_weights: F32  # of x_i x_i' in the second moment
    triple_weights: F32  # of x_i (x) x_i (x) x_i in the third

    def between(self, start: int, stop: int) -> Documents:
        """The documents from number `start` to before `stop`."""
        return Documents(*(field[start:stop] for field in self))

    def parts(self) -> Iterator[Documents]:
        """The documents, some thousands at a time."""
        for start in range(0, self.words.shape[0], _ROWS):
            yield self.between(start, start + _ROWS)


def present_words(X: Matrix) -> csr_array:
    """One where a word is present (x > 0) and zero elsewhere, as the paper models documents."""
    if not issparse(X):
        return csr_array(X > 0, dtype=np.float32)
    # Entries that are not positive stay as explicit zeros: the index arrays are shared.
    present = (X.data > 0).astype(np.float32)
    return csr_array((present, X.indices, X.indptr), shape=X.shape)


def documents(block: Block, normalize: bool) -> Documents:
    """The documents of a block.

    With `normalize` a document is scaled to unit length: it counts n^-1 in the second moment
    and n^-3/2 in the third, so that long documents do not decide alone.
    """
    words = present_words(block.X)
    lengths = np.asarray(words.sum(axis=1), dtype=np.float32).ravel()
    scale = np.maximum(lengths, 1) ** -0.5 if normalize else np.ones_like(lengths)
    weights = np.float32(1) if block.weights is None else block.weights
    return Documents(
        words,
        csr_array(block.side("Y")),
        lengths,
        (weights * scale**2).astype(np.float32),
        (weights * scale**3).astype(np.float32),
    )
