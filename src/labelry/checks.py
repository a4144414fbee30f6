"""Checks of parameters that several modules make, and of values read from a model file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

INTEGERS = ("int32", "int64")
_STEP = 1 << 18  # entries that are checked together while they are in cache; not tuned


def is_among(value: object, allowed: Sequence[object]) -> bool:
    """Return whether a value is one of these, and of the same type: True is not 1."""
    return any(type(value) is type(each) and value == each for each in allowed)


def check_one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """Raise a ValueError that lists the allowed values, unless `value` is one of them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}")


def check_at_least(name: str, value: Any, least: float) -> None:
    """Raise a ValueError unless `value` is at least `least`."""
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_positive(name: str, value: Any) -> None:
    """Raise a ValueError unless `value` is above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")


def refuse_masked(name: str, value: object) -> None:
    """Raise a ValueError for a masked array: numpy would drop its mask without a word."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array, whose mask would be lost: fill it first, as in "
            f"{name}.filled(0)"
        )


class StoredCheck:
    """Checks of values that were read from a file; each raises a ValueError that names the value.

    Kernels follow pointers and indices without checks, so these are checked here, once. Numbers
    that only enter sums are not checked: a wrong one only gives a wrong score.

    Parameters
    ----------
    values : bool
        Also check the values of pointers and indices, in one pass over each; otherwise check only
        types and shapes.

    Examples
    --------
    >>> StoredCheck().pointers("starts", np.array([0, 5, 3]), 2, 3)
    Traceback (most recent call last):
    ...
    ValueError: starts must rise from 0 to 3
    """

    def __init__(self, values: bool = True) -> None:
        self.values = values

    def kind(self, name: str, value: object, *kinds: type | None) -> None:
        """Require one of these types; None stands for itself."""
        if type(value) not in [type(None) if kind is None else kind for kind in kinds]:
            allowed = " or ".join("None" if kind is None else kind.__name__ for kind in kinds)
            raise ValueError(f"{name} must be {allowed}, got {type(value).__name__}")

    def number(self, name: str, value: object, least: float = -math.inf) -> None:
        """Require a finite number of at least `least`."""
        self.kind(name, value, int, float)
        if not (math.isfinite(value) and value >= least):  # type: ignore[arg-type, operator]
            raise ValueError(f"{name} must be a finite number of at least {least}, got {value}")

    def whole(self, name: str, value: object, least: int = 0) -> None:
        """Require a whole number of at least `least` that fits into 32 bits."""
        self.kind(name, value, int)
        if not least <= value < 2**31:  # type: ignore[operator]
            raise ValueError(f"{name} must be from {least} to {2**31 - 1}, got {value}")

    def array(
        self, name: str, value: object, *shape: int, dtype: str | Sequence[str] = "float32"
    ) -> None:
        """Require an array of this shape, with this dtype or one of these."""
        allowed = [dtype] if isinstance(dtype, str) else dtype
        if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype not in allowed:
            got = type(value).__name__
            if isinstance(value, np.ndarray):
                got = f"{value.dtype} of shape {value.shape}"
            raise ValueError(f"{name} must be {' or '.join(allowed)} of shape {shape}, got {got}")

    def indices(
        self,
        name: str,
        value: Any,
        size: int,
        end: int,
        *,
        least: int = 0,
        dtype: str | Sequence[str] = INTEGERS,
    ) -> None:
        """Require an array (size,) of numbers from `least` to ``end - 1``."""
        self.array(name, value, size, dtype=dtype)
        if self.values and size and not least <= value.min() <= value.max() < end:
            raise ValueError(
                f"{name} must be from {least} to {end - 1}, got {value.min()} to {value.max()}"
            )

    def pointers(
        self,
        name: str,
        value: Any,
        size: int,
        end: int,
        *,
        least_step: int = 0,
        dtype: str | Sequence[str] = INTEGERS,
    ) -> None:
        """Require an array (size + 1,) that rises from 0 to `end` in steps >= `least_step`."""
        self.array(name, value, size + 1, dtype=dtype)
        if self.values and not (value[0] == 0 and value[-1] == end and _rises(value, least_step)):
            raise ValueError(f"{name} must rise from 0 to {end}")

    def within_parts(
        self, name: str, value: NDArray[Any], pointers: NDArray[Any], sizes: NDArray[Any]
    ) -> None:
        """Require numbers from 0 to ``sizes[i] - 1`` in part i, which lies between two pointers."""
        filled = np.flatnonzero(np.diff(pointers))
        if not (self.values and len(filled)):
            return
        largest = np.maximum.reduceat(value, pointers[filled])
        if value.min() < 0 or (largest >= sizes[filled]).any():
            raise ValueError(f"{name} must be from 0 to less than the size of its part")


def _rises(value: NDArray[Any], step: int) -> bool:
    """Return whether each entry is larger than the one before by at least `step`."""
    parts = (value[i : i + _STEP + 1].astype(np.int64) for i in range(0, len(value) - 1, _STEP))
    return all(bool((np.diff(part) >= step).all()) for part in parts)
