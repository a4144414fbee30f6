"""What is probably wrong with labelled rows is told in one line each."""

from __future__ import annotations

import pytest

from labelry.data.dataset import Dataset
from labelry.data.flaws import flaws_of
from labelry.data.labels import indicator


def told(rows: list[tuple[str, list[str]]]) -> str:
    Y, names = indicator([labels for _, labels in rows])
    return "\n".join(flaws_of(Dataset(Y, texts=[text for text, _ in rows], label_names=names)))


CLEAN = [(f"text {i}", [f"label{i % 3}", "other"]) for i in range(9)]


def test_clean_rows_have_no_flaws() -> None:
    assert told(CLEAN) == ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", []), ("b", [])], "no row has a label"),
        ([("a", ["x"]), ("b", ["x"])], "all rows have one label, 'x': every document"),
        (
            [("a", ["Machine Learning"]), ("b", ["machine-learning"]), *CLEAN],
            "1 label differs from another only by case, blanks, hyphens or plural, such as "
            "'Machine Learning' and 'machine-learning'",
        ),
        ([("a", ["tool"]), ("b", ["tools"]), ("c", ["TOOL"])], "2 labels differ from another"),
        ([("a", ["x;y"]), ("b", ["z;y"]), ("c", ["z"])], "2 labels have ';' inside and no row"),
        (
            [("a", ["x", "y"]), ("b", ["x"]), ("a", ["y", "x"])],
            "1 document is a copy of another, such as row 3 of row 1",
        ),
        (
            [("a", ["x"]), ("a", ["y"]), ("a", ["x"]), ("b", ["y"])],
            "1 copy has other labels than the first, such as row 2 and row 1",
        ),
        (
            [("a", ["x"]), ("b", ["y"]), ("c", ["y"])],
            "1 of 2 labels are on one row only, such as 'x'",
        ),
    ],
)
def test_each_flaw_is_told(rows: list[tuple[str, list[str]]], message: str) -> None:
    assert message in told(rows)


def test_copies_with_the_same_labels_are_not_said_to_differ() -> None:
    assert "other labels" not in told([("a", ["x", "y"]), ("a", ["y", "x"])])
