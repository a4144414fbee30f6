"""Check label descriptions, and labels that a fitted model does not have yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.data.labels import EncodedLabels, align, check_label_size, encode_labels, indicator
from labelry.data.text import TextFeatures
from labelry.linalg.matrices import Matrix, as_matrix
from labelry.ranking.neighbours import widened

_FORMS = {
    "classes": "a class vector",
    "lists": "lists of labels",
    "indicator": "an indicator",
    "dense": "an indicator",
}


def name_features(
    names: Any, n_labels: int, n_features: int, text_features: TextFeatures | None
) -> Matrix:
    """Return the features of label descriptions, checked; texts if the model was given texts."""
    if not issparse(names) and all(isinstance(name, str) for name in names):
        if text_features is None:
            raise ValueError("label_features must be a matrix, as X is; got texts")
        names = text_features.transform(list(names))
    features = as_matrix(names)
    if features.shape != (n_labels, n_features):
        raise ValueError(
            f"label_features must have shape ({n_labels}, {n_features}), a row for each label and "
            f"the features of X; got {features.shape}"
        )
    if not np.isfinite(features.data if issparse(features) else features).all():
        raise ValueError("label_features must be finite, got NaN or infinity")
    return features


def further_classes(classes: Any, known: NDArray[Any], form: str) -> NDArray[Any]:
    """Return labels to add to the known ones: an array of their kind, none of them known."""
    new = np.asarray(classes)
    if new.ndim != 1 or not len(new):
        raise ValueError(f"classes must be a list of at least one label, got {classes!r}")
    text = known.dtype.kind in "OU"
    if (new.dtype.kind in "OU") != text or (text and not all(isinstance(c, str) for c in classes)):
        kind = "texts" if text else "numbers"
        raise ValueError(f"classes must be {kind}, as those of the model; got {classes!r}")
    if new.dtype.kind in "uf":
        check_label_size(new.min(), new.max())
    if form in ("indicator", "dense") and not text:
        expected = np.arange(len(known), len(known) + len(new))
        if not np.array_equal(new, expected):
            raise ValueError(
                "the labels of an indicator are its columns: classes must be "
                f"{expected.tolist()}, got {new.tolist()}"
            )
    twice = [c for c in new.tolist() if c in set(known.tolist())]
    if twice:
        raise ValueError(f"classes must be new labels, but the model has {twice[0]!r} already")
    if len(set(new.tolist())) < len(new):
        raise ValueError("classes must be distinct, but some label is given more than once")
    return new.astype(object) if known.dtype == object else new


def encoded_again(y: Any, known: NDArray[Any], form: str) -> tuple[csr_array, NDArray[Any]]:
    """Return the labels of further rows in the columns of a model, and the classes of new columns.

    `y` has the form in which `fit` got its labels.
    """
    if form == "lists" and not issparse(y) and not isinstance(y, np.ndarray):
        Y, names = indicator(y, known.tolist())
        return Y, np.array(names[len(known) :], dtype=known.dtype)
    labels = encode_labels(y)
    if _FORMS[labels.form] != _FORMS[form]:
        raise ValueError(f"y must be {_FORMS[form]}, as in fit; got {_FORMS[labels.form]}")
    if labels.classes is None:
        if labels.indicator.shape[1] < len(known):
            raise ValueError(
                f"y must have at least {len(known)} columns, one for each label of the model; "
                f"got {labels.indicator.shape[1]}"
            )
        return labels.indicator, np.arange(len(known), labels.indicator.shape[1])
    model, found = known.tolist(), labels.classes.tolist()
    if (known.dtype.kind in "OU") != (labels.classes.dtype.kind in "OU"):
        raise ValueError(f"y must have labels such as {model[0]!r}, as in fit; got {found[0]!r}")
    there = set(map(str, model))
    new = np.array([str(name) not in there for name in found], dtype=bool)
    return align(labels.indicator, found, model), labels.classes[new]


def with_names(
    labels: EncodedLabels, names: Mapping[Any, str]
) -> tuple[EncodedLabels, NDArray[Any]]:
    """Add an empty column for each label that only `names` has; return the name of each column too.

    >>> labels, texts = with_names(encode_labels([["a"], ["b"]]), {"a": "first", "c": "third"})
    >>> labels.classes.tolist(), labels.indicator.shape, texts.tolist()
    (['a', 'b', 'c'], (2, 3), ['first', '', 'third'])
    """
    Y = labels.indicator
    known = list(range(Y.shape[1])) if labels.classes is None else labels.classes.tolist()
    check_names(names, known)
    further = sorted(set(names) - set(known))
    if further and labels.classes is None:
        raise ValueError(
            f"names must be of columns of y, from 0 to {len(known) - 1}; got {further[0]}"
        )
    texts = np.array([names.get(label, "") for label in [*known, *further]], dtype=object)
    if further:
        classes = np.array([*known, *further], dtype=object if isinstance(known[0], str) else None)
        labels = labels._replace(indicator=widened(Y, len(classes)), classes=classes)
    return labels, texts


def check_names(names: Mapping[Any, str], known: list[Any]) -> None:
    """Raise a ValueError unless names are texts, by labels of the kind of the known ones."""
    for label, name in names.items():
        if isinstance(label, str) != isinstance(known[0], str):
            raise ValueError(f"names must have labels such as {known[0]!r}, got {label!r}")
        if not isinstance(name, str):
            raise ValueError(f"names must be texts, but that of {label!r} is {name!r}")
