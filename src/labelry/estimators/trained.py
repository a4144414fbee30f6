"""What an estimator keeps of a fit, and how it is written to a model directory and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.arrays import I32, Ints
from labelry.checks import StoredCheck
from labelry.data.labels import label_counts
from labelry.data.text import TextFeatures
from labelry.errors import did_you_mean
from labelry.linalg.matrices import Matrix
from labelry.ranking.ranker import Ranker
from labelry.storage.about import About
from labelry.storage.modelfile import ModelFile
from labelry.storage.values import NamedArrays, pack, text_array, unpack

Form = Literal["classes", "indicator", "dense", "lists"]


@dataclass(frozen=True, eq=False)
class Trained:
    """What an estimator keeps of a fit. It is replaced as a whole, and never changed.

    Attributes
    ----------
    fitted : Ranker
    classes : array (n_labels,)
        Name of each label; column numbers if Y was an indicator.
    form : {"classes", "indicator", "dense", "lists"}
        How Y was given; `predict` answers in the same form.
    label_counts : array (n_labels,)
        Training rows of each label.
    n_rows : int
        Training rows.
    text_features : TextFeatures or None
        Makes features out of texts; None for a model of feature vectors.
    n_features_in : int or None
        Features of a row; None for a model of texts.
    feature_names_in : array (n_features_in,) of str, or None
        Names of the columns of a data frame.
    names : array (n_labels,) of str, or None
        Name or description of each label, "" where it has none.
    about : About
        When and from what it was trained, and its card.
    """

    fitted: Ranker
    classes: NDArray[Any]
    form: Form
    label_counts: Annotated[I32, "n_labels"]
    n_rows: int
    about: About
    text_features: TextFeatures | None = None
    n_features_in: int | None = None
    feature_names_in: Annotated[NDArray[np.object_], "n_features"] | None = None
    names: Annotated[NDArray[np.object_], "n_labels"] | None = None

    @property
    def n_features(self) -> int:
        """Return the features of a row, of the fitted value."""
        if self.text_features is not None:
            return int(self.text_features.n_features_out_)
        return int(self.n_features_in or 0)

    def named(self, ids: Ints) -> NDArray[Any]:
        """Return the labels of column numbers; -1 becomes None, or -1 where labels are numbers."""
        labels = self.classes[ids]
        if (ids < 0).any():
            if labels.dtype.kind == "U":
                labels = labels.astype(object)
            labels[ids < 0] = None if labels.dtype == object else -1
        return labels

    def knows(self, X: Matrix) -> NDArray[np.bool_]:
        """Return for each row False if it is a document without a known word, else True."""
        if self.text_features is None:
            return np.ones(X.shape[0], dtype=np.bool_)
        return np.diff(X.indptr) > 0

    def of_known(self, X: Matrix, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """Return the values of rows, with `missing` where a document has no known word."""
        known = self.knows(X)
        return (
            values if known.all() else np.where(known[:, None], values, values.dtype.type(missing))
        )

    def column(self, label: Any) -> int:
        """Return the column number of a label."""
        found = np.flatnonzero(self.classes == label)
        if not len(found):
            n = len(self.classes)
            near = did_you_mean(label, self.classes.tolist())
            message = f"label must be one of the {n:,} labels of the model, got {label!r}{near}"
            raise ValueError(message)
        return int(found[0])

    def grown(
        self, fitted: Ranker, new: NDArray[Any], names: Sequence[str], Y: csr_array | None = None
    ) -> Trained:
        """Return what to keep of a fitted value with `new` labels, their names, and rows Y.

        The new labels are the last columns of Y (n_rows, n_labels).
        """
        counts = np.append(self.label_counts, np.zeros(len(new), dtype=np.int32))
        more = np.array(names, dtype=object)
        return replace(
            self,
            fitted=fitted,
            classes=np.concatenate([self.classes, new]) if len(new) else self.classes,
            label_counts=counts if Y is None else counts + label_counts(Y),
            n_rows=self.n_rows + (0 if Y is None else Y.shape[0]),
            names=None if self.names is None else np.concatenate([self.names, more]),
        )

    def packed(self, arrays: NamedArrays) -> tuple[dict[str, Any], Any]:
        """Return plain JSON and the label names; the arrays are put into `arrays`."""
        state = {
            name: pack(value, name, arrays)
            for name, value in vars(self).items()
            if name not in ("classes", "about")
        }
        text = self.classes.dtype.kind in "OU"
        state["classes_dtype"] = "O" if self.classes.dtype == object else self.classes.dtype.str
        return state, self.classes.tolist() if text else self.classes.astype(int)


def read_trained(fitted: Any, file: ModelFile, check: StoredCheck) -> Trained:
    """Return what `Trained.packed` wrote, with a fitted value of the type `fitted`."""
    state = dict(file.state)
    classes = _classes(file.label_names, state.pop("classes_dtype"))
    hints = get_type_hints(Trained, include_extras=True) | {"fitted": fitted}
    del hints["classes"], hints["about"]
    if set(state) != set(hints):
        raise ValueError(f"it must hold {', '.join(hints)}")
    sizes = {"n_labels": len(classes)}

    def part(name: str) -> Any:
        return unpack(hints.pop(name), state[name], name, file.arrays, sizes, check)

    text_features, n_features_in = part("text_features"), part("n_features_in")
    if (text_features is None) == (n_features_in is None):
        raise ValueError("it must be of texts or of features")
    sizes["n_features"] = n_features_in if text_features is None else text_features.n_features_out_
    return Trained(
        classes=classes,
        text_features=text_features,
        n_features_in=n_features_in,
        about=file.about,
        **{name: part(name) for name in list(hints)},
    )


def _classes(names: list[Any] | None, dtype: Any) -> NDArray[Any]:
    """Return the labels of a model as an array of the dtype that they had."""
    kind = np.dtype(dtype).kind
    if names is None or kind not in "OUbiuf":
        raise ValueError(f"expected labels of a dtype for labels; got {dtype!r}")
    # Texts only as wide as the longest: a file could ask for any width.
    return text_array(names, kind) if kind in "OU" else np.array(names, dtype=dtype)
