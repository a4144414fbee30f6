"""Function words are told from words that documents are about."""

from __future__ import annotations

from labelry.data.function_words import FUNCTION_WORDS, is_function_word


def test_sequences_count_if_all_of_their_words_do() -> None:
    assert is_function_word("because of the")
    assert not is_function_word("because of fire")
    assert not is_function_word("")
    assert not is_function_word(7)  # a column


def test_the_list_holds_words_as_they_are_found_in_texts() -> None:
    assert all(word.isalpha() and word == word.lower() for word in FUNCTION_WORDS)
    assert len(FUNCTION_WORDS) > 250
