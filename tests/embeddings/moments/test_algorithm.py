"""Algorithm 1 on documents of the paper's own model."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.special import softmax

from labelry.embeddings.moments.bounds import MomentStatistics, SampleSizeWarning
from labelry.embeddings.moments.model import MomentsSettings, learn_topics
from labelry.embeddings.moments.passes import WordMoments, documents, present_words
from labelry.embeddings.moments.tensor import tensor_eigenpairs
from labelry.embeddings.moments.topics import Estimate, choose_topics, refine, to_distributions
from labelry.linalg.rows import Rows

PLAIN = {"n_refinements": 0}  # Algorithm 1 and nothing else


def learned(
    rows: Rows, n_topics: object, *, rng: np.random.Generator, **options: object
) -> tuple[Estimate, MomentStatistics]:
    return learn_topics(rows, MomentsSettings(n_topics=n_topics, **options), rng)


def indicator(columns: np.ndarray, width: int) -> csr_array:
    rows = np.repeat(np.arange(len(columns)), columns.shape[1])
    A = csr_array((np.ones(columns.size), (rows, columns.ravel())), shape=(len(columns), width))
    A.data[:] = 1
    return A.astype(np.float32)


def draw(rng: np.random.Generator, P: np.ndarray, topics: np.ndarray, size: int) -> np.ndarray:
    """`size` draws from column topics[i] of P for each document i."""
    C = np.cumsum(P, axis=0)
    C /= C[-1]
    U = rng.random((len(topics), size))
    out = np.empty((len(topics), size), dtype=np.int64)
    for k in range(P.shape[1]):
        out[topics == k] = np.searchsorted(C[:, k], U[topics == k])
    return out


class Truth:
    """O, Q and pi of equation 1, and documents drawn from them."""

    def __init__(self, n_words: int, n_labels: int, n_topics: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.O = rng.dirichlet(np.full(n_words, 0.3), size=n_topics).T
        self.Q = rng.dirichlet(np.full(n_labels, 0.3), size=n_topics).T
        self.pi = np.arange(n_topics, 0, -1) + n_topics
        self.pi = self.pi / self.pi.sum()

    def sample(self, n: int, seed: int, length: int = 10) -> tuple[csr_array, csr_array]:
        rng = np.random.default_rng(seed)
        topics = rng.choice(len(self.pi), size=n, p=self.pi)
        X = draw(rng, self.O, topics, length)
        Y = draw(rng, self.Q, topics, 1)
        return indicator(X, len(self.O)), indicator(Y, len(self.Q))

    def errors(self, topics) -> tuple[float, float, float]:
        """Largest L2 error of words, labels, proportions, under the best permutation."""
        words, labels, pi = np.exp(topics.log_words), topics.labels, np.exp(topics.log_proportions)
        distance = ((self.O[:, :, None] - words[:, None, :]) ** 2).sum(axis=0)
        _, match = linear_sum_assignment(distance)
        return (
            float(np.linalg.norm(self.O - words[:, match], axis=0).max()),
            float(np.linalg.norm(self.Q - labels[:, match], axis=0).max()),
            float(np.abs(self.pi - pi[match]).max()),
        )


def test_three_passes_and_one_for_each_extra() -> None:
    X, Y = Truth(50, 8, 3).sample(400, 1)
    for options, expected in [
        ({}, 3),
        ({"n_power_passes": 2}, 5),
        ({"n_refinements": 1}, 4),
        ({"diagonal": "removed"}, 3),
    ]:
        rows = Rows(X, Y, n_jobs=1)
        learned(rows, 3, rng=np.random.default_rng(0), **{**PLAIN, **options})
        assert rows.n_passes == expected


@pytest.mark.parametrize("diagonal", ["kept", "removed"])
@pytest.mark.parametrize("normalize", [False, True])
def test_moments_are_those_of_the_definition(diagonal: str, normalize: bool) -> None:
    """With a basis of full rank, whitening and tensor equal the dense formulas."""
    rng = np.random.default_rng(3)
    X = (rng.random((60, 7)) < rng.random(7)).astype(np.float32)
    X[0] = 0
    Y = (rng.random((60, 4)) < 0.4).astype(np.float32)
    moments = WordMoments(Rows(X, Y, block_rows=25), diagonal=diagonal, normalize=normalize)
    basis = moments.sketch(7, 0, rng)
    white = moments.whiten(basis, 3)

    a, b = np.arange(7)[:, None], np.arange(7)
    distinct2 = a != b
    distinct3 = distinct2[:, :, None] & distinct2[:, None, :] & distinct2[None]
    n = np.maximum(X.sum(axis=1), 1)
    scale = n**-0.5 if normalize else np.ones(60)
    M2 = np.einsum("i,ia,ib->ab", scale**2, X, X) * (distinct2 if diagonal == "removed" else 1)
    M3 = np.einsum("i,ia,ib,ic->abc", scale**3, X, X, X)
    M3 = M3 * (distinct3 if diagonal == "removed" else 1)
    M2L = np.einsum("i,il,ia,ib->lab", scale**2, Y, X, X)
    M2L = M2L * (distinct2 if diagonal == "removed" else 1)
    statistics = moments.statistics(white.eigenvalues)
    assert_allclose(statistics.pairs, M2.sum() / 60, rtol=1e-5)
    assert_allclose(statistics.triples, M3.sum() / 60, rtol=1e-5)
    assert_allclose(statistics.label_pairs, M2L.sum() / 60, rtol=1e-5)
    M2, M3 = M2 / M2.sum(), M3 / M3.sum()
    W = white.W
    assert_allclose(white.eigenvalues, np.linalg.eigvalsh(M2)[::-1][:3], rtol=1e-4)
    assert_allclose(W.T @ M2 @ W, np.eye(3), atol=1e-4)
    assert_allclose(white.unwhitening, M2 @ W, atol=1e-5)
    tensor = np.einsum("abc,ax,by,cz->xyz", M3, W, W, W)
    assert_allclose(white.tensor, tensor, atol=1e-3 * np.abs(tensor).max())
    A = rng.standard_normal((7, 2)).astype(np.float32)
    expected = np.einsum("lab,ak,bk->lk", M2L, A, A)
    assert_allclose(moments.labels(A), expected, rtol=1e-3, atol=1e-3)


def test_topics_of_separate_words_are_recovered_exactly() -> None:
    rng = np.random.default_rng(0)
    topics = rng.integers(0, 3, 600)
    X = np.zeros((600, 30), dtype=np.float32)
    for i, k in enumerate(topics):
        X[i, 10 * k + rng.permutation(10)[:6]] = 1
    Y = np.eye(3, dtype=np.float32)[topics]
    found = learned(Rows(X, Y), 3, rng=rng, **PLAIN)[0].smoothed(0.0)
    labels = found.labels.argmax(axis=0)
    assert sorted(labels) == [0, 1, 2]
    assert_allclose(found.labels[labels, [0, 1, 2]], 1, atol=1e-4)
    assert_allclose(np.exp(found.log_proportions), np.bincount(topics)[labels] / 600, atol=0.01)
    P = found.posterior(present_words(X))
    assert (labels[P.argmax(axis=1)] == topics).all()
    assert_allclose(found.scores(P).sum(axis=1), 1, rtol=1e-4)


def test_the_blocks_do_not_matter() -> None:
    X, Y = Truth(60, 8, 3).sample(500, 2)
    results = [
        learned(Rows(X, Y, block_rows=b), 3, rng=np.random.default_rng(0))[0] for b in (None, 37)
    ]
    for one, ten in zip(*results, strict=True):
        assert_allclose(one, ten, rtol=1e-2, atol=1e-3)


def test_a_weight_of_two_is_a_row_twice() -> None:
    X, Y = Truth(60, 8, 3).sample(300, 5)
    weights = np.where(np.arange(300) < 100, 2, 1)
    rng = np.random.default_rng
    weighted, _ = learned(Rows(X, Y, weights=weights), 3, rng=rng(0))
    order = np.repeat(np.arange(300), weights)
    repeated, _ = learned(Rows(X[order], Y[order]), 3, rng=rng(0))
    assert_allclose(weighted.words, repeated.words, atol=2e-3)


def test_more_topics_than_the_rank_is_an_error_and_auto_takes_the_rank() -> None:
    X = np.zeros((200, 6), dtype=np.float32)
    X[:100, :3] = 1  # duplicated words: the pairs have rank two
    X[100:, 3:] = 1
    Y = np.repeat(np.eye(2, dtype=np.float32), 100, axis=0)
    with pytest.raises(ValueError, match="n_topics must be at most 2, the numerical rank"):
        learned(Rows(X, Y), 3, rng=np.random.default_rng(0))
    topics, statistics = learned(Rows(X, Y), "auto", rng=np.random.default_rng(0))
    assert len(topics.proportions) == len(statistics.eigenvalues) == 2


def test_no_words_at_all_is_one_clear_error() -> None:
    Y = np.ones((5, 1), dtype=np.float32)
    with pytest.raises(ValueError, match="X has no positive entry"):
        learned(Rows(np.zeros((5, 3)), Y), "auto", rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="no document has two words"):
        learned(Rows(np.eye(5), Y), "auto", diagonal="removed", rng=np.random.default_rng(0))


def test_fewer_documents_than_the_square_of_the_topics_is_a_warning_with_a_number() -> None:
    X, Y = Truth(60, 8, 3).sample(90, 4)
    with pytest.warns(SampleSizeWarning, match="largest n_topics for these is 9"):
        learned(Rows(X, Y), 10, rng=np.random.default_rng(0))


def test_empty_documents_and_missing_labels_change_nothing_but_the_proportions() -> None:
    X, Y = Truth(60, 8, 3).sample(500, 6)
    X0, Y0 = X.tolil(), Y.tolil()
    X0[:20] = 0
    Y0[20:40] = 0
    rows = Rows(csr_array(X0), csr_array(Y0))
    topics = learned(rows, 3, rng=np.random.default_rng(0))[0].smoothed(0.2)
    for field in topics:
        assert np.isfinite(field).all()
    empty = csr_array((1, 60), dtype=np.float32)
    assert_allclose(topics.posterior(empty)[0], np.exp(topics.log_proportions), rtol=1e-4)


def test_a_refinement_is_a_step_of_expectation_maximisation() -> None:
    X, Y = Truth(40, 6, 3).sample(200, 7)
    rng = np.random.default_rng(0)
    rows = Rows(X, Y, block_rows=60)
    before, _ = learned(rows, 3, rng=rng, **PLAIN)
    after = refine(rows, before)
    # The E step, with tempered words and smoothed topics, and the M step.
    topics = before.smoothed(0.5, labels=0.01)
    L = X @ topics.log_words / 3 + Y @ np.log(topics.labels) + topics.log_proportions
    P = softmax(L, axis=1)
    for found, A in ((after.words, X), (after.labels, Y)):
        assert_allclose(found, A.T @ P / (A.T @ P).sum(axis=0), rtol=1e-3)
    assert_allclose(after.proportions, P.mean(axis=0), rtol=1e-3)


def test_smoothed_topics_have_a_part_of_the_overall_frequencies() -> None:
    X, Y = Truth(40, 6, 3).sample(200, 7)
    estimate, _ = learned(Rows(X, Y), 3, normalize=False, rng=np.random.default_rng(0))
    topics = estimate.smoothed(0.1, labels=0.3)
    for found, raw, A, part in (
        (np.exp(topics.log_words), estimate.words, X, 0.1),
        (topics.labels, estimate.labels, Y, 0.3),
    ):
        counts = A.sum(axis=0) + 0.5
        overall = (counts / counts.sum())[:, None]
        assert_allclose(found, (1 - part) * raw + part * overall, rtol=1e-3)
    pi = 0.9 * estimate.proportions + 0.1 / 3
    assert_allclose(np.exp(topics.log_proportions), pi, rtol=1e-4)


def test_refinement_makes_the_labels_of_new_documents_likelier() -> None:
    truth = Truth(80, 10, 4)
    X, Y = truth.sample(600, 7)
    X_new, Y_new = truth.sample(1000, 8)

    def likelihood(n_refinements: int) -> float:
        rng = np.random.default_rng(0)
        found, _ = learned(Rows(X, Y), 4, n_refinements=n_refinements, rng=rng)
        topics = found.smoothed(0.2)
        scores = topics.scores(topics.posterior(X_new))
        return float(np.log(scores[Y_new.nonzero()]).mean())

    assert likelihood(2) > likelihood(0)


def test_temperature_is_higher_where_words_repeat_themselves() -> None:
    truth = Truth(100, 10, 4)
    X, Y = truth.sample(2000, 8, length=4)
    estimate, _ = learned(Rows(X, Y), 4, rng=np.random.default_rng(0))
    topics, once = choose_topics(estimate, X, Y)
    assert once < 3
    # The same as scoring every pair of smoothing and temperature.
    true = Y.nonzero()
    best = max(
        float(np.log(t.scores(t.posterior(X, temperature=h))[true]).sum())
        for t in (estimate.smoothed(s, labels=0.01) for s in (0.05, 0.1, 0.2, 0.3, 0.5))
        for h in (1.0, 1.5, 2.0, 3.0, 5.0)
    )
    found = np.log(topics.scores(topics.posterior(X, temperature=once))[true]).sum()
    assert_allclose(found, best, rtol=1e-5)
    # Every word twenty times over: far surer than the evidence allows.
    often = csr_array((np.full(X.nnz, 20, np.float32), X.indices, X.indptr), shape=X.shape)
    assert choose_topics(estimate, often, Y, smoothings=[0.01])[1] > 4


def test_present_words_are_positive_entries_of_any_matrix() -> None:
    X = np.array([[0.5, 0, -1], [0, 3, 0]], dtype=np.float32)
    expected = [[1, 0, 0], [0, 1, 0]]
    assert present_words(X).toarray().tolist() == expected
    sparse = csr_array(X)
    assert present_words(sparse).toarray().tolist() == expected
    assert sparse.data.tolist() == [0.5, -1, 3]  # what was given stays
    rows = Rows(X, np.ones((2, 1)))
    (docs,) = rows.map_blocks(lambda block: documents(block, normalize=True))
    assert docs.lengths.tolist() == [1, 1]


@pytest.mark.slow
def test_errors_fall_like_one_over_the_root_of_the_documents() -> None:
    truth = Truth(6000, 30, 4)
    sizes = (4000, 16_000, 64_000, 256_000)
    errors = np.zeros((len(sizes), 6, 3))
    for i, n in enumerate(sizes):
        for repeat in range(6):
            X, Y = truth.sample(n, seed=n + repeat, length=15)
            rng = np.random.default_rng(repeat)
            found, _ = learned(
                Rows(X, Y), 4, diagonal="removed", n_power_passes=2, rng=rng, **PLAIN
            )
            errors[i, repeat] = truth.errors(found.smoothed(0.0))
    typical = np.sqrt((errors**2).mean(axis=1))
    for kind, values in zip(("words", "labels", "proportions"), typical.T, strict=True):
        slope = np.polyfit(np.log(sizes), np.log(values), 1)[0]
        assert -0.65 < slope < -0.4, (kind, slope, values)


def test_the_true_moments_give_the_true_parameters() -> None:
    """Equations 5 to 12 with the population moments in place of sums over documents."""
    truth = Truth(40, 8, 4)
    M2 = (truth.O * truth.pi) @ truth.O.T
    values, vectors = np.linalg.eigh(M2)
    W = vectors[:, -4:] / np.sqrt(values[-4:])
    T = np.einsum("k,xk,yk,zk->xyz", truth.pi, *[W.T @ truth.O] * 3)
    lam, U = tensor_eigenpairs(T.astype(np.float32), 4, rng=np.random.default_rng(0))
    match = np.argsort(lam)  # pi falls, so lambda = pi^-1/2 grows
    assert_allclose(lam[match] ** -2.0, truth.pi, rtol=1e-3)
    assert_allclose(to_distributions(M2 @ W @ U)[:, match], truth.O, atol=1e-3)
    A = W @ U
    M2L = np.einsum("k,lk,ak,bk->lab", truth.pi, truth.Q, truth.O, truth.O)
    assert_allclose(np.einsum("lab,ak,bk->lk", M2L, A, A)[:, match], truth.Q, atol=1e-3)
