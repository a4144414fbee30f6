"""Model files: round trips, damage, replacement, crashes."""

from __future__ import annotations

import errno
import inspect
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import SafetensorError

from labelry import __version__
from labelry.errors import ModelError
from labelry.storage import modelfile, replacing, sealed
from labelry.storage.about import About

FILES = ["about.json", "arrays.safetensors", "labels.json", "model.json", "state.json"]
ABOUT = About(trained="2026-01-31T12:00:00+00:00", rows=3)
DTYPES = [
    *("bool", "float16", "float32", "float64"),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
]


def save(path: Path, value: int = 1, *, force: bool = False) -> None:
    """Save a small model in which everything depends on `value`, so that a mixture shows."""
    modelfile.save(
        path,
        system=f"system-{value}",
        parameters={"embedding_dim": value, "nested": {"range": [1, 2.5], "none": None}},
        state={"vocabulary": ["a", "é"], "value": value},
        arrays={
            "weights": np.full((3, 4), value, dtype=np.float32),
            "counts": np.arange(5, dtype=np.int64) + value,
            "mask": np.array([True, False, True]),
        },
        label_names=[f"label {value}", "日本", 'quote " and \n line'],
        about=ABOUT,
        force=force,
    )


def value_of(model: modelfile.ModelFile) -> int:
    """Return the `value` of a whole model; fail if parts of two models are mixed."""
    value = int(model.parameters["embedding_dim"])
    assert model.system == f"system-{value}"
    assert model.state == {"vocabulary": ["a", "é"], "value": value}
    assert model.label_names == [f"label {value}", "日本", 'quote " and \n line']
    assert list(model.arrays) == ["weights", "counts", "mask"]
    np.testing.assert_array_equal(
        model.arrays["weights"], np.full((3, 4), value, np.float32), strict=True
    )
    np.testing.assert_array_equal(model.arrays["counts"], np.arange(5) + value, strict=True)
    np.testing.assert_array_equal(model.arrays["mask"], [True, False, True])
    return value


def error_of(function: Callable[[], object]) -> str | None:
    """Return the message of the ModelError that `function` raises, if it does."""
    try:
        function()
    except ModelError as error:
        return str(error)
    return None


def hidden(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("."))


def seal(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change model.json by hand and give it a right checksum."""
    header = json.loads((path / "model.json").read_bytes())
    del header["crc32"]
    edit(header)
    (path / "model.json").write_bytes(sealed.seal(header))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "knee.labelry"
    save(path)
    return path


# ---- round trips ----------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
some_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)


@settings(max_examples=60, deadline=None)
@given(
    arrays=st.dictionaries(st.text(max_size=6), some_array, max_size=5),
    state=st.dictionaries(st.text(max_size=5), plain, max_size=4),
    label_names=st.none() | st.lists(st.text(max_size=6)) | st.lists(st.integers()),
)
def test_what_is_saved_is_loaded(
    arrays: dict[str, Any], state: dict[str, Any], label_names: list[Any] | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m"
        modelfile.save(
            path, system="s", parameters=state, state=state, arrays=arrays, label_names=label_names
        )
        model = modelfile.load(path)
        assert (model.system, model.version) == ("s", __version__)
        assert model.parameters == model.state == state
        assert list(model.state) == list(state)
        assert model.label_names == label_names
        assert list(model.arrays) == list(arrays)
        for name, array in arrays.items():
            found = model.arrays[name]
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()
        assert model.size_bytes == sum(f.stat().st_size for f in path.iterdir())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_every_dtype_and_shape(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    modelfile.save(
        tmp_path / "m", system="s", parameters={}, state={}, arrays={"a": array}, label_names=None
    )
    found = modelfile.load(tmp_path / "m").arrays["a"]
    np.testing.assert_array_equal(found, array, strict=True)


def test_arrays_of_any_memory_layout(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays = {
        "transposed": base.T,
        "every other": base[::2, ::-1],
        "fortran": np.asfortranarray(base),
        "broadcast": np.broadcast_to(base[0], (3, 6)),
        "big-endian": base.astype(">f4"),
    }
    modelfile.save(
        tmp_path / "m", system="s", parameters={}, state={}, arrays=arrays, label_names=None
    )
    for name, found in modelfile.load(tmp_path / "m").arrays.items():
        np.testing.assert_array_equal(found, arrays[name])
        assert found.flags.c_contiguous
        assert found.dtype == np.dtype("<f4")


def test_arrays_are_private_views_of_the_mapped_file(path: Path) -> None:
    for array in modelfile.load(path).arrays.values():
        assert type(array) is np.ndarray
        assert array.flags.aligned
        assert isinstance(array.base, mmap.mmap)
        array[...] = 0  # stays in this process
    assert modelfile.load(path).arrays["weights"].all()


def test_safetensors_reads_the_arrays(path: Path) -> None:
    found = safetensors.numpy.load_file(path / "arrays.safetensors")
    np.testing.assert_array_equal(found["weights"], np.full((3, 4), 1, np.float32), strict=True)
    assert set(found) == {"weights", "counts", "mask"}


def test_two_saves_give_the_same_bytes(tmp_path: Path) -> None:
    save(tmp_path / "a")
    save(tmp_path / "b")
    assert sorted(os.listdir(tmp_path / "a")) == FILES
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_all_files_follow_the_umask(path: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    modes = {(path / name).stat().st_mode & 0o777 for name in FILES}
    assert modes == {0o666 & ~umask}
    assert path.stat().st_mode & 0o777 == 0o777 & ~umask


@pytest.mark.parametrize("names", [np.array([3, 1]), np.array(["b", "a"]), range(2), ("x", "y")])
def test_label_names_of_any_sequence(tmp_path: Path, names: Any) -> None:
    modelfile.save(
        tmp_path / "m", system="s", parameters={}, state={}, arrays={}, label_names=names
    )
    found = modelfile.load(tmp_path / "m").label_names
    assert found == [n.item() if isinstance(n, np.generic) else n for n in names]
    assert found is not None
    assert type(found[0]) in (int, str)


def test_checksums_in_many_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelfile, "_PIECE", 16)
    save(path, 2, force=True)
    assert value_of(modelfile.load(path)) == 2
    table = json.loads((path / "model.json").read_bytes())["arrays"]
    assert [len(table[name]["crc32"]) for name in ("weights", "counts", "mask")] == [3, 3, 1]
    data = np.full((3, 4), 2, np.float32).tobytes()
    assert table["weights"]["crc32"] == [zlib.crc32(data[i : i + 16]) for i in (0, 16, 32)]


def test_inspect_describes_without_reading_arrays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelfile, "_map_arrays", None)
    assert modelfile.inspect(path) == {
        "format": "labelry-model",
        "format_version": 1,
        "labelry_version": __version__,
        "system": "system-1",
        "parameters": {"embedding_dim": 1, "nested": {"range": [1, 2.5], "none": None}},
        "n_labels": 3,
        "arrays": {
            "weights": {"dtype": "float32", "shape": [3, 4], "bytes": 48},
            "counts": {"dtype": "int64", "shape": [5], "bytes": 40},
            "mask": {"dtype": "bool", "shape": [3], "bytes": 3},
        },
        "size_bytes": sum(file.stat().st_size for file in path.iterdir()),
        "about": ABOUT.as_dict(),
    }


# ---- what cannot be stored ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"parameters": {"x": float("nan")}}, "parameters cannot be stored as JSON"),
        ({"parameters": {"x": np.float32(1)}}, "parameters cannot be stored as JSON"),
        ({"state": {"x": {1: "a"}}}, "state cannot be stored as JSON: the key 1 is not a string"),
        ({"state": {"x": {1, 2}}}, "state cannot be stored as JSON"),
        ({"arrays": {"z": np.zeros(2, np.complex64)}}, "array 'z' has dtype complex64"),
        ({"arrays": {"z": np.array([None])}}, "array 'z' has dtype object"),
        ({"arrays": {"__metadata__": np.zeros(2)}}, "__metadata__"),
        ({"arrays": {"\udc80": np.zeros(2)}}, "cannot save the model"),
        ({"label_names": ["a", 1]}, "all str or all int; got int, str"),
        ({"label_names": [True, False]}, "all str or all int; got bool"),
        ({"label_names": [1.5]}, "all str or all int; got float"),
    ],
)
def test_unstorable_content(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    empty: dict[str, Any] = {"parameters": {}, "state": {}, "arrays": {}, "label_names": None}
    with pytest.raises(ModelError, match=message):
        modelfile.save(tmp_path / "m", system="s", **(empty | content))
    assert os.listdir(tmp_path) == []


# ---- what is in the way ---------------------------------------------------------------------


def test_parents_are_made(tmp_path: Path) -> None:
    save(tmp_path / "a" / "b" / "m")
    assert value_of(modelfile.load(tmp_path / "a" / "b" / "m")) == 1


def test_existing_model_needs_force(path: Path) -> None:
    with pytest.raises(ModelError, match=r"knee\.labelry already exists.*--force"):
        save(path, 2)
    assert value_of(modelfile.load(path)) == 1
    save(path, 2, force=True)
    assert value_of(modelfile.load(path)) == 2
    assert os.listdir(path.parent) == ["knee.labelry"]


def test_replaced_without_exchange(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "_exchange", lambda a, b: False)
    save(path, 2, force=True)
    assert value_of(modelfile.load(path)) == 2
    assert os.listdir(path.parent) == ["knee.labelry"]


def test_loaded_arrays_outlive_a_replacement(path: Path) -> None:
    old = modelfile.load(path)
    modelfile.save(
        path,
        system="s",
        parameters={},
        state={},
        arrays={"weights": old.arrays["weights"]},
        label_names=None,
        force=True,
    )
    assert value_of(old) == 1
    np.testing.assert_array_equal(
        modelfile.load(path).arrays["weights"], np.full((3, 4), 1, np.float32), strict=True
    )


def test_empty_directory_needs_force(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(ModelError, match="already exists"):
        save(tmp_path / "m")
    save(tmp_path / "m", force=True)
    assert value_of(modelfile.load(tmp_path / "m")) == 1


def foreign_directory(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def foreign_model_json(path: Path) -> None:
    path.mkdir()
    (path / "model.json").write_text('{"format": "other"}')


def damaged_model_json(path: Path) -> None:
    path.mkdir()
    (path / "model.json").write_bytes(b'{"format": "labelry-model", \xff')


def model_with_notes(path: Path) -> None:
    save(path)
    (path / "notes.txt").write_text("mine")


def plain_file(path: Path) -> None:
    path.write_text("a file")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (foreign_directory, "not a labelry model and is not replaced"),
        (foreign_model_json, "not a labelry model and is not replaced"),
        (damaged_model_json, "not a labelry model and is not replaced"),
        (model_with_notes, r"not replaced: it also holds notes\.txt"),
        (plain_file, "is a file and is not replaced"),
    ],
)
def test_foreign_things_are_never_replaced(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    def snapshot() -> dict[str, bytes]:
        return {str(f): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}

    make(tmp_path / "m")
    before = snapshot()
    with pytest.raises(ModelError, match=message):
        save(tmp_path / "m", 2, force=True)
    assert snapshot() == before
    assert hidden(tmp_path) == []


def test_parent_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"cannot save the model to .*file/m"):
        save(tmp_path / "file" / "m")


def test_writable_where_save_would_succeed(path: Path) -> None:
    empty = path.with_name("empty")
    empty.mkdir()
    before = sorted(path.parent.rglob("*"))
    modelfile.check_writable(path, force=True)
    modelfile.check_writable(empty, force=True)
    modelfile.check_writable(path.parent / "a" / "b" / "m")
    assert sorted(path.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "make", [foreign_directory, foreign_model_json, model_with_notes, plain_file]
)
def test_not_writable_where_save_would_refuse(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "m")
    for force in (False, True):
        refused = error_of(lambda force=force: save(tmp_path / "m", force=force))  # type: ignore[misc]
        assert refused is not None
        with pytest.raises(ModelError, match=re.escape(refused)):
            modelfile.check_writable(tmp_path / "m", force=force)


def test_not_writable_parents(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "file").write_text("")
    with pytest.raises(ModelError, match="file is no writable directory"):
        modelfile.check_writable(path.parent / "file" / "m")
    os.rename(path, path.with_name(".knee.labelry.labelry-old"))  # as a crash may leave it
    with pytest.raises(ModelError, match="already exists"):
        modelfile.check_writable(path)
    modelfile.check_writable(path, force=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ModelError, match="is no writable directory"):
        modelfile.check_writable(path, force=True)


def test_symbolic_link_stays_a_link(path: Path) -> None:
    link = path.with_name("latest")
    link.symlink_to(path.name)
    save(link, 2, force=True)
    assert link.is_symlink()
    assert value_of(modelfile.load(path)) == value_of(modelfile.load(link)) == 2


# ---- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_found(path: Path, name: str) -> None:
    content = (path / name).read_bytes()
    for at, byte in enumerate(content):
        # lowest bit, highest bit, another case or white space for another
        for mask in (0x01, 0x80, 0x20, 0x20 ^ 0x0A):
            damaged = bytearray(content)
            damaged[at] = byte ^ mask
            (path / name).write_bytes(damaged)
            with pytest.raises(ModelError) as caught:
                modelfile.load(path)
            assert str(path) in str(caught.value)
    (path / name).write_bytes(content)
    assert value_of(modelfile.load(path)) == 1


def test_flipped_data_names_the_array(path: Path) -> None:
    content = bytearray((path / "arrays.safetensors").read_bytes())
    at = content.index(np.full((3, 4), 1, np.float32).tobytes()) + 7
    content[at] ^= 4
    (path / "arrays.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="checksum of array 'weights' differs"):
        modelfile.load(path)
    assert modelfile.load(path, verify=False).arrays["weights"][0, 1] != 1


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_truncated_and_lengthened_files(path: Path, name: str, verify: bool) -> None:
    content = (path / name).read_bytes()
    for length in (0, 1, 7, 8, 9, len(content) // 2, len(content) - 1):
        (path / name).write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"truncated|damaged"):
            modelfile.load(path, verify=verify)
        with pytest.raises(ModelError, match=r"truncated|damaged"):
            modelfile.inspect(path)
    for more in (b"\n", b" ", b"\0"):
        (path / name).write_bytes(content + more)
        with pytest.raises(ModelError, match="damaged"):
            modelfile.load(path, verify=verify)


@pytest.mark.parametrize("read", [modelfile.load, modelfile.inspect])
@pytest.mark.parametrize("name", FILES)
def test_deleted_file(path: Path, name: str, read: Callable[[Path], object]) -> None:
    (path / name).unlink()
    message = "it has no model.json" if name == "model.json" else f"{name} is missing"
    with pytest.raises(ModelError, match=message):
        read(path)


@pytest.mark.parametrize("read", [modelfile.load, modelfile.inspect])
def test_no_model_there(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ModelError, match=r"no model at .*nowhere: the path does not exist"):
        read(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError, match="file is a file; a labelry model is a directory"):
        read(tmp_path / "file")
    with pytest.raises(ModelError, match="does not exist"):
        read(tmp_path / "file" / "m")
    foreign_directory(tmp_path / "foreign")
    with pytest.raises(ModelError, match="foreign is not a labelry model"):
        read(tmp_path / "foreign")
    for number, text in enumerate(['{"format": "other"}', "[]", '"labelry-model"', "1"]):
        (tmp_path / f"other{number}").mkdir()
        (tmp_path / f"other{number}" / "model.json").write_text(text)
        with pytest.raises(ModelError, match="is not a labelry model"):
            read(tmp_path / f"other{number}")


@pytest.mark.parametrize("text", ["", "{", "not JSON", "[" * 100_000, "1" * 10_000, "\udcff"])
def test_model_json_that_is_not_json(path: Path, text: str) -> None:
    (path / "model.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ModelError, match=r"model\.json is damaged: it is not JSON"):
        modelfile.load(path)


def test_not_a_number_in_model_json(path: Path) -> None:
    text = (path / "model.json").read_text().replace("2.5", "NaN")
    (path / "model.json").write_text(text)
    with pytest.raises(ModelError, match="not strict JSON"):
        modelfile.load(path)


def test_newer_format(path: Path) -> None:
    seal(path, lambda header: header.update(format_version=2))
    message = r"made by a newer labelry \(format 2\); this one reads up to 1: upgrade labelry"
    for read in (modelfile.load, modelfile.inspect):
        with pytest.raises(ModelError, match=message):
            read(path)


def test_arrays_of_another_model(path: Path) -> None:
    save(path.with_name("other"), 2)
    shutil.copy(path.with_name("other") / "arrays.safetensors", path)
    with pytest.raises(ModelError, match="checksum of array 'weights' differs"):
        modelfile.load(path)


def test_labels_of_another_model(path: Path) -> None:
    save(path.with_name("other"), 2)
    shutil.copy(path.with_name("other") / "labels.json", path)
    with pytest.raises(ModelError, match=r"labels\.json is damaged"):
        modelfile.load(path)


# Headers with a right checksum, which no save has written.


@pytest.mark.parametrize(
    "key",
    [
        *("format_version", "labelry_version", "system", "parameters", "n_labels"),
        *("arrays", "files"),
    ],
)
@pytest.mark.parametrize("value", ["missing", 1.5, [], -1])
def test_wrong_header_is_one_error(path: Path, key: str, value: object) -> None:
    def edit(header: dict[str, Any]) -> None:
        header[key] = value
        if value == "missing":
            del header[key]

    seal(path, edit)
    message = r"model\.json is damaged|labels\.json does not hold what model\.json says"
    with pytest.raises(ModelError, match=message):
        modelfile.load(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "object"},
        {"dtype": ["float32"]},
        {"shape": [3, -4]},
        {"shape": [3, 4.0]},
        {"shape": [0, 2**62, 2**62]},
        {"shape": [1] * 70},
        {"shape": [3, 5]},
        {"shape": [2**40, 2**10]},
        {"dtype": "int32"},
        {"crc32": 7},
        {"crc32": []},
    ],
)
def test_wrong_array_table_is_one_error(path: Path, entry: dict[str, Any]) -> None:
    seal(path, lambda header: header["arrays"]["weights"].update(entry))
    with pytest.raises(ModelError, match="'weights'"):
        modelfile.load(path)


def test_array_tables_that_disagree(path: Path) -> None:
    model_json = (path / "model.json").read_bytes()
    for name in ("mask", "weights"):
        seal(path, lambda header, name=name: header["arrays"].pop(name))  # type: ignore[misc]
        with pytest.raises(ModelError, match=f"disagree on array '{name}'"):
            modelfile.load(path)
        (path / "model.json").write_bytes(model_json)
    extra = {"dtype": "bool", "shape": [0], "crc32": []}
    seal(path, lambda header: header["arrays"].update(extra=extra))
    with pytest.raises(ModelError, match="disagree on which arrays there are"):
        modelfile.load(path)


def test_tables_that_agree_on_more_than_the_file_has(path: Path) -> None:
    file = path / "arrays.safetensors"
    size = file.stat().st_size - 1
    os.truncate(file, size)
    seal(path, lambda header: header["files"]["arrays.safetensors"].update(bytes=size))
    with pytest.raises(ModelError, match="disagree on array 'mask'"):
        modelfile.load(path, verify=False)


def test_file_names_are_never_taken_from_the_model(path: Path) -> None:
    entry = {"bytes": 4, "crc32": zlib.crc32(b"evil")}
    path.with_name("evil").write_bytes(b"evil")
    seal(path, lambda header: header["files"].update({"../evil": entry}))
    with pytest.raises(ModelError, match="its files should be"):
        modelfile.load(path)


def good_layout(path: Path) -> dict[str, Any]:
    content = (path / "arrays.safetensors").read_bytes()
    return dict(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]))


@pytest.mark.parametrize(
    "edit",
    [
        lambda layout: layout["weights"].update(data_offsets=[0, 2**40]),
        lambda layout: layout["weights"].update(data_offsets=[0, 48]),
        lambda layout: layout["weights"].update(data_offsets=[-8, 40]),
        lambda layout: layout["weights"].update(data_offsets="40"),
        lambda layout: layout["weights"].update(dtype=["F32"]),
        lambda layout: layout["weights"].update(dtype="I32"),
        lambda layout: layout["weights"].update(shape=[4, 3]),
        lambda layout: layout["weights"].pop("shape"),
        lambda layout: layout.update(weights=None),
        lambda layout: layout.update(__metadata__={"a": "b"}),
        lambda layout: layout.clear(),
        lambda layout: layout.pop("mask"),
    ],
)
def test_wrong_layout_is_one_error(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    file = path / "arrays.safetensors"
    content = file.read_bytes()
    layout = good_layout(path)
    edit(layout)
    raw = json.dumps(layout).encode()
    raw += b" " * (-len(raw) % 8)
    raw = len(raw).to_bytes(8, "little") + raw
    file.write_bytes(raw + content[8 + int.from_bytes(content[:8], "little") :])
    size = file.stat().st_size
    seal(
        path,
        lambda header: header["files"].update(
            {"arrays.safetensors": {"bytes": size, "crc32": zlib.crc32(raw)}}
        ),
    )
    with pytest.raises(ModelError, match=r"arrays\.safetensors (and|is damaged)"):
        modelfile.load(path)


def test_unreadable_file(path: Path) -> None:
    (path / "state.json").unlink()
    (path / "state.json").mkdir()
    size = (path / "state.json").stat().st_size
    seal(path, lambda header: header["files"]["state.json"].update(bytes=size))
    with pytest.raises(ModelError, match=r"state\.json is no file; expected a file"):
        modelfile.load(path)


# ---- failures while saving ------------------------------------------------------------------


@pytest.mark.parametrize("exchange", [True, False])
def test_disk_full_at_every_sync(
    path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(replacing, "_exchange", lambda a, b: False)
    sync = os.fsync
    found = []
    for failing in range(100):
        calls = iter(range(100))

        def fail(descriptor: int, calls: Any = calls, failing: int = failing) -> None:
            if next(calls) == failing:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", fail)
        message = error_of(lambda: save(path, 2, force=True))
        if message is None:
            break
        assert message == f"cannot save the model to {path}: No space left on device"
        assert hidden(path.parent) == []
        found.append(value_of(modelfile.load(path)))
    # about, state, labels, arrays, model.json, their directory: only then is the name given
    assert found[:6] == [1] * 6
    assert set(found[6:]) == {2}
    assert value_of(modelfile.load(path)) == 2


@pytest.mark.parametrize("function", ["save_file", "write_synced", "_checksums", "put_in_place"])
@pytest.mark.parametrize(
    "error", [SafetensorError("no space"), PermissionError(errno.EACCES, "no space")]
)
def test_failure_keeps_the_old_model(
    path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: Exception
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(modelfile, function, fail)
    with pytest.raises(ModelError, match=r"cannot save the model to .*knee\.labelry: no space"):
        save(path, 2, force=True)
    monkeypatch.undo()
    assert value_of(modelfile.load(path)) == 1
    assert os.listdir(path.parent) == ["knee.labelry"]


def test_interrupt_keeps_the_old_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(modelfile, "_checksums", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(path, 2, force=True)
    monkeypatch.undo()
    assert value_of(modelfile.load(path)) == 1
    assert hidden(path.parent) == []


def test_failed_rename_brings_the_old_model_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if "labelry-tmp" in str(source):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    monkeypatch.setattr(replacing, "_exchange", lambda a, b: False)
    with pytest.raises(ModelError, match="Operation not permitted"):
        save(path, 2, force=True)
    assert value_of(modelfile.load(path)) == 1
    assert os.listdir(path.parent) == ["knee.labelry"]


LIMITED = """
import resource, sys
import numpy as np
from labelry.storage import modelfile
from labelry.errors import ModelError
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
try:
    modelfile.save(sys.argv[1], system="s", parameters={}, state={}, label_names=None,
                   arrays={"a": np.zeros(10_000)}, force=True)
except ModelError as error:
    sys.exit(str(error))
"""


def test_write_that_the_system_refuses(path: Path) -> None:
    """No function is replaced here: the kernel stops the file at 4,000 bytes."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"cannot save the model to {path}" in done.stderr
    assert "File too large" in done.stderr
    assert value_of(modelfile.load(path)) == 1
    assert os.listdir(path.parent) == ["knee.labelry"]


# ---- crashes --------------------------------------------------------------------------------

# Forks one child per point of a save and kills it there: before and after each system call that
# changes something, and with a half written array file. Prints the number of points.
CRASHES = f"""
import os, shutil, signal, sys
from pathlib import Path
import numpy as np
from labelry.storage import modelfile, replacing
from labelry.storage.about import About

ABOUT = About()
{inspect.getsource(save)}
root, scheme = Path(sys.argv[1]), sys.argv[2]

def die_at(point):
    count = 0
    def tick():
        nonlocal count
        count += 1
        if count == point:
            os.kill(os.getpid(), signal.SIGKILL)
    def wrap(module, name):
        real = getattr(module, name)
        def wrapped(*args, **kwargs):
            tick()
            result = real(*args, **kwargs)
            tick()
            return result
        setattr(module, name, wrapped)
    def half_written(arrays, path):
        real_save_file(arrays, path)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        tick()
        path.write_bytes(content)
    real_save_file = modelfile.save_file
    modelfile.save_file = half_written
    for name in ("fsync", "rename", "mkdir", "unlink", "rmdir", "chmod"):
        wrap(os, name)
    wrap(replacing, "_exchange")

for point in range(1, 200):
    directory = root / str(point)
    directory.mkdir()
    if scheme != "first":
        save(directory / "m", 1)
    if scheme == "swap":
        replacing._exchange = lambda a, b: False
    child = os.fork()
    if child == 0:
        try:
            die_at(point)
            save(directory / "m", 2, force=True)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        shutil.rmtree(directory)
        print(point - 1)
        break
    if status != -signal.SIGKILL:
        sys.exit(f"the child ended with {{status}} at point {{point}}")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("scheme", ["exchange", "swap", "first"])
def test_killed_at_every_point(tmp_path: Path, scheme: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHES, str(tmp_path), scheme],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    n_points = int(done.stdout)
    found = []  # the value at each point, None if there is no model
    n_from_backup = 0
    for point in range(1, n_points + 1):
        path = tmp_path / str(point) / "m"
        n_from_backup += scheme == "swap" and not path.exists()
        message = error_of(lambda path=path: modelfile.load(path))  # type: ignore[misc]
        if message is None:
            found.append(value_of(modelfile.load(path)))
            # Also where the path is missing, there is a model.
            with pytest.raises(ModelError, match="already exists"):
                save(path, 3)
        else:
            assert "the path does not exist" in message
            found.append(None)
        save(path, 3, force=True)
        assert value_of(modelfile.load(path)) == 3
        assert os.listdir(path.parent) == ["m"]
    before, after = (None, 2) if scheme == "first" else (1, 2)
    n_before = found.index(after)
    assert found == [before] * n_before + [after] * (n_points - n_before)
    assert n_before >= 14
    assert n_points - n_before >= (2 if scheme == "first" else 10)
    if scheme == "swap":
        assert n_from_backup >= 2


def test_directory_of_a_running_save_is_left_alone(path: Path) -> None:
    with replacing.staged(path, lambda target: None) as running:
        save(path, 2, force=True)
        assert running.is_dir()
    assert hidden(path.parent) == []


def test_only_what_a_crash_left_is_removed(path: Path) -> None:
    kept = [".knee.labelry", ".knee.labelry.tmp-1", ".other.labelry-tmp-1-00", "knee.labelry.old"]
    for name in [*kept, ".knee.labelry.labelry-tmp-1-00", ".knee.labelry.labelry-old"]:
        path.with_name(name).mkdir()
        (path.with_name(name) / "file").write_text("")
    save(path, 2, force=True)
    assert sorted(os.listdir(path.parent)) == sorted([*kept, "knee.labelry"])


# ---- several at once ------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", [True, False])
def test_replaced_while_loading(
    path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    """The header of the old model is never joined with the arrays of the new one."""
    if not exchange:
        monkeypatch.setattr(replacing, "_exchange", lambda a, b: False)

    def replace(value: int) -> None:  # no checksum but that of the array's data tells them apart
        modelfile.save(
            path,
            system="s",
            parameters={"value": value},
            state={},
            arrays={"a": np.full(3, value)},
            label_names=None,
            force=True,
        )

    map_arrays = modelfile._map_arrays
    new_values = iter([2, 3])

    def replace_first(file: Path, header: dict[str, Any]) -> dict[str, Any]:
        if (value := next(new_values, None)) is not None:
            replace(value)
        return map_arrays(file, header)

    replace(1)
    monkeypatch.setattr(modelfile, "_map_arrays", replace_first)
    model = modelfile.load(path, verify=False)
    assert model.parameters == {"value": 3}
    assert model.arrays["a"].tolist() == [3, 3, 3]


def test_savers_and_readers_at_once(path: Path) -> None:
    save(path.with_name("other"), 2)
    if not replacing._exchange(path, path.with_name("other")):
        pytest.skip("this filesystem cannot exchange two names")
    errors: list[BaseException] = []

    def repeat(function: Callable[[], object]) -> None:
        try:
            for _ in range(15):
                function()
        except BaseException as error:
            errors.append(error)

    jobs: list[Callable[[], object]] = [
        lambda: save(path, 3, force=True),
        lambda: save(path, 4, force=True),
        lambda: value_of(modelfile.load(path)),
        lambda: modelfile.inspect(path),
    ]
    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert value_of(modelfile.load(path)) in (3, 4)
    assert hidden(path.parent) == []
