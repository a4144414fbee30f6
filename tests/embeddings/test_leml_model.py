"""LEML: planted labels, unknown labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelry.estimators.local import LEML


def planted(n: int = 300, d: int = 30, c: int = 12) -> tuple[np.ndarray, csr_array]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(np.float32)
    scores = X @ rng.standard_normal((d, 4)) @ rng.standard_normal((4, c))
    return X, csr_array((scores >= np.sort(scores, axis=1)[:, [-2]]).astype(np.float32))


X, Y = planted()
TRAIN, TEST = slice(0, 220), slice(220, 300)


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
def test_learns_planted_labels(loss: str) -> None:
    model = LEML(embedding_dim=6, loss=loss, regularization=0.01).fit(X[TRAIN], Y[TRAIN])
    assert model.score(X[TEST], Y[TEST]) > 0.75
    assert model.label_embedding_.shape == (12, 6)
    assert model.objective_[-1] < model.objective_[0]
    scores = model.score_all(X[TEST])
    labels, best = model.topk_ids(X[TEST], 3)
    np.testing.assert_allclose(best[:, 0], scores.max(axis=1), rtol=1e-5)
    assert (labels[:, 0] == scores.argmax(axis=1)).mean() > 0.99


def test_unknown_labels_are_worth_knowing_about() -> None:
    """Half of the labels are missing: taken for absent they mislead, left out they do not."""
    rng = np.random.default_rng(1)
    seen = rng.random(Y.shape) < 0.5
    partial = csr_array(Y.toarray() * seen)
    options = {"embedding_dim": 6, "regularization": 0.01, "loss": "logistic"}
    told = LEML(**options).fit(X[TRAIN], partial[TRAIN], known=seen[TRAIN])
    misled = LEML(**options).fit(X[TRAIN], partial[TRAIN])
    truth = Y[TEST].toarray()
    assert ((told.score_all(X[TEST]) > 0.5) == truth).mean() > (
        (misled.score_all(X[TEST]) > 0.5) == truth
    ).mean()


def test_errors_name_the_parameter() -> None:
    for parameters, message in (
        ({"loss": "hinge"}, "loss must be one of squared, logistic, squared_hinge; got 'hinge'"),
        ({"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ({"regularization": 0.0}, "regularization must be positive, got 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            LEML(**parameters).fit(X, Y)
    with pytest.raises(ValueError, match="known must have the shape of the labels"):
        LEML().fit(X, Y, known=np.ones((3, 3)))
