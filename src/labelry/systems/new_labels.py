"""Names of labels, and labels that a fitted model has not met yet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry.data.labels import align, encode_labels, indicator
from labelry.data.text import TextFeatures
from labelry.linalg.matrices import Matrix, as_matrix

_FORMS = {
    "classes": "a class vector",
    "lists": "lists of labels",
    "indicator": "an indicator",
    "dense": "an indicator",
}


def name_features(
    names: Any, n_labels: int, n_features: int, text_features: TextFeatures | None
) -> Matrix:
    """Features of the names of labels, checked; texts are taken where the model was given texts."""
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
    """Labels to be added to the known ones: as an array of their kind, none of them known."""
    new = np.asarray(classes)
    if new.ndim != 1 or not len(new):
        raise ValueError(f"classes must be a list of at least one label, got {classes!r}")
    text = known.dtype.kind in "OU"
    if (new.dtype.kind in "OU") != text or (text and not all(isinstance(c, str) for c in classes)):
        kind = "texts" if text else "numbers"
        raise ValueError(f"classes must be {kind}, as those of the model; got {classes!r}")
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
    """Labels of further rows in the columns of a model, and the classes of the columns after them.

    `y` has the form in which the model got its labels first.
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
