"""Models and shards that are changed by hand and given right checksums, one place at a time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from labelry import load
from labelry.data import read
from labelry.errors import DataError, ModelError

from .forge import changed, places
from .targets import fuzz, pack_files, unpack_files, write_model_forged, write_shards_forged

CORPUS = Path(__file__).parent / "corpus"
EVERY = 1 if "LABELRY_FUZZ_SECONDS" in os.environ else 5  # of the odd values, at each place
ODD = [
    None,
    True,
    -1,
    0,
    2**31,
    2**70,
    0.5,
    "",
    "../../x",
    "/etc/passwd",
    "U999999999",
    [],
    [[]],
    {},
]
ODD += [{"is": "array"}, {"is": []}, {"is": "Choice"}]


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["model/seed-0", "model/seed-1", "shards/seed-0", "shards/seed-1"])
@pytest.mark.filterwarnings("ignore")
def test_any_value_is_read_or_refused(seed: str, tmp_path: Path) -> None:
    files = unpack_files((CORPUS / seed).read_bytes())
    n_refused = n_read = 0
    for name in files:
        if not name.endswith(".json"):
            continue
        value = json.loads(files[name])
        for turn, place in enumerate(places(value)):
            for new in ODD[turn % EVERY :: EVERY]:
                folder = tmp_path / str(n_refused + n_read)
                folder.mkdir()
                forged = json.dumps(changed(value, place, new)).encode()
                data = pack_files(files | {name: forged})
                try:
                    was_read = fuzz(Path(seed).parent.name, data, folder)
                except Exception as error:
                    raise AssertionError(f"{name}: {place} = {new!r}") from error
                n_read += was_read
                n_refused += not was_read
    assert n_refused * EVERY > 100


@pytest.mark.parametrize("kind", ["model", "shards"])
def test_links_are_refused(kind: str, tmp_path: Path) -> None:
    write = write_model_forged if kind == "model" else write_shards_forged
    write((CORPUS / kind / "seed-1").read_bytes(), tmp_path)
    directory = tmp_path / "input"
    for number, file in enumerate(sorted(directory.iterdir())):
        if file.name == "training.json":
            continue
        outside = tmp_path / f"outside-{number}"
        os.rename(file, outside)
        file.symlink_to(outside)
        with pytest.raises((ModelError, DataError), match=f"{file.name} is a symbolic link"):
            load(directory, verify=False) if kind == "model" else read(directory)
        file.unlink()
        os.mkfifo(file)  # opening it would wait for ever
        expected = "Is a directory" if file.name == "shards.json" else f"{file.name} is no file"
        with pytest.raises((ModelError, DataError), match=expected):
            load(directory, verify=False) if kind == "model" else read(directory)
        file.unlink()
        os.rename(outside, file)
    if kind == "shards":
        assert read(directory).n_rows > 0
    else:
        assert len(load(directory, verify=False).classes_) > 0
