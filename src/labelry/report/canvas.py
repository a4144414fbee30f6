"""Matplotlib without a screen, and a hint where it is missing."""

from __future__ import annotations

from typing import Any

from labelry.errors import LabelryError


def figure(width: float, height: float) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LabelryError("pictures need matplotlib: pip install 'labelry[viz]'") from error
    picture = Figure(figsize=(width, height), layout="constrained")
    return picture, picture.add_subplot()
