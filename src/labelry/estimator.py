"""What every system has in common: input, label names, top-k, saving.

A system adds its own mathematics in two methods, on clean matrices and column numbers; everything
else is here. One is ``_topk(X, k)``; the other ``_fit_rows(rows, rng)`` if it learns by passes over
rows, wherever they are, or else ``_fit(X, Y, rng)`` on rows in memory.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from labelry import modelfile
from labelry.checks import StoredCheck, check_one_of
from labelry.data.dataset import Dataset
from labelry.data.labels import (
    EncodedLabels,
    align,
    checked_indicator,
    encode_labels,
    label_counts,
)
from labelry.data.text import TextFeatures
from labelry.errors import ModelError
from labelry.linalg.blas import library_threads
from labelry.linalg.matrices import Matrix, as_matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Block, Rows
from labelry.metrics import precision_at_k
from labelry.state import fitted_attributes, pack, set_fitted, storable, texts, unpack

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]

_MOST_PREDICTED = 100  # labels per row that `predict` considers in the multilabel case
_LARGEST = 1e15  # feature whose squares, and sums of them, are safe in float32
_MOST_JOBS = 1 << 12  # that a model from a file may ask for
# What becomes of parts of a model that do not fit together
_MISFITS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_MANY_ROWS = 8  # for which a second thread of BLAS does not wait longer than it works

storable(TextFeatures)


class LabelRanker(ClassifierMixin, BaseEstimator):
    """Ranks labels for rows of features or for texts.

    ``fit(X, Y)`` takes X as CSR, dense array or list of texts (tf-idf features are then learnt
    and kept with the model), and Y as sparse or dense indicator, class vector, or lists of
    labels. ``predict_topk(X, k)`` is the central call.

    Attributes
    ----------
    classes_ : array (n_labels,)
        Name of each label; column numbers if Y was an indicator.
    label_counts_ : array (n_labels,)
        Training rows of each label.
    n_rows_ : int
        Training rows.
    form_ : {"classes", "indicator", "dense", "lists"}
        How Y was given; `predict` answers in the same form.
    text_features_ : TextFeatures or None
    """

    system: ClassVar[str]  # name on the command line and in model files
    threshold: ClassVar[float] = 0.5  # score from which `predict` says yes in the multilabel case
    probabilities: ClassVar[bool] = False  # whether the scores are meant as probabilities

    random_state: int | None
    n_jobs: int | None
    text_features_: TextFeatures | None

    def _fit(self, X: Matrix, Y: csr_array, rng: np.random.Generator) -> None:
        """Learn from clean matrices; set attributes that end in an underscore."""
        self._fit_rows(Rows(X, Y, n_jobs=self.n_jobs), rng)

    def _fit_rows(self, rows: Rows, rng: np.random.Generator) -> None:
        """Learn as in `_fit`, by passes over rows that may be more than memory holds."""
        raise NotImplementedError(f"{self.system} needs its rows in memory")

    @classmethod
    def learns_by_passes(cls) -> bool:
        """Whether it can learn from rows that are not in memory."""
        return cls._fit_rows is not LabelRanker._fit_rows

    @abstractmethod
    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        """Column numbers (-1: none) and scores of the k best labels of each row, best first."""

    def _scores(self, X: Matrix) -> F32:
        """Scores of all labels for a block of rows, where the system has them."""
        raise NotImplementedError(f"{self.system} does not score all labels")

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : sparse or dense matrix (n_rows, n_features), list of str, or Rows
            `Rows` have their labels with them, and need not be in memory: see `fit_rows`.
        y : sparse or dense indicator (n_rows, n_labels), class vector, or lists of labels
        """
        return self._fit_given(X, y)

    def fit_dataset(self, dataset: Dataset) -> Self:
        """As `fit`, from what was read from a file; the labels keep their names."""
        return self._fit_encoded(rows_of(dataset), *labels_of(dataset))

    def fit_rows(
        self,
        rows: Rows,
        *,
        label_names: Sequence[str] | None = None,
        text_features: TextFeatures | None = None,
    ) -> Self:
        """As ``fit(rows)``, with names and text features that are given, not those of the rows.

        Rows need not be in memory (`labelry.data.shards` and `labelry.cluster` have such). A system
        that does not learn by passes gets them there, if they fit in ``rows.memory``.

        Parameters
        ----------
        rows : Rows
        label_names : sequence of str, optional
            Name of each label; column numbers by default.
        text_features : TextFeatures, optional
            What made X out of texts; the model then takes texts.
        """
        return self._fit_source(rows, label_names, text_features)

    def _fit_given(self, X: Any, y: Any, **options: Any) -> Self:
        """`fit`, with `options` for the system's own `_fit` or `_fit_rows`."""
        if not isinstance(X, Rows):
            return self._fit_encoded(X, *encoded(y), **options)
        if y is not None:
            raise ValueError("y must be None where X are Rows, which have their labels with them")
        return self._fit_source(X, X.label_names, X.text_features, **options)

    def _fit_source(
        self,
        rows: Rows,
        label_names: Sequence[str] | None,
        text_features: TextFeatures | None,
        **options: Any,
    ) -> Self:
        names = None if label_names is None else list(label_names)
        if not self.learns_by_passes():
            X, Y = in_memory(rows, self.system)
            self._fit_encoded(X, *labels_of(Dataset(Y, X, label_names=names)), **options)
        else:
            self.form_ = "indicator" if names is None else "lists"
            self.classes_ = np.arange(rows.n_labels) if names is None else _objects(names)
            self.n_rows_ = rows.n_rows
            (counts,) = rows.reduce(_add_label_counts, (rows.n_labels,), dtype=np.float64)
            self.label_counts_ = counts.astype(np.int32)
            self.n_features_in_ = rows.n_features
            with self._threads():
                self._fit_rows(rows, np.random.default_rng(self.random_state), **options)
        self.text_features_ = text_features
        if text_features is not None:
            del self.n_features_in_  # it is the texts that come in
        return self

    def _fit_encoded(self, X: Any, labels: EncodedLabels, form: str, **options: Any) -> Self:
        matrix = self._features(X, fit=True)
        if not getattr(self, "normalize", True):
            _check_size(matrix)
        Y = labels.indicator
        if Y.shape[0] != matrix.shape[0]:
            raise ValueError(f"X has {matrix.shape[0]} rows but Y has {Y.shape[0]}")
        self.form_ = form
        self.classes_ = np.arange(Y.shape[1]) if labels.classes is None else labels.classes
        self.n_rows_ = int(Y.shape[0])
        self.label_counts_ = label_counts(Y)
        rng = np.random.default_rng(self.random_state)
        with self._threads():
            if self.learns_by_passes():
                self._fit_rows(Rows(matrix, Y, n_jobs=self.n_jobs), rng, **options)
            else:
                self._fit(matrix, Y, rng, **options)
        return self

    def predict_topk(self, X: Any, k: int = 5) -> tuple[NDArray[Any], F32]:
        """The k best labels of each row and their scores, best first.

        Returns
        -------
        labels : array (n_rows, min(k, n_labels))
            As in `classes_`. Where a system finds fewer than k labels: -1, or None for names.
        scores : array of the same shape, float32
            Higher is better; minus infinity where there is no label.
        """
        ids, scores = self.topk_ids(X, k)
        return self._names(ids), scores

    def topk_ids(self, X: Any, k: int = 5) -> tuple[Ints, F32]:
        """As `predict_topk`, with column numbers in place of names (-1: none)."""
        check_is_fitted(self)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        matrix = self._features(X)
        with self._threads(matrix.shape[0]):
            return self._topk(matrix, min(k, len(self.classes_)))

    def score_all(self, X: Any) -> F32:
        """Scores of all labels (n_rows, n_labels), for systems that have them; mind the size."""
        check_is_fitted(self)
        with self._threads():
            return self._scores(self._features(X))

    def label_vectors(self) -> F32:
        """A vector (n_labels, k) for each label: alike for labels of similar rows.

        A ValueError where a system has none.
        """
        check_is_fitted(self)
        if not hasattr(self, "label_embedding_"):
            raise ValueError(f"{self.system} has no label vectors")
        return self.label_embedding_

    def similar_labels(self, label: Any, k: int = 10) -> tuple[NDArray[Any], F32]:
        """The k labels with vectors most like that of `label`, and their cosine similarities."""
        V = scaled_rows(self.label_vectors())
        found = self._column(label)
        cosine = V @ V[found]
        cosine[found] = -np.inf
        order = np.argsort(-cosine, kind="stable")[: min(k, len(V) - 1)]
        return self.classes_[order], cosine[order]

    def predict(self, X: Any) -> Any:
        """The labels of each row, in the form in which `fit` got them.

        The best class of each row if Y was a class vector. Otherwise the labels whose score
        reaches `threshold` (at most the best 100): an indicator, sparse or dense, or lists.
        """
        check_is_fitted(self)
        if self.form_ == "classes":
            return self.classes_[self.topk_ids(X, 1)[0][:, 0]]
        ids, scores = self.topk_ids(X, _MOST_PREDICTED)
        chosen = (scores >= self.threshold) & (ids >= 0)
        if self.form_ == "lists":
            return [
                self.classes_[row[keep]].tolist() for row, keep in zip(ids, chosen, strict=True)
            ]
        rows, places = np.nonzero(chosen)
        ones = np.ones(len(rows), dtype=np.float32)
        shape = (len(ids), len(self.classes_))
        Y = csr_array((ones, (rows, ids[rows, places])), shape=shape)
        return Y.toarray().astype(int) if self.form_ == "dense" else Y

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Precision at 1: how often the best label is right (accuracy, if Y is a class vector)."""
        labels = encode_labels(y)
        if labels.classes is not None:
            Y = align(labels.indicator, labels.classes.tolist(), self.classes_.tolist())
        elif self.classes_.dtype.kind in "OU":  # an indicator: its columns are in our order
            Y = labels.indicator
            if Y.shape[1] != len(self.classes_):
                n = len(self.classes_)
                raise ValueError(f"y must have {n} columns, one for each label; got {Y.shape[1]}")
        else:
            Y = align(labels.indicator, None, self.classes_.tolist())
        best = self.topk_ids(X, 1)[0]
        if sample_weight is None:
            return precision_at_k(Y, best, 1)
        right = Y[np.arange(len(best)), best[:, 0]].astype(bool)
        return float(np.average(np.asarray(right).ravel(), weights=np.asarray(sample_weight)))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the model to a directory; `force` replaces a model that is there."""
        check_is_fitted(self)
        arrays: dict[str, NDArray[Any]] = {}
        fitted = fitted_attributes(self)
        classes = fitted.pop("classes_")
        state = {name: pack(value, name, arrays) for name, value in fitted.items()}
        parameters = {
            name: pack(value, f"parameters.{name}", arrays)
            for name, value in self.get_params(deep=False).items()
        }
        state["classes_dtype"] = "O" if classes.dtype == object else classes.dtype.str
        modelfile.save(
            path,
            system=self.system,
            parameters=parameters,
            state=state,
            arrays=arrays,
            label_names=classes.tolist() if classes.dtype.kind in "OU" else classes.astype(int),
            force=force,
        )

    @classmethod
    def from_file(cls, file: modelfile.ModelFile) -> Self:
        """The estimator that `save` wrote."""
        try:
            parameters = {name: unpack(v, file.arrays) for name, v in file.parameters.items()}
            model = cls(**parameters)
            state = dict(file.state)
            classes = _classes(file.label_names, state.pop("classes_dtype"))
            set_fitted(model, {name: unpack(v, file.arrays) for name, v in state.items()})
            model.classes_ = classes
            model._check_loaded(StoredCheck(values=file.verified))
        # The checksums were right: it is of another version, or made by someone else.
        except _MISFITS as error:
            message = f"{file.path} does not hold a valid {cls.system}: {error}"
            raise ModelError(message) from error
        return model

    def _check_loaded(self, check: StoredCheck) -> None:
        """A ValueError unless what was read from a file is a model that can predict."""
        check_one_of("form_", self.form_, ("classes", "indicator", "dense", "lists"))
        check.array("label_counts_", self.label_counts_, len(self.classes_), dtype="int32")
        check.whole("n_rows_", self.n_rows_)
        check.kind("text_features_", self.text_features_, TextFeatures, None)
        if self.text_features_ is None:
            check.whole("n_features_in_", self.n_features_in_)
            n_features = self.n_features_in_
        else:
            n_features = self.text_features_.n_features_out_
        self._check_stored(check, n_features, len(self.classes_))

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        """A ValueError unless the fitted attributes are those of so many features and labels.

        A system adds what its `_topk` relies on.
        """
        check.kind("n_jobs", self.n_jobs, int, None)
        check_one_of("n_jobs", resolve_jobs(self.n_jobs), range(1, _MOST_JOBS + 1))
        self._check_parameters()

    def _check_parameters(self) -> None:
        """A ValueError for a parameter that is out of its range."""

    @contextmanager
    def _threads(self, n_rows: int = _MANY_ROWS) -> Iterator[None]:
        """Hold BLAS to `n_jobs` threads, as the kernels are; to one for a few rows."""
        limit = resolve_jobs(self.n_jobs) if n_rows >= _MANY_ROWS else 1
        with library_threads(limit):
            yield

    def _fit_texts(self, texts: Any) -> csr_array:
        """Learn `text_features_` and apply them; a system that wants others overrides this."""
        self.text_features_ = TextFeatures(n_jobs=self.n_jobs)
        return self.text_features_.fit_transform(texts)

    def _features(self, X: Any, *, fit: bool = False) -> Matrix:
        if _are_texts(X):
            if fit:
                return as_matrix(self._fit_texts(X))
            if self.text_features_ is None:
                raise ValueError("this model was fitted on feature vectors, but got texts")
            return as_matrix(self.text_features_.transform(X))
        if fit:
            self.text_features_ = None
        elif self.text_features_ is not None:
            raise ValueError("this model was fitted on texts, but got feature vectors")
        elif self._is_clean(X):
            return as_matrix(X)
        X = validate_data(self, X, reset=fit, accept_sparse="csr", dtype=np.float32, order="C")
        return as_matrix(X)

    def _is_clean(self, X: Any) -> bool:
        """Whether X needs no conversion: the checks of scikit-learn take longer than a row."""
        if not (isinstance(X, np.ndarray) or (issparse(X) and X.format == "csr")):
            return False
        return bool(
            X.dtype == np.float32
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and np.isfinite(X.data if issparse(X) else X).all()
        )

    def _column(self, label: Any) -> int:
        """The column number of a label."""
        found = np.flatnonzero(self.classes_ == label)
        if not len(found):
            n = len(self.classes_)
            raise ValueError(f"label must be one of the {n:,} labels of the model, got {label!r}")
        return int(found[0])

    def _names(self, ids: Ints) -> NDArray[Any]:
        names = self.classes_[ids]
        if (ids < 0).any():
            if names.dtype.kind == "U":
                names = names.astype(object)
            names[ids < 0] = None if names.dtype == object else -1
        return names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


def rows_of(dataset: Dataset) -> Any:
    """What a model takes as X: the features of a dataset, or else its texts."""
    return dataset.texts if dataset.X is None else dataset.X


def labels_of(dataset: Dataset) -> tuple[EncodedLabels, str]:
    """The labels of a dataset as `encoded` gives them, under their names if they have any."""
    names = dataset.label_names
    classes = None if names is None else _objects(names)
    form: Literal["indicator", "lists"] = "indicator" if classes is None else "lists"
    return EncodedLabels(checked_indicator(dataset.Y), classes, "multilabel", form), form


def in_memory(rows: Rows, who: str) -> tuple[Matrix, csr_array]:
    """X and Y of all rows; a MemoryBudgetError where they do not fit."""
    rows.require(
        2 * rows.n_bytes,  # parts, and the whole that is made of them
        f"{who}, which works on all rows in memory,",
        "give more memory, or a system that learns by passes, such as rembrandt, leml or moments",
    )
    X, Y = rows.gathered("X", "Y")
    return X, Y


def encoded(y: Any) -> tuple[EncodedLabels, str]:
    """Labels as an indicator, and the form in which they were given."""
    labels = encode_labels(y)
    dense = labels.form == "indicator" and not issparse(y)
    return labels, "dense" if dense else labels.form


def _objects(names: list[str]) -> NDArray[Any]:
    return np.array(names, dtype=object)


def _classes(names: list[Any] | None, dtype: str) -> NDArray[Any]:
    """The labels of a model as an array of the dtype that they had."""
    kind = np.dtype(dtype).kind
    if names is None or kind not in "OUbiuf":
        raise ValueError(f"expected labels of a dtype for labels; got {dtype!r}")
    # Texts only as wide as the longest: a file could ask for any width.
    return texts(names, kind) if kind in "OU" else np.array(names, dtype=dtype)


def _add_label_counts(block: Block, counts: NDArray[np.float64]) -> None:
    counts += label_counts(checked_indicator(block.side("Y"), block.start))


def _check_size(X: Matrix) -> None:
    """Refuse features that would overflow somewhere, and give scores that mean nothing."""
    values = X.data if issparse(X) else X
    largest = max(values.max(), -values.min()) if values.size else 0.0
    if largest > _LARGEST:
        raise ValueError(
            f"features must be at most {_LARGEST:g} in size with normalize=False, got {largest:g}"
        )


def _are_texts(X: Any) -> bool:
    if issparse(X) or not hasattr(X, "__len__") or len(X) == 0:
        return False
    if isinstance(X, np.ndarray) and X.ndim != 1:
        return False
    return isinstance(next(iter(X)), str)
