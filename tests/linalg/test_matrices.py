"""Sparse or dense: the kinds that are taken, scaling, sums, consecutive rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csr_array, csr_matrix, issparse, random_array

from labelry.linalg.matrices import (
    as_matrix,
    consecutive_rows,
    main_rows,
    scaled_rows,
    summed,
    with_constant,
)
from labelry.linalg.rows import Rows

X = random_array(
    (53, 17), density=0.3, random_state=np.random.default_rng(0), format="csr", dtype=np.float32
)


@pytest.mark.parametrize("kind", [csr_matrix, coo_array, lambda A: A.tocsc()])
def test_every_sparse_kind_becomes_csr_array(kind) -> None:
    matrix = as_matrix(kind(X.astype(np.float64)))
    assert isinstance(matrix, csr_array)
    assert matrix.dtype == np.float32
    assert_allclose(matrix.toarray(), X.toarray())


def test_what_is_given_stays_as_it_is() -> None:
    given = csr_array((np.ones(3, np.float32), [2, 0, 0], [0, 3]), shape=(1, 3))
    assert as_matrix(given).toarray().tolist() == [[2, 0, 1]]
    assert given.indices.tolist() == [2, 0, 0]
    assert np.shares_memory(as_matrix(X).data, X.data)  # no copy where none is needed


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_index_out_of_range_is_refused(kind: str, dtype: type) -> None:
    """One bad index beside good ones, at either end and on either side."""
    for index in (-1, 3, 2**31 - 1, -(2**31)):
        for place in range(3):
            bad = csr_array(np.eye(3, dtype=dtype)).asformat(kind)
            (bad.col if kind == "coo" else bad.indices)[place] = index
            with pytest.raises(ValueError, match=r"shape \(3, 3\) is broken: .*indices be inside"):
                Rows(bad)
    if kind == "coo":
        bad = csr_array(np.eye(3, dtype=dtype)).tocoo()
        bad.row[1] = 3
        with pytest.raises(ValueError, match="is broken"):
            as_matrix(bad)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(
    "indptr", [[1, 1, 2, 3], [0, 2, 1, 3], [0, 1, 2, 4], [0, 1, 2, 2], [0, 1, -5, 3], [0, 3], []]
)
def test_pointers_that_lead_out_of_a_matrix_are_refused(kind: str, indptr: list[int]) -> None:
    bad = csr_array(np.eye(3, dtype=np.float32)).asformat(kind)
    bad.indptr = np.array(indptr, dtype=np.int32)
    with pytest.raises(ValueError, match="is broken: its indptr must rise from 0"):
        as_matrix(bad)


def test_fewer_entries_than_indices_are_refused() -> None:
    bad = csr_array(np.eye(3, dtype=np.float32))
    bad.data = bad.data[:2]
    with pytest.raises(ValueError, match="number of its indices and entries"):
        as_matrix(bad)
    bad = csr_array(np.eye(3, dtype=np.float32)).tocoo()
    bad.data = bad.data[:2]
    with pytest.raises(ValueError, match="each entry must have its indices"):
        as_matrix(bad)


def test_a_list_of_lists_with_a_bad_index_is_refused() -> None:
    bad = csr_array(np.eye(3, dtype=np.float32)).tolil()
    bad.rows[1] = [7]
    with pytest.raises(ValueError, match="is broken"):
        as_matrix(bad)


def test_a_masked_array_is_refused() -> None:
    with pytest.raises(ValueError, match=r"X is a masked array.*X\.filled\(0\)"):
        as_matrix(np.ma.masked_invalid([[1.0, np.nan]]))


def test_consecutive_rows_share_their_entries() -> None:
    A = csr_array(np.arange(12, dtype=np.float32).reshape(4, 3))
    part = consecutive_rows(A, 1, 3)
    assert_array_equal(part.toarray(), A.toarray()[1:3])
    assert np.shares_memory(part.data, A.data)
    assert consecutive_rows(A, 4, 4).shape == (0, 3)


@pytest.mark.parametrize("dense", [False, True])
def test_a_sum_of_parts(dense: bool) -> None:
    parts = [A.toarray() if dense else A for A in (X, 2 * X, X[:, ::-1], X, 0 * X)]
    total = summed(iter(parts))
    expected = 4 * X.toarray() + X.toarray()[:, ::-1]
    assert_allclose(total if dense else total.toarray(), expected, rtol=1e-6)


@pytest.mark.parametrize("dense", [False, True])
def test_with_constant(dense: bool) -> None:
    A = X.copy()
    A.data[A.indptr[3] : A.indptr[5]] = 0  # rows without features
    A.eliminate_zeros()
    given = A.toarray() if dense else A
    for unit, expected in ((False, A), (True, scaled_rows(A))):
        wide = with_constant(given, unit=unit)
        assert wide.dtype == np.float32
        result = wide if dense else wide.toarray()
        assert_array_equal(result, np.hstack([expected.toarray(), np.ones((53, 1))]))
        assert dense or wide.has_canonical_format


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("factor", [1e-40, 1e-30, 1e-20, 1.0, 1e20, 1e37])
def test_rows_of_any_size_get_unit_length(factor: float, dense: bool) -> None:
    A = np.array([[3, 0, 4], [0, 0, 0], [0, -2, 0]], dtype=np.float32) * np.float32(factor)
    unit = scaled_rows(A if dense else csr_array(A))
    expected = [[0.6, 0, 0.8], [0, 0, 0], [0, -1, 0]]
    assert unit.dtype == np.float32
    # Numbers below 1e-38 have fewer digits.
    assert_allclose(
        unit if dense else unit.toarray(), expected, atol=1e-4 if factor < 1e-38 else 1e-6
    )


def main_rows_twin(A: np.ndarray, least: float, share: float) -> np.ndarray:
    """Row by row, with numpy."""
    out = np.zeros_like(A)
    for i, row in enumerate(A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-30)):
        bound = least
        while (row[np.abs(row) >= bound] ** 2).sum() < share * (row**2).sum():
            bound /= 2
        out[i] = np.where(np.abs(row) >= bound, row, 0)
    return out


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("least", "share"), [(0.3, 0.8), (0.05, 0.8), (0.9, 0.99), (0.0, 1.0)])
def test_main_rows_are_their_twin(least: float, share: float, dense: bool) -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 30)) ** 3 * (rng.random((40, 30)) < 0.6)
    A[3] = 0  # a row of zeros,
    A[4] = 1  # and one of small entries only
    A = A.astype(np.float32)
    found = main_rows(A if dense else csr_array(A), least, share)
    assert issparse(found) != dense
    found = found if dense else found.toarray()
    assert_allclose(found, main_rows_twin(A, least, share), atol=1e-6)
    assert (found[4] > 0).all()
