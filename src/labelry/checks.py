"""Checks of parameters that several estimators make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def check_one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """A ValueError that lists the allowed values, unless `value` is one of them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}")


def check_at_least(name: str, value: Any, least: float) -> None:
    """A ValueError unless `value` is at least `least`."""
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_positive(name: str, value: Any) -> None:
    """A ValueError unless `value` is above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")
