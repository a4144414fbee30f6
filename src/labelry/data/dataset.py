"""A dataset: features or texts, labels, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from labelry.checks import refuse_masked
from labelry.data.canonical import canonical_csr
from labelry.data.frames import checked_texts
from labelry.data.labels import EncodedLabels, checked_indicator
from labelry.storage.about import Source

Features: TypeAlias = csr_array | NDArray[np.float32]


@dataclass(frozen=True)
class Dataset:
    """Rows with labels; the rows are feature vectors (`X`), texts, or both.

    Matrices may be given in any sparse format and dtype; they are brought to float32 and, if
    sparse, to CSR with sorted and distinct indices, without a copy if they have that form.

    Attributes
    ----------
    Y : csr_array (n_rows, n_labels)
        Label indicator (or relevance).
    X : csr_array or ndarray (n_rows, n_features), or None
    texts : list of str, or None
        One document per row; exactly as read.
    label_names : list of str, or None
        Name of each column of Y. None: the column number is the name.
    feature_names : list of str, or None
    source : Source, or None
        The file that the rows were read from, and how.
    cells : dict of str to list of str, or None
        Cells of other columns of the file, by the name of the column.

    Examples
    --------
    >>> Y = csr_array([[1, 0], [0, 1], [1, 1], [0, 0]])
    >>> data = Dataset(Y, texts=["a", "b", "c", "d"], label_names=["x", "y"])
    >>> train, test = data.split(0.5, groups=[0, 0, 1, 1])
    >>> sorted([train.texts, test.texts])
    [['a', 'b'], ['c', 'd']]
    """

    Y: csr_array
    X: Features | None = None
    texts: list[str] | None = None
    label_names: list[str] | None = None
    feature_names: list[str] | None = None
    source: Source | None = None
    cells: dict[str, list[str]] | None = None

    def __post_init__(self) -> None:
        # The class is frozen; this is the one place that brings fields into form.
        object.__setattr__(self, "Y", canonical_csr(self.Y, "Y"))
        if self.X is not None:
            object.__setattr__(self, "X", _features(self.X))
        if not isinstance(self.texts, list | None):
            object.__setattr__(self, "texts", checked_texts("texts", self.texts))
        for name, expected, of in (
            ("X", self.n_rows, "rows of Y"),
            ("texts", self.n_rows, "rows of Y"),
            ("label_names", self.n_labels, "columns of Y"),
            ("feature_names", self.n_features or 0, "columns of X"),
        ):
            value = getattr(self, name)
            found = value.shape[0] if issparse(value) else expected if value is None else len(value)
            if found != expected:
                raise ValueError(f"{name} has {found} entries, but there are {expected} {of}")

    @property
    def n_rows(self) -> int:
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    @property
    def n_features(self) -> int | None:
        return None if self.X is None else int(self.X.shape[1])

    @property
    def rows(self) -> Any:
        """Return what a model takes as X: the features, or else the texts."""
        return self.texts if self.X is None else self.X

    @property
    def labels(self) -> tuple[EncodedLabels, Literal["indicator", "lists"]]:
        """Return the labels and their form as `labelry.data.labels.encoded` gives them."""
        names = self.label_names
        classes = None if names is None else np.array(names, dtype=object)
        form: Literal["indicator", "lists"] = "indicator" if classes is None else "lists"
        return EncodedLabels(checked_indicator(self.Y), classes, "multilabel", form), form

    def datasets(self) -> Iterator[Dataset]:
        """Yield the dataset itself; `Shards` yield one dataset after the other."""
        yield self

    def take(self, rows: Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]) -> Dataset:
        """Take the given rows, in the given order; label and feature columns stay as they are.

        `rows` holds row numbers, or True for each row to take.
        """
        index = np.asarray(rows)
        if index.size == 0:
            index = index.astype(np.intp)
        index = np.arange(self.n_rows)[index]  # refuses what is out of range
        return replace(
            self,
            Y=self.Y[index],
            X=None if self.X is None else self.X[index],
            texts=None if self.texts is None else [self.texts[i] for i in index],
            cells=self.cells
            and {name: [cells[i] for i in index] for name, cells in self.cells.items()},
        )

    def split(
        self,
        test_size: float | int = 0.25,
        *,
        random_state: int | np.random.Generator = 0,
        groups: ArrayLike | None = None,
    ) -> tuple[Dataset, Dataset]:
        """Split at random into train and test; both keep the order of the rows.

        Parameters
        ----------
        test_size : float or int
            Share (between 0 and 1) or number of rows to test on.
        groups : array (n_rows,), optional
            The group of each row, any values. A group is never cut, so the number of test
            rows comes only as near to `test_size` as the groups allow.
        """
        number = numbered_groups(groups, self.n_rows)
        sizes = np.bincount(number)
        if len(sizes) < 2:
            unit = "rows" if groups is None else "groups"
            raise ValueError(f"a split needs at least 2 {unit}; got {len(sizes)}")
        wanted = _test_rows(test_size, self.n_rows)
        order = np.random.default_rng(random_state).permutation(len(sizes))
        # The first groups of a random order, as many as come nearest; never none, never all.
        nearest = int(np.argmin(np.abs(np.cumsum(sizes[order]) - wanted)))
        in_test = np.zeros(len(sizes), dtype=bool)
        in_test[order[: min(nearest + 1, len(sizes) - 1)]] = True
        return self.take(~in_test[number]), self.take(in_test[number])


def _features(X: Any) -> Features:
    if issparse(X):
        return canonical_csr(X, "X")
    refuse_masked("X", X)
    dense = np.asarray(X, dtype=np.float32)
    if dense.ndim != 2:
        raise ValueError(f"X must have 2 dimensions (n_rows, n_features); got {dense.ndim}")
    return dense


def numbered_groups(groups: ArrayLike | None, n_rows: int) -> NDArray[np.intp]:
    """Give the groups of rows numbers from 0 on; without groups each row is one."""
    if groups is None:
        return np.arange(n_rows)
    refuse_masked("groups", groups)
    values = np.asarray(groups)
    if values.shape != (n_rows,):
        raise ValueError(f"groups must have the shape ({n_rows},); got {values.shape}")
    return np.unique(values, return_inverse=True)[1]


def _test_rows(test_size: float | int, n_rows: int) -> int:
    """Turn a share or a number into a number of rows."""
    if isinstance(test_size, (int, np.integer)):
        if not 1 <= test_size < n_rows:
            raise ValueError(f"test_size must be from 1 to {n_rows - 1} rows; got {test_size}")
        return int(test_size)
    if not 0 < test_size < 1:
        raise ValueError(f"test_size must be a share between 0 and 1; got {test_size}")
    return round(test_size * n_rows)
