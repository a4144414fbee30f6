"""The tagger, and the estimators that it is made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labelry import memory
from labelry.arrays import F32
from labelry.data.text import TextFeatures
from labelry.estimators.base import LabelRanker, estimator
from labelry.estimators.trained import Trained
from labelry.linalg.matrices import Matrix, as_matrix
from labelry.linalg.parallel import resolve_jobs
from labelry.ranking.objectives import ObjectiveSettings
from labelry.ranking.ranker import Grows, supports
from labelry.tagging.blend import BlendSettings, fit_blend
from labelry.tagging.calibrated_trees import fit_calibrated_trees
from labelry.tagging.new_labels import check_names, encoded_again, further_classes, name_features
from labelry.tagging.tagger import TaggerSettings, fit_tagger

# Not tuned, any of them.
_MOST_LABELS = 100  # best labels of a row that a threshold chooses from
_FEW_TEXTS = 1_000  # number of texts below which words that occur once are kept
_BLOCK_SCORES = 1 << 22  # scores of all labels that are ranked at a time
_SHORT_TEXT = 200  # mean characters of texts up to which pairs of words are worth their time


@estimator("calibrated-tree", fit_calibrated_trees)
class CalibratedTree(LabelRanker, ObjectiveSettings):
    """A `LinearLabelTree`, calibrated on rows that were held out.

    It has three trees, or one tree of one level with up to 1,000 labels. One row in 60 (1,000 to
    5,000 rows, but at most a quarter) is held out to calibrate on. A classifier that missed more
    than 1 in 32 of the rows of its labels is then trained again on all rows. Near-duplicates are
    held out together; if rows do not fit in memory, only those in the same block.
    """


class Growing(LabelRanker):
    """An estimator that takes in further rows after a fit."""

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Take in further rows, with old labels or new ones, without training again.

        The rows are added to the neighbours, to the centroids and to the counts of their labels.
        Trees, embedding, re-ranker and text features stay as they are: a label that the trees
        do not have gets the score of the neighbours instead. Fit again when many rows have come.

        Each call copies the rows so far, so give many rows at a time. If the model is not fitted
        yet, this is `fit`.

        Parameters
        ----------
        X, y
            As in `fit`, and in the same forms. Further columns of an indicator are new labels.
        classes
            Not used: new labels may come with any call. Callers in scikit-learn give it.
        """
        if "trained_" not in vars(self):
            return self.fit(X, y)
        trained, fitted = self._growing("partial_fit")
        matrix = self._features(trained, X)
        Y, new = encoded_again(y, trained.classes, trained.form)
        if Y.shape[0] != matrix.shape[0]:
            raise ValueError(f"X has {matrix.shape[0]} rows but Y has {Y.shape[0]}")
        with self._threads():
            fitted = fitted.with_rows(matrix, Y, resolve_jobs(self.n_jobs))
        self.trained_ = trained.grown(fitted, new, [""] * len(new), Y)
        return self

    def _growing(self, method: str) -> tuple[Trained, Any]:
        """Return what the last fit left, and its fitted value, which takes in rows and labels."""
        trained = self._trained()
        fitted: Any = trained.fitted
        if not supports(fitted, Grows):
            quality = fitted.chosen.quality
            raise ValueError(f"{method} needs quality balanced or best, this tagger is {quality}")
        return trained, fitted


@estimator("blend", fit_blend, by_passes=False)
class Blend(Growing, BlendSettings):
    """Candidates from linear label trees and from neighbours in an embedding, re-ranked.

    Trees and neighbours propose labels, and so do the descriptions of labels if there are any. Each
    of these scores every candidate, as do the low-rank scores of the embedding and the centroids of
    the labels. A re-ranker, fitted on held-out rows, turns the scores into a probability. Choose
    the blend for accuracy: on held-out rows it is at least as good as the best of its parts, or
    else it ranks as that part does. If most labels have a single row, and no description, the
    re-ranker is fitted on rows whose labels have other rows. If that is not possible, the trees
    rank.

    Notes
    -----
    Scores are probabilities, as far as the rows held out are like new rows. With propensities a
    score is the probability over the propensity: an estimate of the probability that the label
    should be there, noted or not, which may be above 1. Only candidates are ranked: there may be
    fewer than k of them.

    Labels without rows are found by their descriptions only. The re-ranker learns the weight of a
    description from labels all of whose rows were held out, or else from the rarest; if one scorer
    ranks alone, the cosine of row and description is the score of such a label.

    Training takes two to three times as long as that of the parts, because they are fitted twice.
    With fewer than 80 rows none is held out, and the trees alone rank.
    """

    def fit(self, X: Any, y: Any = None, *, label_features: Any = None, groups: Any = None) -> Self:
        """Learn to rank labels.

        Parameters
        ----------
        X, y
            As for every estimator.
        label_features : sparse or dense matrix (n_labels, n_features), optional
            Descriptions of the labels as rows of X would be, in the order of `classes_`; zeros for
            a label without one. If X are texts, a list of texts is taken too. Labels without a
            single row can be predicted by their descriptions.
        groups : array (n_rows,), optional
            As for every estimator.
        """
        return self._fit(X, y, label_features=label_features, groups=groups)

    def add_labels(self, label_features: Any, classes: Any) -> Self:
        """Take in labels without rows, which can be predicted by their descriptions at once.

        Parameters
        ----------
        label_features : sparse or dense matrix (n_new, n_features)
            As in `fit`, which must have been given some.
        classes : list (n_new,)
            Labels that the model does not have. They are appended to `classes_`; for an indicator
            they are the numbers of the next columns.
        """
        trained, fitted = self._growing("add_labels")
        new = further_classes(classes, trained.classes, trained.form)
        features = name_features(
            label_features, len(new), trained.n_features, trained.text_features
        )
        self.trained_ = trained.grown(fitted.with_labels(features), new, [""] * len(new))
        return self


@estimator("tagger", fit_tagger)
class Tagger(Growing, TaggerSettings):
    """A tagger of texts, or of rows of features, with nothing to tune.

    Attributes
    ----------
    fitted_ : labelry.tagging.calibrated_trees.CalibratedTrees or labelry.tagging.blend.BlendModel
        The first for quality "fast".
    chosen_ : Choice
        Quality and number of rows that were fitted, and the seconds that were expected.
    names_ : array (n_labels,) of str, or None
        Name or description of each label, "" where it has none.

    Notes
    -----
    Scores are probabilities, except with objective "propensity" (see `Blend`) and if there are
    too few rows to hold some out: see `probabilities`. For texts, "fast" uses words; the others
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

    def fit(
        self, X: Any, y: Any = None, *, names: Mapping[Any, str] | None = None, groups: Any = None
    ) -> Self:
        """Learn to tag.

        Parameters
        ----------
        X : list of str, sparse or dense matrix (n_rows, n_features), Dataset, Shards or Rows
            The last three have their labels with them. `Shards` and `Rows` need not be in memory
            for quality "fast".
        y : lists of labels, class vector, or sparse or dense indicator (n_rows, n_labels)
        names : dict, optional
            Name or description of labels, by label; with texts only. Labels that are on no row
            can then be predicted by their names.
        groups : array (n_rows,), optional
            The group of each row, any values. Give it if rows belong together, such as pages of a
            site, and new rows will be of other groups: probabilities are then right for these.
            Otherwise rows that are nearly the same count as a group.
        """
        start = time.perf_counter()
        if names and self.quality == "fast":
            raise ValueError("names need quality balanced or best, got fast")
        return self._fit(X, y, names=names, groups=groups, start=start)

    def _learn_texts(self, texts: Any, names: NDArray[Any] | None) -> tuple[TextFeatures, Matrix]:
        """Return the text features for this quality, which know the words of names too."""
        documents = texts if isinstance(texts, list) else list(texts)
        short = sum(map(len, documents)) <= _SHORT_TEXT * len(documents)
        pairs = self.quality == "best" or (self.quality == "balanced" and short)
        features = TextFeatures(
            ngram_range=(1, 2) if pairs else (1, 1),
            min_df=1 if len(documents) < _FEW_TEXTS else 2,
            n_jobs=self.n_jobs,
        )
        if names is None:
            return features, features.fit_transform(documents)
        features.fit([*documents, *filter(None, names)])
        return features, features.transform(documents)

    def predict(
        self, X: Any, k: int | None = None, threshold: float | None = None
    ) -> list[list[tuple[Any, float]]]:
        """Return the labels and probabilities of each row, most probable first.

        With `k` the k best, with `threshold` those that reach it, with both the k best of these;
        with neither those that reach the model's own `threshold` (at most 100).
        """
        trained = self._trained()
        ids, scores = self._topk(trained, X, _MOST_LABELS if k is None else k)
        if threshold is None:
            threshold = trained.fitted.threshold if k is None else -np.inf
        chosen = (ids >= 0) & (scores >= threshold)
        return [
            list(zip(trained.classes[row[keep]].tolist(), values[keep].tolist(), strict=True))
            for row, values, keep in zip(ids, scores, chosen, strict=True)
        ]

    def predict_proba(self, X: Any) -> F32:
        """Return the probability of every label, (n_rows, n_labels), for scorers of scikit-learn.

        It is 0 for a label that is no candidate of the row. If Y was a class vector, the
        probabilities of a row are divided by their sum. Use `predict_topk` for anything else: this
        takes memory for each row and label.
        """
        trained = self._trained()
        matrix, n_labels = self._features(trained, X), len(trained.classes)
        n_rows = matrix.shape[0]
        what = f"predict_proba of {n_rows:,} rows and {n_labels:,} labels"
        memory.require(4 * n_rows * n_labels, what, "give fewer rows, or call predict_topk")
        P = np.zeros((n_rows, n_labels), dtype=np.float32)
        step = max(1, _BLOCK_SCORES // n_labels)
        for start in range(0, n_rows, step):
            ids, scores = self._ranked(trained, matrix[start : start + step], n_labels)
            rows, places = np.nonzero(ids >= 0)
            P[start + rows, ids[rows, places]] = scores[rows, places]
        if trained.form == "classes":
            P += P.sum(axis=1, keepdims=True) == 0  # nothing is known: all classes alike
            P /= P.sum(axis=1, keepdims=True)
        return P

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        trained = vars(self).get("trained_")
        if trained is None or trained.form != "classes":
            # scikit-learn refuses lists of labels, with an integer cv, for what is a classifier.
            tags.estimator_type = None
        return tags

    def add_labels(self, names: Mapping[Any, str]) -> Self:
        """Take in labels without rows, to be predicted by their names; `fit` must have had names.

        Parameters
        ----------
        names : dict
            Name or description of each new label.
        """
        trained, fitted = self._growing("add_labels")
        if trained.names is None or trained.text_features is None:
            raise ValueError("add_labels needs a tagger that was fitted with names")
        check_names(names, trained.classes.tolist())
        new = further_classes(list(names), trained.classes, trained.form)
        texts = list(names.values())
        features = as_matrix(trained.text_features.transform(texts))
        self.trained_ = trained.grown(fitted.with_labels(features), new, texts)
        return self
