"""Label scores that are linear in the embedded row."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit, softmax

from labelry.checks import StoredCheck, check_one_of
from labelry.decoders.logistic_kernels import exp_row
from labelry.decoders.random_features import RandomFeatures
from labelry.linalg.parallel import run, spans
from labelry.linalg.sketch import gram
from labelry.linalg.topk import topk_blocks
from labelry.state import storable

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Link = Literal["identity", "softmax", "sigmoid"]

_LINKS = {"identity": lambda S: S, "softmax": lambda S: softmax(S, axis=1), "sigmoid": expit}


@storable
class LinearDecoder(NamedTuple):
    """Scores link(phi(z) coef + intercept).

    Attributes
    ----------
    coef : array (m, n_labels)
    intercept : array (n_labels,)
    link : {"identity", "softmax", "sigmoid"}
        "softmax" and "sigmoid" give probabilities.
    features : RandomFeatures or None
        The map phi; None for the identity.
    """

    coef: F32
    intercept: F32
    link: Link = "identity"
    features: RandomFeatures | None = None

    def check_stored(self, check: StoredCheck, dim: int, n_labels: int) -> None:
        """A ValueError unless it makes scores of so many labels from rows (n, dim)."""
        check.kind("features", self.features, RandomFeatures, None)
        width = dim if self.features is None else self.features.check_stored(check, dim)
        check.array("coef", self.coef, width, n_labels)
        check.array("intercept", self.intercept, n_labels)
        check_one_of("link", self.link, tuple(_LINKS))

    def scores(self, Z: F32) -> F32:
        """Scores of all labels for a block of embedded rows."""
        return _LINKS[self.link](self._logits(Z))

    def topk(self, Z: F32, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """The k best labels of each embedded row, and their scores: exact, over all labels.

        A link keeps the order, so only the best are turned into probabilities.
        """
        norms = np.zeros(len(Z), dtype=np.float32)  # log of the sum of exponentials, for softmax

        def logits(rows: slice) -> F32:
            S = self._logits(Z[rows])
            if self.link == "softmax":
                tasks = [(S, norms[rows], *span) for span in spans(len(S), n_jobs)]
                run(_log_sums, tasks, n_jobs)
            return S

        labels, best = topk_blocks(logits, len(Z), self.coef.shape[1], k, n_jobs)
        if self.link == "softmax":
            return labels, np.exp(best - norms[:, None])
        return labels, _LINKS[self.link](best)

    def _logits(self, Z: F32) -> F32:
        F = Z if self.features is None else self.features(Z)
        S = F @ self.coef
        S += self.intercept
        return S


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def _log_sums(S: F32, out: F32, row0: int, row1: int) -> None:
    """``out = log(exp(S).sum(axis=1))``."""
    x = np.empty(S.shape[1], dtype=np.float32)
    bits = np.empty(S.shape[1], dtype=np.int32)
    for i in range(row0, row1):
        x[:] = S[i]
        top = x.max()
        exp_row(x, top, bits, bits.view(np.float32))
        out[i] = top + np.log(x.sum())


def least_squares_decoder(V: F32, mean: F32 | None = None) -> LinearDecoder:
    """Back from Y V to Y by the pseudo-inverse of V: just V' when V is orthonormal.

    Parameters
    ----------
    V : array (n_labels, k)
    mean : array (n_labels,), optional
        Mean label vector of an embedding of centred labels: what V does not reach of it is added.
    """
    D = np.linalg.pinv(gram(V), hermitian=True).astype(np.float32) @ V.T  # (V'V)^+ V'
    offset = np.zeros(len(V), dtype=np.float32) if mean is None else mean - (mean @ V) @ D
    return LinearDecoder(D, offset.astype(np.float32))
