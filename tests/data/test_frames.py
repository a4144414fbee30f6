"""Frames and columns of pandas, polars and the like, as rows and as labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import labelry
from labelry.data import Dataset, TextFeatures
from labelry.data.frames import is_frame, plain_column, plain_rows
from labelry.data.labels import encode_labels

TEXTS = ["a red cat", "the cat sat", "the blue dog", "a dog"]
LISTS = [["cat"], ["cat", "red"], ["dog"], ["dog"]]
FRAMES = [pd.DataFrame, pl.DataFrame]
COLUMNS = [pd.Series, pl.Series]


class LazyColumn(Sequence):
    """A column as Hugging Face datasets have them: no list, and read when it is asked."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]


@pytest.mark.parametrize("column", [*COLUMNS, LazyColumn, tuple, np.array])
def test_a_column_of_texts_is_a_list_of_str(column: Any) -> None:
    rows = plain_rows("X", column(TEXTS))
    assert rows == TEXTS
    assert {type(row) for row in rows} == {str}


@pytest.mark.parametrize("frame", FRAMES)
def test_columns_of_texts_are_joined_in_their_order(frame: Any) -> None:
    assert plain_rows("X", frame({"text": TEXTS})) == TEXTS
    titles = ["A", "B", "C", "D"]
    expected = [f"{title}\n{text}" for title, text in zip(titles, TEXTS, strict=True)]
    assert plain_rows("X", frame({"title": titles, "body": TEXTS})) == expected
    swapped = [f"{text}\n{title}" for title, text in zip(titles, TEXTS, strict=True)]
    assert plain_rows("X", frame({"body": TEXTS, "title": titles})) == swapped


def test_two_columns_of_one_name_are_both_read() -> None:
    frame = pd.DataFrame([["a", "b"], ["c", "d"]], columns=["text", "text"])
    assert plain_rows("X", frame) == ["a\nb", "c\nd"]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_of_numbers_is_features(frame: Any) -> None:
    X = np.array([[2.0, 0], [1, 0], [0, 1], [0, 2]])
    given = frame({"weight": X[:, 0], "height": X[:, 1]})
    assert plain_rows("X", given) is given
    model = labelry.OneVsRest().fit(given, LISTS)
    assert_array_equal(model.score_all(given), labelry.OneVsRest().fit(X, LISTS).score_all(X))


def test_the_names_of_features_are_kept_and_checked() -> None:
    frame = pd.DataFrame({"weight": [2, 1, 0, 0], "height": [0, 0, 1, 2]})
    model = labelry.OneVsRest().fit(frame, LISTS)
    assert model.feature_names_in_.tolist() == ["weight", "height"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["height", "weight"]])


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["a", None, "c"], r"row 1 is None \(NoneType\)"),
        ([None, "b", "c"], r"row 0 is None \(NoneType\)"),
        (["a", "b", float("nan")], r"row 2 is nan \(float\)"),
        (["a", b"b", "c"], r"row 1 is b'b' \(bytes\)"),
        (["a", 2, "c"], r"row 1 is 2 \(int\)"),
    ],
)
def test_what_is_no_text_is_refused_with_its_row(values: list[Any], found: str) -> None:
    column = pd.Series(values, dtype=object)
    for rows in (values, tuple(values), column, np.array(values, dtype=object)):
        with pytest.raises(ValueError, match=f"X must be texts, but {found}; fill it"):
            labelry.Tagger().fit(rows, ["x", "y", "z"])
    with pytest.raises(ValueError, match=f"column 'body' of X must be texts, but {found}"):
        plain_rows("X", pd.DataFrame({"title": ["a", "b", "c"], "body": column}))
    with pytest.raises(ValueError, match=f"texts must be texts, but {found}"):
        TextFeatures().fit(iter(values))


def test_missing_texts_of_typed_columns_are_refused_with_their_row() -> None:
    for column in (pl.Series(["a", None]), pd.Series(["a", None], dtype="string")):
        with pytest.raises(ValueError, match="X must be texts, but row 1 is"):
            plain_rows("X", column)


@pytest.mark.parametrize("frame", FRAMES)
def test_texts_beside_numbers_are_refused(frame: Any) -> None:
    expected = r"columns of texts, \['title'\], and of numbers, \['price'\]: give .* X\[\['title'\]"
    with pytest.raises(ValueError, match=expected):
        labelry.Tagger().fit(frame({"title": TEXTS, "price": [1, 2, 3, 4]}), LISTS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("one text", "X must be a list of str, one for each row; got str"),
        ({"text": TEXTS}, "X must be a list of str, .* got dict"),
        (set(TEXTS), "X must be a list of str, .* got set"),
        (iter(TEXTS), "X must be a list of str, .* got list_iterator"),
        ([[text] for text in TEXTS], "row 0 of X is a list of texts; join the texts of each row"),
        (np.array([[text] for text in TEXTS]), "row 0 of X is a list of texts"),
    ],
)
def test_rows_in_other_shapes_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        labelry.OneVsRest().fit(rows, LISTS)
    with pytest.raises(ValueError, match=message):
        labelry.OneVsRest().fit(TEXTS, LISTS).predict(rows)


def test_no_documents_are_no_rows() -> None:
    model = labelry.OneVsRest().fit(TEXTS, LISTS)
    assert model.predict([]) == []
    assert model.predict_topk([], k=2)[0].shape == (0, 2)
    assert model.known_words([]).shape == (0,)


def test_a_dataset_takes_a_column_of_texts() -> None:
    texts = pd.Series(TEXTS, index=[9, 8, 7, 6])
    data = Dataset(encode_labels(LISTS).indicator, texts=texts)
    assert data.take([1, 2]).texts == TEXTS[1:3]


def test_columns_of_other_things_are_refused() -> None:
    dates = pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    for frame in (dates, pl.DataFrame(dates.to_dict("list"))):
        with pytest.raises(ValueError, match="column 'day' of X must be numbers or texts, but row"):
            plain_rows("X", frame)


def test_what_is_not_computed_or_has_many_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"LazyFrame has no rows yet; give what its collect\(\)"):
        plain_rows("X", pl.LazyFrame({"text": TEXTS}))

    class Table:
        column_names = ("text", "labels")

    with pytest.raises(ValueError, match=r"a Table has several columns; give one"):
        is_frame(Table())


def test_a_column_of_numbers_is_an_array() -> None:
    for column in (pd.Series([3, 1]), pl.Series([3, 1]), pd.Series([3, 1], dtype="Int64")):
        assert plain_column(column).tolist() == [3, 1]
        assert plain_column(column).dtype.kind == "i"


@pytest.mark.parametrize("column", [*COLUMNS, LazyColumn])
def test_columns_of_labels(column: Any) -> None:
    lists, classes = encode_labels(column(LISTS)), encode_labels(column(["b", "a", "b"]))
    assert (lists.form, lists.classes.tolist()) == ("lists", ["cat", "dog", "red"])
    assert (classes.form, classes.classes.tolist()) == ("classes", ["a", "b"])
    assert encode_labels(column([7, 3])).classes.tolist() == [3, 7]


@pytest.mark.parametrize("frame", FRAMES)
def test_an_indicator_frame_names_its_labels(frame: Any) -> None:
    Y = frame({"cat": [1, 1, 0, 0], "dog": [0, 0, 1, 1]})
    labels = encode_labels(Y)
    assert (labels.form, labels.classes.tolist()) == ("indicator", ["cat", "dog"])
    model = labelry.LinearLabelTree().fit(TEXTS, Y)
    assert model.predict_topk(["red cat"], k=1)[0].tolist() == [["cat"]]
    assert_array_equal(model.predict(TEXTS), Y.to_numpy())
    assert model.score(TEXTS, Y[["dog", "cat"]]) == 1.0  # by name, in any order
    assert model.score(TEXTS, frame({"dog": Y["cat"], "cat": Y["dog"]})) == 0.0


def test_indicator_frames_that_are_sparse_unnamed_or_wrong() -> None:
    Y = pd.DataFrame({"cat": [1, 0], "dog": [0, 1]})
    assert encode_labels(Y.astype("Sparse[int]")).classes.tolist() == ["cat", "dog"]
    assert encode_labels(pd.DataFrame([[1, 0], [0, 1]])).classes is None
    for frame, message in [
        (Y.set_axis([5, 6], axis=1), "must be named by distinct labels, all of them texts"),
        (Y.set_axis(["a", "a"], axis=1), "must be named by distinct labels"),
        (Y.replace(1, np.nan), r"labels must be 0 or 1 .* Y\[0, 0\] is nan"),
        (pd.DataFrame({"first": ["a"], "second": ["b"]}), r"column 'first' of Y begins with \['a'"),
    ]:
        with pytest.raises(ValueError, match=message):
            encode_labels(frame)


def test_a_frame_of_one_column_of_labels_is_that_column() -> None:
    assert encode_labels(pd.DataFrame({"labels": LISTS})).classes.tolist() == ["cat", "dog", "red"]
    assert encode_labels(pl.DataFrame({"class": ["b", "a"]})).form == "classes"
