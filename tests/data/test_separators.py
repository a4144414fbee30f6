"""What separates labels is found by what splitting does to the label set."""

from __future__ import annotations

import json

import numpy as np
import pytest

from labelry.data.separators import find_separator, join_labels, split_cell
from labelry.errors import DataError

RNG = np.random.default_rng(0)
GIVEN = ["John", "Mary", "Thomas", "Henry", "Anna", "Paul", "Jane"]
PEOPLE = [
    f"{name}, {given}" for name in [*map("Name{}".format, range(60)), "Henry"] for given in GIVEN
]
ZIPF = 1 / (np.arange(800) + 3)


def rows(n: int = 500, most: int = 5) -> list[list[str]]:
    """Label lists as they are in practice: some labels frequent, most rare."""
    return [
        [f"tag{i}" for i in RNG.choice(800, RNG.integers(1, most + 1), False, ZIPF / ZIPF.sum())]
        for _ in range(n)
    ]


@pytest.mark.parametrize("separator", ["|", ";", ",", ", ", "\t", " ; "])
@pytest.mark.parametrize("order", [list, sorted])
def test_joined_labels(separator: str, order: type) -> None:
    cells = [separator.join(order(labels)) for labels in rows()]
    assert find_separator(cells) == separator.strip(" ")


@pytest.mark.parametrize("write", [json.dumps, str])
def test_lists(write: type) -> None:
    assert find_separator([write(labels) for labels in rows(50)]) == "json"
    assert split_cell(write(["it's", "b"]), "json") == ["it's", "b"]


WHOLE = {
    "many people": PEOPLE,
    "few people, often": RNG.choice(PEOPLE[:40], 500).tolist(),
    "towns": [f"Town{i}, Country{i % 7}" for i in range(200)] * 3,
    "shops": ["Health, Household & Baby Care", "Toys", "Arts, Crafts & Sewing", "Baby"] * 50,
    "HTML": ["Food &amp; Drink", "Food &amp; Wine", "Health &amp; Beauty", "Toys"] * 50,
    "diagnoses": [f"{a}, {b}" for a in ("pain", "fever") for b in ("mild", "acute", "unspecified")],
    "single": [f"label {i % 30}" for i in range(300)],
    "no evidence": ["a;b"],
    "nothing": ["", " "],
}


@pytest.mark.parametrize("cells", WHOLE.values(), ids=WHOLE)
def test_cells_that_are_one_label(cells: list[str]) -> None:
    assert find_separator(cells) is None


def test_the_outer_separator_wins() -> None:
    cells = ["; ".join(RNG.choice(PEOPLE[:60], RNG.integers(1, 4), False)) for _ in range(300)]
    assert find_separator(cells) == ";"


def test_keywords_that_seldom_recur() -> None:
    cells = [";".join(f"word{i}" for i in RNG.integers(0, 4000, 5)) for _ in range(1500)]
    assert find_separator(cells) == ";"


def test_splitting_drops_blanks_and_empty_parts() -> None:
    assert split_cell(" a; b ;;", ";") == ["a", "b"]
    assert split_cell("|a|b|", "|") == ["a", "b"]
    assert split_cell(" a;b ", None) == ["a;b"]
    assert split_cell("  ", None) == split_cell("", "json") == []


@pytest.mark.parametrize("cell", ["a", "[a]", '{"a": 1}', "[1.5]", "[" * 10_000])
def test_a_cell_that_is_no_list(cell: str) -> None:
    with pytest.raises(DataError, match="expected a list such as"):
        split_cell(cell, "json")


@pytest.mark.parametrize("separator", ["|", ", ", "json"])
def test_joining_is_the_inverse(separator: str) -> None:
    for labels in (["a b", "c"], ["a"], []):
        assert split_cell(join_labels(labels, separator), separator) == labels


@pytest.mark.parametrize(
    ("labels", "separator"), [(["a|b"], "|"), (["a", "b"], None), ([" a"], "|")]
)
def test_labels_that_cannot_be_joined(labels: list[str], separator: str | None) -> None:
    with pytest.raises(DataError, match="`label_separator`"):
        join_labels(labels, separator)
