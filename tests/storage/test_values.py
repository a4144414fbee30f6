"""Fitted values written and read by what their fields declare."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelry.checks import StoredCheck
from labelry.errors import ModelError
from labelry.storage.values import AtLeast, Indices, Pointers, Sizes, pack, unpack

F32 = NDArray[np.float32]


class Part(NamedTuple):
    """Lists of rows, one after the other."""

    bounds: Annotated[NDArray[np.int64], "n_lists + 1", Pointers("n_rows")]
    rows: Annotated[NDArray[np.int32], "n_rows", Indices("n_labels")]
    centre: Annotated[F32, "n_lists", "n_features"]


@dataclass(frozen=True, eq=False)
class Whole:
    """One field of each kind."""

    parts: tuple[Annotated[Part, Sizes(n_features="dim")], ...]
    vectors: Annotated[F32, "n_labels", "dim"]
    weights: Annotated[csr_array | F32, "n_features", "n_labels"]
    pairs: Annotated[NDArray[np.uint8] | NDArray[np.int32], "n_pairs", "2"]
    names: Annotated[NDArray[np.object_], "n_labels"]
    dim: int
    beam: Annotated[int, AtLeast(1)]
    scale: float
    link: Literal["softmax", "sigmoid"]
    scores: dict[str, float]
    words: list[str]
    mask: Annotated[NDArray[np.bool_], "n_labels"] | None = None

    def check_stored(self, check: StoredCheck) -> None:
        if self.scale == 13:
            raise ValueError("scale must not be 13")


def part(n_labels: int = 3) -> Part:
    rows = np.array([0, 2, 1, 2], dtype=np.int32)
    return Part(np.array([0, 1, 4]), rows, np.ones((2, 4), dtype=np.float32))


def whole() -> Whole:
    return Whole(
        parts=(part(), part()),
        vectors=np.ones((3, 4), dtype=np.float32),
        weights=csr_array(np.eye(5, 3, dtype=np.float32)),
        pairs=np.zeros((7, 2), dtype=np.uint8),
        names=np.array(["a", "b", None], dtype=object),
        dim=4,
        beam=1,
        scale=0.5,
        link="softmax",
        scores={"tree": 0.5},
        words=["knee", "日本"],
    )


def plain() -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = {}
    return json.loads(json.dumps(pack(whole(), "value", arrays))), arrays


def read(value: Any, arrays: dict[str, Any], *, values: bool = True) -> Whole:
    sizes = {"n_features": 5, "n_labels": 3}
    return unpack(Whole, value, "value", arrays, sizes, StoredCheck(values=values))


def test_what_is_written_is_read() -> None:
    found, expected = read(*plain()), whole()
    for each in fields(Whole):
        ours, theirs = getattr(found, each.name), getattr(expected, each.name)
        if each.name == "parts":
            for a, b in zip(ours, theirs, strict=True):
                assert type(a) is Part
                for x, y in zip(a, b, strict=True):
                    assert_array_equal(x, y)
        elif each.name == "weights":
            assert_array_equal(ours.toarray(), theirs.toarray())
        else:
            assert_array_equal(ours, theirs)
    assert json.dumps(plain()[0]["words"], ensure_ascii=False) == '["knee", "日本"]'  # one leaf


@pytest.mark.parametrize(
    ("place", "new"),
    [
        ("dim", 5),
        ("dim", "4"),
        ("beam", 0),
        ("beam", 2**31),
        ("scale", None),
        ("scale", 13),
        ("link", "tanh"),
        ("scores", {"tree": "much"}),
        ("words", [["knee"]]),
        ("names", {"is": "strings", "dtype": "O", "values": ["a", "b"]}),
        ("names", {"is": "strings", "dtype": "S", "values": ["a", "b", "c"]}),
        ("names", {"is": "strings", "dtype": "O", "values": ["a", "b", {}]}),
        ("vectors", None),
        ("vectors", {"is": "csr", "shape": [3, 4]}),
        ("weights", {"is": "csr", "shape": [5, 4]}),
        ("weights", {"is": "csr", "shape": [5, -3]}),
        ("weights", {"is": "csr", "shape": [5, 2**70]}),
        ("weights", {"is": "csr"}),
        ("parts", []),
        ("parts", [1]),
        ("mask", {"is": "array"}),
        ("is", "Part"),
        ("more", 1),
    ],
)
def test_other_plain_data_is_refused(place: str, new: Any) -> None:
    value, arrays = plain()
    if place == "parts" and new == []:  # no part at all is a tuple too
        assert read(value | {"parts": []}, arrays).parts == ()
        return
    with pytest.raises((ValueError, TypeError, LookupError)):
        read(value | {place: new}, arrays)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("value.vectors", lambda a: a[:2]),
        ("value.vectors", lambda a: a.astype(np.float64)),
        ("value.vectors", lambda a: a[None]),
        ("value.pairs", lambda a: a[:, :1]),
        ("value.pairs", lambda a: a.astype(np.int8)),
        ("value.parts.0.bounds", lambda a: a[::-1].copy()),
        ("value.parts.0.bounds", lambda a: a + 1),
        ("value.parts.0.rows", lambda a: a + 1),
        ("value.parts.1.rows", lambda a: a - 1),
        ("value.parts.1.centre", lambda a: a[:, :3]),
        ("value.weights.indices", lambda a: a + 1),
        ("value.weights.indptr", lambda a: a - 1),
        ("value.weights.data", lambda a: a[:1]),
    ],
)
def test_other_arrays_are_refused(name: str, change: Any) -> None:
    value, arrays = plain()
    with pytest.raises((ValueError, TypeError), match=r"value\."):
        read(value, arrays | {name: change(arrays[name])})
    del arrays[name]
    with pytest.raises(LookupError):
        read(value, arrays)


def test_numbers_are_not_looked_at_where_they_are_trusted() -> None:
    value, arrays = plain()
    rows = arrays["value.parts.0.rows"] + 1
    read(value, arrays | {"value.parts.0.rows": rows}, values=False)


def test_parts_have_sizes_of_their_own() -> None:
    value, arrays = plain()
    arrays["value.parts.1.centre"] = np.ones((1, 4), dtype=np.float32)
    arrays["value.parts.1.bounds"] = np.array([0, 4])
    assert [len(part.centre) for part in read(value, arrays).parts] == [2, 1]


def test_only_plain_data_is_saved() -> None:
    with pytest.raises(ModelError, match=r"cannot save value\.x: a object is not plain data"):
        pack({"x": object()}, "value", {})


def test_values_stay_as_they_are() -> None:
    value, arrays = plain()
    before = copy.deepcopy(value)
    read(value, arrays)
    assert value == before
