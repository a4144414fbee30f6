"""What a model knows of its training, and its card."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import labelry
from labelry.data import read
from labelry.errors import ModelError
from labelry.storage import modelfile, sealed
from labelry.storage.about import About, Card, Source

TEXTS = ["knee pain", "arm broken", "knee swollen", "arm pain"]
LABELS = [["knee"], ["arm"], ["knee"], ["arm"]]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    modelfile.save(tmp_path / "m", system="s", parameters={}, state={}, arrays={}, label_names=None)
    return tmp_path / "m"


def test_the_time_is_in_utc_and_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert abs(datetime.fromisoformat(About().trained) - datetime.now(UTC)) < timedelta(minutes=1)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1577836800")
    assert About().trained == "2020-01-01T00:00:00+00:00"


def test_all_of_it_comes_back(tmp_path: Path) -> None:
    source = Source("é.csv", "ab", "csv", ("title", "body"), "tags", ";")
    about = About("2026-01-31T12:00:00+00:00", 3, "9.9", source, Card("t", "d", ("e", "\n")))
    rest = {"system": "s", "parameters": {}, "state": {}, "arrays": {}, "label_names": None}
    modelfile.save(tmp_path / "m", about=about, **rest)
    assert modelfile.load(tmp_path / "m").about == about
    assert modelfile.inspect(tmp_path / "m")["about"] == about.as_dict()


@pytest.mark.parametrize(
    ("part", "value"),
    [("rows", "3"), ("trained", None), ("source", {}), ("card", {"is": "Card", "title": 3})],
)
def test_a_forged_one_is_refused(saved: Path, part: str, value: object) -> None:
    header = json.loads((saved / "about.json").read_bytes())
    del header["crc32"]
    header["about"][part] = value
    (saved / "about.json").write_bytes(sealed.seal(header))
    with pytest.raises(ModelError, match=r"about\.json is damaged"):
        modelfile.load(saved)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"title": 3}, "title must be a text, got 3"),
        ({"examples": "one"}, "examples must be a list of texts, got 'one'"),
        ({"examples": ["a", 1]}, "examples must be a list of texts"),
    ],
)
def test_a_card_holds_texts(parts: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Card(**parts)


def test_a_model_says_when_and_from_how_many_rows_it_was_trained(tmp_path: Path) -> None:
    model = labelry.Tagger(quality="fast", n_jobs=1).fit(TEXTS, LABELS)
    assert (model.about_.rows, model.about_.source) == (4, Source())
    model.set_card(title="Knees", examples=["knee pain"]).save(tmp_path / "m")
    found = labelry.load(tmp_path / "m").about_
    assert found == model.about_
    assert found.card == Card("Knees", "", ("knee pain",))


def test_a_model_of_a_file_says_how_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("content,tags\nknee pain,knee|pain\narm pain,arm|pain\n")
    dataset = read(path)
    source = dataset.source
    assert source == Source("train.csv", None, "csv", ("content",), "tags", "|")
    assert dataset.take([1]).source is source
    assert source.hashed(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    model = labelry.Tagger(quality="fast", n_jobs=1).fit(dataset)
    assert model.about_.source == source


def test_another_file_is_read_in_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_text("text,words,codes,labels\na,b,x;y,z\n")
    like = Source(format="csv", text_columns=("words",), label_column="codes", label_separator=";")
    found = read(path, like=like)
    assert (found.texts, found.label_names) == (["b"], ["x", "y"])
    found = read(path, like=like, text_column="text", label_column="labels")
    assert (found.texts, found.label_names) == (["a"], ["z"])
