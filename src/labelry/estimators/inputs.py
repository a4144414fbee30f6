"""Checks of the rows, weights and texts that an estimator is given."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from labelry.arrays import F32, F64
from labelry.checks import refuse_masked
from labelry.data.canonical import row_of_entry
from labelry.data.labels import checked_indicator, label_counts
from labelry.linalg.matrices import Matrix, as_matrix, check_sparse
from labelry.linalg.rows import Block, Rows
from labelry.memory import check_fits

# Bytes for a feature or label, and for each dimension of its vector, that a fit needs at least.
_COLUMN_BYTES, _DIM_BYTES = 16, 8
_LARGEST = 1e15  # largest feature whose square, and sums of such squares, float32 can hold


def checked_rows(rows: Rows) -> Rows:
    """Return rows whose labels are checked, with names and counts of the labels."""
    names = rows.known.label_names
    (counts,) = rows.reduce(_add_label_counts, (rows.n_labels,), dtype=np.float64)
    classes = np.arange(rows.n_labels) if names is None else np.array(list(names), dtype=object)
    return rows.knowing(label_names=classes, label_counts=counts.astype(np.int32))


def _add_label_counts(block: Block, counts: F64) -> None:
    counts += label_counts(checked_indicator(block.side("Y"), block.start))


def check_matrix(X: Any) -> None:
    """Raise a ValueError for what scikit-learn would follow, or drop, without a look."""
    refuse_masked("X", X)
    if issparse(X):
        check_sparse(X)


def check_columns(n_features: int, n_labels: int, settings: Any) -> None:
    """Refuse features and labels so many that an array with an entry for each would not fit."""
    dim = getattr(settings, "embedding_dim", 1)
    dim = min(dim, n_labels) if isinstance(dim, int) else 1
    check_fits(
        (n_features + n_labels) * (_COLUMN_BYTES + _DIM_BYTES * dim),
        f"a {settings.system} model of {n_features:,} features and {n_labels:,} labels",
        "number the features and labels from 0 without gaps, hash them to fewer, or use a machine "
        "with more memory",
    )


def checked_weights(weights: Any, n_rows: int) -> F32:
    """Return weights of rows as an array; a ValueError unless they are weights."""
    refuse_masked("sample_weight", weights)
    with np.errstate(over="ignore"):  # becomes infinite
        checked = np.asarray(weights, dtype=np.float32)
    if checked.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},), got {checked.shape}")
    bad = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
    if len(bad) or not checked.any():
        got = f"row {bad[0]} has {checked[bad[0]]}" if len(bad) else "they all are"
        raise ValueError(f"sample_weight must be finite and at least 0, and not all zero; {got}")
    return checked


def check_finite(X: Matrix) -> None:
    """Raise a ValueError that names the first feature that is no finite number."""
    values = X.data if issparse(X) else X
    if not np.isfinite(values).all():
        entry = int(np.flatnonzero(~np.isfinite(values.ravel()))[0])
        i, j = divmod(entry, X.shape[1])
        if issparse(X):
            i, j = row_of_entry(X, entry), X.indices[entry]
        raise ValueError(
            f"Input X contains NaN or infinity: row {i}, column {j} is {values.ravel()[entry]} as "
            "float32"
        )


def warn_of_unknown_labels(Y: csr_array, n_labels: int) -> None:
    """Warn if most rows have only labels that a model of `n_labels` labels does not know."""
    labelled, known = (np.diff(part.indptr) > 0 for part in (Y, Y[:, :n_labels]))
    n_unknown = np.count_nonzero(labelled & ~known)
    if 2 * n_unknown > Y.shape[0]:
        warnings.warn(
            f"the model knows no label of {n_unknown:,} of the {Y.shape[0]:,} rows: were their "
            "labels among those of fit? If folds are cut from sorted rows, shuffle the rows, or "
            "give cv=KFold(3, shuffle=True)",
            stacklevel=3,
        )


def check_feature_size(X: Matrix) -> None:
    """Raise a ValueError for features whose squares would overflow: scores would mean nothing."""
    values = X.data if issparse(X) else X
    largest = max(values.max(), -values.min()) if values.size else 0.0
    if largest > _LARGEST:
        raise ValueError(
            f"features must be at most {_LARGEST:g} in size with normalize=False, got {largest:g}"
        )


def is_clean(X: Any, n_features: int | None) -> bool:
    """Return whether X needs no conversion: the checks of scikit-learn take longer than a row."""
    if not (isinstance(X, np.ndarray) or (issparse(X) and X.format == "csr")):
        return False
    return bool(
        X.dtype == np.float32
        and X.ndim == 2
        and X.shape[0] > 0
        and X.shape[1] == n_features
        and np.isfinite(X.data if issparse(X) else X).all()
    )


def are_texts(X: Any) -> bool:
    """Return whether rows are texts, as `plain_rows` gives them."""
    return isinstance(X, list) and (not X or isinstance(X[0], str))


def as_rows(row: Any) -> Any:
    """Return one row in the form in which many are given."""
    if isinstance(row, str):
        return [row]
    rows = row if issparse(row) else np.atleast_2d(row)
    if rows.shape[0] != 1:
        raise ValueError(f"row must be one row, got {rows.shape[0]}")
    return as_matrix(rows)
