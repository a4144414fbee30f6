"""Words that say nothing about a subject, such as "the" and "of"."""

from __future__ import annotations

from typing import Any

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

# scikit-learn's list has these, but they can be what a document is about.
_CONTENT = {
    "amount", "back", "bill", "bottom", "call", "computer", "cry", "describe", "detail", "empty",
    "fill", "fire", "found", "front", "full", "interest", "mill", "move", "name", "show", "side",
    "sincere", "system", "thick", "thin", "top",
}  # fmt: skip

# Parts that tokenizing leaves of "don't", "she'll", "they've" and "patient's".
_PARTS = {"don", "ll", "s", "t", "ve"}
FUNCTION_WORDS = (ENGLISH_STOP_WORDS - _CONTENT) | _PARTS


def is_function_word(feature: Any) -> bool:
    """Return whether a feature is a word, or a sequence of words, of function words only.

    Examples
    --------
    >>> [is_function_word(feature) for feature in ("of", "of the", "of knee", "knee", 3)]
    [True, True, False, False, False]
    """
    return isinstance(feature, str) and all(part in FUNCTION_WORDS for part in feature.split(" "))
