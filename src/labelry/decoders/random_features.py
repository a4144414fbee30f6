"""Random Fourier features: a linear decoder of them is a kernel machine (Alg. 3, line 4)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from labelry.state import storable

F32 = NDArray[np.float32]
Kernel = Literal["gaussian", "laplacian"]

_N_POINTS = 1000  # whose distances give the bandwidth
_CONSTANT = 1e-4  # of the largest deviation: a column that varies less is constant


@storable
class RandomFeatures(NamedTuple):
    """phi(z) = sqrt(2 / m) cos(z directions + phases), so that phi(u)'phi(v) is close to k(u, v).

    Attributes
    ----------
    directions : array (k, m)
    phases : array (m,)
    """

    directions: F32
    phases: F32

    def __call__(self, Z: F32) -> F32:
        """The features (n, m) of a block of rows (n, k)."""
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
    rng: np.random.Generator,
) -> RandomFeatures:
    """Random features of the Gaussian or the Laplacian kernel, scaled to the rows of `Z`.

    ==========  ======================================  ===========================
    kernel      k(u, v)                                 entries of the directions
    ==========  ======================================  ===========================
    gaussian    exp(-||u - v||^2 / (2 s^2))             normal, deviation 1 / s
    laplacian   exp(-||u - v||_1 / s)                   Cauchy, scale 1 / s
    ==========  ======================================  ===========================

    The columns of Z are brought to unit variance first. s is `bandwidth` times the median of the
    distances (Euclidean, or the sum of absolute differences) between 1000 rows.

    Parameters
    ----------
    Z : array (n, k)
    n_features : int
        The error of the kernel falls with its square root.
    kernel : {"gaussian", "laplacian"}
    bandwidth : float
        Factor on the median. Larger is smoother; smaller tells near rows apart and needs more
        rows and features.
    rng : numpy.random.Generator

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.standard_normal((50, 3)).astype(np.float32)
    >>> phi = make_random_features(Z, 2000, rng=rng)
    >>> [round(float(v), 1) for v in (phi(Z[:1]) @ phi(Z[:1]).T).ravel()]
    [1.0]
    """
    if kernel not in get_args(Kernel):
        raise ValueError(f"kernel must be one of {', '.join(get_args(Kernel))}, got {kernel!r}")
    if 0 in Z.shape:
        raise ValueError(f"Z must have rows and columns, got shape {Z.shape}")
    if n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be above 0, got {bandwidth}")
    k = Z.shape[1]
    deviation = Z.std(axis=0, dtype=np.float64)
    # A column that is constant but for rounding says nothing: it must not be blown up to noise.
    keep = deviation > max(_CONSTANT * float(np.max(deviation)), np.finfo(np.float32).tiny)
    scale = np.where(keep, 1.0 / np.where(keep, deviation, 1.0), 0.0)
    points = Z[rng.choice(len(Z), min(len(Z), _N_POINTS), replace=False)] * scale
    metric = "euclidean" if kernel == "gaussian" else "cityblock"
    distances = pdist(points, metric)
    s = bandwidth * (float(np.median(distances)) if distances.size else 0.0)
    draw = rng.standard_normal if kernel == "gaussian" else rng.standard_cauchy
    R = draw((k, n_features)) * scale[:, None] / (s or 1.0)
    phases = rng.uniform(0.0, 2.0 * np.pi, n_features)
    return RandomFeatures(R.astype(np.float32), phases.astype(np.float32))
