"""What is kept of phases, and where a model keeps it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelry import memory
from labelry.errors import ModelError
from labelry.progress import current_record, phase, recorded, show_phases
from labelry.storage import modelfile


def save(path: Path, force: bool = False) -> None:
    modelfile.save(
        path,
        system="rembrandt",
        parameters={},
        state={},
        arrays={"V": np.eye(2, dtype=np.float32)},
        label_names=["a", "b"],
        force=force,
    )


def test_phases_add_up_by_name_in_the_order_in_which_they_began() -> None:
    with recorded() as record:
        for name in ("one", "two", "one"):
            with phase(name):
                pass
    found = record.as_dict()
    assert [(p["name"], p["times"]) for p in found["phases"]] == [("one", 2), ("two", 1)]
    assert 0 <= sum(p["seconds"] for p in found["phases"]) <= found["seconds"] + 0.01


def test_a_phase_inside_another_belongs_to_it() -> None:
    with recorded() as record, phase("outer"), phase("inner"):
        pass
    assert [p["name"] for p in record.as_dict()["phases"]] == ["outer"]


def test_a_phase_that_fails_is_not_kept_and_the_next_one_is() -> None:
    with recorded() as record:
        with pytest.raises(ZeroDivisionError), phase("bad"):
            _ = 1 / 0
        with phase("good"):
            pass
    assert [p["name"] for p in record.as_dict()["phases"]] == ["good"]


def test_memory_is_by_how_much_a_phase_raised_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([100, 130, 130, 130, 130, 170, 170])
    monkeypatch.setattr(memory, "peak", lambda: next(peaks))
    with recorded() as record:
        for name in ("a", "b", "a"):
            with phase(name):
                pass
    found = record.as_dict()
    assert {p["name"]: p["rise_bytes"] for p in found["phases"]} == {"a": 70, "b": 0}
    assert found["peak_bytes"] == 170


def test_phases_are_shown_and_recorded_at_once() -> None:
    stream = io.StringIO()
    with show_phases(stream), recorded() as record, phase("counting", 2, "sheep") as advance:
        advance(2)
    assert "counting: 2 sheep" in stream.getvalue()
    assert record.as_dict()["phases"][0]["name"] == "counting"
    assert current_record() is None


def test_a_model_keeps_the_record_beside_itself_and_is_the_same_without(tmp_path: Path) -> None:
    save(tmp_path / "plain")
    with recorded():
        with phase("fitting"):
            pass
        save(tmp_path / "timed")
    assert modelfile.read_training(tmp_path / "plain") is None
    assert "training" not in modelfile.inspect(tmp_path / "plain")
    found = modelfile.read_training(tmp_path / "timed")
    assert found is not None
    assert [p["name"] for p in found["phases"]] == ["fitting"]
    assert modelfile.inspect(tmp_path / "timed")["training"] == found
    for name in os.listdir(tmp_path / "plain"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "timed" / name).read_bytes()


def test_a_model_with_a_record_can_be_replaced_and_then_has_none(tmp_path: Path) -> None:
    with recorded():
        save(tmp_path / "m")
    save(tmp_path / "m", force=True)
    assert modelfile.read_training(tmp_path / "m") is None


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"seconds": 1, "peak_bytes": 2}',
        '{"seconds": NaN, "peak_bytes": 2, "phases": []}',
        '{"seconds": 1, "peak_bytes": 2, "phases": [{"name": 3}]}',
        '{"seconds": 1, "peak_bytes": 2, "phases": [7]}',
    ],
)
def test_a_damaged_record_is_told_and_the_model_still_loads(tmp_path: Path, content: str) -> None:
    save(tmp_path / "m")
    (tmp_path / "m" / modelfile.TRAINING).write_text(content)
    with pytest.raises(ModelError, match=r"training\.json is damaged"):
        modelfile.read_training(tmp_path / "m")
    found: dict[str, Any] = modelfile.inspect(tmp_path / "m")
    assert "training.json is damaged" in found["training"]["damaged"]
    assert modelfile.load(tmp_path / "m").label_names == ["a", "b"]
    assert json.loads((tmp_path / "m" / modelfile.MODEL).read_text())["system"] == "rembrandt"
