"""Each kernel against its numpy twin, over dtypes, empty rows, and one and two threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from labelry.linalg import kernels
from labelry.linalg.matrices import add_cross, product
from labelry.linalg.parallel import balanced_spans, run, spans
from labelry.linalg.rows import Rows
from labelry.linalg.topk import topk, topk_blocks

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def sparse(n: int, d: int, seed: int = 0, index: type = np.int32) -> csr_array:
    """Random CSR with empty rows at the start, in the middle and at the end."""
    A = random_array(
        (n, d),
        density=0.2,
        random_state=np.random.default_rng(seed),
        format="lil",
        dtype=np.float32,
    )
    for i in {0, n // 2, n - 1}:
        A[[i], :] = 0
    A = csr_array(A)
    A.eliminate_zeros()
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    return A


def dense(n: int, k: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, k), dtype=np.float32)


@pytest.fixture(params=[np.int32, np.int64], ids=["int32", "int64"])
def index(request: pytest.FixtureRequest) -> type:
    return request.param


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("k", [1, 7, 300])
def test_product(index: type, n_jobs: int, k: int) -> None:
    A, M = sparse(40, 30, index=index), dense(30, k)
    assert_allclose(product(A, M, n_jobs), A.toarray() @ M, **TOLERANCE)
    assert_allclose(product(A.toarray(), M, n_jobs), A.toarray() @ M, **TOLERANCE)


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 7, 300])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kinds", ["ss", "sd", "ds", "dd"])
def test_cross(n_jobs: int, k: int, weighted: bool, kinds: str) -> None:
    A, B, M = sparse(50, 30), sparse(50, 20, seed=2), dense(20, k)
    weights = np.random.default_rng(3).random(50, dtype=np.float32) if weighted else None
    W = np.eye(50) if weights is None else np.diag(weights)
    given = [m if kind == "s" else m.toarray() for m, kind in zip((A, B), kinds, strict=True)]
    out = np.ones((30, k), dtype=np.float32)  # it adds to what is there
    add_cross(*given, weights, M, out, n_jobs)
    assert_allclose(out, 1 + A.toarray().T @ W @ (B.toarray() @ M), **TOLERANCE)


def test_cross_with_64_bit_indices(index: type) -> None:
    A, M = sparse(50, 30, index=index), dense(30, 4)
    assert_allclose(Rows(A).cross("X", "X", M), A.toarray().T @ (A.toarray() @ M), **TOLERANCE)


def stable_topk(S: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-S, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(("n", "c", "k"), [(1, 1, 1), (5, 63, 4), (9, 64, 64), (30, 1000, 5)])
def test_topk(n_jobs: int, n: int, c: int, k: int) -> None:
    # Few distinct values: ties go to the smaller column.
    S = np.random.default_rng(0).integers(0, 9, (n, c)).astype(np.float32)
    labels, scores = topk(S, k, n_jobs)
    assert_array_equal(labels, stable_topk(S, k))
    assert_array_equal(scores, np.take_along_axis(S, stable_topk(S, k), axis=1))


def test_topk_leaves_out_minus_infinity_and_fills_up() -> None:
    S = np.array([[-np.inf, 2.0, -np.inf], [-np.inf] * 3], dtype=np.float32)
    labels, scores = topk(S, 2)
    assert labels.tolist() == [[1, -1], [-1, -1]]
    assert scores.tolist() == [[2.0, -np.inf], [-np.inf, -np.inf]]


def test_topk_blocks_equal_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    S = dense(50, 20)
    whole = topk(S, 3)
    monkeypatch.setattr("labelry.linalg.topk._BLOCK_BYTES", 4 * 20 * 7)  # seven rows at a time
    parts = topk_blocks(lambda rows: S[rows], 50, 20, 3)
    for a, b in zip(whole, parts, strict=True):
        assert_array_equal(a, b)
    assert topk_blocks(lambda rows: S[rows], 0, 20, 3)[0].shape == (0, 3)


def test_topk_refuses_no_labels_at_all() -> None:
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        topk(dense(2, 2), 0)


def parts_of(kernel: Callable[..., None], *arrays: object, sums: int, k: int, d: int, jobs: int):
    totals = np.zeros((jobs, sums, k))
    parts = spans(d, jobs)
    run(kernel, [(*arrays, t, *p) for t, p in zip(totals, parts, strict=True)], jobs)
    return totals.sum(axis=0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_cg_kernels(jobs: int) -> None:
    d, k = 700, 5  # more rows than one tile of 256
    P, AP, Z, R = (dense(d, k, seed) for seed in range(4))
    ridge, mean, inverse = (np.abs(dense(d, 1, seed)).ravel() for seed in (4, 5, 6))
    shift, alpha, beta = (dense(1, k, seed).ravel() for seed in (7, 8, 9))

    AP_twin = AP + ridge[:, None] * P - np.outer(mean, shift)
    (dots,) = parts_of(kernels.cg_curvature, P, AP, ridge, mean, shift, sums=1, k=k, d=d, jobs=jobs)
    assert_allclose(AP, AP_twin, **TOLERANCE)
    assert_allclose(dots, (P * AP_twin).sum(axis=0), rtol=1e-4, atol=1e-2)

    Z_twin, R_twin = Z + alpha * P, R - alpha * AP
    rr, rz = parts_of(kernels.cg_step, Z, R, P, AP, alpha, inverse, sums=2, k=k, d=d, jobs=jobs)
    assert_allclose(Z, Z_twin, **TOLERANCE)
    assert_allclose(R, R_twin, **TOLERANCE)
    assert_allclose(rr, (R_twin**2).sum(axis=0), rtol=1e-4)
    assert_allclose(rz, (R_twin**2 * inverse[:, None]).sum(axis=0), rtol=1e-4)

    P_twin = R * inverse[:, None] + beta * P
    run(kernels.cg_direction, [(P, R, beta, inverse, *part) for part in spans(d, jobs)], jobs)
    assert_allclose(P, P_twin, **TOLERANCE)


def test_many_python_threads_may_call_at_once() -> None:
    A, M = sparse(300, 100), dense(100, 40)
    rows = Rows(A, n_jobs=2)
    right = rows.cross("X", "X", M)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: rows.cross("X", "X", M), range(40)))
    for result in results:
        assert_array_equal(result, right)  # same thread count: same bytes


def test_balanced_spans_cut_by_nonzeros() -> None:
    per_row = np.array([1000, 1, 1, 1, 1, 1, 1000, 1, 1, 0])
    indptr = np.concatenate([[0], np.cumsum(per_row)])
    parts = balanced_spans(indptr, 2)
    assert [b for _, b in parts[:-1]] == [a for a, _ in parts[1:]]
    assert parts[0][0] == 0
    assert parts[-1][1] == 10
    work = [indptr[b] - indptr[a] for a, b in parts]
    assert max(work) < 1100


@pytest.mark.parametrize("n_parts", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 3, 10])
def test_spans_partition(n: int, n_parts: int) -> None:
    for parts in (spans(n, n_parts), balanced_spans(np.arange(n + 1), n_parts)):
        assert [i for a, b in parts for i in range(a, b)] == list(range(n))
        assert len(parts) <= max(1, n_parts)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_add_gram(index: type, n_jobs: int, weighted: bool) -> None:
    A, G = sparse(40, 30, index=index), np.ones((30, 30))
    weights = np.random.default_rng(2).random(40 if weighted else 0, dtype=np.float32)
    tasks = [(kernels.csr_parts(A), weights, G, *span) for span in spans(30, n_jobs)]
    run(kernels.add_gram, tasks, n_jobs)
    D = A.toarray().astype(np.float64)
    expected = D.T @ (D * weights[:, None] if weighted else D)
    assert_allclose(G, 1 + np.triu(expected), rtol=1e-6)


def test_append_column(index: type) -> None:
    A = sparse(40, 30, index=index)
    n = A.nnz + 40
    parts = kernels.Csr(np.empty(41, index), np.empty(n, index), np.empty(n, np.float32))
    kernels.append_column(kernels.csr_parts(A), 30, parts)
    found = csr_array(tuple(parts[::-1]), shape=(40, 31))
    assert_array_equal(found.toarray(), np.hstack([A.toarray(), np.ones((40, 1))]))
    assert found.has_canonical_format
