"""labelry demo, on a small part of ICD-10-CM."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import labelry
from labelry.cli.app import app
from labelry.data import icd


@pytest.mark.slow
@pytest.mark.parametrize("full_codes", [False, True])
def test_it_trains_evaluates_shows_and_saves(
    full_codes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = icd.icd10cm

    def part(**options: object) -> icd.Classification:
        found = whole(**options)
        return found._replace(
            train=found.train.take(range(0, found.train.n_rows, 30)),
            test=found.test.take(range(0, found.test.n_rows, 40)),
        )

    monkeypatch.setattr(icd, "icd10cm", part)
    out = tmp_path / "model.labelry"
    flags = ["--full-codes"] if full_codes else []
    done = CliRunner().invoke(app, ["demo", "--out", str(out), "--jobs", "1", *flags])
    assert done.exit_code == 0, done.output
    labels = "46,881 labels" if full_codes else "1,918 labels, 143 of them without a document"
    assert labels in done.output
    assert "tail labels R" in done.output
    assert done.output.count("   words for ") >= 5
    assert f"labelry serve {out}" in done.output
    assert "Most confused labels" in (tmp_path / "model-report.html").read_text()
    model = labelry.load(out)
    assert len(model.about_.card.examples) == 3
    assert len(model.predict(["acute pain in the left knee"], k=3)[0]) == 3
