"""ICD-10-CM as data: sizes, no titles among the examples, a hierarchy that covers the labels."""

from __future__ import annotations

import pytest

from labelry.data.icd import icd10cm
from labelry.trees import hierarchy_tree


@pytest.mark.slow
def test_phrases_are_tagged_with_their_category() -> None:
    train, test, titles, edges = icd10cm()
    assert train.n_rows + test.n_rows > 50_000
    assert abs(test.n_rows / (train.n_rows + test.n_rows) - 0.25) < 0.001
    assert not set(train.texts or ()) & set(test.texts or ())
    names = train.label_names or []
    assert names == test.label_names
    assert set(names) <= set(titles)
    # One phrase that anybody can check.
    found = dict(zip(train.texts, train.Y, strict=True)) | dict(
        zip(test.texts, test.Y, strict=True)
    )
    row = found["Classical cholera"]
    assert [names[j] for j in row.indices] == ["A00"]
    tree = hierarchy_tree(edges, names)
    assert tree.n_labels == len(names)
    chapters = tree.first_child[1] - tree.first_child[0]
    assert chapters == 22
    again = icd10cm()
    assert again.test.texts == test.texts


@pytest.mark.slow
def test_full_codes_are_tested_on_inclusion_terms() -> None:
    train, test, titles, edges = icd10cm(full_codes=True)
    assert train.n_labels == len(titles) > 40_000
    assert 2_000 < test.n_rows < 5_000
    assert not set(test.texts or ()) & set(train.texts or ())
    assert not set(test.texts or ()) & set(titles.values())
    assert set(titles.values()) <= set(train.texts or ())
    assert ("A00", "A00.0") in edges
