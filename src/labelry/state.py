"""Fitted values to and from plain data: JSON with references to named arrays.

A fitted estimator is its attributes that end in ``_``. Arrays and sparse matrices go into a
table of arrays, by dotted name; everything else must be JSON, a registered named tuple or data
class (`storable`), or an object with ``to_state`` and ``from_state``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelry import memory
from labelry.errors import ModelError

Arrays = dict[str, NDArray[Any]]
C = TypeVar("C", bound=type)

_STORABLE: dict[str, type] = {}
_MUCH = 1 << 26  # bytes, above which it is asked whether there is so much memory
_KIND = "__kind__"  # marks a JSON object that stands for something else


def storable(cls: C) -> C:
    """Class decorator: values of this named tuple, data class or stateful class may be saved."""
    _STORABLE[cls.__name__] = cls
    return cls


def fitted_attributes(estimator: object) -> dict[str, Any]:
    """The attributes that fitting made: public names that end in an underscore."""
    return {
        name: value
        for name, value in sorted(vars(estimator).items())
        if name.endswith("_") and not name.startswith("_")
    }


def set_fitted(estimator: object, fitted: Mapping[str, Any]) -> None:
    """Give an estimator what `fitted_attributes` took from it, and nothing else.

    A file that names a method or a private attribute is refused.
    """
    for name, value in fitted.items():
        if not name.endswith("_") or name.startswith("_"):
            raise ModelError(f"{name!r} is no name of a fitted attribute")
        setattr(estimator, name, value)


def pack(value: Any, name: str, arrays: Arrays) -> Any:
    """Plain JSON for `value`; arrays that it holds are put into `arrays` under `name`."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "UO":
            return {_KIND: "strings", "dtype": value.dtype.kind, "values": value.tolist()}
        arrays[name] = value
        return {_KIND: "array", "name": name}
    if issparse(value):
        for part in ("data", "indices", "indptr"):
            arrays[f"{name}.{part}"] = getattr(value, part)
        return {_KIND: "csr", "name": name, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {key: pack(item, f"{name}.{key}", arrays) for key, item in value.items()}
    if type(value).__name__ in _STORABLE:
        return {_KIND: type(value).__name__, "fields": pack(_parts(value), name, arrays)}
    if isinstance(value, (list, tuple)):
        return [pack(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    raise ModelError(f"cannot save {name}: a {type(value).__name__} is not plain data")


def unpack(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value that `pack` turned into JSON and arrays."""
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {key: unpack(item, arrays) for key, item in value.items()}
    if kind == "array":
        return arrays[value["name"]]
    if kind == "strings":
        return texts(value["values"], value["dtype"])
    if kind == "csr":
        parts = [arrays[f"{value['name']}.{part}"] for part in ("data", "indices", "indptr")]
        return csr_array(tuple(parts), shape=tuple(value["shape"]))
    if not isinstance(kind, str) or kind not in _STORABLE:
        raise ModelError(f"the model holds a {kind}, which this version of labelry does not know")
    return _whole(_STORABLE[kind], unpack(value["fields"], arrays))


def _parts(value: Any) -> dict[str, Any]:
    if hasattr(value, "to_state"):
        state, arrays = value.to_state()
        return {"state": state, "arrays": arrays}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(value, "get_params"):
        return {"params": value.get_params(deep=False), "fitted": fitted_attributes(value)}
    return dict(value._asdict())


def _whole(cls: Any, parts: dict[str, Any]) -> Any:
    if hasattr(cls, "from_state"):
        return cls.from_state(parts["state"], parts["arrays"])
    if hasattr(cls, "get_params"):
        estimator = cls(**parts["params"])
        set_fitted(estimator, parts["fitted"])
        return estimator
    return cls(**parts)


def texts(values: list[Any], dtype: str) -> NDArray[Any]:
    """An array of texts, or of texts and None, of which a file may not say how wide it is."""
    if dtype not in ("U", "O"):
        raise ModelError(f"the model holds strings of dtype {dtype!r}; expected U or O")
    if dtype == "U":  # one long text makes all entries as wide
        size = 4 * len(values) * max((len(str(value)) for value in values), default=0)
        if size > _MUCH:
            memory.require(size, f"an array of {len(values):,} texts", "train with lists of labels")
    return np.array(values, dtype=dtype)
