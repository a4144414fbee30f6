"""Rows, labels and weights that no estimator takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import labelry
from labelry.data import Dataset
from labelry.metrics import keep_above, precision_at_k

X = np.array([[2, 0], [1, 0], [0, 1], [0, 2]], dtype=np.float32)
CLASSES = ["cat", "cat", "dog", "dog"]
Y = np.repeat(np.eye(2, dtype=np.float32), 2, axis=0)
MASKED = np.ma.masked_equal(X, 2)


def broken(A: np.ndarray, kind: str, dtype: type) -> Any:
    """Return a sparse matrix whose pointers lead far away, of a format."""
    matrix = csr_array(A.astype(dtype)).asformat(kind)
    if kind == "coo":
        matrix.row[1] = 2**30
    else:
        matrix.indptr[1] = 2**30
    return matrix


USES: dict[str, Callable[[Any], Any]] = {
    "fit": lambda A: labelry.OneVsRest().fit(A, CLASSES),
    "predict": lambda A: fitted().predict(A),
    "topk_ids": lambda A: fitted().topk_ids(A),
    "score_all": lambda A: fitted().score_all(A),
    "labels": lambda A: labelry.OneVsRest().fit(X, A),
    "labels to score": lambda A: fitted().score(X, A),
    "dataset": lambda A: Dataset(csr_array(Y), A),
    "labels of a dataset": lambda A: Dataset(A, X),
    "measure": lambda A: precision_at_k(A, [[0]] * 4, 1),
}


def fitted() -> labelry.OneVsRest:
    return labelry.OneVsRest(n_jobs=1).fit(X, CLASSES)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo"])
@pytest.mark.parametrize("use", USES)
def test_a_broken_sparse_matrix_is_refused(use: str, kind: str, dtype: type) -> None:
    with pytest.raises(ValueError, match=r"shape \(4, 2\) is broken"):
        USES[use](broken(Y, kind, dtype))


@pytest.mark.parametrize("use", sorted(USES.keys() - {"labels of a dataset"}))  # those are sparse
def test_a_masked_array_is_refused(use: str) -> None:
    with pytest.raises(ValueError, match="is a masked array, whose mask would be lost"):
        USES[use](MASKED)


def test_masked_weights_groups_and_scores_are_refused() -> None:
    masked = np.ma.masked_equal([1.0, 1.0, 2.0, 2.0], 2)
    with pytest.raises(ValueError, match="sample_weight is a masked array"):
        fitted().score(X, CLASSES, masked)
    with pytest.raises(ValueError, match="groups is a masked array"):
        Dataset(csr_array(Y), X).split(groups=masked)
    with pytest.raises(ValueError, match="scores is a masked array"):
        keep_above(np.zeros((4, 1), dtype=int), masked[:, None], 0.5)


@pytest.mark.parametrize(
    "weights", [[1, 1, 1, np.nan], [1, 1, 1, -1], [1, 1, 1, np.inf], [0] * 4, [1e300] * 4]
)
def test_weights_that_are_none_are_refused_in_score(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="sample_weight must be finite and at least 0, and not"):
        fitted().score(X, CLASSES, weights)


def test_score_refuses_other_numbers_of_rows() -> None:
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(4,\), got \(3,\)"):
        fitted().score(X, CLASSES, [1, 1, 1])
    with pytest.raises(ValueError, match="a row for each row of Y"):
        fitted().score(X, CLASSES[:3], [1, 1, 1])


def test_no_label_is_no_hit_in_a_weighted_score() -> None:
    """A label tree of one candidate may find none: that is not the last label of all."""
    model = fitted()

    class Nothing:
        def topk(self, X: Any, k: int, n_jobs: int) -> Any:
            return np.full((X.shape[0], k), -1), np.full((X.shape[0], k), -np.inf, np.float32)

    trained = model.trained_
    object.__setattr__(trained, "fitted", Nothing())
    assert model.score(X, CLASSES) == model.score(X, CLASSES, [1, 1, 1, 5]) == 0.0
