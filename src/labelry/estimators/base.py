"""What every estimator shares: input, labels, prediction, saving.

An estimator is a thin shell. Its class declares settings and names one function of a room below:

    @estimator("linear-tree", fit_linear_trees)
    class LinearLabelTree(LabelRanker, LinearTreeSettings): ...

`fit` turns what it is given into one `Rows`, calls that function, and keeps the fitted value that
comes back. The parameters, their checks and their help come from the settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from inspect import ismethod
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from labelry.arrays import F32, Ints
from labelry.checks import StoredCheck
from labelry.data.dataset import Dataset, numbered_groups
from labelry.data.frames import plain_rows
from labelry.data.labels import align, encode_labels, encoded, label_counts
from labelry.data.shards import Shards
from labelry.data.text import TextFeatures
from labelry.errors import ModelError
from labelry.estimators.inputs import (
    are_texts,
    as_rows,
    check_columns,
    check_feature_size,
    check_finite,
    check_matrix,
    checked_rows,
    checked_weights,
    is_clean,
    warn_of_unknown_labels,
)
from labelry.estimators.trained import Form, Trained, read_trained
from labelry.linalg.blas import library_threads
from labelry.linalg.matrices import Matrix, as_matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Known, Rows
from labelry.metrics.matching import match
from labelry.parameters import Settings, param, parameters_of, settings, with_section
from labelry.ranking.ranker import Embeds, Explains, HasLabelVectors, Ranker, ScoresAll, supports
from labelry.storage import modelfile
from labelry.storage.about import About, Card, Source
from labelry.storage.values import NamedArrays, pack, unpack
from labelry.tagging.explanation import Explanation, explanation
from labelry.tagging.new_labels import name_features, with_names

R = TypeVar("R", bound="LabelRanker")

_MOST_PREDICTED = 100  # most labels of a row that `predict` returns; not tuned
_MOST_JOBS = 1 << 12  # threads that a model from a file may ask for
_MANY_ROWS = 8  # least rows for which further threads of BLAS save time; not tuned
_VALIDATION: dict[str, Any] = {  # `check_finite` names the row, which scikit-learn does not
    "accept_sparse": "csr",
    "dtype": np.float32,
    "order": "C",
    "ensure_all_finite": False,
}
_MAY_BE_NONE = (
    "text_features",
    "names",
)  # attributes that exist, and are None, without such a part
_EXAMPLE = """

    Examples
    --------
    >>> import numpy as np
    >>> X = np.eye(4, dtype=np.float32)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> {name}({parameters}).fit(X, y).predict(X[::2]).tolist()
    ['a', 'b', 'c', 'd']
    """
# Errors that come up while a model is read whose parts do not fit together
_MISFITS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@settings
class LabelRanker(ClassifierMixin, BaseEstimator, Settings):
    """Ranks labels for rows of features or for texts.

    ``fit(X, Y)`` takes X as CSR, dense array, data frame or list of texts (tf-idf features are
    then learnt and kept with the model), and Y as sparse or dense indicator, class vector, or lists
    of labels. ``predict_topk(X, k)`` is the central call.

    Attributes
    ----------
    trained_ : Trained
        All that a fit leaves. Its parts, and those of its fitted value, can be asked for as
        attributes with an underscore at the end: ``classes_``, ``fitted_``, ``text_features_``,
        ``about_``.
    """

    system: ClassVar[str]  # these three are set by `estimator`
    fit_function: ClassVar[Callable[..., Ranker]]
    by_passes: ClassVar[bool]

    random_state: int | None = param(default=0, help="Seed of the random numbers.", least=0)
    n_jobs: int | None = param(default=None, help="Threads; all cores when None.", least=-1)

    # ---- fitting -------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X : sparse or dense matrix (n_rows, n_features), list of str, Dataset, Shards or Rows
            The last three have their labels with them, and y is None. `Shards` and `Rows` need not
            be in memory. A data frame holds features if its columns are numbers, or documents if
            they are texts.
        y : sparse or dense indicator (n_rows, n_labels), class vector, or lists of labels
            The names of the columns of an indicator frame become the names of its labels.
        groups : array (n_rows,), optional
            The group of each row, any values. A system that holds rows out holds out whole groups.
            Give it if rows belong together, such as pages of a site, and new rows will be of other
            groups. `Tagger`, `Blend` and `CalibratedTree` otherwise take near-duplicates as groups.
        """
        return self._fit(X, y, groups=groups)

    def _fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        weights: Any = None,
        names: Mapping[Any, str] | None = None,
        label_features: Any = None,
        **more: Any,
    ) -> Self:
        """Turn the input into one `Rows`, call the fit function, and keep the fitted value.

        `more` goes to the fit function, for input that only one system takes.
        """
        self.check_parameters()
        given, form, columns = self._entrance(X, y, names)
        rows = given
        if groups is not None:
            rows = rows.knowing(groups=numbered_groups(groups, rows.n_rows))
        if label_features is not None:
            sizes = (rows.n_labels, rows.n_features)
            features = name_features(label_features, *sizes, rows.known.text_features)
            rows = rows.knowing(label_features=features)
        if weights is not None:
            weights = checked_weights(weights, rows.n_rows)
            rows = rows.only(weights > 0).weighted(weights[weights > 0])
        settings = copy(self)  # without the last model: workers of a cluster get the settings
        settings.__dict__.pop("trained_", None)
        rng = np.random.default_rng(self.random_state)
        with self._threads():
            fitted = type(self).fit_function(rows, settings, rng, **more)
        classes, text_features = given.known.label_names, given.known.text_features
        counts = given.label_counts()
        about = About(rows=given.n_rows, source=given.known.source or Source())
        self.trained_ = Trained(
            fitted, np.asarray(classes), form, counts, given.n_rows, about, text_features, **columns
        )
        return self

    def _entrance(
        self, X: Any, y: Any, names: Mapping[Any, str] | None
    ) -> tuple[Rows, Form, dict[str, Any]]:
        """Return the rows that were given, the form of their labels, and further fields to keep."""
        if isinstance(X, Dataset | Shards | Rows) and y is not None:
            kind = type(X).__name__
            raise ValueError(f"y must be None: a {kind} has its labels with it")
        if isinstance(X, Shards):
            X = X.rows(n_jobs=self.n_jobs)
        if isinstance(X, Rows):
            if names:
                raise ValueError("names need texts, but X are Rows")
            n_features = X.n_features if X.known.text_features is None else None
            form: Form = "indicator" if X.known.label_names is None else "lists"
            check_columns(X.n_features, X.n_labels, self)
            rows = checked_rows(X)
            if self.n_jobs is not None:
                rows.n_jobs = resolve_jobs(self.n_jobs)
            return rows, form, {"n_features_in": n_features}
        labels, form = X.labels if isinstance(X, Dataset) else encoded(y)
        source = X.source if isinstance(X, Dataset) else None
        X = plain_rows("X", X.rows if isinstance(X, Dataset) else X)
        labels, described = with_names(labels, names) if names else (labels, None)
        text_features, label_features = None, None
        if are_texts(X):
            text_features, matrix = self._learn_texts(X, described)
            matrix, columns = as_matrix(matrix), {"names": described}
            if described is not None:
                label_features = as_matrix(text_features.transform(described.tolist()))
        elif described is not None:
            raise ValueError("names need texts, but X are feature vectors")
        else:
            matrix, columns = self._learn_columns(X)
        Y = labels.indicator
        if Y.shape[0] != matrix.shape[0]:
            raise ValueError(f"X has {matrix.shape[0]} rows but Y has {Y.shape[0]}")
        check_columns(matrix.shape[1], Y.shape[1], self)
        classes = np.arange(Y.shape[1]) if labels.classes is None else labels.classes
        known = Known(
            classes, label_counts(Y), label_features, text_features=text_features, source=source
        )
        return Rows(matrix, Y, n_jobs=self.n_jobs, known=known), form, columns

    def _learn_texts(self, texts: Any, names: NDArray[Any] | None) -> tuple[TextFeatures, Matrix]:
        """Return the text features to keep, and those of the texts; a system may override this."""
        features = TextFeatures(n_jobs=self.n_jobs)
        return features, features.fit_transform(texts)

    def _learn_columns(self, X: Any) -> tuple[Matrix, dict[str, Any]]:
        """Return X as a clean matrix; its number of columns, and their names if it has some."""
        check_matrix(X)
        probe = type(self)()  # scikit-learn writes what it finds into an estimator
        matrix = as_matrix(validate_data(probe, X, reset=True, **_VALIDATION))
        check_finite(matrix)
        if not getattr(self, "normalize", True):
            check_feature_size(matrix)
        found = vars(probe)
        return matrix, {
            name: found.get(f"{name}_") for name in ("n_features_in", "feature_names_in")
        }

    # ---- prediction ----------------------------------------------------------------------------

    def predict_topk(self, X: Any, k: int = 5) -> tuple[NDArray[Any], F32]:
        """Return the k best labels of each row and their scores, best first.

        Returns
        -------
        labels : array (n_rows, min(k, n_labels))
            As in `classes_`. Places are -1, or None for names, if a system finds fewer labels. It
            finds none for a document without a known word.
        scores : array of the same shape, float32
            Higher is better; minus infinity where there is no label.
        """
        trained = self._trained()
        ids, scores = self._topk(trained, X, k)
        return trained.named(ids), scores

    def topk_ids(self, X: Any, k: int = 5) -> tuple[Ints, F32]:
        """Return what `predict_topk` does, with column numbers in place of names (-1: none)."""
        return self._topk(self._trained(), X, k)

    def predict(self, X: Any) -> Any:
        """Return the labels of each row, in the form in which `fit` got them.

        If Y was a class vector, this is the best class of each row. Otherwise it is the labels
        whose score reaches `threshold` (at most the best 100): an indicator, sparse or dense, or
        lists.
        """
        trained = self._trained()
        if trained.form == "classes":
            return trained.named(self._topk(trained, X, 1)[0][:, 0])
        ids, scores = self._topk(trained, X, _MOST_PREDICTED)
        chosen = (scores >= trained.fitted.threshold) & (ids >= 0)
        if trained.form == "lists":
            return [
                trained.classes[row[keep]].tolist() for row, keep in zip(ids, chosen, strict=True)
            ]
        rows, places = np.nonzero(chosen)
        ones = np.ones(len(rows), dtype=np.float32)
        shape = (len(ids), len(trained.classes))
        Y = csr_array((ones, (rows, ids[rows, places])), shape=shape)
        return Y.toarray().astype(int) if trained.form == "dense" else Y

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return P@1: how often the best label is right (accuracy, if Y is a class vector).

        It warns if the model knows no label of most rows.
        """
        trained = self._trained()
        labels, classes = encode_labels(y), trained.classes
        if labels.classes is not None:
            Y = align(labels.indicator, labels.classes.tolist(), classes.tolist())
        elif classes.dtype.kind in "OU":  # an indicator: its columns are in our order
            Y = labels.indicator
            if Y.shape[1] != len(classes):
                n = len(classes)
                raise ValueError(f"y must have {n} columns, one for each label; got {Y.shape[1]}")
        else:
            Y = align(labels.indicator, None, classes.tolist())
        warn_of_unknown_labels(Y, len(classes))
        best = self._topk(trained, X, 1)[0]
        hits = match(Y, best).hits[:, 0]
        weights = None if sample_weight is None else checked_weights(sample_weight, len(best))
        return float(np.average(hits, weights=weights))

    def known_words(self, X: Any, ids: Ints | None = None) -> NDArray[np.bool_]:
        """Return for each document whether the model knows one of its words; others get no labels.

        Rows of features always count as known.

        Parameters
        ----------
        X
            Documents, or rows of features.
        ids : array (n_rows, k), optional
            What `topk_ids` returned for them. It saves time: only rows without labels are read.
        """
        trained, rows = self._trained(), plain_rows("X", X)
        known = np.ones(rows.shape[0] if hasattr(rows, "shape") else len(rows), dtype=np.bool_)
        asked = np.arange(len(known)) if ids is None else np.flatnonzero(ids[:, 0] < 0)
        if trained.text_features is not None and len(asked):
            known[asked] = trained.knows(self._features(trained, [rows[i] for i in asked]))
        return known

    def score_all(self, X: Any) -> F32:
        """Return the scores of all labels, (n_rows, n_labels), if the system has them.

        All scores of a document without a known word are minus infinity.
        """
        trained, fitted = self._capable(ScoresAll, "does not score all labels")
        matrix = self._features(trained, X)
        with self._threads():
            scores = fitted.scores(matrix, resolve_jobs(self.n_jobs))
        return trained.of_known(matrix, scores, -np.inf)

    def embed(self, X: Any) -> F32:
        """Return vectors (n_rows, embedding_dim) of features or texts, if the system has them."""
        trained, fitted = self._capable(Embeds, "does not embed rows")
        with self._threads():
            return fitted.embed(self._features(trained, X), resolve_jobs(self.n_jobs))

    def label_vectors(self) -> F32:
        """Return one vector per label, (n_labels, k). Labels of similar rows have similar vectors.

        Raises a ValueError if the system has none.
        """
        return self._capable(HasLabelVectors, "has no label vectors")[1].label_vectors()

    def similar_labels(self, label: Any, k: int = 10) -> tuple[NDArray[Any], F32]:
        """Return the k labels whose vectors are most similar to that of `label`, and cosines."""
        trained, fitted = self._capable(HasLabelVectors, "has no label vectors")
        V = scaled_rows(fitted.label_vectors())
        found = trained.column(label)
        cosine = V @ V[found]
        cosine[found] = -np.inf
        order = np.argsort(-cosine, kind="stable")[: min(k, len(V) - 1)]
        return trained.classes[order], cosine[order]

    def explain(self, row: Any, label: Any, n: int = 10) -> Explanation:
        """Return the features of a row that raise and that lower the score of a label most, n each.

        Parameters
        ----------
        row : str, or features: one row of a matrix, or a vector
        label : one of `classes_`
        """
        trained, fitted = self._capable(Explains, "cannot explain its labels")
        x = scaled_rows(self._features(trained, as_rows(row)))
        column, n_jobs = trained.column(label), resolve_jobs(self.n_jobs)
        with self._threads(1):
            found = explanation(fitted, x, column, label, n, trained.text_features, n_jobs)
        return found if trained.knows(x)[0] else found._replace(probability=None, scores={})

    @property
    def threshold(self) -> float:
        """Return the score from which `predict` takes a label, where a row may have several."""
        return self._trained().fitted.threshold

    @property
    def probabilities(self) -> bool:
        """Return whether the scores are meant as probabilities."""
        return self._trained().fitted.probabilities

    def _trained(self) -> Trained:
        """Return what the last fit left. One call takes it once: another fit may replace it."""
        check_is_fitted(self)
        return self.trained_

    def _capable(self, capability: type, lack: str) -> tuple[Trained, Any]:
        """Return what the last fit left, and its fitted value, which has a capability."""
        trained = self._trained()
        if not supports(trained.fitted, capability):
            raise ValueError(f"{self.system} {lack}")
        return trained, trained.fitted

    def _topk(self, trained: Trained, X: Any, k: int) -> tuple[Ints, F32]:
        """Return column numbers and scores of the k best labels."""
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        return self._ranked(trained, self._features(trained, X), k)

    def _ranked(self, trained: Trained, matrix: Matrix, k: int) -> tuple[Ints, F32]:
        """Return what `_topk` does, for rows that are a matrix already."""
        with self._threads(matrix.shape[0]):
            n_jobs = resolve_jobs(self.n_jobs)
            ids, scores = trained.fitted.topk(matrix, min(k, len(trained.classes)), n_jobs)
        return trained.of_known(matrix, ids, -1), trained.of_known(matrix, scores, -np.inf)

    def _features(self, trained: Trained, X: Any) -> Matrix:
        """Return X as a matrix that the fitted value takes."""
        X = plain_rows("X", X)
        if trained.text_features is not None:
            if not are_texts(X):
                raise ValueError("this model was fitted on texts, but got feature vectors")
            return as_matrix(trained.text_features.transform(X, resolve_jobs(self.n_jobs)))
        if are_texts(X) and X:
            raise ValueError("this model was fitted on feature vectors, but got texts")
        if trained.feature_names_in is None and is_clean(X, trained.n_features_in):
            return as_matrix(X)
        check_matrix(X)
        matrix = as_matrix(validate_data(self, X, reset=False, **_VALIDATION))
        check_finite(matrix)
        if matrix.shape[1] != trained.n_features:  # the model was replaced meanwhile
            raise ValueError(f"X has {matrix.shape[1]} features, not {trained.n_features}")
        return matrix

    def _threads(self, n_rows: int = _MANY_ROWS) -> AbstractContextManager[None]:
        """Hold BLAS to `n_jobs` threads, as the kernels are; to one for a few rows."""
        return library_threads(resolve_jobs(self.n_jobs) if n_rows >= _MANY_ROWS else 1)

    # ---- saving --------------------------------------------------------------------------------

    def set_card(
        self, title: str = "", description: str = "", examples: tuple[str, ...] = ()
    ) -> Self:
        """Give the model a card: what the page of a server says of it, and documents to try there.

        It is saved with the model, as ``about_.card``.
        """
        trained = self._trained()
        about = replace(trained.about, card=Card(title, description, examples))
        self.trained_ = replace(trained, about=about)
        return self

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the model to a directory; `force` replaces a model that is there."""
        arrays = NamedArrays()
        state, label_names = self._trained().packed(arrays)
        parameters = {
            name: pack(value, f"parameters.{name}", arrays)
            for name, value in self.get_params(deep=False).items()
        }
        modelfile.save(
            path,
            system=self.system,
            parameters=parameters,
            state=state,
            arrays=arrays,
            label_names=label_names,
            about=self.about_,
            force=force,
        )

    @classmethod
    def from_file(cls, file: modelfile.ModelFile) -> Self:
        """Return the estimator that `save` wrote."""
        check = StoredCheck(values=file.verified)
        try:
            model = cls(**_read_parameters(cls, file, check))
            model.check_parameters()
            if not 1 <= resolve_jobs(model.n_jobs) <= _MOST_JOBS:
                raise ValueError(f"n_jobs must be from 1 to {_MOST_JOBS}, got {model.n_jobs}")
            fitted = get_type_hints(cls.fit_function, include_extras=True)["return"]
            model.trained_ = read_trained(fitted, file, check)
        # The checksums were right: it is of another version, or made by someone else.
        except _MISFITS as error:
            message = f"{file.path} does not hold a valid {cls.system}: {error}"
            raise ModelError(message) from error
        return model

    # ---- scikit-learn --------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Return ``classes_``, ``fitted_`` and the like: parts of what the last fit left."""
        trained = self.__dict__.get("trained_")
        if trained is not None and name.endswith("_") and not name.startswith("_"):
            for part in (trained, trained.fitted):
                value = getattr(part, name[:-1], None)
                if value is not None and not ismethod(value):
                    return value
            if name[:-1] in _MAY_BE_NONE:
                return None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(param,))
def estimator(
    system: str, fit_function: Callable[..., Ranker], *, by_passes: bool = True, example: str = ""
) -> Callable[[type[R]], type[R]]:
    """Return a class decorator that makes a shell around a fit function.

    It adds the sections Parameters, Attributes and Examples to a docstring without them.

    Parameters
    ----------
    system : str
        Name of the system on the command line and in model files.
    fit_function : function
        Makes a fitted value of rows, settings and a random generator.
    by_passes : bool
        Whether it can learn from rows that are not in memory.
    example : str
        Parameters of the estimator in its example, such as "depth=2".
    """

    def decorated(cls: type[R]) -> type[R]:
        cls.system, cls.by_passes = system, by_passes
        cls.fit_function = staticmethod(fit_function)
        doc = cls.__doc__ or ""
        if "\n    Attributes\n    ---" not in doc:
            hint = get_type_hints(fit_function)["return"]
            kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in get_args(hint) or (hint,)]
            doc = with_section(doc, "Attributes", [f"fitted_ : {' or '.join(kinds)}"])
        if "\n    Examples\n    ---" not in doc:
            doc = doc.rstrip() + _EXAMPLE.format(name=cls.__name__, parameters=example)
        cls.__doc__ = doc
        return settings(cls)

    return decorated


def _read_parameters(
    cls: type[LabelRanker], file: modelfile.ModelFile, check: StoredCheck
) -> dict[str, Any]:
    """Return the parameters of a model file; a ValueError unless they are those of the class."""
    known = parameters_of(cls)
    if set(file.parameters) != set(known):
        raise ValueError(f"its parameters must be {', '.join(known)}")
    return {
        name: unpack(known[name].hint, value, f"parameters.{name}", file.arrays, {}, check)
        for name, value in file.parameters.items()
    }
