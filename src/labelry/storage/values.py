"""Convert fitted values to plain data and back, by the declarations of their fields.

A fitted value is a frozen dataclass or a named tuple. Its annotations say what each field holds:

    class LinearMap(NamedTuple):
        coef: Annotated[F32, "n_features", "embedding_dim"]
        intercept: Annotated[F32, "embedding_dim"]

`pack` turns a value into JSON and named arrays. `unpack` reads it back and refuses what does not
fit: another type, another shape, an index that is out of range. So no class has saving code of its
own. A class with a further invariant has a method ``check_stored(check)``.

Sizes are names, such as ``"n_labels"`` or ``"n_rows + 1"``. The first field that has a name binds
it; all others have to agree. A nested value takes over ``n_features`` and ``n_labels``, and what
`Sizes` says. `Indices` and `Pointers` say what the numbers of an array may be.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry import memory
from labelry.checks import INTEGERS, StoredCheck, is_among
from labelry.errors import ModelError

NamedArrays = dict[str, NDArray[Any]]

_KIND = "is"  # key that says what a JSON object stands for
_ALSO = {(int, float), (list, tuple)}  # a JSON value of the first type may be of the second
_CSR = ("data", "indices", "indptr")
_MUCH = 1 << 26  # bytes of text from which on the memory is checked first; not tuned
_SIZE = re.compile(r"(\w+)(?: \+ (\d+))?")
_SHARED = ("n_features", "n_labels")  # sizes that a nested value has in common with the outer one


class Indices(NamedTuple):
    """The numbers of an array are from `least` to below the size named `below`."""

    below: str
    least: int = 0


class Pointers(NamedTuple):
    """The numbers of an array rise from 0 to the size named `end`, by at least `least_step`."""

    end: str
    least_step: int = 0


class AtLeast(NamedTuple):
    """A number is at least this."""

    least: float


class Sizes:
    """The names that sizes of a nested value have outside of it; None: no common name.

    For example, in ``Annotated[Neighbours, Sizes(n_features="embedding_dim")]`` the features of the
    neighbours are the dimensions of the embedding.
    """

    def __init__(self, **names: str | int | None) -> None:
        self.names: dict[str, str | int | None] = {**{name: name for name in _SHARED}, **names}


# ---- writing -----------------------------------------------------------------------------------


def pack(value: Any, name: str, arrays: NamedArrays) -> Any:
    """Return plain JSON for `value`, and put its arrays into `arrays` under `name`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "UO":
            return {_KIND: "strings", "dtype": value.dtype.kind, "values": value.tolist()}
        arrays[name] = value
        return {_KIND: "array"}
    if issparse(value):
        for part in _CSR:
            arrays[f"{name}.{part}"] = getattr(value, part)
        return {_KIND: "csr", "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {key: pack(item, f"{name}.{key}", arrays) for key, item in value.items()}
    if hasattr(value, "to_state"):
        state, own = value.to_state()
        arrays |= {f"{name}.{key}": array for key, array in own.items()}
        return {_KIND: type(value).__name__, "state": state, "arrays": list(own)}
    if _has_fields(value):
        parts = {
            key: pack(getattr(value, key), f"{name}.{key}", arrays) for key in _field_names(value)
        }
        return {_KIND: type(value).__name__} | parts
    if isinstance(value, list | tuple):
        if all(type(item) is str for item in value):  # one leaf, because a vocabulary may be long
            return list(value)
        return [pack(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    raise ModelError(f"cannot save {name}: a {type(value).__name__} is not plain data")


def _has_fields(value: Any) -> bool:
    """Return whether `value` is a dataclass or a named tuple, or an instance of one."""
    return dataclasses.is_dataclass(value) or hasattr(value, "_fields")


def _field_names(value: Any) -> list[str]:
    return list(getattr(value, "_fields", ())) or [each.name for each in dataclasses.fields(value)]


# ---- reading -----------------------------------------------------------------------------------


def unpack(
    hint: Any,
    value: Any,
    name: str,
    arrays: Mapping[str, NDArray[Any]],
    sizes: dict[str, int],
    check: StoredCheck,
) -> Any:
    """Return the value of type `hint` that `pack` turned into JSON and arrays.

    `sizes` holds the known sizes, and gets the sizes that are found. Raises a ValueError, TypeError
    or LookupError if the data does not fit the type.
    """
    return _Reader(arrays, check).read(_options(hint), value, name, sizes)


def unpack_plain(value: Any, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that `pack` wrote, without a type to check it against.

    Tuples, named tuples and dataclasses come back as lists. Use it only for files that labelry
    wrote for itself, because little is checked.
    """
    if isinstance(value, list):
        return [unpack_plain(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind == "array":
        return arrays[name]
    if kind == "strings":
        return text_array(value["values"], value["dtype"])
    if kind == "csr":
        return csr_array(
            tuple(arrays[f"{name}.{part}"] for part in _CSR), shape=tuple(value["shape"])
        )
    parts = {key: item for key, item in value.items() if key != _KIND}
    found = {key: unpack_plain(item, f"{name}.{key}", arrays) for key, item in parts.items()}
    return found if kind is None else list(found.values())


class _Option(NamedTuple):
    """One of the types that a value may have."""

    kind: Any  # a class, or Literal
    arguments: tuple[Any, ...] = ()  # of list[...], Literal[...], and so on
    marks: tuple[Any, ...] = ()  # the shape of an array (names of sizes), `Indices`, ...

    @property
    def shape(self) -> list[str]:
        return [mark for mark in self.marks if isinstance(mark, str)]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes that an array may have; "strings" stands for texts."""
        if self.kind is not np.ndarray:
            return ()
        (scalar,) = get_args(self.arguments[1])
        if scalar is np.integer:
            return INTEGERS
        if scalar in (np.object_, np.str_):
            return ("strings",)
        if isinstance(scalar, type) and issubclass(scalar, np.generic):
            return (np.dtype(scalar).name,)
        return (*INTEGERS, "strings", "float32", "float64", "bool")  # any dtype

    def takes(self, value: Any) -> bool:
        """Return whether plain data is of this type."""
        if self.kind is Literal:
            return is_among(value, self.arguments)
        return self.kind is type(value) or (type(value), self.kind) in _ALSO


Options = tuple[_Option, ...]


@cache
def _options(hint: Any) -> Options:
    """Return the types that a hint allows."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = arguments[1:]
        return tuple(each._replace(marks=each.marks + marks) for each in _options(arguments[0]))
    if origin in (Union, types.UnionType):
        return tuple(chain.from_iterable(map(_options, arguments)))
    if hint is Any:  # a `Matrix`, sparse or dense
        return _options(csr_array) + _options(NDArray[np.float32])
    return (_Option(origin or hint, arguments),)


@cache
def _fields(cls: Any) -> dict[str, Options]:
    """Return what the fields of a dataclass or a named tuple may hold."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _options(hints[name]) for name in _field_names(cls)}


class _Reader:
    """Reads the values of one file."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], check: StoredCheck) -> None:
        self.arrays = arrays
        self.check = check

    def read(self, options: Options, value: Any, name: str, sizes: dict[str, int]) -> Any:
        if isinstance(value, dict) and isinstance(value.get(_KIND), str):
            return self._read_marked(options, value, name, sizes)
        for option in options:
            if option.takes(value):
                return self._read_plain(option, value, name, sizes)
        raise ValueError(f"{name} must not be {_shortened_repr(value)}")

    def _read_plain(self, option: _Option, value: Any, name: str, sizes: dict[str, int]) -> Any:
        kind, arguments = option.kind, option.arguments
        if kind in (int, float):
            least = next((mark.least for mark in option.marks if isinstance(mark, AtLeast)), None)
            if kind is int:
                self.check.whole(name, value, -(2**31) if least is None else int(least))
            else:
                self.check.number(name, value, -np.inf if least is None else least)
            return kind(value)  # a kernel takes a float where one is declared
        if kind is dict:
            inner = _options(arguments[1])
            return {k: self.read(inner, item, f"{name}.{k}", sizes) for k, item in value.items()}
        if kind not in (list, tuple):
            return value
        if kind is list or Ellipsis in arguments:
            arguments = arguments[:1] * len(value)
        if len(arguments) != len(value):
            raise ValueError(f"{name} must have {len(arguments)} entries, got {len(value)}")
        pairs = enumerate(zip(map(_options, arguments), value, strict=True))
        return kind([self.read(each, item, f"{name}.{i}", sizes) for i, (each, item) in pairs])

    def _read_marked(
        self, options: Options, value: dict[str, Any], name: str, sizes: dict[str, int]
    ) -> Any:
        kind = value[_KIND]
        dtypes = [dtype for option in options for dtype in option.dtypes]
        if kind == "array" and dtypes:
            array = self.arrays[name]
            if array.dtype.name not in dtypes:
                raise ValueError(f"{name} must be {' or '.join(dtypes)}, got {array.dtype}")
            option = next(option for option in options if array.dtype.name in option.dtypes)
            _check_array_shape(option, array.shape, name, sizes)
            return array
        for option in options:
            if kind == "csr" and option.kind is csr_array:
                return self._csr(option, value["shape"], name, sizes)
            if kind == "strings" and "strings" in option.dtypes:
                found = text_array(value["values"], value["dtype"])
                _check_array_shape(option, found.shape, name, sizes)
                return found
            if hasattr(option.kind, "from_state") and kind == option.kind.__name__:
                own = {key: self.arrays[f"{name}.{key}"] for key in value["arrays"]}
                return option.kind.from_state(value["state"], own)
            if _has_fields(option.kind) and kind == option.kind.__name__:
                return self._whole(option, value, name, sizes)
        known = ", ".join(getattr(option.kind, "__name__", "other data") for option in options)
        raise ValueError(f"{name} must be {known}, got {kind}")

    def _whole(
        self, option: _Option, value: dict[str, Any], name: str, outer: dict[str, int]
    ) -> Any:
        """Read a value by its fields."""
        names = next((mark for mark in option.marks if isinstance(mark, Sizes)), Sizes()).names
        sizes = {
            inside: outside if isinstance(outside, int) else outer[outside]
            for inside, outside in names.items()
            if isinstance(outside, int) or (outside is not None and outside in outer)
        }
        fields = _fields(option.kind)
        if set(value) != {_KIND, *fields}:
            raise ValueError(
                f"{name} must have the fields {', '.join(fields)}; got {_shortened_repr(value)}"
            )
        found = {}
        for key, options in fields.items():
            found[key] = self.read(options, value[key], f"{name}.{key}", sizes)
            if type(found[key]) is int:  # such as n_labels of a tree
                _bind(key, found[key], f"{name}.{key}", sizes)
        for key, options in fields.items():  # now all sizes are known
            self._check_numbers(options, found[key], f"{name}.{key}", sizes)
        whole = option.kind(**found)
        if hasattr(whole, "check_stored"):
            whole.check_stored(self.check)
        for inside, outside in names.items():
            if isinstance(outside, str) and inside in sizes:
                outer.setdefault(outside, sizes[inside])
        return whole

    def _csr(self, option: _Option, shape: Any, name: str, sizes: dict[str, int]) -> csr_array:
        data, indices, indptr = (self.arrays[f"{name}.{part}"] for part in _CSR)
        n_rows, n_columns = shape
        for size in (n_rows, n_columns):
            self.check.whole(f"{name}.shape", size)
        _check_array_shape(option, (n_rows, n_columns), name, sizes)
        # Checked before scipy sees them: a forged shape could take any amount of memory.
        self.check.array(f"{name}.data", data, data.size)
        self.check.pointers(f"{name}.indptr", indptr, n_rows, data.size)
        self.check.indices(f"{name}.indices", indices, data.size, n_columns)
        return csr_array((data, indices, indptr), shape=(n_rows, n_columns))

    def _check_numbers(
        self, options: Options, value: Any, name: str, sizes: dict[str, int]
    ) -> None:
        """Check the numbers of an array that are indices or pointers into another one."""
        if not isinstance(value, np.ndarray):
            return
        dtype = value.dtype.name
        for mark in chain.from_iterable(option.marks for option in options if option.dtypes):
            if isinstance(mark, Indices):
                flat, end = value.reshape(-1), _known_size(mark.below, name, sizes)
                self.check.indices(name, flat, value.size, end, least=mark.least, dtype=dtype)
            elif isinstance(mark, Pointers):
                size, end, step = (
                    len(value) - 1,
                    _known_size(mark.end, name, sizes),
                    mark.least_step,
                )
                self.check.pointers(name, value, size, end, least_step=step, dtype=dtype)


def _check_array_shape(
    option: _Option, shape: tuple[int, ...], name: str, sizes: dict[str, int]
) -> None:
    """Compare a shape with the declared one, and bind the names of new sizes."""
    declared = option.shape
    if not declared:
        raise TypeError(f"{name} is declared without a shape")
    pairs = list(zip(declared, shape, strict=False))
    if len(shape) != len(declared) or any(
        said.isdigit() and int(said) != size for said, size in pairs
    ):
        raise ValueError(f"{name} must be of shape ({', '.join(declared)}), got {shape}")
    for said, size in pairs:
        if not said.isdigit():
            base, more = _size(said)
            _bind(base, size - more, name, sizes)


def _bind(name: str, size: int, where: str, sizes: dict[str, int]) -> None:
    """Store a size under its name; raise a ValueError if the name has another size."""
    if size < 0 or sizes.setdefault(name, size) != size:
        raise ValueError(f"{where} must fit {name}, {sizes.get(name, 0)}; got {size}")


def _size(declared: str) -> tuple[str, int]:
    found = _SIZE.fullmatch(declared)
    if found is None:
        raise TypeError(f"{declared!r} is not the name of a size")
    return found[1], int(found[2] or 0)


def _known_size(declared: str, where: str, sizes: dict[str, int]) -> int:
    base, more = _size(declared)
    if base not in sizes:
        raise TypeError(f"{where} is declared by {base}, which no field has")
    return sizes[base] + more


def _shortened_repr(value: Any) -> str:
    return f"{value!r}"[:80]


def text_array(values: list[Any], dtype: str) -> NDArray[Any]:
    """Return an array of texts, or of texts and None."""
    if dtype not in ("U", "O"):
        raise ModelError(f"the model holds strings of dtype {dtype!r}; expected U or O")
    if not isinstance(values, list) or not all(v is None or type(v) is str for v in values):
        raise ModelError("the model holds strings that are no texts")
    if dtype == "U":  # a single long text makes all entries as wide
        size = 4 * len(values) * max((len(str(value)) for value in values), default=0)
        if size > _MUCH:
            memory.require(size, f"an array of {len(values):,} texts", "train with lists of labels")
    return np.array(values, dtype=dtype)
