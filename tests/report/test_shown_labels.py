"""What labels are called."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import labelry
from labelry.data.dataset import Dataset
from labelry.data.labels import align, indicator
from labelry.report.markup import rendered
from labelry.report.shown_labels import ShownLabels

X = np.eye(4, dtype=np.float32)
LISTS = [["cat"], ["dog"], ["cat"], ["dog", "cow"]]


def test_labels_that_only_the_data_has_follow_in_the_order_of_align() -> None:
    model = labelry.OneVsRest(n_jobs=1).fit(X, LISTS)
    Y, names = indicator([["zebra", "dog"], ["ant"]])
    data = Dataset(Y, X=X[:2], label_names=names)
    found = ShownLabels(model, data)
    assert found.names == ["cat", "cow", "dog", "ant", "zebra"]
    aligned = align(Y, names, model.classes_.tolist())
    assert [found.names[j] for j in aligned[[0]].indices] == ["dog", "zebra"]
    assert "never seen" in rendered(found.shown(3))
    assert "never seen" not in rendered(found.shown(2))


def test_numbers_are_names_too() -> None:
    model = labelry.OneVsRest(n_jobs=1).fit(X, X)
    wide = Dataset(csr_array(np.eye(4, 6, dtype=np.float32)), X=X)
    assert ShownLabels(model, wide).names == ["0", "1", "2", "3", "4", "5"]


def test_titles_are_those_given_or_those_of_the_model() -> None:
    model = labelry.OneVsRest(n_jobs=1).fit(X, LISTS)
    Y, names = indicator(LISTS)
    data = Dataset(Y, X=X, label_names=names)
    assert ShownLabels(model, data).plain(0) == "cat"
    given = ShownLabels(model, data, {"cat": "Felis <i>", "horse": "Equus"})
    assert given.plain(0) == "cat Felis <i>"
    assert "<bdi>Felis &lt;i&gt;</bdi>" in rendered(given.shown(0))
    model.names_ = np.array(["own", "", ""], dtype=object)
    assert ShownLabels(model, data).plain(0) == "cat own"
    with pytest.raises(ValueError, match="such as 'cat', got 'horse'"):
        ShownLabels(model, data, {"horse": "Equus"})
