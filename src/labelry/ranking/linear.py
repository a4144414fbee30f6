"""Label scores that are linear in the embedded row."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from numba import njit
from scipy.special import expit, softmax

from labelry.arrays import F32, Ints
from labelry.linalg.parallel import run_spans
from labelry.linalg.sketch import gram
from labelry.linalg.topk import topk_blocks
from labelry.ranking.logistic_kernels import exp_row
from labelry.ranking.random_features import RandomFeatures
from labelry.storage.values import Sizes

Link = Literal["identity", "softmax", "sigmoid"]

_LINKS = {"identity": lambda S: S, "softmax": lambda S: softmax(S, axis=1), "sigmoid": expit}


class LinearDecoder(NamedTuple):
    """Scores link(phi(z) coef + intercept); "softmax" and "sigmoid" give probabilities."""

    coef: Annotated[F32, "n_inner", "n_labels"]
    intercept: Annotated[F32, "n_labels"]
    link: Link = "identity"
    # The map phi; None for the identity.
    features: Annotated[RandomFeatures, Sizes(n_random_features="n_inner")] | None = None

    @property
    def n_inputs(self) -> int:
        """Return the dimensions of the rows that it takes."""
        return len(self.coef if self.features is None else self.features.directions)

    def scores(self, Z: F32) -> F32:
        """Return the scores of all labels for a block of embedded rows."""
        return _LINKS[self.link](self._logits(Z))

    def topk(self, Z: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k best labels of each embedded row, and their scores; the search is exact.

        A link keeps the order, so only the best are turned into probabilities.
        """
        norms = np.zeros(len(Z), dtype=np.float32)  # log of the sum of exponentials, for softmax

        def logits(rows: slice) -> F32:
            S = self._logits(Z[rows])
            if self.link == "softmax":
                run_spans(_log_sums, (S, norms[rows]), len(S), n_jobs)
            return S

        labels, best = topk_blocks(logits, len(Z), self.coef.shape[1], k, n_jobs)
        if self.link == "softmax":
            return labels, np.exp(best - norms[:, None])
        return labels, _LINKS[self.link](best)

    def _logits(self, Z: F32) -> F32:
        """Return the scores before the link, (n_rows, n_labels)."""
        F = Z if self.features is None else self.features(Z)
        S = F @ self.coef
        S += self.intercept
        return S


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def _log_sums(S: F32, out: F32, row0: int, row1: int) -> None:
    """Set ``out = log(exp(S).sum(axis=1))``."""
    x = np.empty(S.shape[1], dtype=np.float32)
    bits = np.empty(S.shape[1], dtype=np.int32)
    for i in range(row0, row1):
        for j in range(x.size):
            x[j] = S[i, j]
        top = x.max()
        exp_row(x, top, bits, bits.view(np.float32))
        out[i] = top + np.log(x.sum())


def least_squares_decoder(V: F32, mean: F32 | None = None) -> LinearDecoder:
    """Return the map from Y V back to Y, the pseudo-inverse of V: V' if V is orthonormal.

    If the labels were centred, `mean` is their mean label vector: the part that V does not reach is
    added to the scores.
    """
    D = np.linalg.pinv(gram(V), hermitian=True).astype(np.float32) @ V.T  # (V'V)^+ V'
    offset = np.zeros(len(V), dtype=np.float32) if mean is None else mean - (mean @ V) @ D
    return LinearDecoder(D, offset.astype(np.float32))
