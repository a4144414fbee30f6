"""Any sparse matrix comes into one form, unchanged in value."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from labelry.data.canonical import RepeatedEntryError, canonical_csr

DENSE = np.array([[0, 2.5, 0, 1], [0, 0, 0, 0], [3, 0, 0, 0]])


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("maker", [sparse.coo_array, sparse.coo_matrix])
def test_every_format_keeps_its_values(format, maker):
    A = canonical_csr(maker(DENSE).asformat(format), "X")
    assert isinstance(A, sparse.csr_array)
    assert A.dtype == np.float32
    assert A.indices.dtype == A.indptr.dtype == np.int32
    assert A.has_canonical_format
    np.testing.assert_array_equal(A.toarray(), DENSE)


def test_unsorted_input_is_sorted_in_a_copy():
    indices = np.array([3, 1], dtype=np.int32)
    given = sparse.csr_array((np.array([1, 2], np.float32), indices, [0, 2]), shape=(1, 4))
    A = canonical_csr(given, "X")
    assert A.indices.tolist() == [1, 3]
    assert A.data.tolist() == [2, 1]
    assert indices.tolist() == [3, 1]


def test_canonical_input_is_not_copied():
    given = sparse.csr_array(DENSE.astype(np.float32))
    A = canonical_csr(given, "X")
    assert np.shares_memory(A.data, given.data)


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_an_entry_given_twice_is_refused(format):
    if format == "coo":
        A = sparse.coo_array(([1.0, 1.0, 1.0], ([0, 2, 2], [1, 3, 3])), shape=(3, 4))
    elif format == "csr":
        A = sparse.csr_array((np.ones(3), [1, 3, 3], [0, 1, 1, 3]), shape=(3, 4))
    else:
        A = sparse.csc_array((np.ones(3), [0, 2, 2], [0, 0, 1, 1, 3]), shape=(3, 4))
    with pytest.raises(RepeatedEntryError, match="row 2 of X has column 3 more than once"):
        canonical_csr(A, "X")


def test_equal_columns_of_neighbouring_rows_are_no_repeat():
    A = sparse.csr_array((np.ones(2), [1, 1], [0, 1, 1, 2]), shape=(3, 2))
    assert canonical_csr(A, "X").toarray().tolist() == [[0, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize("bad", [DENSE, sparse.csr_array(DENSE.astype(complex)), None])
def test_other_things_are_refused(bad):
    with pytest.raises(ValueError, match="Y must"):
        canonical_csr(bad, "Y")
