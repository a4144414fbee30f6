"""Labels by a part of their name."""

from __future__ import annotations

import pytest

from labelry.server.served import LabelSearch

NAMES = ["Knee", "kneecap", "", "a\0b", "ab", "STRASSE", "knee knee", "🦉"]


def plain(query: str) -> list[int]:
    return [i for i, name in enumerate(NAMES) if query.casefold() in name.casefold()]


@pytest.mark.parametrize("query", ["knee", "KNEE", "", "b", "ß", "e k", "🦉", "zebra"])
def test_finds_what_a_plain_look_finds(query: str) -> None:
    assert LabelSearch(NAMES).find(query, limit=100) == plain(query)


def test_the_end_of_a_name_is_like_a_space() -> None:
    search = LabelSearch(["ab", "cd", "b\0c", "b c"])
    assert search.find("b\0c", limit=10) == search.find("b c", limit=10) == [2, 3]
    assert search.find("\0", limit=10) == [2, 3]


def test_pages_together_are_everything() -> None:
    search, found, after = LabelSearch(NAMES), [], -1
    while page := search.find("e", limit=2, after=after):
        found += page
        after = page[-1]
    assert found == plain("e")
    assert search.find("", limit=3, after=10**9) == []


def test_no_labels() -> None:
    assert LabelSearch([]).find("a", limit=1) == []
