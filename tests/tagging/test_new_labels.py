"""Names of labels and new labels: what is taken, and what is refused with which words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, issparse

from labelry.data.text import TextFeatures
from labelry.tagging.new_labels import encoded_again, further_classes, name_features

TEXT = np.array(["cat", "dog"], dtype=object)
WIDTH = np.array(["cat", "dog"])


def test_names_as_matrix_or_texts() -> None:
    features = TextFeatures(min_df=1).fit(["a cat", "a dog"])
    found = name_features(["cat", "unheard of"], 2, 3, features)
    assert found.toarray().tolist() == [[0, 1, 0], [0, 0, 0]]
    assert issparse(name_features(coo_array(np.eye(2)), 2, 2, None))
    assert name_features([[1, 2]], 1, 2, features).dtype == np.float32
    message = r"label_features must have shape \(2, 3\), .*; got \(2, 2\)"
    with pytest.raises(ValueError, match=message):
        name_features(np.eye(2), 2, 3, None)
    with pytest.raises(ValueError, match="must be a matrix, as X is; got texts"):
        name_features(["cat"], 1, 3, None)
    with pytest.raises(ValueError, match="label_features must be finite"):
        name_features(np.array([[np.nan]]), 1, 1, None)


def test_labels_that_do_not_fit_into_64_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="but one is 9223372036854775808; give such labels as"):
        further_classes([2**63], np.array([3, 7]), "lists")


def test_further_classes_are_new_and_of_the_same_kind() -> None:
    assert further_classes(["owl", "hen"], TEXT, "lists").dtype == object
    assert further_classes(["elephant"], WIDTH, "classes").tolist() == ["elephant"]
    assert further_classes([9], np.array([3, 7]), "classes").tolist() == [9]
    assert further_classes([2, 3], np.arange(2), "indicator").tolist() == [2, 3]


@pytest.mark.parametrize(
    ("classes", "known", "form", "message"),
    [
        (["dog"], TEXT, "lists", "the model has 'dog' already"),
        (["owl", "owl"], TEXT, "lists", "classes must be distinct"),
        ([3], TEXT, "lists", r"classes must be texts, as those of the model; got \[3\]"),
        (["owl"], np.array([3, 7]), "classes", "classes must be numbers"),
        ([], TEXT, "lists", "at least one label"),
        ([5], np.arange(2), "indicator", r"classes must be \[2\], got \[5\]"),
        ([5], np.arange(2), "dense", r"classes must be \[2\], got \[5\]"),
    ],
)
def test_other_classes_are_refused(classes, known, form, message) -> None:
    with pytest.raises(ValueError, match=message):
        further_classes(classes, known, form)


@pytest.mark.parametrize(
    ("y", "known", "form", "indicator", "new"),
    [
        ([["owl", "cat"], []], TEXT, "lists", [[1, 0, 1], [0, 0, 0]], ["owl"]),
        ([[], []], TEXT, "lists", [[0, 0], [0, 0]], []),
        (["mouse", "dog"], WIDTH, "classes", [[0, 0, 1], [0, 1, 0]], ["mouse"]),
        ([7, 5], np.array([3, 7]), "classes", [[0, 1, 0], [0, 0, 1]], [5]),
        (np.array([[0, 1, 1]]), np.arange(2), "indicator", [[0, 1, 1]], [2]),
        (csr_array([[0.0, 1.0]]), np.arange(2), "dense", [[0, 1]], []),
    ],
)
def test_labels_of_further_rows(y, known, form, indicator, new) -> None:
    Y, classes = encoded_again(y, known, form)
    assert Y.toarray().tolist() == indicator
    assert classes.tolist() == new
    assert np.concatenate([known, classes]).dtype.kind == known.dtype.kind


@pytest.mark.parametrize(
    ("y", "known", "form", "message"),
    [
        (["cat"], np.arange(2), "indicator", "y must be an indicator, as in fit; got a class"),
        (np.eye(2), TEXT, "lists", "y must be lists of labels, as in fit; got an indicator"),
        (csr_array(np.eye(1)), np.arange(2), "indicator", "at least 2 columns.*got 1"),
        ([1, 2], WIDTH, "classes", "y must have labels such as 'cat', as in fit; got 1"),
        ([["cat", 1]], TEXT, "lists", "labels must be all str or all int"),
    ],
)
def test_other_labels_are_refused(y, known, form, message) -> None:
    with pytest.raises(ValueError, match=message):
        encoded_again(y, known, form)
