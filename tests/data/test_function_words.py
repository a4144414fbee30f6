"""Function words are told from words that documents are about."""

from __future__ import annotations

import pytest

from labelry.data.function_words import FUNCTION_WORDS, added_up, without_function_words


def test_words_around_a_subject_are_left_out() -> None:
    assert without_function_words("because of the fire of") == "fire"
    assert without_function_words("because of the") is None
    assert without_function_words("fracture of knee") == "fracture of knee"


def test_values_of_the_same_words_are_added_up() -> None:
    listed = [("pain", 1.0), ("knee", -0.5), ("pain in", -0.25), ("of", 9.0), ("the knee", 0.7)]
    supporting, opposing = added_up([*listed, (7, -3.0)])
    assert supporting == [("pain", 0.75), ("knee", pytest.approx(0.2))]
    assert opposing == [(7, -3.0)]


def test_the_list_holds_words_as_they_are_found_in_texts() -> None:
    assert all(word.isalpha() and word == word.lower() for word in FUNCTION_WORDS)
    assert len(FUNCTION_WORDS) > 250
