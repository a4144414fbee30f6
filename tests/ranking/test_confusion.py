"""Affinities of labels that are confused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.ranking.confusion import confusion
from labelry.trees import spectral_tree


def test_confusion() -> None:
    Y = csr_array(np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0]]))
    A = confusion(Y, [1, 1, 1, 2, -1, 2])
    C = np.array([[0, 2, 0], [0, 1, 1], [0, 1, 0]])
    expected = (C + C.T) / 2
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(A.toarray(), expected)
    assert A.nnz == np.count_nonzero(expected)
    spectral_tree(A, rng=np.random.default_rng(0), n_jobs=1).check()


def test_refusals() -> None:
    Y = csr_array(np.eye(3))
    with pytest.raises(ValueError, match=r"predicted must have shape \(3,\), one per row"):
        confusion(Y, [0, 1])
    with pytest.raises(ValueError, match="predicted must be between -1 and 2; got 0 to 3"):
        confusion(Y, [0, 1, 3])
