"""The picture of topics."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from labelry.errors import MissingExtraError
from labelry.estimators.moments import Moments
from labelry.report.pictures import topic_picture

TEXTS = ["cat kitten mat", "kitten cat", "ship sea sail", "sea ship"] * 5


@pytest.fixture(scope="module")
def model() -> Moments:
    return Moments(n_topics=2).fit(TEXTS, ["pets", "pets", "boats", "boats"] * 5)


def test_each_topic_has_its_words_and_labels(model: Moments, tmp_path: Path) -> None:
    figure = topic_picture(model, k=3)
    names = [{text.get_text() for text in ax.get_yticklabels()} for ax in figure.axes]
    assert len(names) == 2
    for shown in names:
        assert ("cat" in shown) != ("ship" in shown)
        assert {"pets", "boats"} <= shown  # k = 3 of two labels
    figure.savefig(tmp_path / "topics.svg")
    assert (tmp_path / "topics.svg").stat().st_size > 1000
    assert len(topic_picture(model, n_topics=1).axes) == 1
    with pytest.raises(ValueError, match="n_topics must be at least 1, got 0"):
        topic_picture(model, n_topics=0)


def test_without_matplotlib_the_error_says_what_to_install(
    model: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"labelry\[viz\]"):
        topic_picture(model)
