"""Models that each format version of labelry wrote are read, and predict what they predicted."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import labelry
from labelry.errors import ModelError
from labelry.estimators import SYSTEMS
from labelry.storage import modelfile, sealed

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXPECTED = "expected.json"
MODELS = sorted(FIXTURES.glob("format-*/*.zip"))


def unpacked(fixture: Path, folder: Path) -> tuple[Path, dict]:
    """The directory of a model, and what is expected of it."""
    directory = folder / "model"
    with zipfile.ZipFile(fixture) as archive:
        archive.extractall(directory)
    expected = json.loads((directory / EXPECTED).read_bytes())
    (directory / EXPECTED).unlink()
    return directory, expected


@pytest.mark.parametrize("fixture", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_model_predicts_what_it_did(fixture: Path, tmp_path: Path) -> None:
    directory, expected = unpacked(fixture, tmp_path)
    version = modelfile.inspect(directory)["format_version"]
    assert fixture.parent.name == f"format-{version}"
    model = labelry.load(directory).set_params(n_jobs=1)
    rows = expected["rows"]
    if not isinstance(rows[0], str):
        rows = np.array(rows, dtype=np.float32)
    labels, scores = model.predict_topk(rows, len(expected["labels"][0]))
    assert labels.tolist() == expected["labels"]
    wanted = [[-np.inf if s is None else s for s in row] for row in expected["scores"]]
    # Processors differ in the order of sums, and in what they fuse.
    assert_allclose(scores, wanted, rtol=1e-3, atol=1e-5)


def test_every_system_has_a_model_of_the_present_format() -> None:
    present = {p.stem for p in MODELS if p.parent.name == f"format-{modelfile.FORMAT_VERSION}"}
    missing = {*SYSTEMS, "tagger-fast", "tagger-balanced", "tagger-best"} - present
    assert not missing, f"run python tests/make_format_fixtures.py, which writes {sorted(missing)}"


def test_every_format_that_is_read_has_models(tmp_path: Path) -> None:
    directory, _ = unpacked(FIXTURES / "format-1" / "one-vs-rest.zip", tmp_path)
    header = json.loads((directory / modelfile.MODEL).read_bytes())
    del header["crc32"]
    for version in range(modelfile.FORMAT_VERSION + 2):
        content = sealed.seal(header | {"format_version": version})
        (directory / modelfile.MODEL).write_bytes(content)
        assert is_read(directory) == bool(list(FIXTURES.glob(f"format-{version}/*.zip"))), (
            f"there must be models of format {version} in tests/fixtures just if labelry reads it; "
            "tests/make_format_fixtures.py writes them, as of a commit that wrote that format"
        )


def is_read(directory: Path) -> bool:
    try:
        modelfile.inspect(directory)
    except ModelError:
        return False
    return True
