"""Linear decoders: links, top-k, the way back from an embedding."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax

from labelry.ranking.linear import LinearDecoder, least_squares_decoder

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((30, 4)).astype(np.float32)
COEF = (8 * RNG.standard_normal((4, 50))).astype(np.float32)
BIAS = RNG.standard_normal(50).astype(np.float32)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("link", ["identity", "softmax", "sigmoid"])
def test_topk_are_the_largest_scores(link: str, n_jobs: int) -> None:
    logits = Z @ COEF + BIAS
    expected = {"identity": lambda S: S, "softmax": lambda S: softmax(S, axis=1), "sigmoid": expit}[
        link
    ](logits)
    decoder = LinearDecoder(COEF, BIAS, link)
    assert_allclose(decoder.scores(Z), expected, rtol=1e-5, atol=1e-6)
    labels, scores = decoder.topk(Z, 3, n_jobs)
    assert_array_equal(labels, np.argsort(-logits, axis=1)[:, :3])
    assert_allclose(scores, np.take_along_axis(expected, labels, axis=1), rtol=1e-4, atol=1e-6)


def test_extreme_logits_give_probabilities() -> None:
    decoder = LinearDecoder(
        np.array([[1e4, -1e4, 0]], np.float32), np.zeros(3, np.float32), "softmax"
    )
    labels, scores = decoder.topk(np.array([[1], [-1], [0]], np.float32), 3)
    assert labels[:, 0].tolist() == [0, 1, 0]
    assert_allclose(scores[0], [1, 0, 0], atol=1e-6)
    assert_allclose(scores[2], [1 / 3] * 3, rtol=1e-5)


def test_least_squares_goes_back() -> None:
    V = np.linalg.qr(RNG.standard_normal((20, 5)))[0].astype(np.float32)
    assert_allclose(least_squares_decoder(V).coef, V.T, atol=1e-5)
    skew = RNG.standard_normal((20, 5)).astype(np.float32)
    assert_allclose(least_squares_decoder(skew).coef, np.linalg.pinv(skew), atol=1e-4)
    y = RNG.random(20).astype(np.float32)
    mean = RNG.random(20).astype(np.float32)
    found = least_squares_decoder(V, mean).scores((y @ V)[None])
    assert_allclose(found[0], mean + (y - mean) @ V @ V.T, atol=1e-5)
