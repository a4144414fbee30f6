"""Random features against the kernels that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist, pdist

from labelry.ranking.random_features import RandomFeatures, _explained, make_random_features


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


def test_labels_weigh_the_columns() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 40, 4000)
    noise = np.array([0.0, 1.0, 3.0], dtype=np.float32)  # variance of columns 0 to 2
    signal = rng.standard_normal((40, 3))
    signal = (signal - signal[y].mean(axis=0)) / signal[y].std(axis=0)
    Z = signal[y] + np.sqrt(noise) * rng.standard_normal((4000, 3))
    Z = np.hstack([Z, rng.standard_normal((4000, 1))]).astype(np.float32)
    Z *= np.array([1, 10, 0.1, 1], dtype=np.float32)
    Y = csr_array((np.ones(4000, np.float32), y, np.arange(4001)), shape=(4000, 41))
    share = _explained(Z, Y)
    assert_allclose(share, [1.0, 0.5, 0.25, 0.0], atol=0.03)

    phi = make_random_features(Z, 4000, Y=Y, rng=np.random.default_rng(2))
    spread = phi.directions.std(axis=1)
    assert_allclose(spread / spread[0], (share / share[0]) ** 2, rtol=0.05, atol=1e-6)


def test_labels_of_few_rows_do_not_inflate_their_share() -> None:
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((3000, 4)).astype(np.float32)
    Y = csr_array((np.ones(3000, np.float32), np.arange(3000) // 2, np.arange(3001)))
    assert (_explained(Z, Y) < 0.06).all()


def test_labels_that_explain_nothing_leave_the_columns_as_they_are() -> None:
    Z = points()
    singles = csr_array(np.eye(len(Z), dtype=np.float32))  # no label has two rows
    assert_array_equal(_explained(Z, singles), 1.0)


def test_constant_columns_and_equal_rows() -> None:
    Z = points()
    Z[:, 2] = 7.0
    phi = make_random_features(Z, 30, rng=np.random.default_rng(0))
    assert (phi.directions[2] == 0).all()
    assert (phi.directions[0] != 0).all()
    flat = make_random_features(np.ones((4, 3), np.float32), 30, rng=np.random.default_rng(0))
    assert np.isfinite(flat(np.ones((1, 3), np.float32))).all()


def test_same_seed_same_features_and_storable(stored) -> None:
    Z = points()
    a, b = (make_random_features(Z, 20, rng=np.random.default_rng(5)) for _ in range(2))
    assert_array_equal(a.directions, b.directions)
    again = stored(a)
    assert isinstance(again, RandomFeatures)
    assert_array_equal(again(Z), a(Z))
