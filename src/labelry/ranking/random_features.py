"""Random Fourier features: a linear decoder of them is a kernel machine (Alg. 3, line 4)."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist

from labelry.arrays import F32, F64, Rng

Kernel = Literal["gaussian", "laplacian"]

_N_POINTS = 1000  # rows whose distances give the bandwidth; not tuned
# Part of the largest deviation of a column; one that varies less is constant. Not tuned.
_CONSTANT = 1e-4


class RandomFeatures(NamedTuple):
    """phi(z) = sqrt(2 / m) cos(z directions + phases), so that phi(u)'phi(v) is near k(u, v)."""

    directions: Annotated[F32, "n_features", "n_random_features"]
    phases: Annotated[F32, "n_random_features"]

    def __call__(self, Z: F32) -> F32:
        """Return the features (n, m) of a block of rows (n, k)."""
        F = Z @ self.directions
        F += self.phases
        np.cos(F, out=F)
        F *= np.float32(np.sqrt(2.0 / len(self.phases)))
        return F


def make_random_features(
    Z: F32,
    n_features: int,
    *,
    kernel: Kernel = "gaussian",
    bandwidth: float = 0.5,
    Y: csr_array | None = None,
    rng: Rng,
) -> RandomFeatures:
    """Draw random features of the Gaussian or the Laplacian kernel, scaled to the rows of `Z`.

    ==========  ======================================  ===========================
    kernel      k(u, v)                                 entries of the directions
    ==========  ======================================  ===========================
    gaussian    exp(-||u - v||^2 / (2 s^2))             normal, deviation 1 / s
    laplacian   exp(-||u - v||_1 / s)                   Cauchy, scale 1 / s
    ==========  ======================================  ===========================

    u and v are rows of Z whose columns are brought to unit variance or, given labels, multiplied
    by the square of the share of their variance that the labels explain: a distance in which
    noise weighs as much as signal is of little use. s is `bandwidth` times the median of the
    distances (Euclidean, or the sum of absolute differences) between 1000 rows.

    A larger bandwidth is smoother; a smaller one separates near rows, and needs more rows and
    features. The error of the kernel falls with the square root of the number of features. If
    labels Y are given, Z is an embedding whose columns are of like units.

    The weights were chosen on a quarter of the rows of 250 classes of ALOI, held out (80 columns,
    2000 features): error 4.4 % and log loss 0.183 with unit variance, 2.9 % and 0.117 with the
    share, 2.8 % and 0.107 with its square, 2.9 % and 0.106 with its cube.

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.standard_normal((50, 3)).astype(np.float32)
    >>> phi = make_random_features(Z, 2000, rng=rng)
    >>> [round(float(v), 1) for v in (phi(Z[:1]) @ phi(Z[:1]).T).ravel()]
    [1.0]
    """
    if 0 in Z.shape:
        raise ValueError(f"Z must have rows and columns, got shape {Z.shape}")
    k = Z.shape[1]
    scale = _unit_variance(Z) if Y is None else _explained(Z, Y) ** 2
    points = Z[rng.choice(len(Z), min(len(Z), _N_POINTS), replace=False)] * scale
    metric = "euclidean" if kernel == "gaussian" else "cityblock"
    distances = pdist(points, metric)
    s = bandwidth * (float(np.median(distances)) if distances.size else 0.0)
    draw = rng.standard_normal if kernel == "gaussian" else rng.standard_cauchy
    R = draw((k, n_features)) * scale[:, None] / (s or 1.0)
    phases = rng.uniform(0.0, 2.0 * np.pi, n_features)
    return RandomFeatures(R.astype(np.float32), phases.astype(np.float32))


def _unit_variance(Z: F32) -> F64:
    """Return a factor for each column; zero for one that is constant but for rounding."""
    deviation = Z.std(axis=0, dtype=np.float64)
    keep = deviation > max(_CONSTANT * float(np.max(deviation)), np.finfo(np.float32).tiny)
    return np.where(keep, 1.0 / np.where(keep, deviation, 1.0), 0.0)


def _explained(Z: F32, Y: csr_array) -> F64:
    """Return the share of the variance of each column that the labels explain, from 0 to 1.

    It is the intraclass correlation: products z_i z_j of different rows of a label, relative to
    z_i^2. Unlike the variance of the labels' means it is not inflated where labels have few rows.
    All ones if no label has two rows that are more similar than others.
    """
    Y = csr_array(Y).astype(np.float32)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    several = counts > 1
    U = Z - Z.mean(axis=0)
    squares = (Y.T @ U**2)[several].astype(np.float64)
    products = (Y.T @ U)[several].astype(np.float64) ** 2 - squares
    products /= counts[several, None] - 1
    share = np.clip(products.sum(axis=0) / np.maximum(squares.sum(axis=0), 1e-300), 0, 1)
    return share if share.any() else np.ones(Z.shape[1])
