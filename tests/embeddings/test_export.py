"""Label vectors as files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from labelry.embeddings.export import export_embedding
from labelry.errors import DataError

V = np.array([[0.5, -1.25], [3e-7, 2.0]], dtype=np.float32)


def test_npy_with_the_names_beside_it(tmp_path: Path) -> None:
    files = export_embedding(tmp_path / "v.npy", V, ["left knee", "hip"])
    np.testing.assert_array_equal(np.load(files[0], allow_pickle=False), V)
    assert files[1].name == "v.npy.labels.txt"
    assert files[1].read_text() == "left knee\nhip\n"


@pytest.mark.parametrize("name", ["v.vec", "v.txt.gz"])
def test_word2vec_text(tmp_path: Path, name: str) -> None:
    (path,) = export_embedding(tmp_path / name, V, [7, 8])
    raw = path.read_bytes()
    lines = (gzip.decompress(raw) if name.endswith("gz") else raw).decode().splitlines()
    assert lines[0] == "2 2"
    assert lines[1].split()[0] == "7"
    np.testing.assert_allclose([[float(v) for v in line.split()[1:]] for line in lines[1:]], V)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"label 1 is 'left knee': .* cannot hold white space"):
        export_embedding(tmp_path / "v.vec", V, ["hip", "left knee"])
    with pytest.raises(DataError, match="cannot hold a line break"):
        export_embedding(tmp_path / "v.npy", V, ["hip", "left\nknee"])
    with pytest.raises(DataError, match=r"ends in \.npy, \.txt or \.vec"):
        export_embedding(tmp_path / "v.csv", V, ["a", "b"])
    with pytest.raises(ValueError, match="names must name the 2 vectors; got 1"):
        export_embedding(tmp_path / "v.npy", V, ["a"])
    assert list(tmp_path.iterdir()) == []
    export_embedding(tmp_path / "v.npy", V, ["a", "b"])
    with pytest.raises(DataError, match="already exists"):
        export_embedding(tmp_path / "v.npy", V, ["a", "b"])
    export_embedding(tmp_path / "v.npy", V, ["a", "b"], force=True)
