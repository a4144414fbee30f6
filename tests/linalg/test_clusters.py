"""Centres of clusters and the nearest of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, issparse, random_array

from labelry.linalg.clusters import nearest_centre, unit_centres

X = random_array(
    (60, 25), density=0.3, random_state=np.random.default_rng(0), format="csr", dtype=np.float32
)
CLUSTER = np.random.default_rng(1).integers(0, 4, 60).astype(np.int32)


@pytest.mark.parametrize("sparse", [True, False])
def test_centres_are_the_unit_means_as_columns(sparse: bool) -> None:
    A = X if sparse else X.toarray()
    centres = unit_centres(A, CLUSTER, 5)  # the last cluster is empty
    assert issparse(centres) == sparse
    dense = centres.toarray() if sparse else centres
    for c in range(4):
        mean = X.toarray()[np.equal(CLUSTER, c)].mean(axis=0)
        assert_allclose(dense[:, c], mean / np.linalg.norm(mean), rtol=1e-5)
    assert_array_equal(dense[:, 4], 0)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_nearest_is_the_largest_cosine(
    sparse: bool, n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelry.linalg.clusters._BLOCK_BYTES", 4 * 4 * 7)  # 7 rows a block
    A = X if sparse else X.toarray()
    centres = unit_centres(A, CLUSTER, 4)
    dense = centres.toarray() if sparse else centres
    assert_array_equal(nearest_centre(A, centres, n_jobs), (X.toarray() @ dense).argmax(axis=1))


def test_rows_without_features_go_to_the_first_cluster_and_no_rows_are_fine() -> None:
    centres = unit_centres(X, CLUSTER, 4)
    assert nearest_centre(csr_array((3, 25), dtype=np.float32), centres).tolist() == [0, 0, 0]
    assert nearest_centre(X[:0], centres).shape == (0,)
