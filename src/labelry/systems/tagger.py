"""The tagger: what to use when there is no reason to use something else."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils.validation import check_is_fitted

from labelry.checks import StoredCheck, check_at_least, check_one_of
from labelry.data.dataset import Dataset, numbered_groups
from labelry.data.labels import EncodedLabels
from labelry.data.text import TextFeatures
from labelry.decoders.growth import widened
from labelry.estimator import LabelRanker, encoded, labels_of, rows_of
from labelry.linalg.matrices import Matrix, as_matrix, scaled_rows
from labelry.linalg.parallel import resolve_jobs
from labelry.linalg.rows import Rows
from labelry.state import storable
from labelry.systems.blend import Blend
from labelry.systems.calibrated_tree import CalibratedTree
from labelry.systems.explanation import Explanation, contributions, judgement
from labelry.systems.linear_tree import FEW_LABELS
from labelry.systems.new_labels import encoded_again, further_classes
from labelry.systems.objectives import OBJECTIVES, Objective
from labelry.systems.time_budget import Choice, as_seconds, choose

F32 = NDArray[np.float32]
Ints = NDArray[np.integer]
Quality = Literal["fast", "balanced", "best"]

QUALITIES = ("fast", "balanced", "best")

# Chosen on held-out rows of Bibtex, Delicious, Debian packages and WordNet: two thirds of the time
# of the best for most of what it gains over the trees.
_BALANCED = {"n_trees": 3, "embedding_dim": 50, "n_neighbors": 50, "n_candidates": 20}
_BEST = {"n_trees": 5}
_FEW_LABELS = {"n_trees": 1}  # one-vs-rest: beside it, trees gain nothing

_COPIES = 3  # of the rows that a blend makes
_MOST_LABELS = 100  # of a row that a threshold chooses from
_FEW_TEXTS = 1_000  # of which words that occur once are kept
_SHORT_TEXT = 200  # mean characters up to which pairs of words are worth their time

storable(Blend)


class Tagger(LabelRanker):
    """Learns to tag texts, or rows of features, without anything to be tuned.

    Parameters
    ----------
    quality : {"fast", "balanced", "best"}
        What to spend time on. "fast" is three linear label trees, calibrated; "balanced" a `Blend`
        of three trees and neighbours; "best" a `Blend` of five trees and more neighbours. Up to
        1,000 labels it is one tree each, of one level: one-vs-rest.
    objective : {"precision", "propensity", "f1"}
        What the ranking serves. "precision": the most probable labels first. "propensity": rare
        labels are moved up. "f1": `predict` takes as many labels as give the best micro F1.
    budget : float or str, optional
        Time for training, in seconds or such as "60s", "2m" or "1h". If the quality would take
        longer, a lower one is trained, and at last fewer rows; a warning says so.
    random_state : int, optional
    n_jobs : int, optional
        Threads; all cores when None.

    Attributes
    ----------
    model_ : CalibratedTree or Blend
    chosen_ : Choice
        Quality and number of rows that were trained, and the seconds that were expected.
    names_ : array (n_labels,) of str, or None
        Name or description of each label, "" where it has none.

    Notes
    -----
    Scores are probabilities, except with objective "propensity" (see `Blend`) and if there are
    too few rows to hold some out: see `probabilities`. Of texts, "fast" uses words; the others
    also pairs of words, "balanced" only if texts are short. With a budget the result depends
    on the speed of the machine; without one it does not.

    `predict` gives lists of (label, probability), where other systems follow scikit-learn.

    Examples
    --------
    >>> texts = ["a sore knee", "pain in the knee", "a broken arm", "arm fracture"]
    >>> tagger = Tagger(quality="fast").fit(texts, [["knee"], ["knee"], ["arm"], ["arm"]])
    >>> [[label for label, _ in row] for row in tagger.predict(["my knee", "an arm"], k=1)]
    [['knee'], ['arm']]
    """

    system: ClassVar[str] = "tagger"

    def __init__(
        self,
        *,
        quality: Quality = "balanced",
        objective: Objective = "precision",
        budget: float | str | None = None,
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.quality = quality
        self.objective = objective
        self.budget = budget
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def probabilities(self) -> bool:  # type: ignore[override]
        """Whether the scores are probabilities."""
        return hasattr(self, "model_") and bool(self.model_.probabilities)

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """Score from which `predict` takes a label."""
        check_is_fitted(self)
        return self.model_.threshold

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        names: Mapping[Any, str] | None = None,
        groups: Any = None,
    ) -> Self:
        """Learn to tag.

        Parameters
        ----------
        X : list of str, sparse or dense matrix (n_rows, n_features), or Rows
            `Rows` have their labels with them. They need not be in memory for quality "fast".
        y : lists of labels, class vector, or sparse or dense indicator (n_rows, n_labels)
        names : dict, optional
            Name or description of labels, by label; with texts only. Labels that are on no row
            can then be predicted by their names.
        groups : array (n_rows,), optional
            The group of each row, any values. Give it where rows belong together, such as pages of
            a site, and those to tag will be of other groups: probabilities are then right for
            these. Otherwise rows that are nearly the same count as a group.
        """
        if isinstance(X, Rows):
            if names is not None:
                raise ValueError("names need texts, but X are Rows")
            return self._fit_given(X, y, groups=groups)
        return self._fit_named(X, *encoded(y), names, groups)

    def fit_dataset(
        self, dataset: Dataset, *, names: Mapping[Any, str] | None = None, groups: Any = None
    ) -> Self:
        """As `fit`, from what was read from a file."""
        return self._fit_named(rows_of(dataset), *labels_of(dataset), names, groups)

    def predict(
        self, X: Any, k: int | None = None, threshold: float | None = None
    ) -> list[list[tuple[Any, float]]]:
        """Labels and probabilities of each row, most probable first.

        With `k` the k best, with `threshold` those that reach it, with both the k best of these;
        with neither those that reach the model's own `threshold` (at most 100).
        """
        check_is_fitted(self)
        ids, scores = self.topk_ids(X, _MOST_LABELS if k is None else k)
        if threshold is None:
            threshold = self.threshold if k is None else -np.inf
        chosen = (ids >= 0) & (scores >= threshold)
        return [
            list(zip(self.classes_[row[keep]].tolist(), values[keep].tolist(), strict=True))
            for row, values, keep in zip(ids, scores, chosen, strict=True)
        ]

    def explain(self, row: Any, label: Any, n: int = 10) -> Explanation:
        """Which features of a row speak for a label, and which against: the n strongest of each.

        Parameters
        ----------
        row : str, or features: one row of a matrix, or a vector
        label : one of `classes_`
        """
        check_is_fitted(self)
        check_at_least("n", n, 0)
        x = scaled_rows(self._features(_as_rows(row)))
        y = self._column(label)
        blended = isinstance(self.model_, Blend)
        found = contributions(self.model_.retrievers_.tree if blended else self.model_.tree_, x, y)
        largest, smallest = found.strongest(n)
        listed = found.values[largest].sum() + found.values[smallest].sum()
        probability, judges = self._judged(x, y)
        return Explanation(
            label=label,
            probability=probability,
            supporting=found.named(largest, self.text_features_),
            opposing=found.named(smallest, self.text_features_),
            rest=float(found.values.sum() - listed),
            bias=found.bias,
            margin=found.margin(),
            judges=judges,
        )

    def label_vectors(self) -> F32:
        """A vector (n_labels, k) for each label: alike for labels of similar rows."""
        check_is_fitted(self)
        return self.model_.label_vectors()

    def add_labels(self, names: Mapping[Any, str]) -> Self:
        """Take in labels without rows, to be predicted by their names; `fit` must have had names.

        Parameters
        ----------
        names : dict
            Name or description of each new label.
        """
        blend = self._grown("add_labels")
        if self.names_ is None or self.text_features_ is None:
            raise ValueError("add_labels needs a tagger that was fitted with names")
        _check_names(names, self.classes_.tolist())
        new = further_classes(list(names), self.classes_, self.form_)
        texts = list(names.values())
        columns = np.arange(len(self.classes_), len(self.classes_) + len(new))
        blend.add_labels(self.text_features_.transform(texts), columns)
        self._note_labels(new, texts)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Take in further rows, with old labels or new ones, without training anew.

        `X` and `y` are as in `fit`. See `Blend.partial_fit` for what is learnt. Not of "fast".
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        blend = self._grown("partial_fit")
        matrix = self._features(X)
        Y, new = encoded_again(y, self.classes_, self.form_)
        blend.partial_fit(matrix, Y)
        self._note_labels(new, [""] * len(new))
        return self

    def _fit_source(
        self,
        rows: Rows,
        label_names: Sequence[str] | None,
        text_features: TextFeatures | None,
        **options: Any,
    ) -> Self:
        self._check_parameters()
        self.names_: NDArray[Any] | None = None
        return super()._fit_source(rows, label_names, text_features, **options)

    def _fit_named(
        self,
        X: Any,
        labels: EncodedLabels,
        form: str,
        names: Mapping[Any, str] | None,
        groups: Any,
    ) -> Self:
        start = time.perf_counter()
        self._check_parameters()
        self.names_ = None
        if names:
            if self.quality == "fast":
                raise ValueError("names need quality balanced or best, got fast")
            labels, self.names_ = with_names(labels, names)
        return self._fit_encoded(X, labels, form, start=start, groups=groups)

    def _fit_texts(self, texts: Any) -> csr_array:
        documents = texts if isinstance(texts, list) else list(texts)
        short = sum(map(len, documents)) <= _SHORT_TEXT * len(documents)
        pairs = self.quality == "best" or (self.quality == "balanced" and short)
        self.text_features_ = TextFeatures(
            ngram_range=(1, 2) if pairs else (1, 1),
            min_df=1 if len(documents) < _FEW_TEXTS else 2,
            n_jobs=self.n_jobs,
        )
        if self.names_ is None:
            return self.text_features_.fit_transform(documents)
        self.text_features_.fit([*documents, *filter(None, self.names_)])
        return self.text_features_.transform(documents)

    def _fit_rows(
        self,
        rows: Rows,
        rng: np.random.Generator,
        start: float | None = None,
        groups: Any = None,
    ) -> None:
        names = self._name_features()
        given: Ints | None = None
        if groups is not None:
            given = numbered_groups(groups, rows.n_rows)
        seed = int(rng.integers(2**31))
        start = time.perf_counter() if start is None else start
        self.chosen_ = self._choose(rows, given, names, rng, start)
        if self.chosen_.n_rows < rows.n_rows:
            chosen = rng.choice(rows.n_rows, self.chosen_.n_rows, replace=False)
            rows, given = _some(rows, given, chosen)
        self.model_ = self._fit_quality(self.chosen_.quality, rows, given, names, seed)

    def _name_features(self) -> csr_array | None:
        if self.names_ is None:
            return None
        if self.text_features_ is None:
            raise ValueError("names need texts, but X are feature vectors")
        return self.text_features_.transform(self.names_.tolist())

    def _choose(
        self,
        rows: Rows,
        groups: Ints | None,
        names: csr_array | None,
        rng: np.random.Generator,
        start: float,
    ) -> Choice:
        """The quality asked for, or what the budget allows."""
        if self.budget is None:
            return Choice(self.quality, rows.n_rows, {})
        order = rng.permutation(rows.n_rows)

        def fit(quality: str, n_rows: int) -> None:
            self._fit_quality(quality, *_some(rows, groups, order[:n_rows]), names, seed=0)

        downwards = QUALITIES[QUALITIES.index(self.quality) :: -1]
        budget = as_seconds(self.budget)
        choice = choose(downwards, rows.n_rows, start + budget, fit)
        if choice.quality != self.quality or choice.n_rows < rows.n_rows:
            lost = _given_up(self.quality, names is not None, choice, rows.n_rows)
            warnings.warn(
                f"for the budget of {budget:g} s these are given up: {lost}; with all rows it "
                f"would take: {choice.described()}",
                stacklevel=2,
            )
        return choice

    def _fit_quality(
        self,
        quality: str,
        rows: Rows,
        groups: Ints | None,
        names: csr_array | None,
        seed: int,
    ) -> CalibratedTree | Blend:
        common: dict[str, Any] = {
            "objective": self.objective,
            "random_state": seed,
            "n_jobs": self.n_jobs,
        }
        if quality == "fast":
            return CalibratedTree(**common)._fit_source(rows, None, None, groups=groups)
        rows.require(
            _COPIES * rows.n_bytes,
            f"quality {quality}, which has all rows in memory,",
            "give more memory, or quality fast, which does not",
        )
        X, Y = rows.gathered("X", "Y")
        parts: dict[str, Any] = _BALANCED if quality == "balanced" else _BEST
        parts = parts | _FEW_LABELS if rows.n_labels <= FEW_LABELS else parts
        return Blend(**parts, **common).fit(X, Y, label_features=names, groups=groups)

    def _topk(self, X: Matrix, k: int) -> tuple[Ints, F32]:
        self.model_.n_jobs = self.n_jobs  # of this call, not of the training
        return self.model_._topk(X, k)

    def _grown(self, method: str) -> Blend:
        """The model, if it can take in further rows and labels."""
        check_is_fitted(self)
        if not isinstance(self.model_, Blend):
            raise ValueError(
                f"{method} needs quality balanced or best, this tagger is {self.chosen_.quality}"
            )
        self.model_.n_jobs = self.n_jobs
        return self.model_

    def _note_labels(self, new: NDArray[Any], names: list[str]) -> None:
        self.classes_ = np.concatenate([self.classes_, new])
        self.label_counts_, self.n_rows_ = self.model_.label_counts_, self.model_.n_rows_
        if self.names_ is not None:
            self.names_ = np.concatenate([self.names_, np.array(names, dtype=object)])

    def _judged(self, x: Matrix, y: int) -> tuple[float | None, dict[str, float]]:
        """Score of a label of one row, None if it is no candidate; what the judges say about it."""
        judges: tuple[str, ...] = ()
        if isinstance(self.model_, Blend):
            retrievers, n_jobs = self.model_.retrievers_, resolve_jobs(self.n_jobs)
            _, ids, F = next(retrievers.judged(x, self.model_.n_candidates, n_jobs))
            scores, judges = self.model_._scored(ids, F, n_jobs), retrievers.judges
        else:
            ids, scores = self._topk(x, min(_MOST_LABELS, len(self.classes_)))
            F = np.empty((*ids.shape, 0), dtype=np.float32)
        place = np.flatnonzero(ids[0] == y)
        if not len(place):
            return None, {}
        return float(scores[0, place[0]]), judgement(judges, F[0, place[0]])

    def _check_stored(self, check: StoredCheck, n_features: int, n_labels: int) -> None:
        super()._check_stored(check, n_features, n_labels)
        check.kind("model_", self.model_, CalibratedTree, Blend)
        self.model_._check_stored(check, n_features, n_labels)
        check.kind("chosen_", self.chosen_, Choice)
        check.kind("names_", self.names_, np.ndarray, None)
        if self.names_ is not None:
            check.array("names_", self.names_, n_labels, dtype="object")

    def _check_parameters(self) -> None:
        check_one_of("quality", self.quality, QUALITIES)
        check_one_of("objective", self.objective, OBJECTIVES)
        if self.budget is not None:
            as_seconds(self.budget)


def with_names(
    labels: EncodedLabels, names: Mapping[Any, str]
) -> tuple[EncodedLabels, NDArray[Any]]:
    """Labels with an empty column for each that only `names` has, and the name of each column.

    Examples
    --------
    >>> labels, texts = with_names(encoded([["a"], ["b"]])[0], {"a": "first", "c": "third"})
    >>> labels.classes.tolist(), labels.indicator.shape, texts.tolist()
    (['a', 'b', 'c'], (2, 3), ['first', '', 'third'])
    """
    Y = labels.indicator
    known = list(range(Y.shape[1])) if labels.classes is None else labels.classes.tolist()
    _check_names(names, known)
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


def _check_names(names: Mapping[Any, str], known: list[Any]) -> None:
    for label, name in names.items():
        if isinstance(label, str) != isinstance(known[0], str):
            raise ValueError(f"names must have labels such as {known[0]!r}, got {label!r}")
        if not isinstance(name, str):
            raise ValueError(f"names must be texts, but that of {label!r} is {name!r}")


def _some(rows: Rows, groups: Ints | None, numbers: Ints) -> tuple[Rows, Ints | None]:
    """These of the rows, in their order, and their groups."""
    keep = np.zeros(rows.n_rows, dtype=bool)
    keep[numbers] = True
    return rows.only(keep), None if groups is None else groups[keep]


def _given_up(quality: str, named: bool, choice: Choice, n_rows: int) -> str:
    lost = []
    if choice.quality != quality:
        lost.append(f"quality {quality} for {choice.quality}")
    if named and choice.quality == "fast":
        lost.append("the names of labels")
    if choice.n_rows < n_rows:
        lost.append(f"{n_rows - choice.n_rows:,} of {n_rows:,} rows")
    return " and ".join(lost)


def _as_rows(row: Any) -> Any:
    """One row in the form in which many are given."""
    if isinstance(row, str):
        return [row]
    rows = row if issparse(row) else np.atleast_2d(row)
    if rows.shape[0] != 1:
        raise ValueError(f"row must be one row, got {rows.shape[0]}")
    return as_matrix(rows)
