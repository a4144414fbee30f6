"""Sixteen floats at a time: the same as the slices of numpy."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.testing import assert_allclose

from labelry.linalg.lanes import LANES, add_scaled, lane_zeros


@njit
def _call(target: np.ndarray, at: int, v: np.float32, source: np.ndarray, start: int) -> None:
    add_scaled(target, at, v, source, start)


def test_adds_sixteen_floats_and_no_other() -> None:
    rng = np.random.default_rng(0)
    source = rng.standard_normal((4, LANES)).astype(np.float32)
    target = rng.standard_normal((3, LANES)).astype(np.float32)
    for at, start in ((0, 0), (5, 1), (32, 48), (31, 7)):
        expected = target.copy()
        expected.reshape(-1)[at : at + 16] += np.float32(0.3) * source.reshape(-1)[start:][:16]
        _call(target, at, np.float32(0.3), source, start)
        assert_allclose(target, expected, rtol=1e-6)


def test_rows_of_zeros_begin_with_a_cache_line() -> None:
    for n in (0, 1, 5):
        W = lane_zeros(n)
        assert W.shape == (n, LANES)
        assert W.flags.c_contiguous
        assert W.flags.writeable
        assert not W.any()
        assert n == 0 or W.ctypes.data % 64 == 0
