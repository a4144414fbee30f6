"""What a model says of itself: a card for people, and where it comes from."""

from __future__ import annotations

from typing import Any, NamedTuple

from labelry.estimators.base import LabelRanker


class About(NamedTuple):
    """The card of a model, and its training; empty where the model does not say."""

    title: str
    description: str
    examples: list[str]
    trained_at: str | None  # in ISO 8601
    trained_on: str | None  # file name
    trained_with: str | None  # version of labelry


def about(model: LabelRanker, name: str) -> About:
    """Return what a model says of itself; its title is the name of its directory without one."""
    known: Any = getattr(model, "about_", None)
    plain = name.removesuffix(".labelry")
    return About(plain, "", [], None, None, None) if known is None else About(*known)
