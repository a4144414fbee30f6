"""Words that say nothing about a subject, such as "the" and "of"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

_Listed: TypeAlias = list[tuple[Any, float]]

# scikit-learn's list has these, but they can be what a document is about.
_CONTENT = {
    "amount", "back", "bill", "bottom", "call", "computer", "cry", "describe", "detail", "empty",
    "fill", "fire", "found", "front", "full", "interest", "mill", "move", "name", "show", "side",
    "sincere", "system", "thick", "thin", "top",
}  # fmt: skip

# Parts that tokenizing leaves of "don't", "she'll", "they've" and "patient's".
_PARTS = {"don", "ll", "s", "t", "ve"}
FUNCTION_WORDS = (ENGLISH_STOP_WORDS - _CONTENT) | _PARTS


def without_function_words(feature: Any) -> Any:
    """Return a sequence of words without the function words around it; None if nothing is left.

    A last word of one letter stays, as in "hepatitis a". What is not text comes back as it is.

    Examples
    --------
    >>> [without_function_words(feature) for feature in ("pain in", "in the", "vitamin a", 3)]
    ['pain', None, 'vitamin a', 3]
    """
    if not isinstance(feature, str):
        return feature
    words = feature.split(" ")
    while words and words[0] in FUNCTION_WORDS:
        del words[0]
    while words and words[-1] in FUNCTION_WORDS and len(words[-1]) > 1:
        del words[-1]
    return " ".join(words) if words else None


def added_up(listed: Iterable[tuple[Any, float]]) -> tuple[_Listed, _Listed]:
    """Return features without function words, with their summed values: first those above 0.

    The strongest come first.
    """
    sums: dict[Any, float] = {}
    for feature, value in listed:
        if (word := without_function_words(feature)) is not None:
            sums[word] = sums.get(word, 0.0) + value
    order = sorted(sums.items(), key=lambda item: -abs(item[1]))
    return [item for item in order if item[1] > 0], [item for item in order if item[1] < 0]
