"""What a fitted value that ranks labels can do: one base class, and a protocol for each extra.

Ask ``supports(model, Explains)`` before an extra is used, never for a class or an attribute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.arrays import F32, Ints
from labelry.data.text import TextFeatures
from labelry.linalg.matrices import Matrix

Feature = str | int


class Contributions(NamedTuple):
    """What each feature of a row adds to the margin of a label, and what is added in any case."""

    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    bias: float

    def strongest(self, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the places of the n largest values above 0, and of the n most negative ones."""
        order = np.argsort(-np.abs(self.values), kind="stable")
        values = self.values[order]
        return order[values > 0][:n], order[values < 0][:n]

    def named(
        self, places: NDArray[np.intp], text_features: TextFeatures | None
    ) -> list[tuple[Feature, float]]:
        """Return features and values at some places; features are words, or numbers of columns."""
        columns = self.columns[places].tolist()
        features = columns if text_features is None else text_features.names_of(columns)
        return list(zip(features, self.values[places].tolist(), strict=True))

    def margin(self) -> float:
        """Return the sum of all contributions."""
        return self.bias + float(self.values.sum())


class Ranker(ABC):
    """Base of the fitted values that rank labels; a subclass is a frozen dataclass.

    A ranker is never changed, so any number of threads may ask it, each with its own `n_jobs`.

    Attributes
    ----------
    threshold : float
        Score from which `predict` takes a label, if a row may have several.
    probabilities : bool
        True if the scores are probabilities.
    """

    @property
    def threshold(self) -> float:
        return 0.5

    @property
    def probabilities(self) -> bool:
        return False

    @abstractmethod
    def topk(self, X: Matrix, k: int, n_jobs: int = 1) -> tuple[Ints, F32]:
        """Return the k best labels of each row, best first, and their scores.

        Labels are column numbers, -1 where fewer than k were found.
        """


@runtime_checkable
class ScoresAll(Protocol):
    """Scores every label of a row, not only the best."""

    def scores(self, X: Matrix, n_jobs: int = 1) -> F32:
        """Return the scores of all labels, (n_rows, n_labels)."""


@runtime_checkable
class Embeds(Protocol):
    """Maps rows to vectors."""

    def embed(self, X: Matrix, n_jobs: int = 1) -> F32:
        """Return one vector per row, (n_rows, embedding_dim)."""


@runtime_checkable
class HasLabelVectors(Protocol):
    """Has a vector for each label; labels that appear on similar rows have similar vectors."""

    def label_vectors(self) -> F32:
        """Return the vectors, (n_labels, embedding_dim)."""


@runtime_checkable
class HasTree(Protocol):
    """Ranks labels by a tree of them."""

    @property
    def tree(self) -> Any:
        """Return the `labelry.trees.structure.Tree`."""


@runtime_checkable
class HasSpectrum(Protocol):
    """Has an embedding with an eigenvalue for each direction."""

    @property
    def spectrum(self) -> F32 | None:
        """Return the eigenvalues, (embedding_dim,), largest first; None where there are none."""


@runtime_checkable
class HasTopics(Protocol):
    """Has topics that words and labels share."""

    @property
    def topic_proportions(self) -> F32:
        """Return the share of each topic, (n_topics,)."""


@runtime_checkable
class Explains(Protocol):
    """Explains the score of a label by the features of a row."""

    def contributions(self, x: Matrix, label: int) -> Contributions:
        """Return what each feature of one row adds to the margin of a label."""

    def scored(
        self, x: Matrix, label: int, n_jobs: int = 1
    ) -> tuple[float | None, dict[str, float]]:
        """Return the score of a label for one row, and the scores of the parts of the model.

        The score is None where the label is not among the candidates of the row.
        """


@runtime_checkable
class Grows(Protocol):
    """Takes in further rows and labels without training again, as a new value."""

    def with_rows(self, X: Matrix, Y: csr_array, n_jobs: int = 1) -> Self:
        """Return a model with these rows added; further columns of Y are new labels."""

    def with_labels(self, features: Matrix) -> Self:
        """Return a model with further labels that have descriptions and no rows."""


def supports(model: Any, capability: type) -> bool:
    """Return whether a fitted value, or the one that an estimator keeps, has a capability."""
    return isinstance(getattr(model, "fitted_", model), capability)
