"""Matplotlib without a screen, and a hint where it is missing."""

from __future__ import annotations

from typing import Any

from labelry.errors import MissingExtraError


def canvas(width: float, height: float) -> Any:
    """An empty matplotlib figure of that size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "viz", "a picture") from error
    return Figure(figsize=(width, height), layout="constrained")
