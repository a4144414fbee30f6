"""What is checked of a model that was read from a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labelry import checks
from labelry.checks import StoredCheck

CHECK = StoredCheck()


@pytest.mark.parametrize(
    ("indices", "indptr", "expected"),
    [
        ([0, 1, 3], [0, 1, 2, 3], "indices must be from 0 to 2, got 0 to 3"),
        ([0, -1, 2], [0, 1, 2, 3], "indices must be from 0 to 2, got -1 to 2"),
        ([0, 1, 2], [0, 2, 1, 3], "indptr must rise from 0 to 3"),
        ([0, 1, 2], [0, 1, 2, 4], "indptr must rise from 0 to 3"),
        ([0, 1, 2], [-1, 1, 2, 3], "indptr must rise from 0 to 3"),
        ([0, 1], [0, 1, 2, 3], r"indices must be int32 or int64 of shape \(3,\), got int64 of"),
        ([0.0], [0, 1, 2, 3], r"indices must be int32 or int64 of shape \(3,\), got float64 of"),
        (None, [0, 1, 2, 3], r"indices must be int32 or int64 of shape \(3,\), got NoneType"),
    ],
)
def test_places(indices: Any, indptr: list[int], expected: str) -> None:
    def look(check: StoredCheck) -> None:
        check.pointers("indptr", np.array(indptr), 3, 3)
        check.indices("indices", None if indices is None else np.array(indices), 3, 3)

    with pytest.raises(ValueError, match=expected):
        look(CHECK)
    if "of shape" not in expected:  # the numbers are not looked at where they are trusted
        look(StoredCheck(values=False))


def test_parts_are_not_looked_at_where_they_are_trusted() -> None:
    trusting = StoredCheck(values=False)
    trusting.within_parts("part", np.array([9]), np.array([0, 1]), np.array([1]))


def test_long_pointers_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_STEP", 3)
    pointers = np.arange(11)
    CHECK.pointers("p", pointers, 10, 10, least_step=1)
    for place in range(1, 9):
        with pytest.raises(ValueError, match="p must rise from 0 to 10"):
            CHECK.pointers("p", np.where(pointers == place, 10, pointers), 10, 10)


def test_parts_have_their_own_sizes() -> None:
    pointers, sizes = np.array([0, 2, 2, 3]), np.array([2, 0, 1])
    CHECK.within_parts("child", np.array([0, 1, 0], dtype=np.uint16), pointers, sizes)
    for values in ([0, 2, 0], [0, 1, 1], [0, -1, 0]):
        with pytest.raises(ValueError, match="child must be from 0 to less than"):
            CHECK.within_parts("child", np.array(values), pointers, sizes)


@pytest.mark.parametrize("value", [-1, 2**31, True, 1.0, "1", None])
def test_whole_numbers(value: Any) -> None:
    CHECK.whole("n", 2**31 - 1)
    with pytest.raises(ValueError, match="n must be"):
        CHECK.whole("n", value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1", None])
def test_numbers(value: Any) -> None:
    CHECK.number("n", -0.5)
    with pytest.raises(ValueError, match="n must be"):
        CHECK.number("n", value)


def test_limits_are_allowed_themselves() -> None:
    CHECK.number("n", 2.0, least=2.0)
    CHECK.whole("n", 3, least=3)
    CHECK.indices("i", np.array([2, 4]), 2, 5, least=2)
    CHECK.indices("i", np.empty(0, dtype=np.int64), 0, 0)
    CHECK.pointers("p", np.array([0, 1, 2]), 2, 2, least_step=1)
    checks.check_at_least("n", 2, 2)
    checks.check_positive("n", 1e-300)
    with pytest.raises(ValueError, match="n must be a finite number of at least 2"):
        CHECK.number("n", 1.9, least=2)
    with pytest.raises(ValueError, match=f"n must be from 3 to {2**31 - 1}, got 2"):
        CHECK.whole("n", 2, least=3)
    with pytest.raises(ValueError, match="i must be from 2 to 4, got 1 to 4"):
        CHECK.indices("i", np.array([1, 4]), 2, 5, least=2)
    with pytest.raises(ValueError, match="p must rise from 0 to 2"):
        CHECK.pointers("p", np.array([0, 0, 2]), 2, 2, least_step=1)
    with pytest.raises(ValueError, match=r"n must be at least 2, got 1\.9"):
        checks.check_at_least("n", 1.9, 2)
    for value in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="n must be positive"):
            checks.check_positive("n", value)


def test_one_of_some_values() -> None:
    assert checks.is_among("a", ("a", 1))
    assert checks.is_among(1, ("a", 1))
    assert not checks.is_among(True, ("a", 1))
    assert not checks.is_among("b", ("a", 1))
    checks.check_one_of("n", "a", ("a", 1))
    with pytest.raises(ValueError, match="n must be one of a, 1; got 'b'"):
        checks.check_one_of("n", "b", ("a", 1))
