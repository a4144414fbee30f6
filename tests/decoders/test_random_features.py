"""Random features against the kernels that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist, pdist

from labelry.decoders.random_features import RandomFeatures, make_random_features
from labelry.state import pack, unpack


def points(n: int = 200, k: int = 5) -> np.ndarray:
    """Columns of very different scale."""
    rng = np.random.default_rng(0)
    return (rng.standard_normal((n, k)) * 10.0 ** -np.arange(k)).astype(np.float32)


@pytest.mark.parametrize("bandwidth", [0.5, 2.0])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_products_are_the_kernel(kernel: str, bandwidth: float) -> None:
    Z = points()
    phi = make_random_features(
        Z, 4000, kernel=kernel, bandwidth=bandwidth, rng=np.random.default_rng(1)
    )
    U = Z / Z.std(axis=0)
    metric = "euclidean" if kernel == "gaussian" else "cityblock"
    s = bandwidth * np.median(pdist(U, metric))
    D = cdist(U, U, metric) / s
    K = np.exp(-(D**2) / 2 if kernel == "gaussian" else -D)
    F = phi(Z)
    assert (F.shape, F.dtype) == ((200, 4000), np.float32)
    assert np.abs(F @ F.T - K).mean() < 0.02


def test_scale_and_shift_of_a_column_do_not_matter() -> None:
    Z = points()
    one, two = (make_random_features(A, 50, rng=np.random.default_rng(3))(A) for A in (Z, 8 * Z))
    assert_allclose(one, two, atol=1e-5)


def test_constant_columns_and_equal_rows() -> None:
    Z = points()
    Z[:, 2] = 7.0
    phi = make_random_features(Z, 30, rng=np.random.default_rng(0))
    assert (phi.directions[2] == 0).all()
    assert (phi.directions[0] != 0).all()
    flat = make_random_features(np.ones((4, 3), np.float32), 30, rng=np.random.default_rng(0))
    assert np.isfinite(flat(np.ones((1, 3), np.float32))).all()


def test_same_seed_same_features_and_storable() -> None:
    Z = points()
    a, b = (make_random_features(Z, 20, rng=np.random.default_rng(5)) for _ in range(2))
    assert_array_equal(a.directions, b.directions)
    arrays: dict[str, np.ndarray] = {}
    again = unpack(pack(a, "phi", arrays), arrays)
    assert isinstance(again, RandomFeatures)
    assert_array_equal(again(Z), a(Z))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kernel": "cubic"}, "gaussian, laplacian, got 'cubic'"),
        ({"n_features": 0}, "n_features must be at least 1, got 0"),
        ({"bandwidth": 0.0}, "bandwidth must be above 0, got 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], words: str) -> None:
    given = {"n_features": 10, "rng": np.random.default_rng(0), **arguments}
    with pytest.raises(ValueError, match=words):
        make_random_features(points(), **given)  # type: ignore[arg-type]
