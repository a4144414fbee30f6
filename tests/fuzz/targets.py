"""What is fuzzed: each reader, and the rule that holds for whatever bytes it gets.

A target writes the bytes to a file (or to the files of a directory) and reads it. Either the result
holds together, or one error of labelry names the file; anything else that happens is a finding.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from labelry.data import Dataset, read, read_blocks
from labelry.data.names import read_names
from labelry.data.shards import MANIFEST, open_shards, shard_name
from labelry.data.streams import open_input
from labelry.errors import DataError, LabelryError, ModelError
from labelry.estimators.base import LabelRanker
from labelry.estimators.registry import load
from labelry.storage import modelfile, sealed
from labelry.trees.hierarchy import hierarchy_tree, read_hierarchy

_SECTION = re.compile(rb"^%%% ([a-z.\d-]+)\n", re.MULTILINE)
_MOST_FEATURES = 1 << 20  # of a row that a model is asked about
_MOST_BYTES = 1 << 26  # of what a stream unpacks to that is worth reading on


def fuzz(name: str, data: bytes, folder: Path) -> bool:
    """Run a target on some bytes: True if they were read, False if they were refused.

    Raises
    ------
    Exception
        Whatever is a finding.
    """
    try:
        TARGETS[name](data, folder)
    except (DataError, ModelError) as error:
        if str(folder) not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return False
    except LabelryError:
        return False
    return True


# Files


def _format(format: str | None) -> Callable[[bytes, Path], None]:
    """Read as this format, whole and in blocks, which must agree."""

    def target(data: bytes, folder: Path) -> None:
        path = folder / "input"
        path.write_bytes(data)
        whole = read(path, format, n_jobs=1)
        check_dataset(whole)
        blocks = list(read_blocks(path, format, block_rows=2, n_jobs=1))
        for block in blocks:
            check_dataset(block)
        assert sum(block.n_rows for block in blocks) == whole.n_rows
        assert sum(block.Y.nnz for block in blocks) == whole.Y.nnz
        if format in ("xc", "svmlight"):
            with open_input(path) as stream:
                _check_sparse(whole, stream.read(), with_header=format == "xc")

    return target


def _check_sparse(dataset: Dataset, data: bytes, with_header: bool) -> None:
    """Compare with a plain reading of sparse text, as the fuzzer does not see into kernels."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = lines[1:] if with_header else [line.partition(b"#")[0] for line in lines]
    rows = [re.split(rb"[ \t]+", line.removesuffix(b"\r").strip(b" \t")) for line in lines]
    rows = rows[: dataset.n_rows] if with_header else [row for row in rows if row != [b""]]
    assert len(rows) == dataset.n_rows
    entries = [[token.split(b":") for token in row if b":" in token] for row in rows]
    ids = [[int(number) for number, _ in row] for row in entries]
    first = 0 if with_header or 0 in [number for row in ids for number in row] else 1
    names = dataset.label_names
    for i, row in enumerate(rows):
        labels = row[0].split(b",") if row[0] and b":" not in row[0] else []
        y = [j if names is None else int(names[j]) for j in dataset.Y[[i]].indices.tolist()]
        assert sorted(int(float(label)) for label in labels) == sorted(y)
        x = dataset.X[[i]]
        assert sorted(number - first for number in ids[i]) == x.indices.tolist()
        values = np.array([float(value) for _, value in entries[i]], dtype=np.float32)
        np.testing.assert_allclose(x.data, values[np.argsort(ids[i])], rtol=1e-6, atol=1e-44)


def check_dataset(dataset: Dataset) -> None:
    """What holds for every dataset."""
    for matrix in (dataset.X, dataset.Y):
        if matrix is None:
            continue
        assert matrix.shape[0] == dataset.n_rows
        assert matrix.dtype == np.float32
        if issparse(matrix):
            matrix.check_format(full_check=True)
            assert matrix.has_canonical_format
        assert np.isfinite(matrix.data if issparse(matrix) else matrix).all()
    for names, size in (
        (dataset.label_names, dataset.n_labels),
        (dataset.feature_names, dataset.n_features),
    ):
        if names is not None:
            assert len(names) == len(set(names)) == size
    if dataset.texts is not None:
        assert len(dataset.texts) == dataset.n_rows
        "".join(dataset.texts).encode()


def _stream(data: bytes, folder: Path) -> None:
    path = folder / "input"
    path.write_bytes(data)
    with open_input(path) as stream:
        n_bytes = 0
        while (part := stream.read(1 << 16)) and n_bytes < _MOST_BYTES:
            n_bytes += len(part)


def _label_names(data: bytes, folder: Path) -> None:
    (folder / "input.xc").write_bytes(b"2 1 3\n0,2 0:1\n1 0:1\n")
    (folder / "input").write_bytes(data)
    check_dataset(read(folder / "input.xc", label_names=folder / "input", n_jobs=1))


def _names(suffix: str) -> Callable[[bytes, Path], None]:
    def target(data: bytes, folder: Path) -> None:
        path = folder / f"input{suffix}"
        path.write_bytes(data)
        for label, name in read_names(path).items():
            assert type(label) is str
            assert type(name) is str
            assert label
            assert "\0" not in label + name
            (label + name).encode()

    return target


def _hierarchy(data: bytes, folder: Path) -> None:
    path = folder / "input"
    path.write_bytes(data)
    edges = read_hierarchy(path)
    names = sorted({name for edge in edges for name in edge})
    for joint in (False, True):
        try:
            tree = hierarchy_tree(edges, [*names, "of no line"], joint=joint)
        except ValueError as error:  # there is no file to name
            if not re.search("has a cycle|has more than", str(error)):
                raise
        else:
            assert set(tree.label[tree.label >= 0]) == set(range(len(names) + 1))


# Directories


def pack_files(files: dict[str, bytes]) -> bytes:
    """Some files in one: each after a line with its name."""
    return b"".join(b"%%%%%% %s\n%s\n" % (name.encode(), files[name]) for name in files)


def unpack_files(data: bytes) -> dict[str, bytes]:
    """What `pack_files` packed; bytes before the first name are left out."""
    parts = _SECTION.split(data)[1:]
    contents = zip(parts[::2], parts[1::2], strict=True)
    return {name.decode(): content.removesuffix(b"\n") for name, content in contents}


def _written(data: bytes, folder: Path, names: re.Pattern[str]) -> dict[str, bytes]:
    directory = folder / "input"
    directory.mkdir()
    files = {name: content for name, content in unpack_files(data).items() if names.fullmatch(name)}
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return files


def _sealed(directory: Path, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Give a header the right sizes and checksums, without which nothing else would be looked at.

    It is left as it is where that cannot be done.
    """
    try:
        header = json.loads((directory / name).read_bytes())
        header.pop("crc32", None)
        edit(header)
        content = sealed.seal(header)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return
    (directory / name).write_bytes(content)


def _entry(content: bytes) -> dict[str, int]:
    return {"bytes": len(content), "crc32": zlib.crc32(content)}


def write_shards_forged(data: bytes, folder: Path) -> None:
    """The packed files as a directory of shards, its checksums made right."""
    files = _written(
        data, folder, re.compile(r"shards\.json|(text|shard-\d+)\.safetensors|\w+\.json")
    )

    def edit(manifest: dict[str, Any]) -> None:
        for name in manifest["files"]:
            manifest["files"][name] |= _entry(files.get(name, b""))
        for number, shard in enumerate(manifest["shards"]):
            shard |= _entry(files.get(shard_name(number), b""))

    _sealed(folder / "input", MANIFEST, edit)


def _shards(data: bytes, folder: Path) -> None:
    write_shards_forged(data, folder)
    shards = open_shards(folder / "input")
    assert sum(part.n_rows for part in shards.datasets()) == shards.n_rows
    check_dataset(shards.dataset())
    if shards.text_features is not None:
        assert shards.text_features.transform(["knee pain"]).shape == (1, shards.n_features)


def write_model_forged(data: bytes, folder: Path) -> None:
    """The packed files as a model, its checksums made right."""
    files = _written(data, folder, re.compile(r"\w+\.json|arrays\.safetensors"))

    def edit(header: dict[str, Any]) -> None:
        for name in header["files"]:
            header["files"][name] |= _entry(files.get(name, b""))
        arrays = files.get(modelfile.ARRAYS, b"")
        layout = arrays[: 8 + int.from_bytes(arrays[:8], "little")]
        header["files"][modelfile.ARRAYS]["crc32"] = zlib.crc32(layout)
        for name, said in json.loads(layout[8:]).items():
            begin, end = said["data_offsets"]
            content = arrays[len(layout) + begin : len(layout) + end]
            if name in header["arrays"]:
                header["arrays"][name]["crc32"] = [zlib.crc32(content)] if content else []

    _sealed(folder / "input", modelfile.MODEL, edit)


def _model(data: bytes, folder: Path) -> None:
    write_model_forged(data, folder)
    modelfile.inspect(folder / "input")
    assert isinstance(load(folder / "input", verify=False), LabelRanker)
    model = load(folder / "input")
    assert model.classes_.ndim == 1
    rows: Any = ["knee pain"]
    if model.text_features_ is None:
        rows = np.ones((1, min(model.n_features_in_, _MOST_FEATURES)), dtype=np.float32)
    try:
        labels = model.topk_ids(rows, 2)[0]
    except ValueError as error:
        if "features as input" not in str(error):  # it is a model of more
            raise
    else:
        assert labels.max(initial=-1) < len(model.classes_)


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "any": _format(None),
    "xc": _format("xc"),
    "svmlight": _format("svmlight"),
    "npz": _format("npz"),
    "jsonl": _format("jsonl"),
    "csv": _format("csv"),
    "tsv": _format("tsv"),
    "parquet": _format("parquet"),
    "fasttext": _format("fasttext"),
    "stream": _stream,
    "label-names": _label_names,
    "names-tsv": _names(".tsv"),
    "names-csv": _names(".csv"),
    "names-jsonl": _names(".jsonl"),
    "hierarchy": _hierarchy,
    "shards": _shards,
    "model": _model,
}
DIRECTORIES = ("shards", "model")
